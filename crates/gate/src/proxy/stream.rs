//! A connection of either kind, TCP or Unix, as the relay needs it; and the options that are set on it.

use super::Address;
use socket2::{SockRef, TcpKeepalive};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// Bytes that may stand unsent in the kernel's buffer of an urgent session's socket before it counts as full.
pub(super) const URGENT_NOT_SENT_BYTES: u32 = 128 * 1024;
/// The same for the low class: what stands there is in front of whatever else this host sends.
pub(super) const LOW_NOT_SENT_BYTES: u32 = 16 * 1024;
/// A peer that is gone without a word is noticed after this long.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// A connection in a runtime.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection on its way from one runtime to another.
#[derive(Debug)]
pub(super) enum Detached {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Stream {
    /// Connects to a server.
    pub(super) async fn connect(address: &Address) -> io::Result<Stream> {
        match address {
            Address::Tcp(name) => Ok(Stream::Tcp(TcpStream::connect(name.as_str()).await?)),
            Address::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path).await?)),
        }
    }

    /// No Nagle, keepalive, and little in front of the kernel's queue. A Unix socket has none of these.
    pub(super) fn set_options(&self, not_sent_bytes: u32) -> io::Result<()> {
        let Stream::Tcp(stream) = self else { return Ok(()) };
        stream.set_nodelay(true)?;
        let socket = SockRef::from(stream);
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
        socket.set_tcp_notsent_lowat(not_sent_bytes)
    }

    /// How much may stand unsent in front of the kernel's queue.
    pub(super) fn set_not_sent(&self, bytes: u32) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => SockRef::from(stream).set_tcp_notsent_lowat(bytes),
            Stream::Unix(_) => Ok(()),
        }
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        let read = match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
        };
        read.map_ok(|()| buffer.filled().len())
    }

    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_read_ready(cx),
            Stream::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Whether the peer has said that it will say no more, even if not all that it said has been read. Wakes nobody.
    pub(super) fn is_closed(&self, cx: &mut Context<'_>) -> bool {
        let ready = match self {
            Stream::Tcp(stream) => pin!(stream.ready(Interest::READABLE)).poll(cx),
            Stream::Unix(stream) => pin!(stream.ready(Interest::READABLE)).poll(cx),
        };
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    /// Says that nothing more will be written; what was written still arrives.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    /// Reads some bytes; none at the end.
    pub(super) async fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, into)).await
    }

    /// Writes all of these bytes.
    pub(super) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = poll_fn(|cx| self.poll_write(cx, bytes)).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = &bytes[written..];
        }
        Ok(())
    }

    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_shutdown(cx)).await
    }

    /// Who is at the other end, for the log.
    pub(super) fn peer(&self) -> String {
        match self {
            Stream::Tcp(stream) => stream.peer_addr().map_or_else(|_| "gone".to_owned(), |address| address.to_string()),
            Stream::Unix(_) => "a Unix socket".to_owned(),
        }
    }

    /// The address of who is at the other end; None for a Unix socket.
    pub(super) fn peer_address(&self) -> Option<IpAddr> {
        match self {
            // Who is gone already comes from nowhere that anybody trusts.
            Stream::Tcp(stream) => {
                Some(stream.peer_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |address| address.ip()))
            }
            Stream::Unix(_) => None,
        }
    }

    /// What the title of the PostgreSQL process at the other end holds: our port, or that we came by a Unix socket.
    pub(super) fn title_mark(&self) -> String {
        match self {
            Stream::Tcp(stream) => {
                stream.local_addr().map_or_else(|_| "gone".to_owned(), |address| format!("({})", address.port()))
            }
            Stream::Unix(_) => "[local]".to_owned(),
        }
    }

    /// Takes it out of its runtime.
    pub(super) fn detach(self) -> io::Result<Detached> {
        match self {
            Stream::Tcp(stream) => stream.into_std().map(Detached::Tcp),
            Stream::Unix(stream) => stream.into_std().map(Detached::Unix),
        }
    }
}

impl Detached {
    /// Puts it into the runtime that this is called in.
    pub(super) fn attach(self) -> io::Result<Stream> {
        match self {
            Detached::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
            Detached::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix),
        }
    }
}
