//! Rule slow-reader on a real server: a client that asks for a large result and then does not read it, recorded by
//! `backwater record` and diagnosed.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

#[path = "../../gate/tests/server/mod.rs"]
mod server;

use backwater_diagnose::{Options, diagnose};
use backwater_model::catalogue::TCP_ACKED;
use backwater_model::{Finding, Window};
use backwater_probe::now;
use backwater_record::Recording;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use rustix::process::{Pid, Signal, kill_process};
use server::{Running, Server, with_server};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(90);
/// How long it reads, and how long it does not: half as long again as the rule wants.
const MEASURED_S: f64 = 15.0;
/// What the kernel keeps for a client that does not read.
const RECEIVE_BYTES: usize = 128 << 10;
const PROTOCOL: i32 = 196_608;
/// Twenty megabytes a second at most, which the server makes so slowly itself: a client that reads has no part in it.
const RESULT: &str = "COPY (SELECT repeat('x', 20000), pg_sleep(0.001) \
                      FROM (SELECT generate_series(1, 10000000)) AS numbers) TO STDOUT";

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A client that is called `slow`, with a result on its way; it reads that while it shall.
struct Client {
    stream: TcpStream,
    reads: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    /// Logs in where it is trusted, asks, and begins to read. None: it was not let in.
    fn ask(port: u16) -> Option<Client> {
        let mut stream = connected(port);
        let words = ["user", "postgres", "application_name", "slow"].map(|word| format!("{word}\0")).concat();
        let body = [&PROTOCOL.to_be_bytes()[..], words.as_bytes(), &[0]].concat();
        stream.write_all(&[&(body.len() as i32 + 4).to_be_bytes()[..], &body].concat()).ok()?;
        loop {
            match message(&mut stream)? {
                (b'Z', _) => break,
                (b'E', _) => return None,
                // Any but this asks for more than a name.
                (b'R', body) if body != [0u8; 4] => return None,
                _ => {}
            }
        }
        let body = format!("{RESULT}\0");
        stream.write_all(&[&b"Q"[..], &(body.len() as i32 + 4).to_be_bytes(), body.as_bytes()].concat()).ok()?;
        let (reads, over) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let (mut theirs, shall, ended) = (stream.try_clone().ok()?, Arc::clone(&reads), Arc::clone(&over));
        let run = move || {
            let mut buffer = vec![0; 1 << 18];
            while !ended.load(Ordering::SeqCst) {
                if !shall.load(Ordering::SeqCst) {
                    std::thread::park();
                } else if matches!(theirs.read(&mut buffer), Ok(0) | Err(_)) {
                    return;
                }
            }
        };
        Some(Client { stream, reads, over, thread: Some(std::thread::spawn(run)) })
    }

    /// It reads nothing any more, but for what it waits for just now.
    fn stop_reading(&self) {
        self.reads.store(false, Ordering::SeqCst);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // It may be closed by the server.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

/// A connection whose receive buffer does not grow.
fn connected(port: u16) -> TcpStream {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    // Before it connects, when the window that it may ever offer is agreed upon.
    sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BYTES).unwrap();
    connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).unwrap();
    TcpStream::from(socket)
}

/// A message of the server: its letter and its body. None at the end of the connection.
fn message(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).ok()?;
    let length = i32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    let mut body = vec![0; usize::try_from(length - 4).ok()?];
    stream.read_exact(&mut body).ok()?;
    Some((head[0], body))
}

/// Lets clients in by TCP without a password, so that one of the test's own can be one.
fn client_of(server: &Server) -> Client {
    let rules = "local all all trust\nhost all all 127.0.0.1/32 trust\n";
    std::fs::write(server.data().join("pg_hba.conf"), rules).unwrap();
    server.value("SELECT pg_reload_conf()");
    let mut client = None;
    until("the server lets it in", || {
        client = Client::ask(server.port);
        client.is_some()
    });
    client.unwrap()
}

/// `backwater record` of a server.
struct Recorder {
    running: Running,
    dir: PathBuf,
}

impl Recorder {
    fn start(server: &Server, dir: PathBuf) -> Recorder {
        let target = format!("host={} port={} user=postgres dbname=postgres", server.dir.path().display(), server.port);
        let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
        command.args(["record", &target, "--free-floor", "1MB", "-o"]).arg(&dir);
        Recorder { running: Running::start(&mut command), dir }
    }

