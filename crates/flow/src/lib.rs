//! Control of flow, without I/O and without a clock: time is an argument, bytes are counts, and what comes out are
//! decisions. Whoever has the sockets asks and obeys.
//!
//! - [`limiter`]: how many bytes of a class may go now, and how many may be on their way.
//! - [`Scheduler`]: whose bytes go next. Urgent work never waits for low.
//! - [`rule`]: when a running session is demoted, cancelled or only named.
//! - [`statement`] and [`State`]: the console's language and what it changes.
//! - [`LowPriorityBandwidth`]: what the low class may send in all, fixed or found by [`auto`].
//!
//! # Where the governor goes
//! A governor holds the low class for the sake of a queue other than the link: replication lag, dirty pages, a cache.
//! It will be a module beside [`auto`] and of the same shape: readings of one queue and the time in, an [`Allowance`]
//! out, named after its queue. Several allowances for one pool already meet in [`Allowance::binding`], which takes the
//! least and keeps the name of who grants it; so a governor is added by handing one allowance more to that call.

pub mod auto;
mod bandwidth;
pub mod limiter;
mod literal;
mod merge;
mod name;
mod pool;
pub mod rule;
mod scheduler;
mod state;
pub mod statement;
mod word;

pub use bandwidth::{Allowance, LowPriorityBandwidth};
pub use literal::{Literal, MB, ValueError};
pub use name::{MOST_NAME_BYTES, quote};
pub use pool::{DEFAULT_POOL, MOST_RULES, MOST_WEIGHT, Pool, PoolId, PoolOption, Priority, SessionId};
pub use scheduler::{LEAST_QUANTUM_BYTES, MOST_QUANTUM_BYTES, Scheduler, Turn};
pub use state::{State, StateError, StateForm};
pub use word::UnknownWord;
