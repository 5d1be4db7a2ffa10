//! Ten thousand connection attempts a second at the proxy, while somebody urgent asks on: what each kind of them is answered, what
//! they cost who is there already, and what is left of them afterwards. The same attempts at a process that only closes them
//! show what of that cost is the machine's, which has to make and to take them somewhere.

use crate::peers::{self, OWN, Way};
use crate::urgent::{self, Asks, Urgent, conninfo, runtime};
use crate::{Bench, Result, idle_ticks};
use rand::seq::SliceRandom;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Attempts that begin in a second, whatever became of those before, and for how long.
const RATE_PER_S: u64 = 10_000;
const LENGTH: Duration = Duration::from_secs(10);
/// One before it: tables grow to what the busiest moment asks for, and keep that.
const WARM_UP: Duration = Duration::from_secs(3);
/// Loopback addresses that they come from: a port of a closed connection is taken for a minute.
const SOURCES: u64 = 64;
/// Who is not answered by then has no answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Half a start-up message waits so long for the rest.
const HALF_STAYS: Duration = Duration::from_secs(1);
/// The proxy comes to rest within this.
const REST_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

/// What an attempt does once it is connected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// It leaves.
    Silent,
    /// It speaks another protocol.
    Noise,
    /// It says half a start-up message.
    Half,
    /// It asks for a pool that is full, which the proxy itself refuses.
    Full,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Silent, Kind::Noise, Kind::Half, Kind::Full];

    const fn name(self) -> &'static str {
        match self {
            Kind::Silent => "connect and close",
            Kind::Noise => "another protocol",
            Kind::Half => "half a start-up",
            Kind::Full => "start-up, pool full",
        }
    }

    fn said(self) -> Vec<u8> {
        let start_up = b"\0\x03\0\0user\0postgres\0database\0postgres\0options\0-c backwater.pool=full\0\0";
        let whole = [&(start_up.len() as u32 + 4).to_be_bytes()[..], start_up].concat();
        match self {
            Kind::Silent => Vec::new(),
            Kind::Noise => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            Kind::Half => whole[..whole.len() / 2].to_vec(),
            Kind::Full => whole,
        }
    }
}

/// What became of the attempts so far.
#[derive(Default)]
struct Tally {
    connected: u64,
    last: Option<Instant>,
    answers: BTreeMap<(Kind, String), u64>,
}

/// Measures it all and prints it.
pub(crate) fn measure(bench: &Bench, program: &Path, rounds: usize) -> Result<()> {
    let way = peers::start_own(bench, program, bench.port, (OWN, "[pools.full]\nmax_connections = 1\n"))?;
    let (runtime, conninfo) = (runtime()?, conninfo(bench, &way));
    let asks = [Asks::Row, Asks::sum(&conninfo)?];
    let full = format!("{conninfo} options='-c backwater.pool=full'");
    // It has the only place of that pool until the end.
    let (_client, connection) = runtime.block_on(tokio_postgres::connect(&full, tokio_postgres::NoTls))?;
    runtime.spawn(connection);
    println!(
        "\nA storm: {RATE_PER_S} connection attempts a second for {} s from {SOURCES} addresses of loopback, by one thread that takes what time of\n\
         the processors nobody else wants (SCHED_IDLE), whatever became of those before; the kinds in turn. Beside it one session asks\n\
         through the proxy for {}, or for {}: with\n\
         no storm, with one at another process that closes each at once, and with one at the proxy; {rounds} rounds of them in random order.",
        LENGTH.as_secs(),
        asks[0],
        asks[1]
    );
    let closer = peers::start_closer(bench).map_err(|why| println!("left out, a storm elsewhere: {why}")).ok();
    storm(way.port, WARM_UP, || ())?;
    let before = at_rest(&way, None)?;
    let mut took = BTreeMap::<(Asks, Beside), Vec<Urgent>>::new();
    for _ in 0..rounds {
        let mut order = vec![Beside::Nothing, Beside::AtTheProxy];
        order.extend(closer.as_ref().map(|_| Beside::ClosedAtOnce));
        let mut order: Vec<_> = order.into_iter().flat_map(|beside| asks.map(|asks| (asks, beside))).collect();
        order.shuffle(&mut rand::rng());
        for (asks, beside) in order {
            let elsewhere = closer.as_ref().map_or(way.port, |closer| closer.port);
            let port = if beside == Beside::ClosedAtOnce { elsewhere } else { way.port };
            let urgent = beside.measure(&way, port, (asks, &conninfo))?;
            took.entry((asks, beside)).or_default().push(urgent);
            at_rest(&way, Some(before.descriptors))?;
        }
    }
    for asks in asks {
        let of = |beside| took.get(&(asks, beside)).map_or(&[][..], Vec::as_slice);
        println!("urgent, {asks}");
        let (alone, closed, at_proxy) = (of(Beside::Nothing), of(Beside::ClosedAtOnce), of(Beside::AtTheProxy));
        urgent::tell(Beside::Nothing.name(), alone, alone);
        if !closed.is_empty() {
            urgent::tell(Beside::ClosedAtOnce.name(), closed, alone);
        }
        urgent::tell(Beside::AtTheProxy.name(), at_proxy, alone);
        if !closed.is_empty() {
            let ratios = urgent::ratios(at_proxy, closed, |urgent| urgent.p99_ms);
            println!(
                "  p99 with the storm at the proxy / at who closes them: {:.2} ({:.2} at most)",
                ratios.median(),
                ratios.at_most()
            );
        }
    }
    println!("proxy before: {before}; a few seconds after: {}", at_rest(&way, Some(before.descriptors))?);
    Ok(())
}

