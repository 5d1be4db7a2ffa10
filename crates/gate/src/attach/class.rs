//! A whole class's rate, divided among its sockets: max-min fair. Whoever wants little gets a little more than it used
//! of late, and whoever has more to send than it may shares equally in the rest; together never more than the class.

/// No socket is paced below this: at less, a segment of 64 KiB would take minutes, and its session would seem dead.
pub const LEAST_BPS: u64 = 1_024;
/// A socket that was not held back may send this much more than it used of late, before the next division sees it.
const HEADROOM: f64 = 1.25;

/// What one socket did since the last division.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Bytes a second that it sent.
    pub used_bps: f64,
    /// Whether it has more to send than it may: something stands in its queue, and its client takes it.
    pub backlogged: bool,
}

impl Usage {
    /// Whether it sent nothing. It may be told more than its share: a kernel that sends 64 KiB at once, at whatever rate, would let
    /// whoever begins at [`LEAST_BPS`] wait for a minute before the next ones, and a rate that is raised meanwhile changes nothing.
    pub fn is_idle(&self) -> bool {
        !self.backlogged && self.used_bps < 1.0
    }
}

/// Divides `total_bps`; each gets at most `most_each_bps`, where that is given, and at least [`LEAST_BPS`]. The sum is
/// more than the total only where the total is less than so many of the least.
pub fn divide(total_bps: u64, most_each_bps: Option<u64>, usages: &[Usage]) -> Vec<u64> {
    let most = most_each_bps.unwrap_or(u64::MAX).max(LEAST_BPS);
    let wants = |usage: &Usage| match usage.backlogged {
        true => most,
        false => ((usage.used_bps * HEADROOM) as u64).clamp(LEAST_BPS, most),
    };
    let mut grants = level(total_bps, &usages.iter().map(wants).collect::<Vec<_>>());
    // What nobody wants now is there for whoever begins.
    let granted: u64 = grants.iter().sum();
    if granted < total_bps && !grants.is_empty() {
        let rooms: Vec<u64> = grants.iter().map(|grant| most - grant).collect();
        for (grant, more) in grants.iter_mut().zip(level(total_bps - granted, &rooms)) {
            *grant += more;
        }
    }
    grants.into_iter().map(|grant| grant.max(LEAST_BPS)).collect()
}

/// Water-filling: everybody gets what they want up to one common level, at which the total is spent.
fn level(total: u64, wants: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_unstable_by_key(|at| wants[*at]);
    let (mut left, mut grants) = (total, vec![0; wants.len()]);
    for (done, at) in order.iter().enumerate() {
        let share = left / (wants.len() - done) as u64;
        grants[*at] = wants[*at].min(share);
        left -= grants[*at];
    }
    grants
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MB: u64 = 1_000_000;

    fn usage(used_mb: f64, backlogged: bool) -> Usage {
        Usage { used_bps: used_mb * MB as f64, backlogged }
    }

    #[test]
    fn one_alone_gets_all_and_equals_get_the_same() {
        assert_eq!(divide(20 * MB, None, &[usage(0.0, true)]), [20 * MB]);
        assert_eq!(divide(20 * MB, None, &[usage(0.0, false)]), [20 * MB]);
        assert_eq!(divide(20 * MB, Some(5 * MB), &[usage(9.0, true)]), [5 * MB]);
        assert_eq!(divide(20 * MB, None, &[usage(1.0, true), usage(19.0, true)]), [10 * MB, 10 * MB]);
        assert!(divide(20 * MB, None, &[]).is_empty());
    }

    #[test]
    fn whoever_wants_little_leaves_the_rest_to_others() {
        let grants = divide(20 * MB, None, &[usage(1.0, false), usage(5.0, true), usage(5.0, true)]);
        assert_eq!(grants, [1_250_000, 9_375_000, 9_375_000]);
        let idle = divide(20 * MB, None, &[usage(0.0, false), usage(5.0, true)]);
        assert_eq!(idle, [LEAST_BPS, 20 * MB - LEAST_BPS]);
    }

    proptest! {
        #[test]
        fn the_class_is_never_exceeded_nor_wasted(
            total in 0..10_000_000_000u64,
            most in prop::option::of(LEAST_BPS..1_000_000_000u64),
            usages in prop::collection::vec((0.0..1e9f64, any::<bool>()), 1..40),
        ) {
            let usages: Vec<_> =
                usages.into_iter().map(|(used_bps, backlogged)| Usage { used_bps, backlogged }).collect();
            let grants = divide(total, most, &usages);
            let (count, sum) = (usages.len() as u64, grants.iter().sum::<u64>());
            prop_assert!(grants.iter().all(|grant| *grant >= LEAST_BPS && *grant <= most.unwrap_or(u64::MAX)));
            prop_assert!(sum <= total.max(count * LEAST_BPS) + count * LEAST_BPS);
            if total >= 2 * count * LEAST_BPS {
                let could = most.map_or(u64::MAX, |most| most.saturating_mul(count)).min(total);
                prop_assert!(sum <= total && sum + count >= could, "{} of {}", sum, could);
            }
            // Nobody who is held back gets less than another who is.
            let held: Vec<_> = usages.iter().zip(&grants).filter(|(usage, _)| usage.backlogged).collect();
            for pair in held.windows(2) {
                prop_assert!(pair[0].1.abs_diff(*pair[1].1) <= count);
            }
        }
    }
}
