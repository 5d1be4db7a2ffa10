//! A connection of either kind, TCP or Unix, encrypted or not, as the relay needs it; and the options that are set on it.

use super::buffers;
use super::direction::TURN_BYTES;
use super::secure::Secure;
use crate::clock;
use backwater_model::Span;
use backwater_socket::{WITHIN_HOST_CONGESTION, within_host};
use socket2::{SockRef, TcpKeepalive};
use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UnixStream};

/// Bytes that may stand unsent in the kernel's buffer of an urgent session's socket before it counts as full.
pub(super) const URGENT_NOT_SENT_BYTES: u32 = 128 * 1024;
/// The same for the low class: what stands there is in front of whatever else this host sends.
pub(super) const LOW_NOT_SENT_BYTES: u32 = 16 * 1024;
/// The same of a connection that stays on this host: no link lies there, and nobody stands behind it.
const WITHIN_HOST_NOT_SENT_BYTES: u32 = 512 * 1024;
/// A peer that is gone without a word while nothing is on its way to it is noticed after a minute: silence, then questions that
/// nobody answers. While something is on its way the kernel's own patience holds (`net.ipv4.tcp_retries2`, about 15 minutes):
/// TCP_USER_TIMEOUT would shorten that, but since Linux 5.11 it ends a peer too that is there and does not read, as a pager does.
const SILENCE: Duration = Duration::from_secs(30);
const QUESTION_EVERY: Duration = Duration::from_secs(10);
const QUESTIONS: u32 = 3;
/// What a peer that was told to leave still says is read up to here: more than the kernels hold of a connection (net.ipv4.tcp_rmem and
/// tcp_wmem). Who has had so much taken from him since has got his last words.
const MOST_UNHEARD_BYTES: usize = 16 << 20;
/// A Unix socket whose queue of connections is full says so at once, where TCP waits: it is asked again after this.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// A connection in a runtime.
#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    secure: Option<Box<Secure>>,
}

/// A socket in a runtime.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection on its way from one runtime to another.
#[derive(Debug)]
pub(super) struct Detached {
    socket: DetachedSocket,
    secure: Option<Box<Secure>>,
}

#[derive(Debug)]
enum DetachedSocket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Socket {
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        let read = match self {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
        };
        read.map_ok(|()| buffer.filled().len())
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(stream) => stream.poll_read_ready(cx),
            Socket::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream { socket: Socket::Tcp(stream), secure: None }
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Stream {
        Stream { socket: Socket::Unix(stream), secure: None }
    }
}

/// Sets what a connection with this address, or one that is accepted at it, must have from its beginning. No Nagle: keys are agreed on
/// in several small pieces, each of which would wait until the peer, who waits too, acknowledges the one before. And to begin as one
/// within the host, where the address tells that it is: timers that a kernel has begun to pace a connection by stay to its end.
pub(super) fn begin(socket: &SockRef<'_>, address: SocketAddr) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    if address.ip().to_canonical().is_loopback() {
        pace_within_host(socket);
    }
    Ok(())
}

/// Has a connection that stays on this host find its speed as one ([`WITHIN_HOST_CONGESTION`]).
fn pace_within_host(socket: &SockRef<'_>) {
    if let Err(error) = socket.set_tcp_congestion(WITHIN_HOST_CONGESTION.as_bytes()) {
        tracing::debug!(%error, "a connection within this host keeps its congestion control");
    }
}

