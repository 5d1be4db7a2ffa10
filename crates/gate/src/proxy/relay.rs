//! One session's relay: both directions, what the session is doing, and how it comes to an end.

use super::direction::{Direction, Fault, Pacer};
use super::follow::{Downward, Follow, Upward};
use super::last_words::{self, LAST_WORDS_WITHIN};
use super::live::{Ending, Live};
use super::stream::{Detached, Stream};
use crate::clock;
use crate::wire::{Side, TERMINATE};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};

/// How a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// Both sides said that they are done.
    Closed,
    /// The server is done; what the client still says goes nowhere.
    ServerDone,
    /// Somebody ended it.
    Told(Ending),
    /// It was quiet, and the proxy drains.
    Quiet,
    /// A socket failed: which, and why.
    Failed(&'static str, io::Error),
}

/// Two sockets and what goes between them.
#[derive(Debug)]
pub(super) struct Relay {
    client: Stream,
    server: Stream,
    middle: Middle,
}

/// What lies between the two sockets.
#[derive(Debug)]
struct Middle {
    up: Direction,
    down: Direction,
    follow: Follow,
}

/// A relay on its way from one runtime to another, with everything that it holds: it goes on where it stopped.
#[derive(Debug)]
pub(super) struct Moving {
    client: Detached,
    server: Detached,
    middle: Middle,
}

impl Moving {
    /// A relay that begins; what the client said already is held for the server, what the server said for the client.
    pub(super) fn new(
        client: Detached,
        server: Detached,
        (heard, words): (&[u8], &[u8]),
        follow: Follow,
    ) -> io::Result<Self> {
        let up = Direction::holding(heard).ok_or(io::ErrorKind::InvalidData)?;
        let down = Direction::holding(words).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Moving { client, server, middle: Middle { up, down, follow } })
    }

    /// Whose it is.
    pub(super) fn live(&self) -> &Arc<Live> {
        &self.middle.follow.live
    }

    /// A duplicate of the socket towards the client where it is TCP, to ask the kernel about.
    pub(super) fn client_socket(&self) -> io::Result<Option<OwnedFd>> {
        self.client.tcp()
    }

    /// Goes on in the runtime that this is called in.
    pub(super) fn attach(mut self) -> io::Result<Relay> {
        self.middle.follow.begin_again();
        Ok(Relay { client: self.client.attach()?, server: self.server.attach()?, middle: self.middle })
    }
}

impl Relay {
    /// Stops, wherever it is, to go on elsewhere. The client's socket gets the options of its new class.
    pub(super) fn detach(self, not_sent_bytes: u32) -> io::Result<Moving> {
        self.client.set_not_sent(not_sent_bytes)?;
        Ok(Moving { client: self.client.detach()?, server: self.server.detach()?, middle: self.middle })
    }

