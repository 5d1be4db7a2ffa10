//! Follows one session on both sides: feeds its tracker, publishes its figures, and holds a new statement back while its
//! pool has no turn for it, or while a cancel request could still hit it.

use super::buffers::QUANTUM;
use super::direction::Pacer;
use super::live::{Doing, Live};
use super::log_limit::{self, shown};
use super::stream::Stream;
use super::turns::Turn;
use crate::clock;
use crate::wire::{Side, Tracker};
use backwater_flow::auto::UrgentStatement;
use backwater_model::Moment;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// What is known of a session, and its turn.
#[derive(Debug)]
pub(super) struct Follow {
    pub(super) tracker: Tracker,
    pub(super) live: Arc<Live>,
    turn: Option<Turn>,
    waiting: bool,
    /// When the client last said something of the statement that runs.
    asked_at: Option<Moment>,
}

impl Follow {
    pub(super) fn new(tracker: Tracker, live: Arc<Live>) -> Self {
        Follow { tracker, live, turn: None, waiting: false, asked_at: None }
    }

    /// It goes on in another class: a statement that runs is of neither.
    pub(super) fn begin_again(&mut self) {
        self.asked_at = None;
    }

    /// Whether it waits for its turn.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Bytes pass. What is returned is the statement that they end.
    pub(super) fn pass(&mut self, side: Side, bytes: &[u8]) -> Option<UrgentStatement> {
        let (messages, transactions) = (self.tracker.messages(), self.tracker.transactions());
        self.tracker.pass(side, bytes);
        let changed_at = self.live.passed(side, bytes.len(), &self.tracker);
        if self.tracker.transactions() != transactions {
            self.live.lets_go(changed_at.unwrap_or_else(clock::now));
        }
        self.take_turn(side, self.tracker.messages() != messages);
        if changed_at.is_some() && self.live.doing() == Doing::Hidden {
            let (session, user) = (self.live.identity.id, &self.live.identity.user);
            // Also of one that has not logged in, which anybody can bring about.
            let user = shown(user);
            let line =
                || tracing::warn!(%session, %user, "it can no longer be followed: no rule or max_active reaches it");
            log_limit::NOT_FOLLOWED.write(line);
        }
        if self.live.doing() != Doing::Running {
            let (began, ended) = (self.asked_at.take()?, changed_at?);
            return Some(UrgentStatement { began, ended });
        }
        if side == Side::Up {
            // What the client takes to say it all is its own time.
            self.asked_at = Some(changed_at.unwrap_or_else(clock::now));
        }
        None
    }

    /// Takes a turn for what runs, and gives back that of what does not. `told`: it is known now of a message what it is.
    fn take_turn(&mut self, side: Side, told: bool) {
        match self.live.doing() {
            // Ready, or a message that needed no turn.
            Doing::Idle | Doing::Hidden => self.turn = None,
            Doing::Between | Doing::Speaking if side == Side::Down => self.turn = None,
            // Data of a copy that has failed already, as some clients send them to the end: it has time for as long as they come.
            Doing::Speaking => {
                if told {
                    self.turn = None;
                }
                self.live.begins_anew();
            }
            // In a transaction nobody waits, but who runs is counted.
            Doing::Running if self.turn.is_none() && self.live.needs_turns() => {
                self.turn = Some(self.live.pool.turns.take());
            }
            _ => {}
        }
    }

    /// Whether the client may say something now. Pending until its turn has come; the session is called then.
    fn poll_turn(&mut self, cx: &mut Context<'_>, client: &Stream) -> Poll<io::Result<()>> {
        let doing = self.live.doing();
        // Also within a transaction: a request that is on its way would hit the next statement.
        if matches!(doing, Doing::Idle | Doing::Between | Doing::Speaking) && self.live.is_cancelling() {
            return Poll::Pending;
        }
        // What has begun and is not known yet may be a statement.
        if !matches!(doing, Doing::Idle | Doing::Speaking) {
            return Poll::Ready(Ok(()));
        }
        if self.waiting {
            return self.poll_waiting(cx, client);
        }
        if self.turn.is_some() || !self.live.needs_turns() {
            return Poll::Ready(Ok(()));
        }
        // A turn is asked for only when there is something to say.
        ready!(client.poll_read_ready(cx))?;
        self.turn = self.live.pool.turns.ask(&self.live);
        self.live.waited(clock::now());
        if self.turn.is_some() {
            return Poll::Ready(Ok(()));
        }
        self.waiting = true;
        self.live.waits(clock::now());
        self.poll_waiting(cx, client)
    }

