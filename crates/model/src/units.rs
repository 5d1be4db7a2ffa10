//! Quantities with their units in the type, and their spelling for people: `1.5 GiB`, `12.3 MiB/s`, `0/16B3748`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a series or figure counts. Spelled in JSON and TOML as the lower-case name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Things: requests, sessions, transactions, buffers.
    Count,
    /// Things a second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// A share, 0 to 1.
    Ratio,
    /// True (1) or false (0).
    Flag,
}

impl Unit {
    /// The unit of the time derivative of a series of this unit, where there is a usual one.
    pub fn per_second(self) -> Unit {
        match self {
            Unit::Bytes => Unit::BytesPerSecond,
            Unit::Seconds | Unit::Milliseconds | Unit::Microseconds => Unit::Ratio,
            _ => Unit::PerSecond,
        }
    }

    /// A value of this unit as a person reads it: three digits and the unit.
    pub fn show(self, value: f64) -> String {
        // The sum of nothing is -0.
        let value = value + 0.0;
        match self {
            Unit::Bytes => scaled(value, "B"),
            Unit::BytesPerSecond => scaled(value, "B/s"),
            Unit::Count if value.fract() == 0.0 && value.abs() < 10_000.0 => format!("{value:.0}"),
            Unit::Count => grouped(value),
            Unit::PerSecond => format!("{}/s", grouped(value)),
            Unit::Seconds => seconds(value),
            Unit::Milliseconds => seconds(value / 1e3),
            Unit::Microseconds => seconds(value / 1e6),
            Unit::Ratio => format!("{} %", digits(value * 100.0)),
            Unit::Flag => if value == 0.0 { "no" } else { "yes" }.to_owned(),
        }
    }
}

/// Three significant digits, never scientific.
fn digits(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || value == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Counts with thousands separated by commas from 10,000 on.
fn grouped(value: f64) -> String {
    if value.abs() < 10_000.0 {
        return digits(value);
    }
    let whole = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

fn scaled(value: f64, unit: &str) -> String {
    const STEPS: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let mut size = value;
    let mut step = 0;
    while size.abs() >= 1024.0 && step + 1 < STEPS.len() {
        size /= 1024.0;
        step += 1;
    }
    if step == 0 { format!("{size:.0} {unit}") } else { format!("{} {}{unit}", digits(size), STEPS[step]) }
}

const HOUR_S: f64 = 3_600.0;
const DAY_S: f64 = 86_400.0;

fn seconds(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0 s".to_owned()
    } else if size >= 2.0 * DAY_S {
        format!("{:.0} d {:02.0} h", (value / DAY_S).trunc(), (value % DAY_S / HOUR_S).trunc().abs())
    } else if size >= 5.0 * HOUR_S {
        format!("{:.0} h {:02.0} min", (value / HOUR_S).trunc(), (value % HOUR_S / 60.0).trunc().abs())
    } else if size >= 120.0 {
        format!("{:.0} min {:02.0} s", (value / 60.0).trunc(), (value % 60.0).trunc().abs())
    } else if size >= 1.0 {
        format!("{} s", digits(value))
    } else if size >= 1e-3 {
        format!("{} ms", digits(value * 1e3))
    } else {
        format!("{} µs", digits(value * 1e6))
    }
}

/// Why a text is no quantity: the text and what was expected of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {wanted}")]
pub struct ParseUnitError {
    /// The text that was given.
    pub text: String,
    /// What would have been understood, with an example.
    pub wanted: &'static str,
}

/// A number of bytes. Reads `256MiB`, `256 MB`, `1.5G`, `4096`: powers of 1024 whatever the spelling, as
/// PostgreSQL's settings do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(
    /// Bytes.
    pub u64,
);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&scaled(self.0 as f64, "B"))
    }
}

impl FromStr for Bytes {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let fail =
            || ParseUnitError { text: text.to_owned(), wanted: "a number of bytes such as 4096, 256MiB or 1.5GB" };
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let number: f64 = trimmed[..split].parse().map_err(|_| fail())?;
        let power = match trimmed[split..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 1,
            "m" | "mb" | "mib" => 2,
            "g" | "gb" | "gib" => 3,
            "t" | "tb" | "tib" => 4,
            _ => return Err(fail()),
        };
        let bytes = number * 1024f64.powi(power);
        if bytes.is_finite() && bytes < u64::MAX as f64 { Ok(Bytes(bytes.round() as u64)) } else { Err(fail()) }
    }
}

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(from)? {
            Either::Number(bytes) => Ok(Bytes(bytes)),
            Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// A rate of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BytesPerSecond(
    /// Bytes a second.
    pub f64,
);

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&scaled(self.0, "B/s"))
    }
}

/// A rate of things: requests, transactions, rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PerSecond(
    /// Things a second.
    pub f64,
);

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Unit::PerSecond.show(self.0))
    }
}

/// A position in the write-ahead log, in bytes, spelled as PostgreSQL spells it (`16/B374D848`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lsn(
    /// Bytes since the start of the log.
    pub u64,
);

impl Lsn {
    /// Bytes from `earlier` to this position; zero where `earlier` is ahead, which happens when the two
    /// positions were read at slightly different times.
    pub fn bytes_since(self, earlier: Lsn) -> Bytes {
        Bytes(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl FromStr for Lsn {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let fail = || ParseUnitError { text: text.to_owned(), wanted: "a WAL position such as 0/16B3748" };
        let (high, low) = text.trim().split_once('/').ok_or_else(fail)?;
        let part = |hex: &str| u32::from_str_radix(hex, 16).map(u64::from).map_err(|_| fail());
        Ok(Lsn(part(high)? << 32 | part(low)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_are_told_in_minutes_hours_and_days() {
        let shown = [125.0, 7_260.0, 18_000.0, 95_460.0, 172_800.0, -180_000.0].map(|s| Unit::Seconds.show(s));
        assert_eq!(shown, ["2 min 05 s", "121 min 00 s", "5 h 00 min", "26 h 31 min", "2 d 00 h", "-2 d 02 h"]);
    }

    #[test]
    fn the_sum_of_nothing_is_shown_as_nothing() {
        let nothing = std::iter::empty::<f64>().sum::<f64>();
        for unit in [Unit::Count, Unit::PerSecond, Unit::Bytes, Unit::Ratio, Unit::Seconds] {
            assert!(!unit.show(nothing).contains('-'), "{}", unit.show(nothing));
            assert!(unit.show(-2.0).contains('-'));
        }
    }
}
