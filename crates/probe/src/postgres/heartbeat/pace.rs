//! When beats are due: at whole seconds from the first, however late the thread wakes.

use backwater_model::{Moment, Span};

/// Beats come this long after the ticks that wake the thread, so that waking a little late delays none.
pub(super) const LEAD: Span = Span::from_millis(20);

/// Absolute due times, one a period.
#[derive(Debug)]
pub(super) struct Pace {
    period: Span,
    origin: Option<Moment>,
    next: i64,
}

impl Pace {
    pub(super) fn new(period: Span) -> Self {
        Pace { period, origin: None, next: 0 }
    }

    /// When the next beat is due, asked at a tick: a moment to come, or one just past where the thread woke late. Beats
    /// that were slept through altogether are left out: the server missed none of them.
    pub(super) fn next(&mut self, at: Moment) -> Moment {
        let origin = *self.origin.get_or_insert(at + LEAD);
        let newest_past = (at - origin).0.div_euclid(self.period.0);
        let due = if self.next < newest_past { newest_past + 1 } else { self.next };
        self.next = due + 1;
        origin + Span(due * self.period.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_thread_is_not_forgiven_and_a_suspended_one_is() {
        let mut pace = Pace::new(Span::from_millis(1_000));
        let ms = |ms: i64| Moment(ms * 1_000);
        assert_eq!(pace.next(ms(5_001)), ms(5_021));
        assert_eq!(pace.next(ms(6_000)), ms(6_021));
        // Late by more than half a second: still that beat's own time.
        assert_eq!(pace.next(ms(7_700)), ms(7_021));
        assert_eq!(pace.next(ms(8_000)), ms(8_021));
        // An hour asleep is no beat of the server's.
        assert_eq!(pace.next(ms(3_609_500)), ms(3_610_021));
        assert_eq!(pace.next(ms(3_611_000)), ms(3_611_021));
    }
}
