//! Ways to hold a stream of bytes to a rate. [`TokenBucket`] is what the product uses; [`WindowCounter`] and
//! [`LeakyBucket`] stand beside it so that tests and an example can show why: a counter lets twice its limit through
//! around the edge of its window, a leaky bucket lets no burst through at all, a token bucket a bounded one.

mod in_flight;
mod leaky_bucket;
#[cfg(test)]
mod properties;
mod token_bucket;
mod window_counter;

pub use in_flight::{InFlight, in_flight_bytes};
pub use leaky_bucket::LeakyBucket;
pub use token_bucket::{BURST, CATCH_UP, DEBT, LEAST_BURST_BYTES, LEAST_RATE_BPS, TokenBucket};
pub use window_counter::WindowCounter;

use backwater_model::Moment;

/// What decides how many bytes may go now.
pub trait Limiter {
    /// Takes up to `wanted` bytes at `now` and says how many were granted. Time that runs backwards counts as no time.
    fn take(&mut self, now: Moment, wanted: u64) -> u64;

    /// The first moment from `now` on at which at least one byte would be granted, if nobody else takes any.
    fn ready_at(&self, now: Moment) -> Moment;
}
