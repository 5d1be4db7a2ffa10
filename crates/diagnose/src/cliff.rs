//! The cliff: the first second from which throughput stays low.

use serde::Serialize;

/// It counts as low under this share of the peak.
const LOW: f64 = 0.7;
/// For so many seconds it must stay low.
const STAYS_S: f64 = 3.0;

/// Where throughput fell and did not come back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cliff {
    /// When, in the seconds of the series it was found in.
    pub at_s: f64,
    /// The best throughput before it that lasted: see [`peak`].
    pub peak_per_s: f64,
    /// Mean throughput from then on.
    pub after_per_s: f64,
}

/// The best throughput that lasted: the greatest median of three seconds in a row. One second in which a queue of waiting
/// work is let go after a stall is no peak of what the system can do.
pub fn peak(throughput: &[f64]) -> Option<f64> {
    let lasted = throughput.windows(3).map(|three| three[0].max(three[1]).min(three[0].min(three[1]).max(three[2])));
    lasted.reduce(f64::max).or_else(|| throughput.iter().copied().reduce(f64::max))
}

/// The first second from which throughput stays under 70 % of the peak so far for three seconds. `throughput` is pairs of
/// seconds and units a second in order of time; a hole in it ends a stretch, because what it hides is unknown.
pub fn find(throughput: &[(f64, f64)]) -> Option<Cliff> {
    let mut steps: Vec<f64> = throughput.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    steps.sort_by(f64::total_cmp);
    let step = steps.get(steps.len() / 2).copied().filter(|step| *step > 0.0)?;
    // A step a hair under a second must not ask for a fourth one.
    let least = (STAYS_S / step - 0.1).ceil().max(1.0) as usize;
    let values: Vec<f64> = throughput.iter().map(|(_, value)| *value).collect();
    for (at, (seconds, _)) in throughput.iter().enumerate() {
        let stretch = throughput.get(at..at + least)?;
        let whole = stretch.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 1.5 * step);
        let peak = peak(&values[..at]).unwrap_or(0.0);
        if whole && stretch.iter().all(|(_, value)| *value < LOW * peak) {
            let rest = &throughput[at..];
            let after = rest.iter().map(|(_, value)| value).sum::<f64>() / rest.len() as f64;
            return Some(Cliff { at_s: *seconds, peak_per_s: peak, after_per_s: after });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn seconds(values: &[f64]) -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(at, value)| (at as f64, *value)).collect()
    }

    #[test]
    fn the_first_lasting_fall_is_found() {
        let cliff = find(&seconds(&[100.0, 110.0, 60.0, 105.0, 70.0, 60.0, 50.0, 40.0])).unwrap();
        assert_eq!((cliff.at_s, cliff.peak_per_s, cliff.after_per_s), (4.0, 105.0, 55.0));
    }

    #[test]
    fn a_dip_a_slope_and_a_short_series_are_no_cliff() {
        assert_eq!(find(&seconds(&[100.0, 100.0, 10.0, 10.0, 100.0, 100.0])), None);
        assert_eq!(find(&seconds(&[100.0, 95.0, 90.0, 85.0, 80.0, 75.0])), None);
        assert_eq!(find(&seconds(&[100.0, 10.0, 10.0])), None);
        assert_eq!(find(&[]), None);
        assert_eq!(find(&seconds(&[0.0; 9])), None);
    }

    #[test]
    fn one_second_of_catching_up_is_no_peak() {
        // Clients that send 4,000 a second, held for a moment and let go: 6,184 in one second is what had piled up.
        let run = [4000.0, 4010.0, 3990.0, 2100.0, 6184.0, 4000.0, 4000.0, 4005.0, 2100.0, 2000.0, 1900.0, 2200.0];
        let cliff = find(&seconds(&run)).unwrap();
        assert_eq!((cliff.at_s, cliff.peak_per_s), (8.0, 4000.0));
        assert_eq!(peak(&run[3..5]), Some(6184.0), "of less than three seconds the best is all there is");
        assert_eq!(peak(&[]), None);
    }

    #[test]
    fn a_hole_hides_what_happened() {
        let holed = [(0.0, 100.0), (1.0, 100.0), (2.0, 10.0), (8.0, 10.0), (9.0, 10.0), (10.0, 100.0), (11.0, 90.0)];
        assert_eq!(find(&holed), None);
    }

    #[test]
    fn steps_that_are_not_quite_a_second_count_as_seconds() {
        let values = [100.0, 100.0, 50.0, 50.0, 50.0];
        for step in [0.999, 1.0, 1.05] {
            let series: Vec<_> = values.iter().enumerate().map(|(at, value)| (at as f64 * step, *value)).collect();
            assert_eq!(find(&series).unwrap().at_s, 2.0 * step);
        }
    }

    #[test]
    fn measured_runs() {
        // Transactions a second of two real runs, a dirty limit of 384 MiB and of 256 MiB under 1,500 operations a second.
        let slow = [
            3870.0, 4022.0, 3952.0, 4037.0, 4012.0, 3954.0, 3965.0, 3987.0, 3913.0, 4021.0, 3862.0, 3946.0, 2802.0,
            2132.0, 2020.0, 2456.0, 2303.0, 2249.0, 1281.0, 1851.0,
        ];
        assert_eq!(find(&seconds(&slow)).unwrap().at_s, 12.0);
        let fast = [6790.0, 6670.0, 7343.0, 5724.0, 2739.0, 1180.0, 1387.0, 1160.0];
        assert_eq!(find(&seconds(&fast)).unwrap().at_s, 4.0);
    }
}
