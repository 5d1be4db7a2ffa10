//! What viewers cost whoever records: this host and fifty planted sessions are recorded and served by one process, and nobody, one
//! or fifty viewers follow the page as browsers do, at last with five beside them that take nothing of what they ask for. Each is
//! measured several times, in turns, with nobody twice, so that what chance alone makes can be seen. Viewers are a process of
//! their own.
//!
//! `cargo run --profile dist -p backwater-live --example viewers [SECONDS [ROUNDS]]`
#![allow(clippy::print_stdout, reason = "the figures are this program's output")]
#![allow(clippy::unwrap_used, reason = "an example that cannot measure has nothing else to do")]

mod planted;
mod viewer;

use backwater_live::http::{Options, serve};
use backwater_live::{Feed, Source};
use backwater_model::Meta;
use backwater_model::catalogue::{SELF_DROPPED, SELF_MISSED};
use backwater_probe::now;
use backwater_probe::session::{Session, Setup};
use backwater_record::{Options as Recorded, Pump, Recording, Writer};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};
use std::time::{Duration, Instant};

/// How long one measurement takes, in seconds, and how often each is made.
const SECONDS: f64 = 6.0;
const ROUNDS: usize = 5;
/// How long a viewer may leave what it asked for untaken. A measurement is longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Threads that serve: that of the server, and those on which it makes documents.
const SERVING: [&str; 2] = ["serve", "page"];

/// So many viewers, and so many that take nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Crowd {
    place: usize,
    viewers: usize,
    slow: usize,
}

/// What one measurement came to.
struct Measured {
    recorder: f64,
    serving: f64,
    seen: viewer::Seen,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "--view") {
        return viewer::run(&arguments[1..]);
    }
    let seconds: f64 = arguments.first().map_or(SECONDS, |text| text.parse().unwrap());
    let rounds: usize = arguments.get(1).map_or(ROUNDS, |text| text.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let (mut session, batches) = Session::start(Setup::default()).unwrap();
    session.known().change(|meta| meta.targets.push(planted::target()));
    session.add(Box::new(planted::Sessions::default())).unwrap();
    let feed = Feed::of(&session, 600.0);
    let (give, next) = sync_channel(300);
    feed.take(batches, Some(give), None).unwrap();
    let writer =
        Writer::create(dir.path(), Meta::clone(&session.meta()), Arc::clone(&session.registry), Recorded::default())
            .unwrap();
    let pump = Pump::start(writer, next, now, session.self_readings()).unwrap();
    let address = served(feed);

    let crowds = [(0, 0), (0, 0), (1, 0), (50, 0), (50, 5)];
    let crowds: Vec<Crowd> = (0..).zip(crowds).map(|(place, (viewers, slow))| Crowd { place, viewers, slow }).collect();
    let mut all: BTreeMap<Crowd, Vec<Measured>> = BTreeMap::new();
    for round in 0..rounds {
        // Each comes at each place of a round once in as many rounds.
        for step in 0..crowds.len() {
            let crowd = crowds[(step * 2 + round) % crowds.len()];
            all.entry(crowd).or_default().push(measure(address, crowd, seconds));
        }
    }
    told(&all, seconds, rounds);
    session.stop();
    pump.stop().unwrap();
    let window = Recording::open(dir.path()).unwrap().window(None, None).unwrap();
    let last = |name: &str| {
        window.tracks(name, &[]).filter_map(|track| track.points.last()).fold(0.0, |sum, point| sum + point.value)
    };
    println!(
        "\nOf {:.0} s: {:.0} batches dropped, {:.0} looks missed, {} samples recorded",
        window.seconds(),
        last(SELF_DROPPED.name),
        last(SELF_MISSED.name),
        window.samples().len()
    );
}

/// Serves it, on a thread of its own.
fn served(feed: Feed) -> SocketAddr {
    let (told, ready) = channel();
    let serving = move || {
        let options = Options {
            bind: "127.0.0.1:0".parse().unwrap(),
            token: Some(viewer::TOKEN.to_owned()),
            host_names: Vec::new(),
            tls: None,
            open_metrics: false,
            refresh: Duration::from_secs(2),
            patience: PATIENCE,
        };
        let source = Source::live(feed);
        serve(vec![source], &options, std::future::pending(), |url| told.send(url.to_owned()).unwrap()).unwrap();
    };
    std::thread::Builder::new().name(SERVING[0].to_owned()).spawn(serving).unwrap();
    let url = ready.recv().unwrap();
    url.strip_prefix("http://").unwrap().split('/').next().unwrap().parse().unwrap()
}

