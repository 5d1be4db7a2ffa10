//! One direction of a relay: reads what is there, writes it at once, and holds what the peer does not take. While it
//! holds something it reads nothing: a slow reader stops the sender, through the kernel's own buffers, and no memory
//! grows.

use super::buffers::{self, Buffer, QUANTUM};
use super::stream::Stream;
use backwater_flow::auto::UrgentStatement;
use std::io;
use std::task::{Context, Poll, ready};

/// So often a session is read, and so much of it relayed at most beyond one piece, before the other sessions of the worker
/// have their turn.
const TURNS: usize = 8;
pub(super) const TURN_BYTES: usize = 128 * 1024;

/// How much may be read now.
pub(super) trait Pacer {
    /// Bytes that may be read and sent, at least one; pending until some may.
    fn poll_credit(&mut self, cx: &mut Context<'_>, from: &Stream) -> Poll<io::Result<usize>>;

    /// So many of them were not used.
    fn unused(&mut self, bytes: usize);

    /// These were read, and are passed on.
    fn seen(&mut self, bytes: &[u8]);

    /// A statement that began and ended here was answered.
    fn answered(&mut self, _: UrgentStatement) {}
}

/// The state of one direction.
#[derive(Debug, Default)]
pub(super) struct Direction {
    held: Option<Held>,
    /// Nothing more comes.
    ended: bool,
    /// And the peer was told so.
    told: bool,
}

/// Bytes that were read and not yet written.
#[derive(Debug)]
struct Held {
    buffer: Buffer,
    from: usize,
    to: usize,
}

/// Which of the two sockets failed.
#[derive(Debug)]
pub(super) enum Fault {
    Read(io::Error),
    Write(io::Error),
}

impl Direction {
    /// A direction that has something to pass on already; none where it is more than a buffer holds.
    pub(super) fn holding(bytes: &[u8]) -> Option<Direction> {
        if bytes.is_empty() {
            return Some(Direction::default());
        }
        let mut buffer = buffers::take();
        buffer.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Direction { held: Some(Held { buffer, from: 0, to: bytes.len() }), ..Direction::default() })
    }

    /// Whether everything that came was passed on, the end included.
    pub(super) fn is_done(&self) -> bool {
        self.told
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_none()
    }

    /// Relays as long as both sockets let it and it is this session's turn. Ready when it is done.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
        pacer: &mut impl Pacer,
    ) -> Poll<Result<(), Fault>> {
        if self.told {
            return Poll::Ready(Ok(()));
        }
        let mut relayed = 0;
        for _ in 0..TURNS {
            if relayed >= TURN_BYTES {
                break;
            }
            ready!(self.poll_flush(cx, to)).map_err(Fault::Write)?;
            if self.ended {
                // A peer that is gone already needs no telling.
                let _ = ready!(to.poll_shutdown(cx));
                self.told = true;
                return Poll::Ready(Ok(()));
            }
            let most = ready!(pacer.poll_credit(cx, from)).map_err(Fault::Read)?.min(QUANTUM);
            let mut buffer = buffers::take();
            let read = from.poll_read(cx, &mut buffer[..most]);
            let count = if let Poll::Ready(Ok(count)) = read { count } else { 0 };
            pacer.unused(most - count);
            relayed += count;
            if count == 0 {
                buffers::give_back(buffer);
            } else {
                pacer.seen(&buffer[..count]);
                self.held = Some(Held { buffer, from: 0, to: count });
            }
            self.ended = ready!(read).map_err(Fault::Read)? == 0;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>, to: &mut Stream) -> Poll<io::Result<()>> {
        while let Some(held) = &mut self.held {
            let written = ready!(to.poll_write(cx, &held.buffer[held.from..held.to]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            held.from += written;
            if held.from == held.to
                && let Some(held) = self.held.take()
            {
                buffers::give_back(held.buffer);
            }
        }
        // What encryption still holds goes before anything more is read.
        to.poll_flush(cx)
    }
}