impl Stream {
    /// Connects to a server by TCP.
    pub(super) async fn connect(address: SocketAddr) -> io::Result<Stream> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        begin(&SockRef::from(&socket), address)?;
        socket.connect(address).await.map(Stream::from)
    }

    /// Connects to a server by its Unix socket, for as long as its queue of connections is full. Needs the runtime's timer.
    pub(super) async fn connect_local(path: &Path) -> io::Result<Stream> {
        loop {
            match UnixStream::connect(path).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(ASK_AGAIN_AFTER).await;
                }
                connected => return connected.map(Stream::from),
            }
        }
    }

    /// Encrypts it from now on: both ends agree on keys first.
    pub(super) async fn encrypt(mut self, mut secure: Secure) -> io::Result<Stream> {
        poll_fn(|cx| secure.poll_handshake(cx, &mut self.socket)).await?;
        Ok(Stream { socket: self.socket, secure: Some(Box::new(secure)) })
    }

    /// What encrypts it; None where nothing does.
    pub(super) fn secure(&self) -> Option<&Secure> {
        self.secure.as_deref()
    }

    /// Whether it stays within this host.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.socket, Socket::Unix(_))
    }

    /// Keepalive, and little in front of the kernel's queue. A Unix socket has none of these.
    pub(super) fn set_options(&self, not_sent_bytes: u32) -> io::Result<()> {
        let Socket::Tcp(stream) = &self.socket else { return Ok(()) };
        let socket = SockRef::from(stream);
        if is_within_host(stream) {
            pace_within_host(&socket);
        }
        let keepalive = TcpKeepalive::new().with_time(SILENCE).with_interval(QUESTION_EVERY).with_retries(QUESTIONS);
        socket.set_tcp_keepalive(&keepalive)?;
        self.set_not_sent(not_sent_bytes)
    }

    /// How much may stand unsent in front of the kernel's queue, where that is in front of others.
    pub(super) fn set_not_sent(&self, bytes: u32) -> io::Result<()> {
        let Socket::Tcp(stream) = &self.socket else { return Ok(()) };
        let bytes = if is_within_host(stream) { WITHIN_HOST_NOT_SENT_BYTES } else { bytes };
        SockRef::from(stream).set_tcp_notsent_lowat(bytes)
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        match &mut self.secure {
            Some(secure) => secure.poll_read(cx, &mut self.socket, into),
            None => self.socket.poll_read(cx, into),
        }
    }

    /// Whether there may be something to read.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.secure {
            Some(secure) if secure.has_plaintext() => Poll::Ready(Ok(())),
            _ => self.socket.poll_read_ready(cx),
        }
    }

    /// Whether the peer has said that it will say no more, even if not all that it said has been read. Wakes nobody.
    pub(super) fn is_closed(&self, cx: &mut Context<'_>) -> bool {
        let ready = match &self.socket {
            Socket::Tcp(stream) => pin!(stream.ready(Interest::READABLE)).poll(cx),
            Socket::Unix(stream) => pin!(stream.ready(Interest::READABLE)).poll(cx),
        };
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Whether something that the peer said waits to be read. The kernel is asked: what the runtime knows may be older.
    pub(super) fn has_unread(&self) -> bool {
        let socket = match &self.socket {
            Socket::Tcp(stream) => SockRef::from(stream),
            Socket::Unix(stream) => SockRef::from(stream),
        };
        socket.peek(&mut [MaybeUninit::uninit()]).is_ok_and(|count| count > 0)
    }

    /// Whether something that was taken is still to be sent: what encrypts holds it.
    pub(super) fn has_unsent(&self) -> bool {
        self.secure().is_some_and(Secure::has_unsent)
    }

    /// Takes some of these bytes. What was taken and not sent yet goes with the next write, or by [`Stream::poll_flush`].
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.secure {
            Some(secure) => secure.poll_write(cx, &mut self.socket, bytes),
            None => self.socket.poll_write(cx, bytes),
        }
    }

    /// Sends what was taken.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.secure {
            Some(secure) => secure.poll_send(cx, &mut self.socket),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Says that nothing more will be written; what was written still arrives.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(secure) = &mut self.secure {
            secure.close();
            ready!(secure.poll_send(cx, &mut self.socket))?;
        }
        self.socket.poll_shutdown(cx)
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
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_shutdown(cx)).await
    }

    /// Reads what the peer still says and throws it away, for so long at most ([`Stream::hear_out`]).
    pub(super) async fn linger(&mut self, most: Span) {
        // Whoever does not end in time is cut off.
        let _ = clock::within(most, self.hear_out()).await;
    }

    /// Reads what the peer still says and throws it away, to its end and so much at most. To be done after the last words: a
    /// connection that is closed with something unread is reset, and what the peer has not got yet is lost to it. No buffer is held
    /// meanwhile.
    pub(super) async fn hear_out(&mut self) {
        let (mut unheard, mut turn) = (0, 0);
        while unheard < MOST_UNHEARD_BYTES {
            let count = match poll_fn(|cx| self.poll_unheard(cx)).await {
                Ok(count) if count > 0 => count,
                _ => return,
            };
            unheard += count;
            turn += count;
            // Others have their turn, as of a session that is relayed.
            if turn >= TURN_BYTES {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    fn poll_unheard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut void = buffers::take();
        let read = self.poll_read(cx, &mut void[..]);
        buffers::give_back(void);
        read
    }

    /// Who is at the other end.
    pub(super) fn peer(&self) -> Peer {
        match &self.socket {
            Socket::Tcp(stream) => stream.peer_addr().map_or(Peer::Gone, Peer::Tcp),
            Socket::Unix(_) => Peer::Unix,
        }
    }

    /// What the title of the PostgreSQL process at the other end holds: our port, or that we came by a Unix socket.
    pub(super) fn title_mark(&self) -> String {
        match &self.socket {
            Socket::Tcp(stream) => {
                stream.local_addr().map_or_else(|_| "gone".to_owned(), |address| format!("({})", address.port()))
            }
            Socket::Unix(_) => "[local]".to_owned(),
        }
    }

    /// The other end of a TCP connection.
    pub(super) fn other_address(&self) -> Option<SocketAddr> {
        let Socket::Tcp(stream) = &self.socket else { return None };
        stream.peer_addr().ok()
    }

    /// Our own end of a TCP connection.
    pub(super) fn own_address(&self) -> Option<SocketAddr> {
        let Socket::Tcp(stream) = &self.socket else { return None };
        let address = stream.local_addr().ok()?;
        Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }

    /// Takes it out of its runtime.
    pub(super) fn detach(self) -> io::Result<Detached> {
        let socket = match self.socket {
            Socket::Tcp(stream) => stream.into_std().map(DetachedSocket::Tcp)?,
            Socket::Unix(stream) => stream.into_std().map(DetachedSocket::Unix)?,
        };
        Ok(Detached { socket, secure: self.secure })
    }
}

/// Who is at the other end of a connection, as its log names it.
pub(super) enum Peer {
    Tcp(SocketAddr),
    Unix,
    Gone,
}

impl Peer {
    /// Its address; None for a Unix socket.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self {
            Peer::Tcp(address) => Some(address.ip()),
            // It comes from nowhere that anybody trusts.
            Peer::Gone => Some(Ipv4Addr::UNSPECIFIED.into()),
            Peer::Unix => None,
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Tcp(address) => address.fmt(f),
            Peer::Unix => f.write_str("a Unix socket"),
            Peer::Gone => f.write_str("gone"),
        }
    }
}

