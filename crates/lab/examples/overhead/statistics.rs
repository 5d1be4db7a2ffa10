//! What pairs of runs say: medians, and how much a loss may be at most.

/// Student's t of 95 %, one-sided, for 1 to 30 degrees of freedom.
const T_95: [f64; 30] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746,
    1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
];
const T_95_MANY: f64 = 1.697;

/// Ratios of one figure, one from each block of runs.
pub(crate) struct Ratios(pub(crate) Vec<f64>);

impl Ratios {
    pub(crate) fn median(&self) -> f64 {
        median(&self.0)
    }

    /// Mean of the logarithms, and t times its standard error.
    fn mean_and_margin(&self) -> (f64, f64) {
        let logs: Vec<f64> = self.0.iter().map(|ratio| ratio.ln()).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let t = T_95.get(logs.len().saturating_sub(2)).copied().unwrap_or(T_95_MANY);
        (mean, t * (variance / count).sqrt())
    }

    /// With 95 % confidence the ratio is no less than this.
    pub(crate) fn at_least(&self) -> f64 {
        let (mean, margin) = self.mean_and_margin();
        (mean - margin).exp()
    }

    /// With 95 % confidence the ratio is no more than this.
    pub(crate) fn at_most(&self) -> f64 {
        let (mean, margin) = self.mean_and_margin();
        (mean + margin).exp()
    }

    /// What the runs' scatter alone adds to a bound, as a share.
    pub(crate) fn margin(&self) -> f64 {
        self.mean_and_margin().1.exp_m1()
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}
