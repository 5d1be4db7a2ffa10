//! Whether what is held keeps its rate: through the proxy (the low class's token bucket) and from outside (by attach mode,
//! with its helper, which takes root), at three rates, on idle processors, on busy ones,
//! and on busy ones where what holds goes before the rest (a nice value of -10, which takes CAP_SYS_NICE).
//! The server sends without end, the client reads all that comes and writes down when.
//!
//! `cargo run --profile dist -p backwater-gate --example pacing`, with any of `--seconds 10`, `--rounds 3`,
//! `--asked 1MB|256MB|1GB`, `--processors idle|busy|favoured`, `--nice 0` (of what else the processors do), `--own-nice -10`
//! (of the threads that hold, and of nothing else: the proxy's, and attach mode's own and its helper).
#![allow(clippy::print_stdout, reason = "the figures are this program's output")]

mod attached;
mod had;
mod nice;

use attached::Held;
use backwater_flow::limiter::TokenBucket;
use backwater_gate::attach::{Facts, hindrance};
use backwater_gate::proxy::{Proxy, ProxyConfig};
use backwater_model::Moment;
use backwater_socket::WITHIN_HOST_CONGESTION;
use had::{Had, Source};
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
/// Whether the processors do something else, and the nice value of the threads that hold.
const PROCESSORS: [(&str, bool, Option<i32>); 3] =
    [("idle", false, None), ("busy", true, None), ("favoured", true, Some(-10))];
/// How far the mean may be off.
const OFF: f64 = 0.01;
/// Segments as on Ethernet: loopback's own are so large that two of them are an eighth of a second at the lowest rate.
const SEGMENT_BYTES: u32 = 1_448;
/// The most that the kernel sends as one segment (GSO), whatever a reader who came late found there.
const MOST_SEGMENT_BYTES: f64 = 65_536.0;
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
#[derive(Clone, Copy)]
struct Seen {
    rate_bps: f64,
    /// The most that had come at any moment beyond what the rate gives since the schedule began.
    ahead_bytes: f64,
    /// The most that had come at any moment beyond what the rate gives since any moment before it: with what was late and
    /// is caught up.
    burst_bytes: f64,
    /// What comes as one, which is no lead: the proxy's quantum, or the kernel's segment, and no more than the largest of these.
    piece_bytes: f64,
    had: Had,
}

/// Bytes that came, against a rate.
struct Account {
    rate_bps: f64,
    begun: Instant,
    last_s: f64,
    bytes: f64,
    level: f64,
    ahead_bytes: f64,
    burst_bytes: f64,
    /// What each read found.
    reads_bytes: Vec<f64>,
}

impl Account {
    /// Its schedule begins now.
    fn new(rate_bps: f64) -> Account {
        let (begun, reads_bytes) = (Instant::now(), Vec::new());
        Account {
            rate_bps,
            begun,
            last_s: 0.0,
            bytes: 0.0,
            level: 0.0,
            ahead_bytes: 0.0,
            burst_bytes: 0.0,
            reads_bytes,
        }
    }

    fn add(&mut self, count: f64) {
        let at_s = self.begun.elapsed().as_secs_f64();
        self.level = (self.level - self.rate_bps * (at_s - self.last_s)).max(0.0) + count;
        self.bytes += count;
        self.burst_bytes = self.burst_bytes.max(self.level);
        self.ahead_bytes = self.ahead_bytes.max(self.bytes - self.rate_bps * at_s);
        self.last_s = at_s;
        self.reads_bytes.push(count);
    }

    /// What the proxy relays at once at this rate.
    fn quantum_bytes(&self) -> f64 {
        TokenBucket::new(Moment(0), self.rate_bps as u64).quantum_bytes() as f64
    }

