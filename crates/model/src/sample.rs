//! One active session at one instant.

use crate::Moment;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Text shared by many samples.
pub type Text = Arc<str>;

/// What one session was doing when it was looked at. Absent is `None`, never an empty string.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When; the same for all samples of one look.
    pub at: Moment,
    /// The target it belongs to, by its name in [`Meta`](crate::Meta).
    pub target: Text,
    /// Process id on the server's host, as the server says it.
    pub pid: i32,
    /// `client backend`, `walwriter`, `checkpointer`…
    pub backend_type: Option<Text>,
    /// Role.
    pub user: Option<Text>,
    /// Database.
    pub database: Option<Text>,
    /// application_name.
    pub application: Option<Text>,
    /// Client address; none for a Unix socket.
    pub client_addr: Option<Text>,
    /// Client port; none (or −1 on the server) for a Unix socket.
    pub client_port: Option<i32>,
    /// `active`, `idle in transaction`…
    pub state: Option<Text>,
    /// Wait event class as the server spells it; none while on CPU.
    pub wait_event_type: Option<Text>,
    /// Wait event as the server spells it; none while on CPU.
    pub wait_event: Option<Text>,
    /// Kernel function the process sleeps in (`/proc/PID/wchan`); none when it runs or cannot be seen.
    pub kernel_wait: Option<Text>,
    /// Kernel state of the process: R, S, D, …
    pub kernel_state: Option<char>,
    /// The server's query identifier, where it computes one.
    pub query_id: Option<i64>,
    /// Query text with its literals removed (or as it stands, when that was asked for).
    pub query: Option<Text>,
    /// How long the statement has run, in milliseconds.
    pub query_age_ms: Option<i64>,
    /// How long the transaction has been open, in milliseconds.
    pub xact_age_ms: Option<i64>,
    /// The queue it waits on, where the waits tell (`pg.commit`, `host.dirty@7:0`…).
    pub queue: Option<Text>,
}
