//! PostgreSQL 12 to 18, by one connection that reads only.
//!
//! [`ConnInfo`] finds the way in as libpq would, [`PostgresProbe`] looks: active sessions at every look, counters and
//! positions each second or half (the tables in `views`), settings each minute, new lines of the log. [`Heartbeat`]
//! writes, and runs only where it was asked for. What a version does not have is not asked for; what a role may not see is said once as an absence, with the GRANT that would change it.

mod answer;
mod check;
mod connect;
mod conninfo;
mod counters;
mod direct;
mod explain;
mod heartbeat;
mod identity;
mod link;
mod local;
mod log;
mod logs;
mod look;
mod normalise;
mod probe;
mod queues;
mod redo;
mod row;
mod running;
mod schedule;
mod sessions;
mod settings;
mod shmem;
mod target;
mod tell;
mod texts;
mod tls;
mod views;
mod waits;

#[cfg(fuzzing)]
pub use answer::exercise as exercise_rows;
pub use check::capabilities;
pub use connect::{ConnectionTask, Hearer, connect_client, connect_client_hearing};
pub use conninfo::ConnInfo;
#[cfg(fuzzing)]
pub use conninfo::exercise as exercise_conninfo;
pub use heartbeat::Heartbeat;
#[cfg(fuzzing)]
pub use log::exercise as exercise_log;
pub use probe::{PostgresOptions, PostgresProbe};

/// A server's shared memory of any bytes.
#[cfg(fuzzing)]
pub fn exercise_memory(bytes: &[u8]) {
    shmem::exercise(bytes);
}