    fn poll_waiting(&mut self, cx: &mut Context<'_>, client: &Stream) -> Poll<io::Result<()>> {
        if client.is_closed(cx) {
            // What it asked for, nobody waits for any more: the server need not begin it.
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        // Who is to end begins nothing more.
        if self.live.ending().is_some() || !self.live.take_grant() {
            return Poll::Pending;
        }
        self.turn = Some(self.live.pool.turns.held());
        if !self.live.waited(clock::now()) {
            // It was ended between the two looks: the turn goes with it.
            return Poll::Pending;
        }
        self.waiting = false;
        Poll::Ready(Ok(()))
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        if self.waiting {
            self.live.pool.turns.leave(&self.live);
            self.live.waited(clock::now());
        }
    }
}

/// The client's side.
pub(super) struct Upward<'f>(pub(super) &'f mut Follow);

impl Pacer for Upward<'_> {
    fn poll_credit(&mut self, cx: &mut Context<'_>, from: &Stream) -> Poll<io::Result<usize>> {
        self.0.poll_turn(cx, from).map_ok(|()| QUANTUM)
    }

    fn unused(&mut self, bytes: usize) {
        if bytes == QUANTUM && self.0.live.doing() == Doing::Idle {
            // It had nothing to say after all: no more than a part of what its encryption makes of a message.
            self.0.turn = None;
        }
    }

    fn seen(&mut self, bytes: &[u8]) {
        // What a client says ends no statement.
        let _ = self.0.pass(Side::Up, bytes);
    }
}

/// The server's side, at the class's pace.
pub(super) struct Downward<'f, P>(pub(super) &'f mut Follow, pub(super) &'f mut P);

