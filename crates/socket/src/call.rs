//! The three system calls that no well-kept crate offers safely: `getsockopt` and `setsockopt` with
//! `SO_MAX_PACING_RATE`, `getsockopt` with `TCP_INFO` and `SO_NETNS_COOKIE`, and `ioctl` with `SIOCOUTQ`. (rustix and socket2 have none of
//! them; nix has macros for options of one's own, which panic when a kernel answers shorter than asked.)
//!
//! Unsafe code is here, and where a server's memory is mapped (`mapped.rs` in backwater-probe). What makes it sound: the descriptor is borrowed, so it is open; the kernel
//! writes no more bytes than it is told there are; and all that it writes are plain integers.
#![expect(unsafe_code, reason = "getsockopt, setsockopt and ioctl have no safe form for these requests")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// What stands for "no limit" in `SO_MAX_PACING_RATE`, 64 and 32 bits wide (Linux 4.20; before).
const NO_LIMIT: u64 = u64::MAX;
const NO_LIMIT_32: u32 = u32::MAX;

/// How many bytes a second the socket may send at most (`SO_MAX_PACING_RATE`); None: no limit.
///
/// # Errors
/// The descriptor is no socket.
pub fn pacing_rate(fd: impl AsFd) -> io::Result<Option<u64>> {
    let mut bytes = [0; 8];
    let length = read_option(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut bytes)?;
    Ok(rate(bytes, length))
}

/// An answer of four bytes is an older kernel's.
fn rate(bytes: [u8; 8], length: usize) -> Option<u64> {
    let [a, b, c, d, ..] = bytes;
    let short = u32::from_ne_bytes([a, b, c, d]);
    match length {
        8 => Some(u64::from_ne_bytes(bytes)).filter(|rate| *rate != NO_LIMIT),
        _ => Some(short).filter(|rate| *rate != NO_LIMIT_32).map(u64::from),
    }
}

/// Sets how many bytes a second the socket may send at most, segment heads included; None: no limit. Takes effect at
/// once, also for what is queued already. A Unix socket takes it and ignores it.
///
/// # Errors
/// The descriptor is no socket.
pub fn set_pacing_rate(fd: impl AsFd, bytes_per_second: Option<u64>) -> io::Result<()> {
    let value = bytes_per_second.unwrap_or(NO_LIMIT).to_ne_bytes();
    // SAFETY: the descriptor is open while it is borrowed, and the kernel only reads the eight bytes at the pointer.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes that were written to the socket and are not acknowledged by its peer yet, sent or not (`SIOCOUTQ`).
///
/// # Errors
/// The descriptor is no socket, or one that listens.
pub fn unsent_and_unacked(fd: impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SIOCOUTQ is TIOCOUTQ by another name (linux/sockios.h).
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes one int, which is what is pointed at.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { Ok(u64::try_from(bytes).unwrap_or(0)) } else { Err(io::Error::last_os_error()) }
}

/// `TCP_INFO` into `bytes`; how many of them the kernel filled: fewer the older it is.
///
/// # Errors
/// The descriptor is no TCP socket.
pub(crate) fn tcp_info(fd: impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    read_option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, bytes)
}

/// The kernel's own number for the network namespace that a socket was made in (`SO_NETNS_COOKIE`, Linux 5.14).
///
/// # Errors
/// The descriptor is no socket, or the kernel is older.
pub(crate) fn namespace_cookie(fd: impl AsFd) -> io::Result<u64> {
    let mut bytes = [0; 8];
    match read_option(fd, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut bytes)? {
        8 => Ok(u64::from_ne_bytes(bytes)),
        length => Err(io::Error::other(format!("SO_NETNS_COOKIE has {length} bytes"))),
    }
}

fn read_option(fd: impl AsFd, level: libc::c_int, name: libc::c_int, bytes: &mut [u8]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(bytes.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the descriptor is open while it is borrowed; `length` says how many bytes there are at the pointer (or
    // fewer), the kernel writes no more than that, and any byte is a valid u8.
    let result =
        unsafe { libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, bytes.as_mut_ptr().cast(), &raw mut length) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes.len().min(length as usize))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    #[test]
    fn a_rate_is_read_back_and_taken_away() {
        let (server, _client) = pair();
        assert_eq!(pacing_rate(&server).unwrap(), None);
        for rate in [1_000, 20_000_000, 5_000_000_000] {
            set_pacing_rate(&server, Some(rate)).unwrap();
            assert_eq!(pacing_rate(&server).unwrap(), Some(rate));
        }
        set_pacing_rate(&server, None).unwrap();
        assert_eq!(pacing_rate(&server).unwrap(), None);
    }

    #[test]
    fn an_older_kernel_answers_in_four_bytes() {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&7u32.to_ne_bytes());
        assert_eq!(rate(bytes, 4), Some(7));
        bytes[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(rate(bytes, 4), None);
        assert_eq!(rate(bytes, 8), Some(u64::from(u32::MAX)));
    }

    #[test]
    fn what_was_written_and_not_taken_stands_in_the_queue() {
        let (mut server, mut client) = pair();
        assert_eq!(unsent_and_unacked(&server).unwrap(), 0);
        // Paced to a crawl, most of it has to wait.
        set_pacing_rate(&server, Some(1_000)).unwrap();
        server.write_all(&[1; 200_000]).unwrap();
        assert!(unsent_and_unacked(&server).unwrap() > 100_000);
        set_pacing_rate(&server, None).unwrap();
        client.read_exact(&mut [0; 200_000]).unwrap();
    }

    #[test]
    fn what_is_no_socket_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(pacing_rate(&file).is_err());
        assert!(set_pacing_rate(&file, Some(1)).is_err());
        assert!(unsent_and_unacked(&file).is_err());
        assert!(tcp_info(&file, &mut [0; 8]).is_err());
    }
}