    /// Waits until something is recorded.
    fn until(&mut self, what: &str, seen: impl Fn(&Window) -> bool) {
        until(what, || {
            assert_eq!(self.running.0.try_wait().unwrap(), None, "it ended");
            recorded(&self.dir).is_some_and(|window| seen(&window))
        });
    }

    /// Ends it in order. All that it recorded.
    fn end(mut self) -> Window {
        kill_process(Pid::from_child(&self.running.0), Signal::TERM).unwrap();
        let mut ended = None;
        until("the recorder ends", || {
            ended = self.running.0.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().code(), Some(0));
        recorded(&self.dir).unwrap()
    }
}

fn recorded(dir: &Path) -> Option<Window> {
    Recording::open(dir).and_then(|recording| recording.window(None, None)).ok()
}

/// What is found of connections with clients. What the host's disks do meanwhile is somebody else's doing.
fn of_connections(window: &Window) -> Vec<Finding> {
    let findings = diagnose(window, &Options::default()).into_iter();
    findings.filter(|finding| ["host.tcp@", "host.net@"].iter().any(|kind| finding.queue.starts_with(kind))).collect()
}

#[test]
fn a_client_that_does_not_read_is_named_and_nothing_is_found_while_it_reads() {
    const NAME: &str = "a_client_that_does_not_read_is_named_and_nothing_is_found_while_it_reads";
    with_server(NAME, &[], |server| {
        let client = client_of(server);
        let of = |what: &str| format!("SELECT {what} FROM pg_stat_activity WHERE application_name = 'slow'");
        server.until(&of("state"), "active");
        let pid = server.value(&of("pid"));
        let dir = tempfile::tempdir().unwrap();
        let rec = dir.path().join("rec");
        let mut recorder = Recorder::start(server, rec.clone());
        recorder.until("its connection", |window| {
            let track = window.track(TCP_ACKED.name, &[("pid", pid.as_str())]);
            track.is_some_and(|track| track.points.len() > 1)
        });
        let from = now();
        recorder.until("a while of reading", |window| window.to.seconds_since(from) >= MEASURED_S);
        let to = now();
        client.stop_reading();
        server.until(&of("wait_event"), "ClientWrite");
        let waits = now();
        recorder.until("a while without", |window| window.to.seconds_since(waits) >= MEASURED_S);
        let window = recorder.end();

        let reading = window.slice(from, to);
        assert_eq!(of_connections(&reading), Vec::<Finding>::new());
        // It was looked at, and took what there was.
        let track = reading.track(TCP_ACKED.name, &[("pid", pid.as_str())]).unwrap();
        let taken = track.points[track.points.len() - 1].value - track.points[0].value;
        assert!(taken > 10e6, "{taken} bytes");

        let findings = of_connections(&window.slice(waits, window.to));
        let [finding] = &findings[..] else { panic!("{findings:#?}") };
        assert_eq!((finding.rule.as_str(), finding.cause.as_str()), ("slow-reader", "client-window"));
        assert_eq!(finding.queue, format!("host.tcp@{}", window.meta.targets[0].name));
        let whose = format!("process {pid} (user postgres, slow)");
        assert!(finding.summary.contains(&whose), "{}", finding.summary);
        for figure in ["rwnd_limited_ratio", "client_write_ratio"] {
            assert!(finding.figure(figure).unwrap() > 0.9, "{figure}: {:?}", finding.evidence);
        }
        assert!(finding.figure("client_sent_bytes_per_s").unwrap() < 1e6, "{:?}", finding.evidence);
        is_told(&rec, &whose);
    });
}

/// The command says the same of the whole recording.
fn is_told(rec: &Path, whose: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
    let output = command.arg("diagnose").arg(rec).arg("--json").output().unwrap();
    let told: Vec<Finding> = serde_json::from_slice(&output.stdout).unwrap();
    let named = |finding: &Finding| finding.rule == "slow-reader" && finding.summary.contains(whose);
    assert!(told.iter().any(named), "{}", String::from_utf8_lossy(&output.stdout));
}
