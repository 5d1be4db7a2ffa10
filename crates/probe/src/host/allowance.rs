//! How many short-lived things may be read over time. Each process and connection has series of its own, and a line for each in
//! the recording: those of a server whose clients come and go without end must not fill it.

use backwater_model::Moment;

/// Read before any has to wait. Of connections and of sessions together they have lines of about 14 MB.
const AT_FIRST: f64 = 4_000.0;
/// After that, one in so many seconds: lines of about 5 MB a day.
const SECONDS_EACH: f64 = 60.0;

/// Spends what there is, which grows with time.
#[derive(Debug)]
pub(super) struct Allowance {
    left: f64,
    as_of: Option<Moment>,
}

impl Default for Allowance {
    fn default() -> Self {
        Allowance { left: AT_FIRST, as_of: None }
    }
}

impl Allowance {
    /// For the reason that is given for leaving something out.
    pub(super) fn why() -> String {
        format!("{AT_FIRST} in a run and one more every {SECONDS_EACH} s")
    }

    /// Whether one more may be read.
    pub(super) fn take(&mut self, now: Moment) -> bool {
        let passed_s = self.as_of.map_or(0.0, |then| now.seconds_since(then).max(0.0));
        self.as_of = Some(self.as_of.map_or(now, |then| then.max(now)));
        self.left = (self.left + passed_s / SECONDS_EACH).min(AT_FIRST);
        let may = self.left >= 1.0;
        self.left -= f64::from(u8::from(may));
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many are read if they come one after the other.
    fn read(allowance: &mut Allowance, from_s: f64, count: usize, seconds_between: f64) -> usize {
        let at = |place: usize| Moment(((from_s + place as f64 * seconds_between) * 1e6) as i64);
        (0..count).filter(|place| allowance.take(at(*place))).count()
    }

    #[test]
    fn many_at_first_and_then_one_now_and_then_for_ever() {
        let mut allowance = Allowance::default();
        assert_eq!(read(&mut allowance, 0.0, 20_000, 0.0), AT_FIRST as usize);
        let hour = read(&mut allowance, 0.0, 36_000, 0.1);
        assert!((59..=60).contains(&hour), "{hour}");
        assert!(!allowance.take(Moment(0)), "a clock that went back brings nothing");
        assert!(allowance.take(Moment(3_720_000_000)));
    }
}
