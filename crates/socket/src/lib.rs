//! TCP sockets as the kernel knows them, own ones and those of running processes: how fast they may send, what stands
//! in their queues, and whose they are.
//!
//! [`pacing_rate`], [`set_pacing_rate`], [`TcpInfo::read`] and [`unsent_and_unacked`] work on any descriptor.
//! [`by_pid`] and [`by_peer`] find the sockets of others; a [`Socket`] found so can be read and paced from outside,
//! by a duplicate that is held for no longer than the call: a kept one would keep the connection open after the
//! process closed it. [`Holders`] says who has those that their processes left. A [`Namespace`] has a setting of how much
//! at once paced ones send on short ways.

mod bursts;
mod call;
mod error;
mod find;
mod foreign;
mod free_port;
mod table;
mod tcp_info;

/// Readers of foreign bytes, for the fuzzer alone: nothing else is built with this.
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Reads bytes as whatever a kernel may tell of sockets.
    pub fn socket(bytes: &[u8]) {
        crate::table::exercise(&String::from_utf8_lossy(bytes));
        crate::tcp_info::exercise(bytes);
    }
}

pub use bursts::{Namespace, SMALL_BURSTS};
pub use call::{pacing_rate, set_pacing_rate, unsent_and_unacked};
pub use error::SocketError;
pub use find::{Found, Holders, by_peer, by_pid};
pub use foreign::{Reading, Socket, WITHIN_HOST_CONGESTION, probe_duplicating, within_host};
pub use free_port::free_port;
pub use tcp_info::TcpInfo;
