//! The pacing rate of another process's connection, and its congestion control.

use super::Why;
use backwater_socket::{Holders, Socket, SocketError, WITHIN_HOST_CONGESTION};

/// What a connection had before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before<'a> {
    /// Bytes a second; None: no limit.
    pub(super) bps: Option<u64>,
    /// Its congestion control, where that was changed.
    pub(super) congestion: Option<&'a str>,
}

impl Before<'_> {
    /// The rate last: as long as it is not back, nobody else has paced the connection, and all of it can be tried again.
    fn give_back(self, socket: &Socket) -> Result<(), SocketError> {
        match self.give_congestion_back(socket) {
            Err(error) if error.is_gone() => return Err(error),
            // The host does not let it be chosen any more, or has it no more. The connection does well without.
            Err(error) => {
                tracing::warn!(%error, "the connection with {} keeps {WITHIN_HOST_CONGESTION}", socket.peer);
            }
            Ok(()) => {}
        }
        socket.pace(self.bps)
    }

    fn give_congestion_back(self, socket: &Socket) -> Result<(), SocketError> {
        match self.congestion {
            Some(before) if socket.congestion()? == WITHIN_HOST_CONGESTION => socket.set_congestion(before),
            _ => Ok(()),
        }
    }
}

/// Gives the connection back what it had. One that is gone has nothing; one whose process ended is looked for in the hands
/// of others, as servers pass connections on to children.
pub(super) fn restore(socket: &Socket, before: Before<'_>, holders: &mut Holders) -> Result<(), Why> {
    match before.give_back(socket) {
        Err(error) if error.is_gone() => {
            // Whoever had it when the host was asked may have left it to another since.
            match in_other_hands(socket, before, holders)? || in_other_hands(socket, before, &mut Holders::default())? {
                true => Ok(()),
                false => Err("whoever has it leaves it to others as soon as they are found".to_owned()),
            }
        }
        done => done.map_err(|error| error.to_string()),
    }
}

