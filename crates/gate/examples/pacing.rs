//! Whether what is held keeps its rate: through the proxy (the low class's token bucket) and from outside (the kernel's
//! pacing of a server's own socket, as attach mode sets it), at three rates, on idle and on busy processors. The server
//! sends without end, the client reads all that comes and writes down when.
//!
//! `cargo run --release -p backwater-gate --example pacing`, with any of `--seconds 10`, `--rounds 3`.
#![allow(clippy::print_stdout, reason = "the figures are this program's output")]

use backwater_gate::proxy::{Proxy, ProxyConfig};
use socket2::{Domain, Socket, Type};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const MIB: f64 = 1_048_576.0;
/// As they are written in a configuration, and in bytes a second.
const RATES: [(&str, u64); 3] = [("1MB", 1 << 20), ("256MB", 256 << 20), ("1GB", 1 << 30)];
/// How far the mean may be off.
const OFF: f64 = 0.01;
/// Segments as on Ethernet: loopback's own are so large that two of them are an eighth of a second at the lowest rate.
const SEGMENT_BYTES: u32 = 1_448;
/// The most that the kernel sends as one piece.
const PIECE_BYTES: f64 = 65_536.0;
/// What stood in buffers before the rate was set is gone by then.
const SETTLE: Duration = Duration::from_secs(2);
const SET_WITHIN: Duration = Duration::from_secs(10);

/// How a session is held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Not at all: what the machine gives.
    Nothing,
    /// Through the proxy, and not held.
    Urgent,
    /// Through the proxy, in the low class.
    Proxy,
    /// By the server's own socket.
    Attach,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Way::Nothing => "direct, not held",
            Way::Urgent => "proxy, not held",
            Way::Proxy => "proxy",
            Way::Attach => "attach",
        }
    }
}

/// What a client saw over a measurement.
struct Seen {
    rate_bps: f64,
    /// The most that had come at any moment beyond what the rate gives since any moment before it.
    ahead_bytes: f64,
}

/// A server that greets, and then sends rows for as long as somebody reads.
fn endless_server() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || send_without_end(stream));
        }
    });
    Ok(port)
}

/// Ends when its client does.
fn send_without_end(mut stream: TcpStream) -> Option<()> {
    let mut said = [0; 512];
    stream.read(&mut said).ok().filter(|count| *count > 8)?;
    stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").ok()?;
    stream.read(&mut said).ok().filter(|count| *count > 0)?;
    let mut row = vec![b'x'; 8_192];
    row[0] = b'D';
    row[1..5].copy_from_slice(&8_191_u32.to_be_bytes());
    let rows = row.repeat(32);
    while stream.write_all(&rows).is_ok() {}
    Some(())
}

/// A session that has asked for rows.
fn session(port: u16) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_tcp_mss(SEGMENT_BYTES)?;
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into())?;
    let mut stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.write_all(b"\0\0\0\x10\0\x03\0\0user\0u\0\0")?;
    stream.read_exact(&mut [0; 15])?;
    stream.write_all(b"Q\0\0\0\x0dSELECT 1\0")?;
    Ok(stream)
}

fn proxy(server: u16, rate: &str, priority: &str) -> Result<(Proxy, u16)> {
    let text = format!(
        "listen = '127.0.0.1:0'\nserver = '127.0.0.1:{server}'\nlow_priority_bandwidth = '{rate}'\n\
         [pools.default]\npriority = '{priority}'\n"
    );
    let proxy = Proxy::start(&ProxyConfig::parse(&text, Path::new("pacing.toml"))?)?;
    let address = proxy.addresses().first().ok_or("the proxy listens nowhere")?.to_string();
    let port = address.rsplit(':').next().ok_or("no port")?.parse()?;
    Ok((proxy, port))
}

/// Paces the server's end of a client's connection, as attach mode does.
fn hold(client: &TcpStream, rate_bps: u64) -> Result<()> {
    let deadline = Instant::now() + SET_WITHIN;
    loop {
        let found = backwater_socket::by_peer(client.local_addr()?)?;
        if let Some(socket) = found.first() {
            return Ok(socket.pace(Some(rate_bps))?);
        }
        if Instant::now() > deadline {
            return Err("the server's socket is not found".into());
        }
    }
}

