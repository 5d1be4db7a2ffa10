//! The numbers on a plot's axes: which values to name, and how.

use backwater_model::Unit;

/// Values beyond this are no measurement; they are left out of plots, as NaN and the infinities are.
const LARGEST: f64 = 1e18;

/// Whether a value can be placed on an axis.
pub(crate) fn usable(value: f64) -> bool {
    value.is_finite() && value.abs() <= LARGEST
}

/// Smallest and largest of the usable values.
pub(crate) fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| usable(*value)).fold(None, |extent, value| match extent {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    })
}

/// The next round number at or above a positive value: 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten (for
/// bytes, of ten times a power of 1024).
pub(crate) fn round_up(value: f64, unit: Unit) -> f64 {
    if value <= 0.0 || !usable(value) {
        return 1.0;
    }
    let step = if matches!(unit, Unit::Bytes | Unit::BytesPerSecond) { 1024f64 } else { 1.0 };
    let mut base = 1.0;
    while step > 1.0 && value / base >= step {
        base *= step;
    }
    let mantissa = value / base;
    let power = 10f64.powf(mantissa.log10().floor());
    let round = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let fitting = round.iter().find(|round| mantissa <= *round * power * (1.0 + 1e-9)).copied().unwrap_or(10.0);
    (fitting * power * base).max(value)
}

/// Round moments in seconds from `from` to `to`, at most `most` of them.
pub(crate) fn time_ticks(from: f64, to: f64, most: usize) -> Vec<f64> {
    const STEPS: [f64; 17] = [
        0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 21_600.0, 86_400.0,
    ];
    let most = most.max(1) as f64;
    let length = to - from;
    let fits = |step: &&f64| length / **step + 1.0 <= most;
    let step = STEPS.iter().find(fits).copied().unwrap_or_else(|| round_up(length / most, Unit::Seconds));
    let first = (from / step).ceil();
    let count = ((to / step).floor() - first).clamp(-1.0, most) as i64;
    (0..=count).map(|place| (first + place as f64) * step).collect()
}

/// A moment on the time axis: `0.5 s`, `15 s`, `2 min`, `1:30 min`, `3 h`.
pub(crate) fn time_label(seconds: f64) -> String {
    let whole = seconds.abs().round();
    let sign = if seconds < 0.0 { "-" } else { "" };
    match whole {
        _ if whole < 120.0 && (seconds - seconds.round()).abs() > 1e-6 => format!("{seconds:.1} s"),
        _ if whole < 120.0 => format!("{} s", seconds.round() as i64),
        _ if whole < 7_200.0 && whole % 60.0 == 0.0 => format!("{sign}{} min", whole / 60.0),
        _ if whole < 7_200.0 => format!("{sign}{}:{:02} min", (whole / 60.0).floor(), whole % 60.0),
        _ if whole < 1e9 => {
            format!("{sign}{:.0}:{:02.0} h", (whole / 3_600.0).floor(), (whole % 3_600.0 / 60.0).floor())
        }
        _ => format!("{seconds:.1e} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: f64 = 1_048_576.0;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!(round_up(4_037.0, Unit::PerSecond), 5_000.0);
        assert_eq!(round_up(384.0 * MIB, Unit::Bytes), 400.0 * MIB);
        assert_eq!(round_up(0.0, Unit::Bytes), 1.0);
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(time_ticks(0.0, 33.0, 5), [0.0, 10.0, 20.0, 30.0]);
        assert_eq!(time_ticks(0.0, 33.0, 1), Vec::<f64>::from([0.0]));
        assert_eq!(time_label(90.0), "90 s");
        assert_eq!(time_label(150.0), "2:30 min");
        assert_eq!(time_label(0.5), "0.5 s");
    }

    proptest! {
        #[test]
        fn ticks_never_outnumber_the_room(from in -1e18..1e18f64, length in 0.0..1e18f64, most in 0usize..40) {
            let ticks = time_ticks(from, from + length, most);
            prop_assert!(ticks.len() <= most + 1);
            prop_assert!(round_up(length, Unit::Bytes) >= length);
        }
    }
}