impl<P: Pacer> Pacer for Downward<'_, P> {
    fn poll_credit(&mut self, cx: &mut Context<'_>, from: &Stream) -> Poll<io::Result<usize>> {
        self.1.poll_credit(cx, from)
    }

    fn unused(&mut self, bytes: usize) {
        self.1.unused(bytes);
    }

    fn seen(&mut self, bytes: &[u8]) {
        if let Some(statement) = self.0.pass(Side::Down, bytes) {
            self.1.answered(statement);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::live::{Ending, Identity};
    use super::super::pools::LivePool;
    use super::*;
    use backwater_flow::{PoolId, SessionId};
    use backwater_model::Span;
    use std::task::Waker;
    use tokio::net::UnixStream;

    /// A session that is logged in, with the turn of a pool that has one.
    fn with_turn() -> Follow {
        let identity = Identity::of_test(SessionId(1));
        let pool = LivePool::new("one", PoolId(0));
        pool.turns.limit(Some(1));
        let mut follow = Follow::new(Tracker::new(), Live::new(identity, pool, false));
        follow.pass(Side::Down, b"Z\0\0\0\x05I");
        follow.turn = follow.live.pool.turns.ask(&follow.live);
        assert_eq!(follow.live.pool.turns.counts(), (1, 0));
        follow
    }

    fn active(follow: &Follow) -> u32 {
        follow.live.pool.turns.counts().0
    }

    #[test]
    fn who_was_let_go_is_held_again_after_its_transaction_also_within_a_pipeline() {
        let mut follow = with_turn();
        follow.pass(Side::Up, b"Q\0\0\0\x04Q\0\0\0\x04Q\0\0\0\x04");
        let soon = || clock::now() + Span(1);
        let blocked_at = soon();
        assert!(follow.live.free(blocked_at) && !follow.live.free(blocked_at));
        follow.pass(Side::Down, b"Z\0\0\0\x05T");
        assert!(follow.live.is_freed(), "its transaction is open");
        while clock::now() <= blocked_at {}
        follow.pass(Side::Down, b"Z\0\0\0\x05I");
        assert_eq!((follow.live.doing(), follow.live.is_freed()), (Doing::Running, false));
        assert!(!follow.live.free(blocked_at) && !follow.live.is_freed(), "that was of the transaction before");
        assert!(follow.live.free(soon()));
    }

    /// A session with a turn, and one that waited for it until now, when it is granted.
    fn with_granted() -> (Follow, Follow) {
        let mut first = with_turn();
        let live = Live::new(Identity::of_test(SessionId(2)), Arc::clone(&first.live.pool), false);
        let mut second = Follow::new(Tracker::new(), live);
        second.turn = first.live.pool.turns.ask(&second.live);
        second.waiting = second.turn.is_none();
        second.live.waits(clock::now());
        first.turn = None;
        assert_eq!(active(&first), 1, "it is granted");
        (first, second)
    }

    /// Whether one that waits goes on, once it looks.
    fn goes_on(follow: &mut Follow) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _entered = runtime.enter();
        let (client, _other_end) = UnixStream::pair().unwrap();
        let (client, mut cx) = (Stream::from(client), Context::from_waker(Waker::noop()));
        matches!(follow.poll_waiting(&mut cx, &client), Poll::Ready(Ok(())))
    }

    fn cancelled() -> Ending {
        Ending { sqlstate: "57014", why: String::new() }
    }

    #[test]
    fn who_is_to_end_takes_no_turn_that_was_granted_meanwhile() {
        let (first, mut second) = with_granted();
        second.live.end(cancelled());
        assert!(!goes_on(&mut second));
        drop(second);
        assert_eq!(active(&first), 0);
    }

    #[test]
    fn a_cancel_finds_what_waits_or_what_runs_and_nothing_in_between() {
        let (first, mut second) = with_granted();
        assert!(second.live.end_waiting(cancelled()) && !goes_on(&mut second));
        drop(second);
        assert_eq!(active(&first), 0);

        // Ended by somebody who has not said so yet.
        let (first, mut second) = with_granted();
        assert!(second.live.waited(clock::now()));
        assert!(!goes_on(&mut second) && !goes_on(&mut second));
        drop(second);
        assert_eq!(active(&first), 0);

        // The server has to hear of the cancel, and the session lives.
        let (first, mut second) = with_granted();
        assert!(goes_on(&mut second));
        assert!(!second.live.end_waiting(cancelled()) && second.live.ending().is_none());
        assert_eq!(active(&first), 1);
    }

    #[test]
    fn what_a_statement_waited_is_not_held_against_the_next() {
        let (first, mut follow) = with_granted();
        follow.pass(Side::Down, b"Z\0\0\0\x05I");
        follow.live.waits(clock::now());
        let waited = |follow: &Follow| follow.live.glimpse(clock::now()).waited;
        while waited(&follow) == Span(0) {}
        assert!(goes_on(&mut follow));
        follow.pass(Side::Up, b"Q\0\0\0\x04");
        assert_eq!(follow.live.doing(), Doing::Running);
        assert!(waited(&follow) > Span(0));
        // The next one in the same transaction asks for no turn.
        follow.pass(Side::Down, b"Z\0\0\0\x05T");
        follow.pass(Side::Up, b"Q\0\0\0\x04");
        assert_eq!((follow.live.doing(), waited(&follow)), (Doing::Running, Span(0)));
        drop(first);
    }

    #[test]
    fn who_was_idle_for_too_long_is_not_ended_once_he_speaks() {
        let mut follow = with_turn();
        let since = follow.live.glimpse(clock::now()).since;
        let overstays = |follow: &Follow| follow.live.end_while(Doing::Idle, since, cancelled());
        overstays(&follow);
        assert_eq!(follow.live.ending().map(|ending| ending.sqlstate), Some("57014"), "he is idle still");
        follow.pass(Side::Up, b"Q\0\0\0\x04");
        assert!(follow.live.ending().is_none());
        // Idle anew, which is another matter; and what a rule says counts whatever he does.
        follow.pass(Side::Down, b"Z\0\0\0\x05I");
        overstays(&follow);
        follow.live.end(Ending { sqlstate: "57P01", why: String::new() });
        overstays(&follow);
        follow.pass(Side::Up, b"Q\0\0\0\x04");
        assert_eq!(follow.live.ending().map(|ending| ending.sqlstate), Some("57P01"));
    }

    #[test]
    fn a_turn_goes_back_where_nothing_is_said_after_all() {
        let mut follow = with_turn();
        Upward(&mut follow).unused(QUANTUM);
        assert_eq!(active(&follow), 0);
    }

    #[test]
    fn a_turn_is_kept_by_what_may_become_a_statement_and_by_nothing_else() {
        let mut follow = with_turn();
        follow.pass(Side::Up, b"Q\0\0");
        Upward(&mut follow).unused(QUANTUM);
        assert_eq!((follow.live.doing(), active(&follow)), (Doing::Speaking, 1));
        follow.pass(Side::Up, b"\0\x0dSELECT 1\0");
        assert_eq!((follow.live.doing(), active(&follow)), (Doing::Running, 1));

        // Data of a copy that nobody takes any more, message after message, none of which ends with what was read.
        let mut follow = with_turn();
        follow.pass(Side::Up, b"d\0\0");
        let since = follow.live.glimpse(clock::now()).since;
        follow.pass(Side::Up, b"\0\x05xd\0\0");
        assert_eq!((follow.live.doing(), active(&follow)), (Doing::Speaking, 0));
        while clock::now() == since {}
        follow.pass(Side::Up, b"\0\x05xd\0\0");
        assert!(follow.live.glimpse(clock::now()).since > since, "each has its time");
    }
}