/// Reads all that comes for so long.
fn watch(client: &mut TcpStream, length: Duration, rate_bps: f64) -> Result<Seen> {
    let mut buffer = vec![0; 1 << 18];
    let begun = Instant::now();
    let (mut bytes, mut last, mut level, mut ahead_bytes) = (0.0, 0.0, 0.0_f64, 0.0_f64);
    loop {
        let count = client.read(&mut buffer)? as f64;
        if count == 0.0 {
            return Err("the connection ended".into());
        }
        let at = begun.elapsed().as_secs_f64();
        level = (level - rate_bps * (at - last)).max(0.0) + count;
        (ahead_bytes, last, bytes) = (ahead_bytes.max(level), at, bytes + count);
        if at >= length.as_secs_f64() {
            return Ok(Seen { rate_bps: bytes / at, ahead_bytes });
        }
    }
}

fn measure(way: Way, rate: (&str, u64), server: u16, length: Duration) -> Result<Seen> {
    let through = match way {
        Way::Nothing | Way::Attach => None,
        Way::Urgent => Some(proxy(server, rate.0, "high")?),
        Way::Proxy => Some(proxy(server, rate.0, "low")?),
    };
    let mut client = session(through.as_ref().map_or(server, |(_, port)| *port))?;
    if way == Way::Attach {
        hold(&client, rate.1)?;
    }
    watch(&mut client, SETTLE, rate.1 as f64)?;
    let seen = watch(&mut client, length, rate.1 as f64);
    drop(client);
    if let Some((proxy, _)) = through {
        proxy.drain(|| true);
    }
    seen
}

/// Keeps every processor busy until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn begin() -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {});
        }
        Busy(stop)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn row(way: Way, rate: (&str, u64), rounds: &[Seen]) -> String {
    let of = |figure: &dyn Fn(&Seen) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        [values[values.len() / 2], values[0], values[values.len() - 1]]
    };
    if matches!(way, Way::Nothing | Way::Urgent) {
        let [median, least, most] = of(&|seen| seen.rate_bps / MIB);
        return format!("{:<17} {:>6}  {median:.0} MiB/s ({least:.0} to {most:.0})", way.name(), "-");
    }
    let [median, least, most] = of(&|seen| (seen.rate_bps / rate.1 as f64 - 1.0) * 100.0);
    // What is one piece beyond the schedule is no lead: pieces are what the kernel sends.
    let [lead, _, worst] = of(&|seen| (seen.ahead_bytes - PIECE_BYTES).max(0.0) / rate.1 as f64 * 1e3);
    let met = |met: bool| if met { "met" } else { "MISSED" };
    format!(
        "{:<17} {:>6}  {median:>+7.3} % ({least:+.3} to {most:+.3}) {:<6}  {lead:>8.3} ms, at most {worst:.3}: {}",
        way.name(),
        rate.0,
        met(least.abs().max(most.abs()) <= OFF * 100.0),
        met(worst <= 1.0)
    )
}

fn main() -> Result<()> {
    let (mut seconds, mut rounds) = (10, 3);
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value: u64 = words.next().ok_or_else(|| format!("{name} needs a value"))?.parse()?;
        match name.as_str() {
            "--seconds" => seconds = value.clamp(1, 600),
            "--rounds" => rounds = value.clamp(1, 100),
            _ => return Err(format!("{name} is not known; see the head of examples/pacing.rs").into()),
        }
    }
    let server = endless_server()?;
    println!(
        "Server, proxy and client are threads of one process, by TCP on loopback in segments of {SEGMENT_BYTES} bytes; {rounds} rounds of {seconds} s each, in turns.\n\
         Mean rate beside the one asked (a hundredth may be off), median (least to most). Lead: how far more had come at any\n\
         moment than the rate gives since any moment before, one piece of {PIECE_BYTES:.0} bytes left out; as the client saw it,\n\
         who may itself be late and then reads much at once. 1 ms is asked where processors are idle."
    );
    for busy in [false, true] {
        println!(
            "\n{}",
            if busy { "every processor busy with something else" } else { "processors idle but for this" }
        );
        let _busy = busy.then(Busy::begin);
        let mut cells: Vec<(Way, (&str, u64))> = vec![(Way::Nothing, RATES[0]), (Way::Urgent, RATES[0])];
        cells.extend(RATES.iter().flat_map(|rate| [(Way::Proxy, *rate), (Way::Attach, *rate)]));
        let mut seen: Vec<Vec<Seen>> = cells.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for ((way, rate), seen) in cells.iter().zip(&mut seen) {
                seen.push(measure(*way, *rate, server, Duration::from_secs(seconds))?);
            }
        }
        println!("{:<17} {:>6}  mean rate, off by{:31}lead", "", "asked", "");
        for ((way, rate), seen) in cells.iter().zip(&seen) {
            println!("{}", row(*way, *rate, seen));
        }
    }
    Ok(())
}