    /// A reader who waits finds one segment at a time, which the kernel makes smaller the slower a socket is paced, and larger
    /// the shorter its way is (tcp_tso_autosize): so what a read usually finds is one.
    fn seen(&self, way: Way, had: Had) -> Seen {
        let [usual_bytes, _, _] = spread(self.reads_bytes.iter().copied());
        let piece_bytes = if way == Way::Proxy { self.quantum_bytes() } else { usual_bytes }.min(MOST_SEGMENT_BYTES);
        let Account { ahead_bytes, burst_bytes, .. } = *self;
        Seen { rate_bps: self.bytes / self.last_s, ahead_bytes, burst_bytes, piece_bytes, had }
    }
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

/// All its threads have that nice value.
fn proxy(server: u16, rate: &str, priority: &str, own_nice: Option<i32>) -> Result<(Proxy, u16)> {
    let text = format!(
        "listen = '127.0.0.1:0'\nserver = '127.0.0.1:{server}'\nlow_priority_bandwidth = '{rate}'\n\
         [pools.default]\npriority = '{priority}'\n"
    );
    let config = ProxyConfig::parse(&text, Path::new("pacing.toml"))?;
    let proxy = nice::within(own_nice, move || Ok(Proxy::start(&config)?))?;
    let address = proxy.addresses().first().ok_or("the proxy listens nowhere")?.to_string();
    let port = address.rsplit(':').next().ok_or("no port")?.parse()?;
    Ok((proxy, port))
}

fn server_end(client: &TcpStream) -> Result<backwater_socket::Socket> {
    let deadline = Instant::now() + SET_WITHIN;
    loop {
        if let Some(socket) = backwater_socket::by_peer(client.local_addr()?)?.into_iter().next() {
            return Ok(socket);
        }
        if Instant::now() > deadline {
            return Err("the server's socket is not found".into());
        }
    }
}

/// Reads all that comes for so long, and puts it down in each account.
fn watch(client: &mut TcpStream, length: Duration, accounts: &mut [&mut Account]) -> Result<()> {
    let mut buffer = vec![0; 1 << 18];
    let begun = Instant::now();
    while begun.elapsed() < length {
        let count = client.read(&mut buffer)? as f64;
        if count == 0.0 {
            return Err("the connection ended".into());
        }
        accounts.iter_mut().for_each(|account| account.add(count));
    }
    Ok(())
}

fn measure(way: Way, rate: (&str, u64), server: u16, options: &Options) -> Result<Seen> {
    let own_nice = options.own_nice;
    let through = match way {
        Way::Nothing | Way::Attach => None,
        Way::Urgent => Some(proxy(server, rate.0, "high", own_nice)?),
        Way::Proxy => Some(proxy(server, rate.0, "low", own_nice)?),
    };
    let rate_bps = rate.1 as f64;
    let mut client = session(through.as_ref().map_or(server, |(_, port)| *port))?;
    if way == Way::Nothing {
        server_end(&client)?.set_congestion(WITHIN_HOST_CONGESTION)?;
    }
    let had = Source::of(way, &client)?;
    // The proxy's schedule begins with the session: later it may stand behind it, and to come back to it is no lead.
    let mut whole = Account::new(rate_bps);
    // Its buffers are full of what was never held: that goes first, at its rate already. It is sought now, while nothing
    // counts: what comes meanwhile is read at once.
    let hold = (way == Way::Attach).then(|| attached::hold(server_end(&client)?, rate.1, own_nice)).transpose()?;
    watch(&mut client, SETTLE, &mut [&mut whole])?;
    let held = hold.map(|hold| Held::begin(hold, own_nice));
    let before = had.read()?;
    let mut settled = Account::new(rate_bps);
    watch(&mut client, Duration::from_secs(options.seconds), &mut [&mut whole, &mut settled])?;
    let had = Had::between(before, had.read()?, settled.begun.elapsed().as_secs_f64());
    held.map_or(Ok(()), Held::end)?;
    drop(client);
    if let Some((proxy, _)) = through {
        proxy.drain(|| true);
    }
    let seen = settled.seen(way, had);
    Ok(if way == Way::Proxy { Seen { ahead_bytes: whole.ahead_bytes, ..seen } } else { seen })
}

/// Keeps every processor busy until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn begin(nice: i32) -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                if let Err(error) = nice::take(Some(nice)) {
                    println!("what else the processors do: {error}");
                }
                while !stop.load(Ordering::Relaxed) {}
            });
        }
        Busy(stop)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Median, least and most of a figure.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

