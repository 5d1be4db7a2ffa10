//! Enforcement: what `flow` decides, done to real sockets.
//!
//! [`proxy`] stands in the line between clients and a PostgreSQL server. [`wire`] is what it must know of the protocol.
//! [`attach`] stands beside the line: it slows a running query by its server's own socket, and shares the rules and nothing
//! of the data path. The proxy's admin console is a session whose server is this process.

pub mod attach;
mod clock;
mod error;
mod in_line;
pub mod proxy;
mod reference;
mod silence;
mod used;
pub mod wire;

pub use error::GateError;
pub use reference::reference;
