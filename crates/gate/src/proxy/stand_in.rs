//! By which of its addresses the server is reached first. One that answered where another before it did not stands in
//! for that one for a while, or every login would wait for the dead one anew. Time is an argument.

use backwater_model::{Moment, Span};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// For so long it is tried first. Whoever comes first by the resolver is meant to be reached first, and may be back:
/// one login in this time tries that, and waits (`connect_timeout_s`) where it is not.
const STANDS_IN_FOR: Span = Span::from_millis(30_000);

/// The address that stands in for others, and until when.
#[derive(Debug, Default)]
pub(super) struct StandIn(Mutex<Option<(SocketAddr, Moment)>>);

impl StandIn {
    /// The order in which these are tried now, as they come from the resolver.
    pub(super) fn order(&self, mut addresses: Vec<SocketAddr>, now: Moment) -> Vec<SocketAddr> {
        let mut known = self.lock();
        let Some((stands_in, until)) = &mut *known else { return addresses };
        if now >= *until {
            // Whoever comes while this one tries the resolver's order does not wait as well.
            *until = now + STANDS_IN_FOR;
        } else if let Some(place) = addresses.iter().position(|address| *address == *stands_in) {
            addresses[..=place].rotate_right(1);
        }
        addresses
    }

    /// This one of them answered, tried in this order.
    pub(super) fn answered(&self, address: SocketAddr, tried: &[SocketAddr], now: Moment) {
        let mut known = self.lock();
        if tried.first() != Some(&address) {
            *known = Some((address, now + STANDS_IN_FOR));
        } else if known.is_some_and(|(stands_in, _)| stands_in != address) {
            *known = None;
        }
    }

    /// A panic elsewhere leaves it whole: it is changed in single steps.
    fn lock(&self) -> MutexGuard<'_, Option<(SocketAddr, Moment)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 5432))
    }

    fn at(second: i64) -> Moment {
        Moment(second * 1_000_000)
    }

    #[test]
    fn who_answered_for_a_dead_one_is_tried_first_and_one_login_in_so_long_asks_whether_that_is_back() {
        let [dead, other, third] = [1, 2, 3].map(address);
        let (resolved, stand_in) = ([dead, other, third], StandIn::default());
        let order = |second| stand_in.order(resolved.to_vec(), at(second));
        assert_eq!(order(0), resolved);
        stand_in.answered(third, &resolved, at(10));
        let stood_in_for = [third, dead, other];
        assert_eq!(order(10), stood_in_for);
        // An answer of its own makes it no longer.
        stand_in.answered(third, &stood_in_for, at(39));
        assert_eq!(order(39), stood_in_for);
        assert_eq!(order(40), resolved, "one tries it");
        assert_eq!(order(40), stood_in_for, "and the others do not wait for it");
        stand_in.answered(third, &resolved, at(50));
        assert_eq!((order(79), order(80)), (stood_in_for.to_vec(), resolved.to_vec()));
        // It is back.
        stand_in.answered(dead, &resolved, at(80));
        assert_eq!(order(80), resolved);
    }

    #[test]
    fn while_the_first_ones_answer_the_order_is_the_resolvers() {
        let (stand_in, [one, other]) = (StandIn::default(), [1, 2].map(address));
        for resolved in [[one, other], [other, one]] {
            stand_in.answered(resolved[0], &resolved, at(0));
            assert_eq!(stand_in.order(resolved.to_vec(), at(0)), resolved);
        }
    }

    #[test]
    fn one_that_dies_too_is_stood_in_for_and_one_that_the_name_has_no_more_is_not_tried() {
        let (stand_in, [dead, other, third]) = (StandIn::default(), [1, 2, 3].map(address));
        stand_in.answered(other, &[dead, other, third], at(0));
        let tried = stand_in.order(vec![dead, other, third], at(1));
        assert_eq!(tried, [other, dead, third]);
        stand_in.answered(third, &tried, at(21));
        assert_eq!(stand_in.order(vec![dead, other, third], at(22)), [third, dead, other]);
        assert_eq!(stand_in.order(vec![dead, other], at(22)), [dead, other]);
    }
}
