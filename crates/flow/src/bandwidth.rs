//! `low_priority_bandwidth`: what the low class may send to its clients, in all. Read two ways, as in the product it
//! comes from: never faster than that, and never more than a millisecond's worth at once.

use crate::literal::{Literal, MB, RATE_WANTED, ValueError, rate_literal};
use crate::name;

/// What the low class may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowPriorityBandwidth {
    /// So many bytes a second.
    Fixed(u64),
    /// Whatever the link has left while urgent work hardly queues ([`crate::auto`]).
    Auto,
}

impl Default for LowPriorityBandwidth {
    /// 256 MB/s, as there.
    fn default() -> Self {
        LowPriorityBandwidth::Fixed(256 * MB)
    }
}

impl LowPriorityBandwidth {
    /// The setting's name.
    pub const NAME: &'static str = "low_priority_bandwidth";

    /// Reads `256` (MB/s), `'256MB'` or `'auto'`.
    pub fn read(literal: &Literal) -> Result<Self, ValueError> {
        match literal {
            Literal::Text(text) if text.trim().eq_ignore_ascii_case("auto") => Ok(LowPriorityBandwidth::Auto),
            _ => literal
                .rate_bps()
                .map(LowPriorityBandwidth::Fixed)
                .ok_or_else(|| literal.refuse(Self::NAME, format!("'auto', or {RATE_WANTED}"))),
        }
    }

    /// Its value as it is written.
    pub fn literal(self) -> Literal {
        match self {
            LowPriorityBandwidth::Fixed(bps) => rate_literal(bps),
            LowPriorityBandwidth::Auto => Literal::Text("auto".to_owned()),
        }
    }
}

/// An allowance for the low class and who grants it: `low_priority_bandwidth`, a pool's own bandwidth, later a
/// governor's queue (`pg.wal.send@s1`).
#[derive(Clone, Debug, PartialEq)]
pub struct Allowance {
    /// Who grants it, as people are told.
    pub by: String,
    /// Bytes a second.
    pub rate_bps: u64,
}

impl Allowance {
    /// The least of these: what is in force, and why. None where nobody limits.
    pub fn binding(all: impl IntoIterator<Item = Allowance>) -> Option<Allowance> {
        all.into_iter().min_by_key(|allowance| allowance.rate_bps)
    }

    /// "pool batch held at 41.0 MiB/s by pg.wal.send@s1".
    pub fn told_of(&self, pool: &str) -> String {
        let rate = backwater_model::BytesPerSecond(self.rate_bps as f64);
        format!("pool {} held at {rate} by {}", name::quote(pool), self.by)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_three_spellings_are_read() {
        let read = |literal| LowPriorityBandwidth::read(&literal);
        assert_eq!(read(Literal::Whole(256)).unwrap(), LowPriorityBandwidth::default());
        assert_eq!(read(Literal::Text("256MB".to_owned())).unwrap(), LowPriorityBandwidth::default());
        assert_eq!(read(Literal::Text("AUTO".to_owned())).unwrap(), LowPriorityBandwidth::Auto);
        let refused = read(Literal::Text("much".to_owned())).unwrap_err().to_string();
        assert!(refused.starts_with("low_priority_bandwidth cannot be 'much': it must be 'auto', or MB"), "{refused}");
    }

    #[test]
    fn the_least_allowance_binds_and_says_who_grants_it() {
        let allowance = |by: &str, mb: u64| Allowance { by: by.to_owned(), rate_bps: mb * MB };
        let binding = Allowance::binding([allowance("low_priority_bandwidth", 256), allowance("pg.wal.send@s1", 41)]);
        assert_eq!(binding.unwrap().told_of("batch"), "pool batch held at 41.0 MiB/s by pg.wal.send@s1");
        assert_eq!(Allowance::binding([]), None);
    }
}
