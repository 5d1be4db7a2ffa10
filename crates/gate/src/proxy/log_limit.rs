//! Lines of the log that anybody can bring about, however often he likes: so many a second are written.

use crate::clock;
use backwater_model::{Moment, Span};
use std::sync::{Mutex, PoisonError};

/// Enough to see who comes and why it is in vain; a day of them is some hundreds of megabytes.
const LINES: u32 = 20;
const WITHIN: Span = Span::from_millis(1_000);

/// How many were written since when.
#[derive(Debug, Default)]
pub(super) struct LogLimit(Mutex<Option<(Moment, u32)>>);

impl LogLimit {
    /// Writes a line that tells of a refusal. Where there were too many, it is said once in that second that there are more.
    pub(super) fn refusal(&self, write: impl FnOnce()) {
        match self.nth(clock::now()) {
            nth if nth <= LINES => write(),
            nth if nth == LINES + 1 => {
                tracing::warn!(
                    "more is refused than is logged: {LINES} lines a second (SHOW STATS counts all that the proxy refuses, as refused_since_start)"
                );
            }
            _ => {}
        }
    }

    /// The how manieth this is of its second, which begins with the first after the one before.
    fn nth(&self, now: Moment) -> u32 {
        let mut second = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (began, before) = second.filter(|(began, _)| now - *began < WITHIN).unwrap_or((now, 0));
        let nth = before.saturating_add(1);
        *second = Some((began, nth));
        nth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_are_written_in_a_second_and_as_many_in_the_next() {
        let limit = LogLimit::default();
        let at = |ms: i64| limit.nth(Moment(5_000_000 + ms * 1_000));
        assert_eq!([at(0), at(0), at(999)], [1, 2, 3]);
        assert_eq!([at(1_000), at(1_500), at(1_999)], [1, 2, 3]);
        assert_eq!(at(9_000), 1);
    }

    #[test]
    fn what_is_beyond_them_is_not_written() {
        let limit = LogLimit::default();
        let mut written = 0;
        let began = clock::now();
        (0..10_000).for_each(|_| limit.refusal(|| written += 1));
        let seconds = (clock::now() - began).0 / WITHIN.0 + 1;
        assert!(written >= LINES && i64::from(written) <= i64::from(LINES) * seconds, "{written} in {seconds} s");
    }
}
