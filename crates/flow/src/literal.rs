//! Values as people write them in statements and in TOML, before they are given a meaning: one set of checks and one
//! set of error messages for both.

use crate::name;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A value as it was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Literal {
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// A text in quotes, or a bare word.
    Text(String),
    /// Several texts (TOML only).
    List(Vec<String>),
}

/// Why an attribute cannot have a value. Says which, what was given, and what would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// There is no such attribute.
    #[error("unknown attribute '{name}': there are {known}")]
    Unknown {
        /// What was written.
        name: String,
        /// What there is.
        known: String,
    },
    /// The value does not do.
    #[error("{name} cannot be {found}: it must be {wanted}")]
    Value {
        /// Which attribute.
        name: &'static str,
        /// What was given.
        found: String,
        /// What it must be, with the range.
        wanted: String,
    },
    /// The attribute was given more than once.
    #[error("{name} is given twice")]
    Twice {
        /// Which.
        name: &'static str,
    },
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Whole(number) => write!(f, "{number}"),
            Literal::Number(number) => write!(f, "{number}"),
            Literal::Text(text) => write!(f, "'{text}'"),
            Literal::List(texts) => write!(f, "{texts:?}"),
        }
    }
}

impl Literal {
    /// As a number; a text that is one counts, as `bandwidth='128'` is common.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Literal::Whole(number) => Some(*number as f64),
            Literal::Number(number) => Some(*number).filter(|number| number.is_finite()),
            Literal::Text(text) => plain_number(text.trim()),
            Literal::List(_) => None,
        }
    }

    /// As a word of an enumeration.
    pub(crate) fn word<T: std::str::FromStr>(&self) -> Option<T> {
        match self {
            Literal::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// As a whole number from `least` to `most`, or -1 for "off".
    pub(crate) fn limit(&self, name: &'static str, least: u32, most: u32) -> Result<Option<u32>, ValueError> {
        match self.number() {
            Some(-1.0) => Ok(None),
            Some(number) if number.fract() == 0.0 && number >= f64::from(least) && number <= f64::from(most) => {
                Ok(Some(number as u32))
            }
            _ => Err(self.refuse(name, format!("a whole number from {least} to {most}, or -1 for no limit"))),
        }
    }

    /// As a rate: a number of MB/s, or a text with a unit (`'64MB'`, `'64MB/s'`). Powers of 1024, as PostgreSQL's settings.
    pub(crate) fn rate_bps(&self) -> Option<u64> {
        let bytes = match self {
            Literal::Text(text) => {
                let plain = text.trim();
                let lower = plain.to_ascii_lowercase();
                let plain = plain.get(..plain.len() - if lower.ends_with("/s") { 2 } else { 0 })?;
                // Without a unit it is MB, as it is without quotes.
                match plain_number(plain.trim_end()) {
                    Some(megabytes) => megabytes * MB as f64,
                    None => plain.parse::<backwater_model::Bytes>().ok()?.0 as f64,
                }
            }
            other => other.number()? * MB as f64,
        };
        (LEAST_RATE_BPS as f64..=MOST_RATE_BPS as f64).contains(&bytes).then_some(bytes.round() as u64)
    }

    /// As names: `'a, "B c"'`, or a list.
    pub(crate) fn names(&self) -> Result<Vec<String>, String> {
        match self {
            Literal::Text(text) => name::read_list(text),
            Literal::List(texts) => {
                texts.iter().map(|text| name::check(text).map(|()| text.clone())).collect::<Result<_, _>>()
            }
            _ => Err("not a name".to_owned()),
        }
    }

    pub(crate) fn refuse(&self, name: &'static str, wanted: impl Into<String>) -> ValueError {
        ValueError::Value { name, found: self.to_string(), wanted: wanted.into() }
    }
}

/// Not what else Rust reads as a number: nan, inf, +1e5.
fn plain_number(text: &str) -> Option<f64> {
    let is_plain = text.chars().all(|c| c.is_ascii_digit() || ".-".contains(c));
    text.parse().ok().filter(|_| is_plain)
}

/// A megabyte of rules and settings: PostgreSQL's, 1024².
pub const MB: u64 = 1 << 20;
/// The least rate that can be set.
const LEAST_RATE_BPS: u64 = crate::limiter::LEAST_RATE_BPS;
/// The most: 1 TB/s.
const MOST_RATE_BPS: u64 = 1 << 40;

/// What a rate must be, for messages.
pub(crate) const RATE_WANTED: &str =
    "MB a second as a number (256), or a size a second such as '64MB', from 1kB to 1TB";

/// A rate as it is written back: a plain number of MB where it is whole, else a size.
pub(crate) fn rate_literal(bps: u64) -> Literal {
    if bps.is_multiple_of(MB) {
        Literal::Whole((bps / MB).cast_signed())
    } else if bps.is_multiple_of(1024) {
        Literal::Text(format!("{}kB", bps / 1024))
    } else {
        Literal::Text(format!("{bps}B"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(text: &str) -> Literal {
        Literal::Text(text.to_owned())
    }

    #[test]
    fn rates_are_read_with_and_without_units() {
        assert_eq!(Literal::Whole(256).rate_bps(), Some(256 * MB));
        assert_eq!(text("256MB").rate_bps(), Some(256 * MB));
        assert_eq!(text(" 1.5GB/s ").rate_bps(), Some(1536 * MB));
        for plain in ["256", " 256 ", "256/s", "256 /s"] {
            assert_eq!(text(plain).rate_bps(), Some(256 * MB), "{plain}");
        }
        assert_eq!(text(" 5000").rate_bps(), Some(5_000 * MB), "no bytes");
        for refused in
            [Literal::Whole(0), Literal::Whole(-1), text("fast"), text("1B"), text("/s"), Literal::Number(1e300)]
        {
            assert_eq!(refused.rate_bps(), None, "{refused}");
        }
    }

    proptest! {
        #[test]
        fn a_rate_written_back_is_the_same(bps in LEAST_RATE_BPS..MOST_RATE_BPS, whole in any::<bool>()) {
            let bps = if whole { (bps / MB).max(1) * MB } else { bps };
            prop_assert_eq!(rate_literal(bps).rate_bps(), Some(bps));
        }

        #[test]
        fn any_text_is_survived(any in ".*") {
            let literal = text(&any);
            let _ = (literal.rate_bps(), literal.number(), literal.names(), literal.limit("x", 0, 9));
        }
    }
}
