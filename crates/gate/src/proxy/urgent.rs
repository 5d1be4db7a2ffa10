//! Urgent sessions: never paced, and what their statements take is told to the low class, which may be what slows them.

use super::buffers::QUANTUM;
use super::direction::Pacer;
use super::stream::Stream;
use backwater_flow::auto::UrgentStatement;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Poll};

/// Statements of one worker that are kept until somebody looks. More are not told: so many say it as well.
const KEPT: usize = 64;

/// Where the statements of one worker go. Telling takes no lock and never waits.
#[derive(Clone, Debug)]
pub(super) struct Answers(SyncSender<UrgentStatement>);

impl Answers {
    /// A worker's, and who hears of them.
    pub(super) fn new() -> (Answers, Receiver<UrgentStatement>) {
        let (told, heard) = sync_channel(KEPT);
        (Answers(told), heard)
    }
}

/// A session's way.
pub(super) struct Urgent(pub(super) Answers);

impl Pacer for Urgent {
    fn poll_credit(&mut self, _: &mut Context<'_>, _: &Stream) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(QUANTUM))
    }

    fn unused(&mut self, _: usize) {}

    fn seen(&mut self, _: &[u8]) {}

    fn answered(&mut self, statement: UrgentStatement) {
        // Where there is no room, nobody looks, or not so soon.
        let Answers(told) = &self.0;
        let _ = told.try_send(statement);
    }
}