/// Whether both ends are on this host. Of one that is gone nothing is known, and it is of no account.
fn is_within_host(stream: &TcpStream) -> bool {
    let ends = stream.local_addr().and_then(|local| Ok((local, stream.peer_addr()?)));
    ends.is_ok_and(|(local, peer)| within_host(local.ip(), peer.ip()))
}

/// As a driver wants it.
impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let count = ready!(Stream::poll_read(self.get_mut(), cx, into.initialize_unfilled()))?;
        into.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Stream::poll_write(self.get_mut(), cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Stream::poll_flush(self.get_mut(), cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Stream::poll_shutdown(self.get_mut(), cx)
    }
}

impl Detached {
    /// A duplicate of it where it is TCP, to ask the kernel about.
    pub(super) fn tcp(&self) -> io::Result<Option<OwnedFd>> {
        match &self.socket {
            DetachedSocket::Tcp(stream) => stream.as_fd().try_clone_to_owned().map(Some),
            DetachedSocket::Unix(_) => Ok(None),
        }
    }

    /// Puts it into the runtime that this is called in.
    pub(super) fn attach(self) -> io::Result<Stream> {
        let socket = match self.socket {
            DetachedSocket::Tcp(stream) => TcpStream::from_std(stream).map(Socket::Tcp)?,
            DetachedSocket::Unix(stream) => UnixStream::from_std(stream).map(Socket::Unix)?,
        };
        Ok(Stream { socket, secure: self.secure })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn who_speaks_on_after_the_last_words_does_not_take_the_others_turn() {
        let (mut far, near) = std::os::unix::net::UnixStream::pair().unwrap();
        SockRef::from(&far).set_send_buffer_size(1 << 20).unwrap();
        for socket in [&far, &near] {
            socket.set_nonblocking(true).unwrap();
        }
        let mut said = 0;
        while let Ok(count) = far.write(&[0; 65_536]) {
            said += count;
        }
        drop(far);
        let mut stream = Stream::from(UnixStream::from_std(near).unwrap());
        poll_fn(|cx| stream.poll_read_ready(cx)).await.unwrap();
        {
            let mut linger = pin!(stream.linger(Span::from_millis(60_000)));
            let waits = poll_fn(|cx| Poll::Ready(linger.as_mut().poll(cx).is_pending())).await;
            // Of a host that lets a socket hold little that tells nothing.
            assert!(waits || said <= 2 * TURN_BYTES, "{said} bytes at once");
        }
        let (mut rest, mut some) = (0, vec![0; 65_536]);
        while let Ok(count @ 1..) = stream.read(&mut some).await {
            rest += count;
        }
        // `clock::within` looks twice at the first time.
        assert!(said - rest <= 2 * (TURN_BYTES + buffers::QUANTUM), "{rest} of {said}");
    }

    #[tokio::test]
    async fn a_server_whose_queue_is_full_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server");
        let listener = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        listener.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(0).unwrap();
        let _first = UnixStream::connect(&path).await.unwrap();
        assert_eq!(UnixStream::connect(&path).await.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let mut next = pin!(Stream::connect_local(&path));
        let waits = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await;
        assert!(waits);
        let _taken = listener.accept().unwrap();
        assert!(next.await.unwrap().is_local());
    }

    #[tokio::test]
    async fn a_silent_peer_is_noticed_after_a_minute_and_a_sleeping_one_is_left_alone() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = Stream::from(stream);
        stream.set_options(URGENT_NOT_SENT_BYTES).unwrap();
        let Socket::Tcp(tcp) = &stream.socket else { panic!("{stream:?}") };
        let socket = SockRef::from(tcp);
        let questions = socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
        assert_eq!(socket.tcp_keepalive_time().unwrap() + questions, Duration::from_secs(60));
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), None);
        let control = socket.tcp_congestion().unwrap();
        assert!(control.starts_with(WITHIN_HOST_CONGESTION.as_bytes()), "{control:?}");
        stream.set_not_sent(LOW_NOT_SENT_BYTES).unwrap();
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), WITHIN_HOST_NOT_SENT_BYTES, "no link lies there");
    }

    #[tokio::test]
    async fn a_connection_with_this_host_begins_as_one() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = Stream::connect(listener.local_addr().unwrap()).await.unwrap();
        let Socket::Tcp(tcp) = &stream.socket else { panic!("{stream:?}") };
        let control = SockRef::from(tcp).tcp_congestion().unwrap();
        assert!(control.starts_with(WITHIN_HOST_CONGESTION.as_bytes()), "{control:?}");
        assert!(tcp.nodelay().unwrap(), "and waits for no acknowledgement");
    }
}