    /// Relays until the session ends, or until it is quiet if it is to end then.
    pub(super) async fn run(&mut self, pacer: &mut impl Pacer, until_quiet: bool) -> End {
        poll_fn(|cx| self.poll(cx, pacer, until_quiet)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>, pacer: &mut impl Pacer, until_quiet: bool) -> Poll<End> {
        let Relay { client, server, middle: Middle { up, down, follow } } = self;
        let upward = up.poll(cx, client, server, &mut Upward(follow));
        if let Poll::Ready(Err(fault)) = upward {
            // A server that ends a session does not read to the end; what it said before is still to be passed on.
            if !matches!(fault, Fault::Write(_)) || down.is_done() {
                return Poll::Ready(failed(fault, "client", "server"));
            }
        }
        match down.poll(cx, server, client, &mut Downward(follow, pacer)) {
            Poll::Ready(Err(fault)) => return Poll::Ready(failed(fault, "server", "client")),
            Poll::Ready(Ok(())) if up.is_done() => return Poll::Ready(End::Closed),
            Poll::Ready(Ok(())) => return Poll::Ready(End::ServerDone),
            Poll::Pending => {}
        }
        let holds_answer = !down.is_empty() || client.has_unsent();
        follow.live.holds_answer(holds_answer);
        let has_passed_all = !holds_answer && up.is_empty() && !server.has_unsent();
        // Who waits for its turn, or for a cancel request to have arrived, may have said something that is not read yet.
        let may_have_said = follow.is_waiting() || follow.live.is_cancelling();
        if until_quiet && follow.tracker.is_quiet() && has_passed_all && !may_have_said {
            return Poll::Ready(End::Quiet);
        }
        Poll::Pending
    }

    /// What is left when the last words have been said: the client, who may still speak. The server's descriptor may be what waiting
    /// for that needs, and the turn what others wait for.
    pub(super) fn into_client(self) -> Stream {
        self.client
    }

    /// Ends a session: tells the client why and the server goodbye, each only if it is between two messages. Words in
    /// the middle of another message, or in an encrypted stream, would be garbage. Returns the client, where it took them
    /// and more of it is on its way: what becomes of the server's is nothing to it. One that rests needs no time, and drivers that rest
    /// do not look: a drain would wait for each.
    pub(super) async fn say_goodbye(mut self, ending: &Ending) -> Option<Stream> {
        let Middle { up, down, follow } = &self.middle;
        let to_client = down.is_empty() && follow.tracker.at_boundary(Side::Down);
        let to_server = up.is_empty() && follow.tracker.at_boundary(Side::Up);
        let rests = to_client && to_server && follow.tracker.is_quiet();
        let mut has_taken = false;
        let both = async {
            let words = async {
                match to_client {
                    true => last_words::tell(&mut self.client, ending.sqlstate, &ending.why).await,
                    false => self.client.shutdown().await,
                }
            };
            // One that is gone meanwhile needs no goodbye.
            has_taken = words.await.is_ok();
            if to_server {
                self.server.write_all(&TERMINATE).await?;
            }
            self.server.shutdown().await
        };
        let _ = clock::within(LAST_WORDS_WITHIN, both).await;
        let may_speak = has_taken && (!rests || self.client.has_unread());
        may_speak.then(|| self.into_client())
    }
}

fn failed(fault: Fault, from: &'static str, to: &'static str) -> End {
    match fault {
        Fault::Read(error) => End::Failed(from, error),
        Fault::Write(error) => End::Failed(to, error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::live::{Doing, Identity};
    use super::super::pools::LivePool;
    use super::super::urgent::{Answers, Urgent};
    use super::*;
    use crate::wire::Tracker;
    use backwater_flow::{PoolId, SessionId};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// A session that is logged in and rests, and what its client and its server have of it.
    fn resting(full: Option<Side>) -> (Relay, UnixStream, UnixStream) {
        let ((client, far_client), (server, far_server)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        for socket in [&client, &server] {
            socket.set_nonblocking(true).unwrap();
        }
        for (_, socket) in [(Side::Up, &server), (Side::Down, &client)].iter().filter(|(side, _)| Some(*side) == full) {
            let mut socket: &UnixStream = socket;
            while socket.write(&[0; 65_536]).is_ok() {}
        }
        let stream = |socket| Stream::from(tokio::net::UnixStream::from_std(socket).unwrap());
        let mut tracker = Tracker::new();
        tracker.pass(Side::Down, b"Z\0\0\0\x05I");
        let live = Live::new(Identity::of_test(SessionId(1)), LivePool::new("one", PoolId(0)), false);
        let middle =
            Middle { up: Direction::default(), down: Direction::default(), follow: Follow::new(tracker, live) };
        (Relay { client: stream(client), server: stream(server), middle }, far_client, far_server)
    }

    fn ending() -> Ending {
        Ending { sqlstate: "57P01", why: "it is over".to_owned() }
    }

    /// Looks at it once.
    async fn look(relay: &mut Relay) {
        let mut pacer = Urgent(Answers::new().0);
        let goes_on = poll_fn(|cx| Poll::Ready(relay.poll(cx, &mut pacer, false).is_pending())).await;
        assert!(goes_on);
        tokio::task::yield_now().await;
    }

    #[tokio::test]
    async fn who_has_not_taken_an_answer_is_idle_only_once_it_has() {
        let (mut relay, mut client, mut server) = resting(Some(Side::Down));
        let live = Arc::clone(&relay.middle.follow.live);
        server.write_all(b"Z\0\0\0\x05I").unwrap();
        while live.is_answered() {
            look(&mut relay).await;
        }
        let held_since = live.glimpse(clock::now()).since;
        while clock::now() <= held_since {}
        let begun = clock::now();
        assert_eq!(live.doing(), Doing::Idle);
        client.set_nonblocking(true).unwrap();
        let mut taken = Vec::new();
        while !taken.ends_with(b"Z\0\0\0\x05I") {
            // An error means that there is nothing yet.
            let _ = client.read_to_end(&mut taken);
            look(&mut relay).await;
        }
        assert!(live.is_answered() && live.glimpse(clock::now()).since >= begun);
    }

    #[tokio::test]
    async fn a_client_that_took_its_words_is_left_time_though_the_server_takes_none() {
        let (relay, mut client, _server) = resting(Some(Side::Up));
        client.write_all(b"Q").unwrap();
        let left = relay.say_goodbye(&ending()).await;
        assert!(left.is_some());
        let mut words = Vec::new();
        client.read_to_end(&mut words).unwrap();
        assert!(String::from_utf8_lossy(&words).contains("it is over"), "{words:?}");
    }

    #[tokio::test]
    async fn a_client_that_rests_is_told_and_not_waited_for() {
        for (says, is_left_time) in [(&b""[..], false), (b"Q", true)] {
            let (relay, mut client, mut server) = resting(None);
            client.write_all(says).unwrap();
            let left = relay.say_goodbye(&ending()).await;
            assert_eq!(left.is_some(), is_left_time);
            let (mut words, mut goodbye) = (Vec::new(), Vec::new());
            client.read_to_end(&mut words).unwrap();
            assert!(String::from_utf8_lossy(&words).contains("it is over"), "{words:?}");
            server.read_to_end(&mut goodbye).unwrap();
            assert_eq!(goodbye, TERMINATE);
        }
    }
}