fn measure(address: SocketAddr, crowd: Crowd, seconds: f64) -> Measured {
    let mut crowded = viewer::start(address, crowd.viewers, crowd.slow, seconds);
    crowded.ready();
    let (before, begun) = (cpu_s(), Instant::now());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let (after, took) = (cpu_s(), begun.elapsed().as_secs_f64());
    let share = |place: usize| (after[place] - before[place]) / took * 100.0;
    Measured { recorder: share(0), serving: share(1), seen: crowded.seen() }
}

/// Processor time so far in seconds of the threads that read and record, which live as long as the session, and of those that
/// serve: all the rest of the process but the thread that measures, since some of those end now and then.
fn cpu_s() -> [f64; 2] {
    let clock = |clock| {
        let time = rustix::time::clock_gettime(clock);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut recorder = 0.0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        // A thread may end while it is looked at.
        let (Ok(name), Ok(ran)) =
            (std::fs::read_to_string(path.join("comm")), std::fs::read_to_string(path.join("schedstat")))
        else {
            continue;
        };
        let reads = !SERVING.contains(&name.trim()) && path.file_name().is_none_or(|name| *name != *own);
        if reads {
            recorder += ran.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9;
        }
    }
    let here = clock(rustix::time::ClockId::ThreadCPUTime);
    [recorder, clock(rustix::time::ClockId::ProcessCPUTime) - here - recorder]
}

fn told(all: &BTreeMap<Crowd, Vec<Measured>>, seconds: f64, rounds: usize) {
    println!("This host and 50 sessions, looked at ten times a second, recorded and served by one process;");
    println!(
        "{rounds} measurements of {seconds:.0} s each, in turns; processor time in % of one core, median (least to most)\n"
    );
    println!("viewers             recorder              serving               documents  each   waited, median  most");
    let mut recorders = Vec::new();
    for (crowd, list) in all {
        let recorder = sorted(list.iter().map(|one| one.recorder));
        let serving = sorted(list.iter().map(|one| one.serving));
        let waits = sorted(list.iter().flat_map(|one| one.seen.waits_s.iter().copied()));
        let bytes = list.iter().map(|one| one.seen.bytes).max().unwrap_or(0);
        let spread = |list: &[f64]| format!("{:.2} ({:.2} to {:.2})", median(list), list[0], list[list.len() - 1]);
        let who = match (crowd.slow, crowd.place) {
            (0, 1) => "0 again".to_owned(),
            (0, _) => crowd.viewers.to_string(),
            (slow, _) => format!("{} and {slow} slow", crowd.viewers),
        };
        let waited = |wait: Option<f64>| wait.map_or("-".to_owned(), |wait| format!("{:.1} ms", wait * 1e3));
        println!(
            "{who:<18}  {:<20}  {:<20}  {:>9}  {:>4}K  {:>14}  {:>8}",
            spread(&recorder),
            spread(&serving),
            waits.len(),
            bytes / 1024,
            waited((!waits.is_empty()).then(|| median(&waits))),
            waited(waits.last().copied()),
        );
        recorders.push((who, median(&recorder)));
    }
    println!("\nRecorder's processor time beside that with nobody looking:");
    for (who, cpu) in recorders.iter().skip(1) {
        println!("  {who:<18} {:+.2} % of one core", cpu - recorders[0].1);
    }
    let slow: Vec<&Measured> = all.values().flatten().filter(|one| one.seen.slow > 0).collect();
    let dropped = slow.iter().map(|one| one.seen.dropped_s.len()).sum::<usize>();
    let after = sorted(slow.iter().flat_map(|one| one.seen.dropped_s.iter().copied()));
    let count: usize = slow.iter().map(|one| one.seen.slow).sum();
    println!(
        "\n{dropped} of {count} slow viewers were dropped, after {:.1} s ({:.1} to {:.1}); their patience was set to {:.0} s",
        median(&after),
        after.first().copied().unwrap_or(f64::NAN),
        after.last().copied().unwrap_or(f64::NAN),
        PATIENCE.as_secs_f64()
    );
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut list: Vec<f64> = values.collect();
    list.sort_by(f64::total_cmp);
    list
}

fn median(sorted: &[f64]) -> f64 {
    let middle = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    f64::midpoint(middle(sorted.len().saturating_sub(1) / 2), middle(sorted.len() / 2))
}
