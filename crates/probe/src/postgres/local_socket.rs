//! The Unix socket to a server on this host, with one wake-up for an answer. tokio's own waits for room to write at all
//! times, and each time the server reads a query the kernel says that there is room: a wake-up for nothing at every look
//! (24 switches of the probe's thread a second instead of 34, where measured). Rows may be kept aside here, so that a long
//! answer is one wake-up too, or two.

use super::aside::Aside;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// How long the rest of an answer is waited for whose rows are kept, which counts as the server's time. The server sends 8 KiB
/// at a time, and whoever sleeps until there is more is woken by each, in the server's place where both share a processor.
const REST: Duration = Duration::from_micros(100);

/// A stream that waits for room only while it has found none.
#[derive(Debug)]
pub(super) struct LocalSocket {
    stream: AsyncFd<OwnedFd>,
    /// The same socket, while there is no room to write.
    full: Option<AsyncFd<OwnedFd>>,
    aside: Aside,
}

impl LocalSocket {
    /// Connects to the socket of that name.
    ///
    /// # Errors
    /// As [`tokio::net::UnixStream::connect`].
    pub(super) async fn connect(path: &Path) -> io::Result<LocalSocket> {
        LocalSocket::new(tokio::net::UnixStream::connect(path).await?.into_std()?)
    }

    fn new(stream: UnixStream) -> io::Result<LocalSocket> {
        stream.set_nonblocking(true)?;
        Ok(LocalSocket { stream: waiting(stream.into(), Interest::READABLE)?, full: None, aside: Aside::default() })
    }

    /// Where rows can be kept that come by this socket.
    pub(super) fn aside(&self) -> Aside {
        self.aside.clone()
    }
}

fn waiting(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // The other way in is unsafe because of types that may close or exchange their descriptor; an OwnedFd does neither.
    #[expect(deprecated, reason = "safe for an OwnedFd, and needs no unsafe block")]
    AsyncFd::with_interest(socket, interest)
}

impl AsyncRead for LocalSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut aside = self.aside.lock();
        let mut awaits_rest = false;
        loop {
            // What is handed on has the library read at once, which would find nothing: first the rest is looked for.
            if !std::mem::take(&mut awaits_rest) && aside.hand_on(buffer) {
                return Poll::Ready(Ok(()));
            }
            let mut ready = ready!(self.stream.poll_read_ready(context))?;
            let keeps = aside.keeps();
            let into = if keeps { aside.room() } else { buffer.initialize_unfilled() };
            let wanted = into.len();
            match ready.try_io(|stream| Ok(rustix::io::retry_on_intr(|| rustix::io::read(stream, &mut *into))?)) {
                Ok(Ok(count)) if keeps && count > 0 => {
                    aside.came(count)?;
                    awaits_rest = aside.awaits_rest();
                    if count < wanted && awaits_rest {
                        std::thread::sleep(REST);
                    } else if count < wanted {
                        ready.clear_ready();
                    }
                }
                // The end, or an error, waits for the server's last words.
                Ok(_) if keeps && aside.hand_on(buffer) => return Poll::Ready(Ok(())),
                Ok(Ok(count)) => {
                    // Less than was asked for is all there is, and what comes later is told: no look in vain.
                    if 0 < count && count < wanted {
                        ready.clear_ready();
                    }
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for LocalSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            if let Some(full) = &self.full {
                let mut ready = ready!(full.poll_write_ready(context))?;
                ready.clear_ready();
            }
            match send(self.stream.get_ref(), bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(count) => {
                    self.full = None;
                    return Poll::Ready(Ok(count));
                }
                Err(rustix::io::Errno::AGAIN) if self.full.is_none() => {
                    self.full = Some(waiting(self.stream.get_ref().try_clone()?, Interest::WRITABLE)?);
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(self.stream.get_ref(), Shutdown::Write)?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::ErrorKind;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn much_more_than_a_buffer_goes_both_ways_and_the_end_is_seen() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut ours, mut theirs) = (LocalSocket::new(ours).unwrap(), LocalSocket::new(theirs).unwrap());
        let sent: Vec<u8> = (0..4_000_000_u32).map(|number| (number % 251) as u8).collect();
        let expected = sent.clone();
        let echo = tokio::spawn(async move {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).await.unwrap();
            theirs.write_all(&all).await.unwrap();
            theirs.shutdown().await.unwrap();
        });
        ours.write_all(&sent).await.unwrap();
        assert!(ours.full.is_none(), "room is waited for only while there is none");
        ours.shutdown().await.unwrap();
        let mut back = Vec::new();
        ours.read_to_end(&mut back).await.unwrap();
        echo.await.unwrap();
        assert!(back == expected);
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind], (body.len() as u32 + 4).to_be_bytes().as_slice(), body].concat()
    }

    #[tokio::test]
    async fn rows_that_are_kept_come_in_pieces_and_what_follows_goes_on() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut ours = LocalSocket::new(ours).unwrap();
        let aside = ours.aside();
        let rows: Vec<u8> = (0..1_000).flat_map(|row: u32| message(b'D', &vec![row as u8; row as usize])).collect();
        let (begins, ends) = (message(b'2', b""), message(b'Z', b"I"));
        // The end of a query that failed before this one.
        let sent = [&ends, &begins, &rows, &ends, b"and what follows".as_slice()].concat();
        for round in 0..3 {
            aside.keep(Vec::new());
            let (bytes, mut server) = (sent.clone(), theirs.try_clone().unwrap());
            let sending = std::thread::spawn(move || {
                for piece in bytes.chunks([8_192, 70_000, 1_000_000][round]) {
                    std::io::Write::write_all(&mut server, piece).unwrap();
                }
            });
            let mut handed = vec![0; sent.len() - rows.len()];
            let reading = tokio::time::timeout(Duration::from_secs(60), ours.read_exact(&mut handed));
            reading.await.unwrap().unwrap();
            assert_eq!(handed, [&ends, &begins, &ends, b"and what follows".as_slice()].concat());
            sending.join().unwrap();
            assert!(aside.take() == rows && rows.len() > 400_000);
        }
        aside.keep(Vec::new());
        let last_words = message(b'E', b"SFATAL\0");
        std::io::Write::write_all(&mut theirs, &last_words).unwrap();
        drop(theirs);
        let mut handed = Vec::new();
        ours.read_to_end(&mut handed).await.unwrap();
        assert_eq!(handed, last_words, "the end waits for them");
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_is_an_error_and_no_signal() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut ours = LocalSocket::new(ours).unwrap();
        drop(theirs);
        assert_eq!(ours.write_all(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(ours.read(&mut [0; 8]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_socket_that_is_not_there_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let error = LocalSocket::connect(&dir.path().join("none")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
