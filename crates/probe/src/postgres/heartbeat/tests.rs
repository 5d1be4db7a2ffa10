#![allow(clippy::unwrap_used)]
use super::*;
use backwater_model::{Batch, Registry};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::Instant;

fn heartbeat(port: u16) -> Heartbeat {
    let text = format!("host=127.0.0.1 port={port} user=nobody dbname=nothing sslmode=disable");
    let info = ConnInfo::parse(&text, &|_| None).unwrap();
    Heartbeat::new("primary", &info, Duration::from_millis(20), None).unwrap()
}

/// Calls `act` with a sink whose contents do not matter.
fn with_sink(act: impl FnOnce(&mut Sink<'_>)) {
    let (registry, mut batch, mut absences) = (Registry::new(), Batch::default(), HashSet::new());
    act(&mut Sink::new(crate::now(), &registry, &mut batch, &mut absences));
}

#[test]
fn one_whose_beat_is_open_and_may_have_written_ends_without_the_server() {
    // It takes connections, as the kernel does for every listener, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut heartbeat = heartbeat(silent.local_addr().unwrap().port());
    with_sink(|sink| {
        let now = crate::now();
        heartbeat.begin(now, sink);
        heartbeat.drive(now + Span::from_millis(100), false, sink);
        heartbeat.judge(crate::now(), sink);
    });
    assert!(heartbeat.writes && heartbeat.open.len() == 1 && heartbeat.missed == 1);
    drop(silent);
    // Here no runtime is entered: a timer made outside of the heartbeat's own would panic.
    assert!(tokio::runtime::Handle::try_current().is_err());
    drop(heartbeat);
}

/// What a cancel request has in place of the protocol's version.
const CANCEL: u32 = (1234 << 16) | 5678;

/// A server that lets everybody in and answers nothing.
struct Hung {
    port: u16,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// All that were ever let in; a session's process ID is its place here.
    sessions: Vec<TcpStream>,
    cancels: usize,
    /// Whether a session that is cancelled ends.
    heeds_cancels: bool,
}

impl Hung {
    fn start(heeds_cancels: bool) -> Hung {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Seen { heeds_cancels, ..Seen::default() }));
        let hung = Hung { port, seen: Arc::clone(&seen) };
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| meet(stream, &seen)));
        hung
    }

    fn sessions(&self) -> usize {
        self.seen.lock().unwrap().sessions.len()
    }
}

/// Lets in whoever asks for a session; one who hangs up meanwhile is nobody.
fn meet(mut stream: TcpStream, seen: &Mutex<Seen>) {
    // Read before the lock is taken: the heartbeat may stand still between two looks, in the middle of what it sends.
    let (Some(_length), Some(code)) = (number(&mut stream), number(&mut stream)) else { return };
    if code == CANCEL {
        let Some(process_id) = number(&mut stream) else { return };
        let mut seen = seen.lock().unwrap();
        seen.cancels += 1;
        if seen.heeds_cancels {
            let _already_ended = seen.sessions[process_id as usize].shutdown(Shutdown::Both);
        }
        return;
    }
    let mut seen = seen.lock().unwrap();
    let (process_id, key) = (seen.sessions.len() as u32, 7_u32);
    // AuthenticationOk, BackendKeyData, ReadyForQuery.
    let mut let_in = b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c".to_vec();
    let_in.extend(process_id.to_be_bytes());
    let_in.extend(key.to_be_bytes());
    let_in.extend(b"Z\0\0\0\x05I");
    if stream.write_all(&let_in).is_ok() {
        seen.sessions.push(stream);
    }
}

fn number(stream: &mut TcpStream) -> Option<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).ok()?;
    Some(u32::from_be_bytes(bytes))
}

/// So many beats, one each 30 ms; each is given up after 60.
fn beats_without_answer(heartbeat: &mut Heartbeat, count: usize) {
    Arc::get_mut(&mut heartbeat.common).unwrap().longest = Duration::from_millis(60);
    for _ in 0..count {
        with_sink(|sink| {
            let now = crate::now();
            heartbeat.begin(now, sink);
            heartbeat.drive(now + Span::from_millis(30), false, sink);
            heartbeat.judge(crate::now(), sink);
        });
        assert!(heartbeat.open.len() <= MOST_OPEN);
    }
}

#[test]
fn a_server_that_ends_no_session_never_has_more_of_them_than_may_stand_open() {
    let server = Hung::start(false);
    let mut heartbeat = heartbeat(server.port);
    let beats = 4 * MOST_OPEN;
    beats_without_answer(&mut heartbeat, beats);
    assert_eq!(server.sessions(), MOST_OPEN);
    assert_eq!(heartbeat.open.len(), MOST_OPEN, "nobody knows that a session is over");
    assert!(server.seen.lock().unwrap().cancels >= MOST_OPEN);
    for session in &server.seen.lock().unwrap().sessions {
        session.shutdown(Shutdown::Both).unwrap();
    }
    with_sink(|sink| heartbeat.drive(crate::now() + Span::from_millis(5_000), true, sink));
    assert!(heartbeat.open.is_empty(), "places are free where sessions are over");
    assert_eq!(heartbeat.missed, beats as u64, "each is missed once: asked late, or not at all");
    with_sink(|sink| heartbeat.begin(crate::now(), sink));
    let begun = Instant::now();
    while server.sessions() == MOST_OPEN {
        assert!(begun.elapsed() < Duration::from_secs(10), "a free place is taken again");
        with_sink(|sink| heartbeat.drive(crate::now() + Span::from_millis(20), true, sink));
    }
    let begun = Instant::now();
    drop(heartbeat);
    assert!(begun.elapsed() < LEAVE_TIMEOUT + Duration::from_secs(1), "the end waits for no server");
}

#[test]
fn a_beat_without_an_answer_is_cancelled_and_makes_room() {
    let server = Hung::start(true);
    let mut heartbeat = heartbeat(server.port);
    let beats = 4 * MOST_OPEN;
    beats_without_answer(&mut heartbeat, beats);
    assert!(server.sessions() > MOST_OPEN, "{} sessions", server.sessions());
    assert_eq!(heartbeat.missed, beats as u64);
}
