//! The pacing rate of another process's connection.

use super::Why;
use backwater_socket::{Holders, Socket};

/// Gives the connection its rate back. One that is gone has none; one whose process ended is looked for in the hands
/// of others, as servers pass connections on to children.
pub(super) fn restore(socket: &Socket, before: Option<u64>, holders: &mut Holders) -> Result<(), Why> {
    match socket.pace(before) {
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
fn in_other_hands(socket: &Socket, before: Option<u64>, holders: &mut Holders) -> Result<bool, Why> {
    let done = socket.elsewhere(holders).and_then(|heir| heir.map_or(Ok(()), |heir| heir.pace(before)));
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.is_gone() => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::restore;
    use crate::{Change, Journal, UndoError, recover, start_time};
    use backwater_socket::{Holders, Socket};
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
        let change = Change::SocketPacing { socket: socket.clone(), before_bytes_per_s: None };
        let entry = journal.note(change.clone()).unwrap();
        socket.pace(Some(5_000)).unwrap();
        assert_eq!(journal.note(change).unwrap(), entry);
        journal.undo(entry).unwrap();
        assert_eq!(backwater_socket::pacing_rate(&server).unwrap(), None);

        let again = Change::SocketPacing { socket: socket.clone(), before_bytes_per_s: Some(9_000) };
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
    fn of_connections_that_end_together_one_that_was_left_to_a_child_gets_its_rate_back() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::begin(dir.path(), "attach").unwrap();
        let [(ended, _one, first), (left, _two, second), (_server, _three, third)] = [(); 3].map(|()| connection());
        let entries = [&first, &second, &third].map(|socket| {
            let change = Change::SocketPacing { socket: socket.clone(), before_bytes_per_s: None };
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
        let done = restore(&socket, None, &mut holders);
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
        journal.note(Change::SocketPacing { socket, before_bytes_per_s: None })?;
        drop((server, client));
        journal.finish()
    }
}