/// What goes on beside the urgent session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Beside {
    Nothing,
    ClosedAtOnce,
    AtTheProxy,
}

impl Beside {
    const fn name(self) -> &'static str {
        match self {
            Beside::Nothing => "no storm",
            Beside::ClosedAtOnce => "closed at once",
            Beside::AtTheProxy => "at the proxy",
        }
    }

    /// Asks beside it once, and tells of the storm, which goes to this port.
    fn measure(self, way: &Way, port: u16, asked: (Asks, &str)) -> Result<Urgent> {
        if self == Beside::Nothing {
            return Ok(urgent::beside(asked, |_| std::thread::sleep(LENGTH))?.1);
        }
        let (cpu, ticks) = (Cpu::read(way)?, idle_ticks()?);
        // Some of who was connected wait for an answer yet when the last has come.
        let (begun, mut meanwhile) = (Instant::now(), None);
        let (stormed, urgent) = urgent::beside(asked, |over| {
            storm(port, LENGTH, || {
                over.store(true, Ordering::Relaxed);
                let seconds = begun.elapsed().as_secs_f64();
                meanwhile = Cpu::read(way).and_then(|now| Ok((now.since(cpu), idle_share(ticks)?, seconds))).ok();
            })
        })?;
        let (stormed, meanwhile) = (stormed?, meanwhile.ok_or("cannot read what the processors did")?);
        println!("{}: {}", self.name(), attempts(&stormed));
        if self == Beside::AtTheProxy {
            tell_attempts(&stormed, meanwhile);
        }
        Ok(urgent)
    }
}

/// Makes them with what time of the processors nobody else wants: who makes them elsewhere takes none of this host's. (What the
/// kernel does to receive them is done by whoever sends, on loopback, and so waits with it.)
fn storm(port: u16, length: Duration, over: impl FnOnce() + Send) -> Result<(Tally, f64)> {
    let last = || {
        let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
        let set = Command::new("chrt").args(["--idle", "--pid", "0", &thread]).status();
        if !set.is_ok_and(|status| status.success()) {
            println!(
                "the attempts are made like everything else: there is no chrt (Debian: util-linux) that puts them last"
            );
        }
        make(port, length, over)
    };
    std::thread::scope(|scope| scope.spawn(last).join().map_err(|_| "who makes the attempts panicked")?)
}

/// Makes them, says when the last was made, waits until each has its answer, and returns what became of them and the seconds in
/// which they were connected.
fn make(port: u16, length: Duration, over: impl FnOnce()) -> Result<(Tally, f64)> {
    let tally = Arc::<Mutex<Tally>>::default();
    let begun = Instant::now();
    runtime()?.block_on(async {
        let mut made = 0;
        while begun.elapsed() < length {
            let due = begun.elapsed().as_micros() as u64 * RATE_PER_S / 1_000_000;
            for number in made..due {
                tokio::spawn(attempt(number, port, Arc::clone(&tally)));
            }
            made = due;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        over();
        let ended = || tally.lock().unwrap_or_else(PoisonError::into_inner).answers.values().sum::<u64>() == made;
        while !ended() {
            tokio::time::sleep(LOOK).await;
        }
    });
    let tally = std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner));
    let seconds = tally.last.map_or(f64::NAN, |last| last.duration_since(begun).as_secs_f64());
    Ok((tally, seconds))
}

async fn attempt(number: u64, port: u16, tally: Arc<Mutex<Tally>>) {
    let kind = Kind::ALL[(number % 4) as usize];
    let connected = tokio::time::timeout(ANSWER_WITHIN, connect(number, port)).await;
    let at = Instant::now();
    let answer = match connected {
        Ok(Ok(stream)) => Ok(answer(kind, stream).await),
        Ok(Err(error)) => Err(format!("not connected: {}", error.kind())),
        Err(_) => Err(format!("not connected within {} s", ANSWER_WITHIN.as_secs())),
    };
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    if answer.is_ok() {
        tally.connected += 1;
        tally.last = tally.last.max(Some(at));
    }
    *tally.answers.entry((kind, answer.unwrap_or_else(|why| why))).or_default() += 1;
}

