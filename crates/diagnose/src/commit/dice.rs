//! Dice for resampling that fall the same way every time: a claim must not change when the same recording is read again.
//! SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).

/// A stream of numbers.
pub(super) struct Dice(u64);

impl Dice {
    /// The stream that begins with this seed.
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`, which must not be zero.
    pub(super) fn below(&mut self, count: usize) -> usize {
        // The bias of the remainder is below 2⁻⁵⁰ for the few values there are.
        (self.next() % count.max(1) as u64) as usize
    }

    /// A number from the standard normal distribution (Box and Muller).
    pub(super) fn normal(&mut self) -> f64 {
        let unit = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let (radius, angle) = (unit(self.next()), unit(self.next()));
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dice_are_fair_and_the_same_every_time() {
        let mut dice = Dice::new(1);
        let mut again = Dice::new(1);
        let values: Vec<f64> = (0..20_000).map(|_| dice.normal()).collect();
        assert!(values.iter().all(|value| *value == again.normal()));
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let mut counts = [0; 6];
        (0..6_000).for_each(|_| counts[dice.below(6)] += 1);
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }
}
