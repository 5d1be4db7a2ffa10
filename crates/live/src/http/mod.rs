//! The page served live, and figures for Prometheus.
//!
//! It is read only: nothing that can be asked for changes anything. It listens on loopback unless told otherwise, and whoever asks
//! needs the token that it printed. A source is read when somebody looks, once for all who do; whoever is too slow to take what was
//! asked for is dropped.

mod access;
mod board;
mod listen;
mod patient;
mod routes;
mod tls;

pub use access::{Access, Verdict, new_token};
pub use listen::{Options, Tls, serve};
