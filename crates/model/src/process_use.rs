//! What one process read, wrote, sent, received and computed over a stretch of time: a line of `backwater top`.

use serde::{Deserialize, Serialize};

/// Rates of one process, each a second. None is what could not be seen, which is not the same as nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// The watched server it belongs to; none where the whole host is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Process id.
    pub pid: i32,
    /// Effective user id.
    pub uid: Option<u32>,
    /// The user's name on this host, where it is known.
    pub user: Option<String>,
    /// Backend type as the server spells it, or the program's name as the kernel has it.
    pub what: String,
    /// Of a server's session: whose it is.
    pub session: Option<SessionUse>,
    /// Devices it has files open for writing on, or is known to write to.
    pub devices: Vec<String>,
    /// Network interfaces by which its TCP connections moved bytes; empty where they are not told, as in a recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// Bytes fetched from storage.
    pub read_bytes_per_s: Option<f64>,
    /// Read-like system calls, those answered from the page cache and those on sockets included.
    pub read_calls_per_s: Option<f64>,
    /// Bytes dirtied or written.
    pub write_bytes_per_s: Option<f64>,
    /// Write-like system calls, those on sockets included.
    pub write_calls_per_s: Option<f64>,
    /// Bytes sent over TCP, what was sent again included.
    pub sent_bytes_per_s: Option<f64>,
    /// TCP segments sent.
    pub sent_segments_per_s: Option<f64>,
    /// Bytes received over TCP.
    pub received_bytes_per_s: Option<f64>,
    /// TCP segments received.
    pub received_segments_per_s: Option<f64>,
    /// Processor time, as a share of one processor.
    pub cpu_share: Option<f64>,
    /// Address and port of the other end of its busiest TCP connection.
    pub peer: Option<String>,
    /// How many TCP connections it has; none where they cannot be seen.
    pub connections: Option<u32>,
}

/// Whose session a server process serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionUse {
    /// Role.
    pub user: Option<String>,
    /// Database.
    pub database: Option<String>,
    /// application_name.
    pub application: Option<String>,
    /// Client address (and port), or `local`.
    pub client: Option<String>,
}

impl ProcessUse {
    /// Bytes read and written a second, what cannot be seen counted as nothing.
    pub fn io_bytes_per_s(&self) -> f64 {
        self.read_bytes_per_s.unwrap_or_default() + self.write_bytes_per_s.unwrap_or_default()
    }

    /// Bytes sent and received a second, what cannot be seen counted as nothing.
    pub fn net_bytes_per_s(&self) -> f64 {
        self.sent_bytes_per_s.unwrap_or_default() + self.received_bytes_per_s.unwrap_or_default()
    }

    /// Whether it read, wrote, sent or received anything.
    pub fn moves_data(&self) -> bool {
        self.io_bytes_per_s() > 0.0 || self.net_bytes_per_s() > 0.0
    }
}
