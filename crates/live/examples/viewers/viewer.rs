//! Those who look: as browsers do, or without ever taking what they asked for.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// What whoever looks must know.
pub(crate) const TOKEN: &str = "0123456789abcdefghij";

/// Viewers, in a process of their own.
pub(crate) struct Crowded {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    slow: usize,
}

/// What they saw.
pub(crate) struct Seen {
    /// How long each waited for each document.
    pub(crate) waits_s: Vec<f64>,
    /// Size of a document on its way.
    pub(crate) bytes: usize,
    /// Those that took nothing.
    pub(crate) slow: usize,
    /// After how long each of these was dropped, if it was.
    pub(crate) dropped_s: Vec<f64>,
}

/// Starts so many, for so long.
pub(crate) fn start(address: SocketAddr, viewers: usize, slow: usize, seconds: f64) -> Crowded {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let numbers = [viewers.to_string(), slow.to_string(), seconds.to_string()];
    command.arg("--view").arg(address.to_string()).args(numbers).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    Crowded { child, lines, slow }
}

impl Crowded {
    /// Waits until all of them look.
    pub(crate) fn ready(&mut self) {
        assert_eq!(self.lines.next().unwrap().unwrap(), "ready");
    }

    /// Waits for their end.
    pub(crate) fn seen(mut self) -> Seen {
        let mut seen = Seen { waits_s: Vec::new(), bytes: 0, slow: self.slow, dropped_s: Vec::new() };
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["took", wait, bytes] => {
                    seen.waits_s.push(wait.parse().unwrap());
                    seen.bytes = seen.bytes.max(bytes.parse().unwrap());
                }
                ["dropped", after] => seen.dropped_s.push(after.parse().unwrap()),
                odd => panic!("{odd:?}"),
            }
        }
        assert!(self.child.wait().unwrap().success());
        seen
    }
}

/// The viewers' own process: tells of each document that was taken, and of each of the slow that was dropped.
pub(crate) fn run(arguments: &[String]) {
    let [address, viewers, slow, seconds] = arguments else { panic!("ADDRESS VIEWERS SLOW SECONDS") };
    let address: SocketAddr = address.parse().unwrap();
    let number = |text: &String| text.parse::<usize>().unwrap();
    let streams: Vec<TcpStream> = (0..number(viewers)).map(|_| ask(address, "/view/0/events", false)).collect();
    let takes_none: Vec<TcpStream> = (0..number(slow)).map(|_| ask(address, "/view/0/document", false)).collect();
    println!("ready");
    let end = Instant::now() + Duration::from_secs_f64(seconds.parse().unwrap());
    let follows = streams.into_iter().map(|stream| std::thread::spawn(move || follow(stream, address, end)));
    let follows: Vec<_> = follows.collect();
    let stalls = takes_none.into_iter().map(|stream| std::thread::spawn(move || stall(stream, address, end)));
    let stalls: Vec<_> = stalls.collect();
    for (wait, bytes) in follows.into_iter().flat_map(|thread| thread.join().unwrap()) {
        println!("took {wait} {bytes}");
    }
    for after in stalls.into_iter().filter_map(|thread| thread.join().unwrap()) {
        println!("dropped {after}");
    }
}

fn head(address: SocketAddr, path: &str, close: bool) -> String {
    let close = if close { "connection: close\r\n" } else { "" };
    format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {TOKEN}\r\naccept-encoding: gzip\r\n{close}\r\n"
    )
}

fn ask(address: SocketAddr, path: &str, close: bool) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(head(address, path, close).as_bytes()).unwrap();
    stream
}

/// Takes the document whenever there is a newer one.
fn follow(stream: TcpStream, address: SocketAddr, end: Instant) -> Vec<(f64, usize)> {
    let mut waits = Vec::new();
    for line in BufReader::new(stream).lines() {
        if Instant::now() >= end {
            break;
        }
        if line.unwrap() == "event: newer" {
            let (begun, mut answer) = (Instant::now(), Vec::new());
            ask(address, "/view/0/document", true).read_to_end(&mut answer).unwrap();
            waits.push((begun.elapsed().as_secs_f64(), answer.len()));
        }
    }
    waits
}

/// Asks for document after document and takes none. How long it was put up with, if it was not to the end.
fn stall(mut stream: TcpStream, address: SocketAddr, end: Instant) -> Option<f64> {
    let begun = Instant::now();
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let more = head(address, "/", false);
    while Instant::now() < end {
        match stream.write(more.as_bytes()) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => return Some(begun.elapsed().as_secs_f64()),
        }
    }
    None
}
