//! A process that may open nothing more: what it cannot reach then is not gone. A test alone, since the limit is its process's.
#![allow(clippy::unwrap_used)]

use backwater_socket::{Socket, SocketError, by_pid, pacing_rate};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{TcpListener, TcpStream};

#[test]
fn a_socket_is_not_gone_because_no_descriptor_is_left_to_look_at_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    let found = by_pid(i32::try_from(std::process::id()).unwrap()).unwrap().tcp;
    let socket: Socket = found.into_iter().find(|socket| socket.peer == peer).unwrap();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
    let tried = [socket.read().map(drop), socket.pace(Some(5_000))];
    setrlimit(Resource::Nofile, before).unwrap();
    for done in tried {
        let error = done.unwrap_err();
        assert!(!error.is_gone(), "{error}");
        let SocketError::Process { source, .. } = error else { panic!("{error}") };
        assert_eq!(Errno::from_io_error(&source), Some(Errno::MFILE));
    }
    assert_eq!(socket.read().unwrap().rate_bps, None);
    socket.pace(Some(5_000)).unwrap();
    assert_eq!(pacing_rate(&server).unwrap(), Some(5_000));
    drop((server, client));
    assert!(socket.read().unwrap_err().is_gone());
}
