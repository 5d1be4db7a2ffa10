//! Database servers for experiments: found on this machine or downloaded once, made, run and ended.

mod builds;
mod copy;
mod download;
mod error;
mod fetch;
mod find;
mod initdb;
mod place;
mod postgres;
#[cfg(test)]
pub(crate) mod postgres_tests;
pub(crate) mod process;
mod relay;
mod settings;
mod unpack;
pub mod wiredtiger;

pub use builds::newest;
pub use download::{Progress, cache_dir, cached, download};
pub use error::ServerError;
pub use find::{Installed, find};
pub use place::temporary_dir;
pub use postgres::{Postgres, PostgresSpec};
pub use process::ordinary_user;
pub use relay::Relay;

/// The major version that is downloaded where none is asked for: the newest.
pub const DEFAULT_MAJOR: u32 = 18;
