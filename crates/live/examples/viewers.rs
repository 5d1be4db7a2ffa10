//! What viewers cost: this host is watched and served, and 0, 1 and 50 viewers follow the page as browsers do. Processor time of the
//! program without its viewers, which are processes of their own, and how long a viewer waits for a document.
//!
//! `cargo run --release -p backwater-live --example viewers [SECONDS]`
#![allow(clippy::print_stdout, reason = "the figures are this program's output")]
#![allow(clippy::unwrap_used, reason = "an example that cannot measure has nothing else to do")]

use backwater_live::http::{Options, serve};
use backwater_live::{Feed, Source};
use backwater_probe::session::{Session, Setup};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const TOKEN: &str = "0123456789abcdefghij";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, address, seconds] = arguments.as_slice()
        && word == "--view"
    {
        return view(address.parse().unwrap(), seconds);
    }
    let seconds: u64 = arguments.get(1).map_or(30, |text| text.parse().unwrap());
    let (session, batches) = Session::start(Setup::default()).unwrap();
    let feed = Feed::of(&session, 600.0);
    feed.take(batches, None, Some(session.self_readings())).unwrap();
    let (told, ready) = channel();
    let source = Source::live(feed);
    std::thread::spawn(move || {
        let options = Options {
            bind: "127.0.0.1:0".parse().unwrap(),
            token: Some(TOKEN.to_owned()),
            host_names: Vec::new(),
            tls: None,
            open_metrics: false,
            refresh: Duration::from_secs(2),
            patience: Duration::from_secs(10),
        };
        serve(vec![source], &options, std::future::pending(), |url| told.send(url.to_owned()).unwrap()).unwrap();
    });
    let url = ready.recv().unwrap();
    let address: SocketAddr = url.strip_prefix("http://").unwrap().split('/').next().unwrap().parse().unwrap();
    println!("viewers  processor    documents  each  waited, median  waited, most");
    for viewers in [0, 1, 50] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--view", &address.to_string(), &format!("{seconds}:{viewers}")]);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        let before = cpu_s();
        let begun = Instant::now();
        let mut waits: Vec<f64> = Vec::new();
        let mut bytes = 0.0;
        std::thread::sleep(Duration::from_secs(seconds));
        let share = (cpu_s() - before) / begun.elapsed().as_secs_f64();
        let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        for line in text.lines() {
            let (wait, size) = line.split_once(' ').unwrap();
            waits.push(wait.parse().unwrap());
            bytes = size.parse().unwrap();
        }
        waits.sort_by(f64::total_cmp);
        let at =
            |share: f64| waits.get((waits.len() as f64 * share) as usize).or(waits.last()).copied().unwrap_or(f64::NAN);
        println!(
            "{viewers:>7}  {:>7.2} %  {:>11}  {:>4.0}K  {:>10.1} ms  {:>9.1} ms",
            share * 100.0,
            waits.len(),
            bytes / 1024.0,
            at(0.5) * 1e3,
            at(1.0) * 1e3
        );
    }
    session.stop();
}

/// Processor time of this process so far, in seconds.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Follows the page with so many viewers for so long, each with a stream of events and a document whenever there is a newer one.
fn view(address: SocketAddr, told: &str) {
    let (seconds, many) = told.split_once(':').unwrap();
    let end = Instant::now() + Duration::from_secs(seconds.parse().unwrap());
    let threads: Vec<_> =
        (0..many.parse().unwrap()).map(|_: usize| std::thread::spawn(move || follow(address, end))).collect();
    for (wait, bytes) in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
        println!("{wait} {bytes}");
    }
}

fn ask(address: SocketAddr, path: &str, close: bool) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let close = if close { "connection: close\r\n" } else { "" };
    let head = format!("host: {address}\r\nauthorization: Bearer {TOKEN}\r\naccept-encoding: gzip\r\n{close}");
    stream.write_all(format!("GET {path} HTTP/1.1\r\n{head}\r\n").as_bytes()).unwrap();
    stream
}

fn follow(address: SocketAddr, end: Instant) -> Vec<(f64, usize)> {
    let mut waits = Vec::new();
    for line in BufReader::new(ask(address, "/view/0/events", false)).lines() {
        if Instant::now() >= end {
            break;
        }
        if line.unwrap() == "event: newer" {
            let begun = Instant::now();
            let mut answer = Vec::new();
            ask(address, "/view/0/document", true).read_to_end(&mut answer).unwrap();
            waits.push((begun.elapsed().as_secs_f64(), answer.len()));
        }
    }
    waits
}
