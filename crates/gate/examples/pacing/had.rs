//! What a way had to keep a rate with: a rate that is missed says little before it is known whether there was a processor to
//! keep it with, and something to send.

use crate::{Result, Way, server_end};
use std::net::TcpStream;

/// What a way had to keep a rate with, as shares of the time.
#[derive(Clone, Copy)]
pub(crate) struct Had {
    /// Through the proxy: the thread that relays was on a processor. Else: the server's socket had something to send, and its
    /// client had room for it.
    pub(crate) able: f64,
    /// Through the proxy: that thread stood in line for a processor. Else: the client had no room.
    pub(crate) kept: f64,
}

impl Had {
    pub(crate) fn between(before: [f64; 2], after: [f64; 2], seconds: f64) -> Had {
        Had { able: (after[0] - before[0]) / seconds, kept: (after[1] - before[1]) / seconds }
    }
}

/// Where that is read.
pub(crate) enum Source {
    /// Threads of this process whose names begin so.
    Threads(&'static str),
    Socket(backwater_socket::Socket),
}

impl Source {
    /// Found once: while that is done nobody reads what comes.
    pub(crate) fn of(way: Way, client: &TcpStream) -> Result<Source> {
        Ok(match way {
            Way::Urgent => Source::Threads("urgent"),
            Way::Proxy => Source::Threads("low"),
            Way::Nothing | Way::Attach => Source::Socket(server_end(client)?),
        })
    }

    /// Both of [`Had`] until now, in seconds since the threads or the connection began.
    pub(crate) fn read(&self) -> Result<[f64; 2]> {
        let socket = match self {
            Source::Threads(name) => return threads_s(name),
            Source::Socket(socket) => socket,
        };
        let info = socket.read()?.info;
        let (Some(busy_us), Some(full_us)) = (info.busy_us, info.rwnd_limited_us) else {
            return Err("this kernel does not count how long a socket had something to send".into());
        };
        Ok([busy_us.saturating_sub(full_us), full_us].map(|us| us as f64 / 1e6))
    }
}

/// How long the threads of this process whose names begin so were on a processor, and in line for one.
fn threads_s(name: &str) -> Result<[f64; 2]> {
    let mut sum = [0.0, 0.0];
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        // One that ends meanwhile is none of them.
        let read = |file| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        if read("comm").starts_with(name) {
            let schedstat = read("schedstat");
            let ns = schedstat.split_ascii_whitespace().map_while(|word| word.parse::<f64>().ok());
            sum.iter_mut().zip(ns).for_each(|(sum, ns)| *sum += ns / 1e9);
        }
    }
    Ok(sum)
}
