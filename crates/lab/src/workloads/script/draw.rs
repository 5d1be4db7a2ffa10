//! Random whole numbers with the three distributions of pgbench.

use super::expression::Value;
use rand::RngExt;
use rand::rngs::StdRng;

/// Draws a whole number between two bounds, both included, with pgbench's three distributions.
pub(crate) fn draw(name: &str, arguments: &[Value], dice: &mut StdRng) -> Result<i64, String> {
    let [low, high, parameter @ ..] = arguments else { return Err(format!("{name} needs two bounds")) };
    let (low, high) = (low.whole()?, high.whole()?);
    if low > high {
        return Err(format!("{name}({low}, {high}): the first bound is above the second"));
    }
    let parameter = parameter.first().map_or(0.0, |value| value.fraction());
    let share = match name {
        "random_gaussian" if parameter >= 2.0 => gaussian(parameter, dice),
        "random_gaussian" => return Err("random_gaussian needs a parameter of at least 2".to_owned()),
        "random_exponential" if parameter > 0.0 => exponential(parameter, dice),
        "random_exponential" => return Err("random_exponential needs a parameter above 0".to_owned()),
        _ => return Ok(dice.random_range(low..=high)),
    };
    // The width of two 64-bit bounds needs 65 bits.
    let width = i128::from(high) - i128::from(low) + 1;
    let offset = ((width as f64 * share) as i128).clamp(0, width - 1);
    i64::try_from(i128::from(low) + offset).map_err(|error| error.to_string())
}

/// In [0, 1): a normal distribution cut off at `parameter` standard deviations, by Box and Muller.
fn gaussian(parameter: f64, dice: &mut StdRng) -> f64 {
    loop {
        let (radius, angle) = (1.0 - dice.random::<f64>(), dice.random::<f64>());
        let deviations = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).sin();
        if deviations >= -parameter && deviations < parameter {
            return (deviations + parameter) / (2.0 * parameter);
        }
    }
}

/// In [0, 1): an exponential distribution cut off where it has fallen to `exp(-parameter)`.
fn exponential(parameter: f64, dice: &mut StdRng) -> f64 {
    let cut = (-parameter).exp();
    let uniform = 1.0 - dice.random::<f64>();
    -(cut + (1.0 - cut) * uniform).ln() / parameter
}
