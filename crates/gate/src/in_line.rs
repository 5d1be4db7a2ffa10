//! Who stands in line before whom. A server names only those that are next: who is before them is found by asking for each in turn.

use std::collections::HashMap;

/// Of pg_stat_activity a: who waits for locks without being a client. Of a parallel query the leader's row tells it for all.
pub const WAITS_BESIDES: &str = "(a.wait_event_type = 'Lock' AND a.backend_type <> 'parallel worker')";

/// The processes that these wait for, and those that they wait for in turn, each with what was told beside it. `told` says whom
/// a process waits for.
pub(crate) fn blockers<T: Copy>(
    waiting: impl IntoIterator<Item = i32>,
    told: impl Fn(i32) -> Option<(Vec<i32>, T)>,
) -> HashMap<i32, T> {
    let (mut found, mut waiting) = (HashMap::new(), Vec::from_iter(waiting));
    while let Some(waits) = waiting.pop() {
        let Some((blocked_by, beside)) = told(waits) else { continue };
        waiting.extend(blocked_by.into_iter().filter(|pid| found.insert(*pid, beside).is_none()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_before_those_that_are_next_is_found_and_a_circle_ends() {
        let told = |pid: i32| match pid {
            1 => Some((vec![2, 3], 'a')),
            2 => Some((vec![4], 'b')),
            4 => Some((vec![2], 'c')),
            5 => Some((vec![6], 'd')),
            _ => None,
        };
        let mut found: Vec<(i32, char)> = blockers([1], told).into_iter().collect();
        found.sort_unstable();
        assert_eq!(found, [(2, 'c'), (3, 'a'), (4, 'b')]);
        assert!(blockers([3, 9], told).is_empty());
    }
}