/// What each way had, in the median round.
fn told(way: Way, rate_bps: f64, rounds: &[Seen]) -> String {
    let [able, ..] = spread(rounds.iter().map(|seen| seen.had.able * 100.0));
    let [kept, ..] = spread(rounds.iter().map(|seen| seen.had.kept * 100.0));
    let [off, ..] = spread(rounds.iter().map(|seen| (seen.rate_bps / rate_bps / seen.had.able - 1.0) * 100.0));
    match way {
        Way::Urgent | Way::Proxy => format!("its thread ran {able:.0} %, stood in line {kept:.0} %"),
        Way::Nothing => format!("bytes and room {able:.1} %, no room {kept:.1} %"),
        Way::Attach => format!("bytes and room {able:.1} %, no room {kept:.1} %; of that time's rate {off:+.3} %"),
    }
}

/// One line; `path` is what the same way carried unheld, round by round. A lead is judged where processors are idle.
fn row(way: Way, rate: (&str, u64), rounds: &[Seen], path: &[Seen], busy: bool) -> String {
    if matches!(way, Way::Nothing | Way::Urgent) {
        let [median, least, most] = spread(rounds.iter().map(|seen| seen.rate_bps / MIB));
        let rates = format!("{median:.0} MiB/s ({least:.0} to {most:.0})");
        return format!("{:<17} {:>6}  {rates:<85} {:>18}  {}", way.name(), "-", "", told(way, 1.0, rounds));
    }
    let rate_bps = rate.1 as f64;
    let [median, least, most] = spread(rounds.iter().map(|seen| (seen.rate_bps / rate_bps - 1.0) * 100.0));
    // What the way does not carry cannot be asked of whoever holds it; more than was asked is too much all the same.
    let kept = rounds.iter().zip(path).all(|(seen, path)| {
        seen.rate_bps >= rate_bps.min(path.rate_bps) * (1.0 - OFF) && seen.rate_bps <= rate_bps * (1.0 + OFF)
    });
    // What comes as one is no lead.
    let ms = |bytes: f64, seen: &Seen| (bytes - seen.piece_bytes).max(0.0) / rate_bps * 1e3;
    let [lead, _, most_lead] = spread(rounds.iter().map(|seen| ms(seen.ahead_bytes, seen)));
    let [_, _, most_burst] = spread(rounds.iter().map(|seen| ms(seen.burst_bytes, seen)));
    let [piece_bytes, _, _] = spread(rounds.iter().map(|seen| seen.piece_bytes));
    let met = |met: bool| if met { "met" } else { "MISSED" };
    let [_, carried, _] = spread(path.iter().map(|path| path.rate_bps / MIB));
    let short = if carried * MIB < rate_bps {
        format!("; unheld the way carries {carried:.0} MiB/s: asked is that")
    } else {
        String::new()
    };
    format!(
        "{:<17} {:>6}  {median:>+7.3} % ({least:+.3} to {most:+.3}) {:<6}  {lead:>8.3} ms, at most {most_lead:.3}: {:<6}  {most_burst:>8.3} ms  {piece_bytes:>6.0} B  {}{short}",
        way.name(),
        rate.0,
        met(kept),
        if busy { "" } else { met(most_lead <= 1.0) },
        told(way, rate_bps, rounds)
    )
}

#[derive(Clone)]
struct Options {
    seconds: u64,
    rounds: u64,
    /// The one rate that is asked; None: all.
    asked: Option<String>,
    /// `idle`, `busy` or `favoured`; None: all.
    processors: Option<String>,
    /// Of what else the processors do, where they are busy.
    nice: i32,
    /// Of the threads that hold: all of the proxy's, attach mode's own and its helper. None: as this program's.
    own_nice: Option<i32>,
}

/// A word that means something here: with another one nothing would be measured, and nobody told.
fn one_of(known: &[&str], word: String) -> Result<String> {
    match known.contains(&word.as_str()) {
        true => Ok(word),
        false => Err(format!("{word} is none of {}", known.join(", ")).into()),
    }
}