/// The same where another process has it, or nobody; false if that one has ended, or closed it, since the host was asked.
fn in_other_hands(socket: &Socket, before: Before<'_>, holders: &mut Holders) -> Result<bool, Why> {
    let done = socket.elsewhere(holders).and_then(|heir| heir.map_or(Ok(()), |heir| before.give_back(&heir)));
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.is_gone() => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stderr)]
    use super::{Before, restore};
    use crate::{Change, Journal, UndoError, recover, start_time};
    use backwater_socket::{Holders, Socket, WITHIN_HOST_CONGESTION};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    /// A connection of this process, as a stranger would find it.
    fn connection() -> (TcpStream, TcpStream, backwater_socket::Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        let peer = client.local_addr().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let mut found = backwater_socket::by_pid(own).unwrap().tcp;
        found.retain(|socket| socket.peer == peer);
        (server, client, found.remove(0))
    }

    #[test]
    fn a_rate_comes_back_by_the_run_itself_and_by_whoever_comes_next() {
        let dir = tempfile::tempdir().unwrap();
        let (server, _client, socket) = connection();
        let journal = Journal::begin(dir.path(), "attach").unwrap();
        let change = Change::SocketPacing { socket: socket.clone(), before_bytes_per_s: None, before_congestion: None };
        let entry = journal.note(change.clone()).unwrap();
        socket.pace(Some(5_000)).unwrap();
        assert_eq!(journal.note(change).unwrap(), entry);
        journal.undo(entry).unwrap();
        assert_eq!(backwater_socket::pacing_rate(&server).unwrap(), None);

        let again =
            Change::SocketPacing { socket: socket.clone(), before_bytes_per_s: Some(9_000), before_congestion: None };
        journal.note(again.clone()).unwrap();
        socket.pace(Some(5_000)).unwrap();
        // As a kill leaves it.
        let lines = std::fs::read(journal.path()).unwrap();
        journal.finish().unwrap();
        assert_eq!(backwater_socket::pacing_rate(&server).unwrap(), Some(9_000));
        socket.pace(Some(5_000)).unwrap();
        std::fs::write(dir.path().join("journal-1-1.jsonl"), lines).unwrap();
        let recovered = recover(dir.path()).unwrap();
        assert!(recovered[0].is_complete() && recovered[0].undone == [again], "{recovered:?}");
        assert_eq!(backwater_socket::pacing_rate(&server).unwrap(), Some(9_000));
    }

    #[test]
    fn a_congestion_control_comes_back_unless_somebody_chose_a_third() {
        let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
        let Some(own) = allowed.split_ascii_whitespace().find(|name| *name != WITHIN_HOST_CONGESTION) else {
            eprintln!("skipped: a_congestion_control_comes_back: none but {WITHIN_HOST_CONGESTION} may be chosen here");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let (_server, _client, socket) = connection();
        let note = |before: &str| {
            let journal = Journal::begin(dir.path(), "attach").unwrap();
            let before_congestion = Some(before.to_owned());
            let change = Change::SocketPacing { socket: socket.clone(), before_bytes_per_s: None, before_congestion };
            journal.note(change).unwrap();
            journal
        };
        for (now, before) in [(WITHIN_HOST_CONGESTION, own), (own, WITHIN_HOST_CONGESTION)] {
            let journal = note(before);
            socket.set_congestion(now).unwrap();
            journal.finish().unwrap();
            assert_eq!(socket.congestion().unwrap(), own, "it was {before}, and {now} when it was put back");
        }
        // As a kill leaves it.
        let journal = note(own);
        let lines = std::fs::read(journal.path()).unwrap();
        journal.finish().unwrap();
        socket.set_congestion(WITHIN_HOST_CONGESTION).unwrap();
        std::fs::write(dir.path().join("journal-1-1.jsonl"), lines).unwrap();
        assert!(recover(dir.path()).unwrap()[0].is_complete());
        assert_eq!(socket.congestion().unwrap(), own);
        // One that the host has no more leaves the connection as it is, and its rate comes back.
        socket.set_congestion(WITHIN_HOST_CONGESTION).unwrap();
        socket.pace(Some(5_000)).unwrap();
        note("backwater").finish().unwrap();
        assert_eq!(socket.congestion().unwrap(), WITHIN_HOST_CONGESTION);
        assert_eq!(socket.read().unwrap().rate_bps, None);
    }

    #[test]
    fn of_connections_that_end_together_one_that_was_left_to_a_child_gets_its_rate_back() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::begin(dir.path(), "attach").unwrap();
        let [(ended, _one, first), (left, _two, second), (_server, _three, third)] = [(); 3].map(|()| connection());
        let entries = [&first, &second, &third].map(|socket| {
            let change =
                Change::SocketPacing { socket: socket.clone(), before_bytes_per_s: None, before_congestion: None };
            let entry = journal.note(change).unwrap();
            socket.pace(Some(5_000)).unwrap();
            entry
        });
        drop(ended);
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::from(OwnedFd::from(left))).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let heir = Socket { pid, start_time: start_time(pid).unwrap(), ..second };
        let rates = || [&heir, &third].map(|socket| socket.read().unwrap().rate_bps);
        assert_eq!(rates(), [Some(5_000); 2]);
        journal.undo_all(&entries).unwrap();
        let after = rates();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(after, [None; 2]);
        journal.finish().unwrap();
    }

    #[test]
    fn a_connection_that_its_heir_left_to_another_since_the_host_was_asked_gets_its_rate_back() {
        let (server, _client, socket) = connection();
        socket.pace(Some(5_000)).unwrap();
        let child = |server: TcpStream| {
            Command::new("sleep").arg("60").stdin(Stdio::from(OwnedFd::from(server))).spawn().unwrap()
        };
        let mut children = [child(server.try_clone().unwrap()), child(server)];
        let mut holders = Holders::default();
        let heir = socket.elsewhere(&mut holders).unwrap().unwrap();
        children.sort_by_key(|child| i32::try_from(child.id()).unwrap() != heir.pid);
        let [mut ended, mut other] = children;
        ended.kill().unwrap();
        ended.wait().unwrap();
        let done = restore(&socket, Before::default(), &mut holders);
        let pid = i32::try_from(other.id()).unwrap();
        let after = Socket { pid, start_time: start_time(pid).unwrap(), ..socket }.read().unwrap().rate_bps;
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!((done, after), (Ok(()), None));
    }

    #[test]
    fn a_connection_that_is_gone_needs_nothing() -> Result<(), UndoError> {
        let dir = tempfile::tempdir().unwrap();
        let (server, client, socket) = connection();
        let journal = Journal::begin(dir.path(), "attach")?;
        journal.note(Change::SocketPacing { socket, before_bytes_per_s: None, before_congestion: None })?;
        drop((server, client));
        journal.finish()
    }
}