async fn connect(number: u64, port: u16) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // Half of those that leave first reset their connection: the others are remembered by the kernel for a minute.
    if (number / 4).is_multiple_of(2) {
        socket.set_zero_linger()?;
    }
    let source = Ipv4Addr::new(127, 0, 1, 1 + (number / 4 % SOURCES) as u8);
    socket.bind(SocketAddr::from((source, 0)))?;
    socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await
}

/// Says what its kind says, and returns what comes of it.
async fn answer(kind: Kind, mut stream: TcpStream) -> String {
    if kind == Kind::Silent {
        return "(does not wait)".to_owned();
    }
    let stays = if kind == Kind::Half { HALF_STAYS } else { ANSWER_WITHIN };
    let talk = async {
        stream.write_all(&kind.said()).await?;
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await?;
        io::Result::Ok(heard)
    };
    match tokio::time::timeout(stays, talk).await {
        Ok(Ok(heard)) if heard.is_empty() => "closed without a word".to_owned(),
        Ok(Ok(heard)) => error_of(&heard).unwrap_or_else(|| "something that is no error".to_owned()),
        Ok(Err(error)) => error.kind().to_string(),
        Err(_) => format!("nothing in {} s", stays.as_secs()),
    }
}

/// Code and text of an ErrorResponse.
fn error_of(heard: &[u8]) -> Option<String> {
    let fields = heard.strip_prefix(b"E")?.get(4..)?.split(|byte| *byte == 0);
    let of = |kind: u8| fields.clone().find_map(|field| field.strip_prefix(&[kind]));
    Some(format!("{} {}", String::from_utf8_lossy(of(b'C')?), String::from_utf8_lossy(of(b'M')?)))
}

/// Processor seconds of the proxy and of this program.
#[derive(Clone, Copy)]
struct Cpu {
    proxy_s: f64,
    own_s: f64,
}

impl Cpu {
    fn read(way: &Way) -> Result<Cpu> {
        Ok(Cpu { proxy_s: way.cpu_s()?, own_s: peers::cpu_s_of(std::process::id())? })
    }

    fn since(self, before: Cpu) -> Cpu {
        Cpu { proxy_s: self.proxy_s - before.proxy_s, own_s: self.own_s - before.own_s }
    }
}

fn idle_share((idle, all): (f64, f64)) -> Result<f64> {
    let (idle_now, all_now) = idle_ticks()?;
    Ok((idle_now - idle) / (all_now - all).max(1.0))
}

/// What a process holds.
struct Holds {
    descriptors: usize,
    resident_bytes: u64,
}

impl std::fmt::Display for Holds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} descriptors, {:.1} MB resident", self.descriptors, self.resident_bytes as f64 / 1e6)
    }
}

/// What the proxy holds once its descriptors are so few, or have stayed as they are for a few seconds.
fn at_rest(way: &Way, few: Option<usize>) -> Result<Holds> {
    const STAYED: Duration = Duration::from_secs(3);
    let begun = Instant::now();
    let (mut seen, mut since) = (way.descriptors()?, begun);
    loop {
        std::thread::sleep(LOOK);
        let now = way.descriptors()?;
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        let stayed = since.elapsed() > STAYED;
        if (stayed && few.is_none_or(|few| now <= few)) || begun.elapsed() > REST_WITHIN {
            return Ok(Holds { descriptors: now, resident_bytes: way.resident_bytes()? });
        }
    }
}

/// How many there were, in a line.
fn attempts((tally, seconds): &(Tally, f64)) -> String {
    let made: u64 = tally.answers.values().sum();
    format!("{made} attempts, {} of them connected, {:.0} a second", tally.connected, tally.connected as f64 / seconds)
}

fn tell_attempts((tally, connected_s): &(Tally, f64), (cpu, idle, seconds): (Cpu, f64, f64)) {
    for ((kind, answer), count) in &tally.answers {
        println!("  {:<20} {count:>7}  {answer}", kind.name());
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let limit = if tally.connected as f64 / connected_s >= RATE_PER_S as f64 * 0.99 {
        "The rate that was asked was made: nothing limited it."
    } else if idle < 0.1 {
        "What limited it are the processors, which all of them share."
    } else {
        "Processors were idle: what limited it was the one thread that makes the attempts, or their turns to run."
    };
    println!(
        "  Of {processors} processors for {seconds:.1} s the proxy took {:.1} s, this program {:.1} s (the kernel's work for connections is in both); \
         {:.0} % idle. {limit}",
        cpu.proxy_s,
        cpu.own_s,
        idle * 100.0
    );
}
