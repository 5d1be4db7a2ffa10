//! Connections that pace themselves beside the rate they are given: BBR, some hosts' choice for all, goes a hundredth
//! slower than what it sees come through (its pacing margin; a quarter in one round trip of eight), and never faster than it may. One
//! that stays on this host has no link to find, and finds its speed in another way while it is held.

use backwater_socket::{Socket, SocketError, WITHIN_HOST_CONGESTION};

/// Congestion controls that every process may choose, of this host: what is taken away can be given back only if it is one of these.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// The names of those; none where they cannot be read.
pub(super) fn allowed() -> String {
    std::fs::read_to_string(ALLOWED).unwrap_or_default()
}

/// The congestion control of a connection that is to have another while it is held; None where it keeps its own.
///
/// # Errors
/// It cannot be read.
pub(super) fn to_change(socket: &Socket, allowed: &str) -> Result<Option<String>, SocketError> {
    if !socket.is_within_host() {
        return Ok(None);
    }
    let own = socket.congestion()?;
    Ok((paces_itself(&own) && allows(allowed, &own)).then_some(own))
}

/// Has a connection find its speed as one that stays on this host.
pub(super) fn change(socket: &Socket) {
    if let Err(error) = socket.set_congestion(WITHIN_HOST_CONGESTION) {
        tracing::debug!(%error, "a connection within this host keeps its congestion control");
    }
}

fn paces_itself(name: &str) -> bool {
    // bbr, and those that came after it: bbr2, bbr3.
    name.starts_with("bbr")
}

fn allows(allowed: &str, name: &str) -> bool {
    allowed.split_ascii_whitespace().any(|word| word == name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_socket::by_peer;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn only_what_paces_itself_and_can_be_given_back_is_changed() {
        assert!(["bbr", "bbr3"].into_iter().all(paces_itself));
        assert!(!["reno", "cubic", "dctcp"].into_iter().any(paces_itself));
        assert!(allows("reno bbr\n", "bbr"));
        assert!(!allows("reno cubic\n", "bbr") && !allows("reno bbr2\n", "bbr"));
    }

    #[test]
    fn whoever_comes_from_elsewhere_keeps_what_it_has() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_server, peer) = listener.accept().unwrap();
        let socket = by_peer(peer).unwrap().pop().unwrap();
        let own = socket.congestion().unwrap();
        let to_change = |socket: &Socket| to_change(socket, "reno bbr").unwrap();
        assert_eq!(to_change(&socket), (own == "bbr").then_some(own));
        let elsewhere = Socket { peer: "192.0.2.7:40000".parse().unwrap(), ..socket };
        assert_eq!(to_change(&elsewhere), None);
        drop(client);
    }
}
