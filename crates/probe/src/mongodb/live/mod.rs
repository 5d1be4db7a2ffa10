//! A live server, by MongoDB's own driver: each host of a connection string by a connection straight to it, which only reads.
//!
//! [`servers`] finds them, [`MongoProbe`] looks. What a user may not see is said once, with the role that would change it; what
//! a release does not have is not missed. Servers older than 4.4, which the driver does not speak with, are read through
//! their flight recorder.

mod check;
mod figures;
mod link;
mod local;
mod look;
mod probe;
mod runtime;
mod server;
mod slow;
mod tell;
mod uri;

pub use check::capabilities;
pub use probe::MongoProbe;
pub use uri::{MongoServer, is_uri, servers};
