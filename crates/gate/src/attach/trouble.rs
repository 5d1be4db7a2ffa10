//! What fails at one look, or at every one for hours: told when it begins, and counted.

use backwater_model::{Moment, Span};

/// What comes back within this is the trouble that was told before.
const OVER_AFTER: Span = Span::from_millis(60_000);

/// The failures of one thing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    last: Option<Moment>,
    count: u64,
}

impl Trouble {
    /// It failed, once more; whether that is to be told.
    pub(super) fn meet(&mut self, now: Moment) -> bool {
        self.count += 1;
        self.last.replace(now).is_none_or(|last| now - last >= OVER_AFTER)
    }

    /// How often it failed in all.
    pub(super) fn count(self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_or_comes_back_soon_is_told_once_and_counted_each_time() {
        let mut trouble = Trouble::default();
        let told = |trouble: &mut Trouble, seconds: &[i64]| {
            let told = seconds.iter().filter(|second| trouble.meet(Moment(**second * 1_000_000)));
            told.copied().collect::<Vec<_>>()
        };
        assert_eq!(told(&mut trouble, &[0, 1, 2, 30, 31, 89]), [0]);
        assert_eq!(told(&mut trouble, &[149, 150, 300]), [149, 300]);
        assert_eq!(trouble.count(), 9);
    }
}
