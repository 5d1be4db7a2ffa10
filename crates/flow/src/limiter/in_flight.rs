//! The cap on what of a class is on its way: not yet sent by the kernel, or sent and not acknowledged. When the narrow
//! link lies beyond this host, priority here does nothing; only this bound keeps the queue in front of that link short.

use backwater_model::Span;

/// Bytes that may be on their way at a rate: what the way itself holds in one round trip, and a millisecond's queue.
/// `rate × (minimum RTT + 1 ms)`, never under `least_bytes` (the least relay quantum, or nothing would move).
pub fn in_flight_bytes(rate_bps: u64, min_rtt: Span, least_bytes: u64) -> u64 {
    let us = min_rtt.0.max(0).unsigned_abs().saturating_add(super::BURST.0.unsigned_abs());
    let bytes = u128::from(rate_bps) * u128::from(us) / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX).max(least_bytes)
}

/// What of one class is on its way, and how much may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    cap_bytes: u64,
    level_bytes: u64,
}

impl InFlight {
    /// Nothing on its way, at most `cap_bytes`.
    pub fn new(cap_bytes: u64) -> Self {
        InFlight { cap_bytes, level_bytes: 0 }
    }

    /// Another cap; what is above it drains, nothing is taken back.
    pub fn set_cap(&mut self, cap_bytes: u64) {
        self.cap_bytes = cap_bytes;
    }

    /// Bytes that may be sent now.
    pub fn room_bytes(&self) -> u64 {
        self.cap_bytes.saturating_sub(self.level_bytes)
    }

    /// Bytes were given to the kernel.
    pub fn sent(&mut self, bytes: u64) {
        self.level_bytes = self.level_bytes.saturating_add(bytes);
    }

    /// Bytes arrived.
    pub fn arrived(&mut self, bytes: u64) {
        self.level_bytes = self.level_bytes.saturating_sub(bytes);
    }

    /// The kernel says that so many are on their way: its word replaces our count.
    pub fn measured(&mut self, level_bytes: u64) {
        self.level_bytes = level_bytes;
    }

    /// Bytes on their way.
    pub fn level_bytes(&self) -> u64 {
        self.level_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_default_rate_on_a_short_way_keeps_a_quarter_megabyte_in_flight() {
        assert_eq!(in_flight_bytes(256_000_000, Span(0), 0), 256_000);
        assert_eq!(in_flight_bytes(256_000_000, Span(500), 0), 384_000);
        assert_eq!(in_flight_bytes(1_000_000, Span(0), 16_384), 16_384);
    }

    proptest! {
        #[test]
        fn never_more_on_its_way_than_the_cap(cap in 0u64..1 << 40, steps in prop::collection::vec((any::<bool>(), 0u64..1 << 30), 0..200)) {
            let mut flight = InFlight::new(cap);
            for (send, bytes) in steps {
                if send { flight.sent(bytes.min(flight.room_bytes())) } else { flight.arrived(bytes) }
                prop_assert!(flight.level_bytes() <= cap);
            }
        }
    }
}
