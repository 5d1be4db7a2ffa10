//! What is due at a look besides sessions.

use backwater_model::{Moment, Span};

/// One thing that is read again and again.
#[derive(Clone, Debug)]
pub(super) struct Entry<T> {
    pub(super) task: T,
    period: Span,
    next: Moment,
    off: bool,
}

/// How much longer a reading that failed is left alone.
const FAILING_FACTOR: i64 = 10;

/// How much longer one that had nothing to tell is.
const EMPTY_FACTOR: i64 = 5;

impl<T> Entry<T> {
    /// Read every `period`, the first time after `offset`.
    pub(super) fn new(task: T, start: Moment, offset: Span, period: Span) -> Self {
        Entry { task, period, next: start + offset, off: false }
    }

    /// Whether it is due; if so, the next time is set. What was slept through is not made up for.
    pub(super) fn is_due(&mut self, now: Moment) -> bool {
        // A tick may come a little early by the clock of the last one.
        let tolerance = Span::from_millis(10);
        if self.off || now + tolerance < self.next {
            return false;
        }
        self.next = self.next + self.period;
        if self.next <= now {
            self.next = now + self.period;
        }
        true
    }

    /// Notes that it failed.
    pub(super) fn failed(&mut self, now: Moment) {
        self.next = now + Span(self.period.0 * FAILING_FACTOR);
    }

    /// Notes that there was nothing to be read.
    pub(super) fn was_empty(&mut self, now: Moment) {
        self.next = now + Span(self.period.0 * EMPTY_FACTOR);
    }

    /// Not to be read again on this connection.
    pub(super) fn turn_off(&mut self) {
        self.off = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(entry: &mut Entry<()>, from_ms: i64, to_ms: i64) -> usize {
        (from_ms..to_ms).step_by(100).filter(|ms| entry.is_due(Moment(ms * 1000))).count()
    }

    #[test]
    fn due_once_a_period_and_never_in_a_burst() {
        let mut entry = Entry::new((), Moment(0), Span::from_millis(300), Span::from_millis(1000));
        assert_eq!(due(&mut entry, 0, 300), 0);
        assert_eq!(due(&mut entry, 300, 10_300), 10);
        assert_eq!(due(&mut entry, 60_000, 60_900), 1);
    }

    #[test]
    fn failing_readings_are_left_alone_for_longer() {
        let mut entry = Entry::new((), Moment(0), Span(0), Span::from_millis(1000));
        assert!(entry.is_due(Moment(0)));
        entry.failed(Moment(0));
        assert_eq!((due(&mut entry, 100, 9_900), due(&mut entry, 9_900, 10_100)), (0, 1));
        entry.was_empty(Moment(20_000_000));
        assert_eq!((due(&mut entry, 20_100, 24_900), due(&mut entry, 24_900, 25_100)), (0, 1));
        entry.turn_off();
        assert_eq!(due(&mut entry, 100_000, 200_000), 0);
    }
}
