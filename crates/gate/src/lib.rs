//! Enforcement: what `flow` decides, done to real sockets.
//!
//! [`proxy`] stands in the line between clients and a PostgreSQL server. [`wire`] is what it must know of the protocol.
//! [`attach`] stands beside the line: it slows a running query by its server's own socket, and shares the rules and nothing
//! of the data path. Two more ways in will come, each in a module of its own: TLS that ends here (`proxy/tls`, between the
//! opening and the relay, so that neither changes), and the admin console (`admin`, a session whose server is this process,
//! chosen where the pool of a session is chosen).

pub mod attach;
mod clock;
mod error;
pub mod proxy;
pub mod wire;

pub use error::GateError;