impl Options {
    fn of(mut words: impl Iterator<Item = String>) -> Result<Options> {
        let mut options = Options { seconds: 10, rounds: 3, asked: None, processors: None, nice: 0, own_nice: None };
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--seconds" => options.seconds = value.parse::<u64>()?.clamp(1, 600),
                "--rounds" => options.rounds = value.parse::<u64>()?.clamp(1, 100),
                "--asked" => options.asked = Some(one_of(&RATES.map(|(known, _)| known), value)?),
                "--processors" => options.processors = Some(one_of(&PROCESSORS.map(|(known, ..)| known), value)?),
                "--nice" => options.nice = value.parse::<i32>()?.clamp(0, 19),
                "--own-nice" => options.own_nice = Some(value.parse::<i32>()?.clamp(-20, 19)),
                _ => return Err(format!("{name} is not known; see the head of examples/pacing/main.rs").into()),
            }
        }
        Ok(options)
    }

    /// What is measured, in this order: first what each way carries unheld.
    fn cells(&self) -> Vec<(Way, (&'static str, u64))> {
        let mut cells = vec![(Way::Nothing, RATES[0]), (Way::Urgent, RATES[0])];
        let rates = RATES.into_iter().filter(|(name, _)| self.asked.as_ref().is_none_or(|asked| asked == name));
        cells.extend(rates.flat_map(|rate| [(Way::Proxy, rate), (Way::Attach, rate)]));
        cells
    }

    /// What a measurement begins with: what the processors do, and with which nice values.
    fn heading(&self, busy: bool) -> String {
        let others = match (busy, self.nice, self.own_nice) {
            (false, ..) => "processors idle but for this".to_owned(),
            (true, 0, None) => "every processor busy with something else".to_owned(),
            (true, nice, _) => format!("every processor busy with something else, whose nice value is {nice}"),
        };
        match self.own_nice {
            None => others,
            Some(own) if busy => format!("{others}; the threads that hold: {own}"),
            Some(own) => format!("{others}; nice value of the threads that hold: {own}"),
        }
    }
}

/// All cells in turns, so many rounds, with what came of each.
fn measure_all(options: &Options, server: u16, busy: bool) -> Result<()> {
    println!("\n{}", options.heading(busy));
    let _busy = busy.then(|| Busy::begin(options.nice));
    let cells = options.cells();
    let mut seen: Vec<Vec<Seen>> = cells.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for ((way, rate), seen) in cells.iter().zip(&mut seen) {
            seen.push(measure(*way, *rate, server, options)?);
        }
    }
    println!("{:<17} {:>6}  mean rate, off by{:31}lead{:33}burst          piece  it had", "", "asked", "", "");
    for ((way, rate), rounds) in cells.iter().zip(&seen) {
        let path = if *way == Way::Attach { &seen[0] } else { &seen[1] };
        println!("{}", row(*way, *rate, rounds, path, busy));
    }
    Ok(())
}

fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some(attached::GUARDIAN) {
        return attached::guard();
    }
    let options = Options::of(std::env::args().skip(1))?;
    if let Some(why) = hindrance(&Facts::read()) {
        return Err(why.into());
    }
    let server = endless_server()?;
    println!(
        "Server, proxy and client are threads of one process, by TCP on loopback in segments of {SEGMENT_BYTES} bytes; {} rounds of {} s each, in turns.\n\
         Attach mode is itself, with its helper. Mean rate beside the one asked, median (least to most): a hundredth may be off,\n\
         and no more is asked than the same way carried unheld in that round (with {WITHIN_HOST_CONGESTION}, as what is held). Lead: how far more had come at any moment than the rate gives since the\n\
         session began (attach: since it was held), one piece left out, which is what the proxy relays at once or what the\n\
         client's reads usually find, one segment of the kernel's ({MOST_SEGMENT_BYTES:.0} bytes) at most; 1 ms is asked where\n\
         processors are idle. Burst: the same since any moment before, so with what came late and is caught up, at most.\n\
         All as the client saw it, who may itself be late and then reads much at once. It had, of the time: the proxy's thread a\n\
         processor, or a place in the line for one; attach: the server's socket something to send and its client room for\n\
         it, or no room (and how far off the rate was in the time in which there were both: nobody holds what is not there).",
        options.rounds, options.seconds
    );
    for (name, busy, own_nice) in PROCESSORS {
        // With a nice value that was asked for, one part with busy processors is enough.
        let is_asked = options.processors.is_some() || options.own_nice.is_some();
        if options.processors.as_ref().map_or(is_asked && own_nice.is_some(), |only| only != name) {
            continue;
        }
        let options = Options { own_nice: options.own_nice.or(own_nice), ..options.clone() };
        // A right that is missing is an error where it was asked for.
        match nice::within(options.own_nice, || Ok(())) {
            Err(error) if !is_asked => println!("\n{name}: not measured: {error}"),
            may => may.and_then(|()| measure_all(&options, server, busy))?,
        }
    }
    Ok(())
}
