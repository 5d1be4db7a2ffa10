//! What a guardian does with sockets of this process, as its master asks it.
#![allow(clippy::unwrap_used, clippy::print_stderr)]
use super::*;
use backwater_socket::{WITHIN_HOST_CONGESTION, pacing_rate};
use rustix::net::sockopt::tcp_congestion;
use std::io::{BufRead, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Instant;

/// A guardian that works in this process, as its master has it.
struct Master {
    stream: UnixStream,
    answers: std::io::BufReader<UnixStream>,
    guardian: std::thread::JoinHandle<Result<(), GateError>>,
    _state_dir: tempfile::TempDir,
}

impl Master {
    /// None where nobody can pace.
    fn start(name: &str) -> Option<Master> {
        if let Some(why) = able::hindrance(&Facts::read()) {
            eprintln!("skipped: {name}: {why}");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let (stream, other) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let state_dir = dir.path().to_owned();
        // It gives up rights, which are its thread's alone.
        let guardian = std::thread::spawn(move || guard(other, &state_dir, Bursts::AsTheyAre));
        let answers = std::io::BufReader::new(stream.try_clone().unwrap());
        let mut master = Master { stream, answers, guardian, _state_dir: dir };
        assert_eq!(master.answer(), Answer::Ready(PutBack::default()));
        Some(master)
    }

    fn answer(&mut self) -> Answer {
        let mut text = String::new();
        self.answers.read_line(&mut text).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn ask(&mut self, request: &Request) -> Answer {
        self.stream.write_all(line(request).unwrap().as_bytes()).unwrap();
        self.answer()
    }

    /// Ends it, and says how many changes it had to put back.
    fn end(mut self, count: usize) {
        assert_eq!(self.ask(&Request::Finish), Answer::Finished(PutBack { count, left: Vec::new() }));
        self.guardian.join().unwrap().unwrap();
    }
}

/// The server's end of a connection, the client's, and the former as a stranger finds it.
fn connection() -> (TcpStream, TcpStream, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    (server, client, by_peer(peer).unwrap().pop().unwrap())
}

#[test]
fn only_a_socket_that_is_not_there_any_more_is_told_to_be_gone() {
    let peer = "10.0.0.7:51234".parse().unwrap();
    let told = |error: SocketError| looked(Err(error), ToString::to_string);
    assert_eq!(told(SocketError::Gone { pid: 7, peer }), SocketLook::Gone);
    assert_eq!(told(SocketError::NoProcess { pid: 7 }), SocketLook::Gone);
    for errno in [Errno::MFILE, Errno::NFILE, Errno::PERM, Errno::ACCESS, Errno::NOMEM, Errno::NOENT] {
        let look = told(SocketError::Process { what: "take hold", pid: 7, source: errno.into() });
        assert!(matches!(&look, SocketLook::Failed(why) if why.contains("cannot take hold of process 7")), "{look:?}");
        assert!(matches!(look.open(), Some(Err(_))));
    }
    let table = told(SocketError::Table { what: "/proc".to_owned(), why: "it is not there".to_owned() });
    assert!(matches!(table, SocketLook::Failed(_)));
}

#[test]
fn what_was_raised_for_a_moment_is_lowered_when_the_master_falls_silent() {
    let Some(mut master) = Master::start("what_was_raised_for_a_moment_is_lowered") else { return };
    let (server, _client, socket) = connection();
    let begun = Instant::now();
    let raised = master.ask(&Request::Pace(vec![Pace { socket, rate_bps: 1_250_000, lasting_bps: 1_000_000 }]));
    assert_eq!((raised, pacing_rate(&server).unwrap()), (Answer::Each(vec![Answer::Done]), Some(1_250_000)));
    while pacing_rate(&server).unwrap() != Some(1_000_000) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it was never lowered");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(begun.elapsed() >= SILENCE);
    master.end(1);
    assert_eq!(pacing_rate(&server).unwrap(), None);
}

/// Where the host lets everybody choose one that paces itself.
#[test]
fn a_connection_within_the_host_that_paces_itself_does_not_while_it_is_held() {
    let name = "a_connection_within_the_host_that_paces_itself_does_not_while_it_is_held";
    if !congestion::allowed().split_ascii_whitespace().any(|allowed| allowed == "bbr") {
        eprintln!("skipped: {name}: not everybody may choose bbr here");
        return;
    }
    let Some(mut master) = Master::start(name) else { return };
    let [(own, _client, held), (kept, _other, other)] = [(); 2].map(|()| connection());
    held.set_congestion("bbr").unwrap();
    // One that does not pace itself, where the kernel has one more of these.
    let its = ["cubic", WITHIN_HOST_CONGESTION].into_iter().find(|name| other.set_congestion(name).is_ok()).unwrap();
    let controls = || [&own, &kept].map(|socket| tcp_congestion(socket).unwrap());
    let order = |socket: &Socket| Pace { socket: socket.clone(), rate_bps: 1_000_000, lasting_bps: 1_000_000 };
    for _ in 0..2 {
        let paced = master.ask(&Request::Pace([&held, &other].map(order).to_vec()));
        assert_eq!(paced, Answer::Each(vec![Answer::Done; 2]));
        assert_eq!(controls(), [WITHIN_HOST_CONGESTION, its]);
        assert_eq!(master.ask(&Request::Release(vec![held.clone()])), Answer::Done);
        assert_eq!(controls(), ["bbr", its]);
    }
    assert_eq!(master.ask(&Request::Pace(vec![order(&held)])), Answer::Each(vec![Answer::Done]));
    assert_eq!(controls(), [WITHIN_HOST_CONGESTION, its]);
    // The end gives back as a release does.
    master.end(2);
    assert_eq!(controls(), ["bbr", its]);
}

#[test]
fn sockets_are_released_in_one_question_whether_they_are_gone_or_not() {
    let Some(mut master) = Master::start("sockets_are_released_in_one_question") else { return };
    let [gone, gone_too, released, held] = [(); 4].map(|()| connection());
    let sockets = [&gone, &gone_too, &released, &held].map(|(_, _, socket)| socket.clone());
    let order = |socket: &Socket| Pace { socket: socket.clone(), rate_bps: 1_000_000, lasting_bps: 1_000_000 };
    let paced = master.ask(&Request::Pace(sockets.iter().map(order).collect()));
    assert_eq!(paced, Answer::Each(vec![Answer::Done; 4]));
    drop((gone, gone_too));
    assert_eq!(master.ask(&Request::Release(sockets[..3].to_vec())), Answer::Done);
    let rates = || [&released.0, &held.0].map(|server| pacing_rate(server).unwrap());
    assert_eq!(rates(), [None, Some(1_000_000)]);
    master.end(1);
    assert_eq!(rates(), [None; 2]);
}

#[test]
fn what_could_not_be_put_back_is_known_on_and_put_back_when_it_can_be() {
    let facts = Facts::read();
    if let Some(why) = able::hindrance(&facts) {
        eprintln!("skipped: what_could_not_be_put_back_is_known_on: {why}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::begin(dir.path(), "attach").unwrap();
    let mut held = Held::new(journal, facts, Bursts::AsTheyAre);
    let ((server, _client, _), (_server, _other, own)) = (connection(), connection());
    // Without rights a child that has some cannot be looked at; this process itself can.
    let mut child = Command::new("sleep").arg("600").stdin(Stdio::from(OwnedFd::from(server))).spawn().unwrap();
    let theirs = by_pid(i32::try_from(child.id()).unwrap()).unwrap().tcp.pop().unwrap();
    let sockets = [theirs, own];
    let pace = |held: &mut Held, socket: &Socket| {
        held.pace(&Pace { socket: socket.clone(), rate_bps: 1_000_000, lasting_bps: 1_000_000 })
    };
    assert_eq!(sockets.each_ref().map(|socket| pace(&mut held, socket)), [Answer::Done, Answer::Done]);
    // Rights belong to a thread: this one is not the test's others.
    let without_rights = std::thread::scope(|scope| {
        let release = || {
            able::drop_rights(CapabilitySet::empty()).unwrap();
            held.release(&sockets)
        };
        scope.spawn(release).join().unwrap()
    });
    let rates = || sockets.each_ref().map(|socket| socket.read().unwrap().rate_bps);
    let (between, known) = (rates(), held.entries.len());
    // It is no stranger's.
    let again = pace(&mut held, &sockets[0]);
    let released = held.release(&sockets);
    let after = rates();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(without_rights, Answer::Refused(_)), "{without_rights:?}");
    assert_eq!((between, known), ([Some(1_000_000), None], 1));
    assert_eq!((again, released, after), (Answer::Done, Answer::Done, [None; 2]));
    assert!(held.entries.is_empty());
}
