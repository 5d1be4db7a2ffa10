//! Enforcement: what `flow` decides, done to real sockets.
//!
//! [`proxy`] stands in the line between clients and a PostgreSQL server. [`wire`] is what it must know of the protocol.
//! Three more ways in will stand beside them, each in a module of its own: TLS that ends here (`proxy/tls`, between the
//! opening and the relay, so that neither changes), the admin console (`admin`, a session whose server is this process,
//! chosen where the pool of a session is chosen), and attaching to a running backend's socket (`attach`, which shares the
//! class's bucket and rules and nothing of the data path).

mod clock;
mod error;
pub mod proxy;
pub mod wire;

pub use error::GateError;
