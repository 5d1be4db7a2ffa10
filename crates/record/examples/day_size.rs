//! How large a day of recording becomes, and what writing it costs: an hour of a busy server, written as the recorder
//! does it, multiplied by 24. 64 sessions of which about 50 are active at every look, and eight processes that carry WAL
//! and pages, ten looks a second; 420 points a second, ten times a second for the counters that rules need sharp.
//!
//! `cargo run --profile dist -p backwater-record --example day_size [MINUTES]`
#![allow(clippy::print_stdout, reason = "the figures are this program's output")]
#![allow(clippy::unwrap_used, reason = "an example that cannot write has nothing else to do")]

use backwater_model::{
    Batch, Epoch, Kind, Labels, Moment, Point, Provenance, Registry, Sample, Series, SeriesId, Text, Unit,
};
use backwater_record::{Options, Summary, Writer};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const LOOKS_PER_S: i64 = 10;

/// xorshift64: the same load every time.
struct Dice(u64);

impl Dice {
    fn share(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }

    fn pick<'a, T>(&mut self, weighted: &'a [(f64, T)]) -> &'a T {
        let mut left = self.share() * weighted.iter().map(|(weight, _)| weight).sum::<f64>();
        for (weight, value) in weighted {
            left -= weight;
            if left <= 0.0 {
                return value;
            }
        }
        &weighted[0].1
    }
}

/// How a made-up series moves at each reading.
#[derive(Clone, Copy)]
enum Motion {
    /// Grows by a random amount.
    Counter(f64),
    /// Grows by whole pages.
    Pages(f64),
    /// Wanders in whole pages.
    Level(f64),
    /// A small random number.
    Few(f64),
    /// Grows by hundredths.
    Hundredths(f64),
    /// A setting, a limit, a counter of what never happens.
    Still,
}

struct Gauge {
    id: SeriesId,
    motion: Motion,
    value: f64,
    every_looks: i64,
}

impl Gauge {
    fn step(&mut self, dice: &mut Dice) -> f64 {
        match self.motion {
            Motion::Counter(mean) => self.value += dice.exponential(mean).floor(),
            Motion::Pages(mean) => self.value += dice.exponential(mean).floor() * 4096.0,
            Motion::Level(width) => {
                self.value = (self.value + (dice.share() - 0.5) * width * 4096.0).abs();
                self.value = (self.value / 4096.0).floor() * 4096.0;
            }
            Motion::Few(most) => self.value = (dice.share() * most).floor(),
            Motion::Hundredths(mean) => self.value += dice.exponential(mean).round() / 100.0,
            Motion::Still => {}
        }
        self.value
    }
}

/// 20 series ten times a second (200 points/s) and 220 once a second.
fn gauges(registry: &Registry) -> Vec<Gauge> {
    let motions = [
        Motion::Counter(900.0),
        Motion::Pages(2_000.0),
        Motion::Level(3_000.0),
        Motion::Few(30.0),
        Motion::Counter(40_000.0),
        Motion::Still,
        Motion::Hundredths(12.0),
        Motion::Counter(3.0),
        Motion::Still,
        Motion::Pages(60.0),
        Motion::Still,
    ];
    let gauge = |number: usize| {
        let labels = Labels::of(&[("dev", format!("8:{number}"))]);
        let name = "host.disk.written_bytes".into();
        let series = Series { name, unit: Unit::Bytes, kind: Kind::Counter, labels, provenance: Provenance::Read };
        Gauge {
            id: registry.intern(series).unwrap(),
            motion: motions[number % motions.len()],
            value: (number as f64 * 7_919_777.0).floor() * 4096.0,
            every_looks: if number < 20 { 1 } else { LOOKS_PER_S },
        }
    };
    (0..240).map(gauge).collect()
}

struct Session {
    pid: i32,
    port: i32,
    active: bool,
    in_transaction_ms: f64,
}

/// The texts of a server under an OLTP load.
struct Words {
    target: Text,
    backend: Text,
    user: Text,
    database: Text,
    application: Text,
    address: Text,
    active: Text,
    /// Wait class, wait event, kernel wait and state, queue.
    waits: Vec<(f64, [Option<Text>; 5])>,
    statements: Vec<(f64, (i64, Text))>,
    carriers: Vec<Carrier>,
}

fn words() -> Words {
    let text = |text: &str| (!text.is_empty()).then(|| Text::from(text));
    let wait = |weight: f64, parts: [&str; 5]| (weight, parts.map(text));
    let statement = |weight: f64, id: i64, query: &str| (weight, (id, Text::from(query)));
    Words {
        target: "localhost:5432".into(),
        backend: "client backend".into(),
        user: "shop".into(),
        database: "shop".into(),
        application: "shop-api".into(),
        address: "10.0.3.17".into(),
        active: "active".into(),
        waits: vec![
            wait(40.0, ["", "", "", "R", ""]),
            wait(12.0, ["LWLock", "WALWrite", "futex_wait_queue", "S", "pg.commit"]),
            wait(10.0, ["IO", "WALSync", "jbd2_log_wait_commit", "D", "pg.commit"]),
            wait(12.0, ["IO", "DataFileRead", "folio_wait_bit_common", "D", ""]),
            wait(8.0, ["Lock", "transactionid", "do_epoll_wait", "S", ""]),
            wait(4.0, ["Lock", "tuple", "do_epoll_wait", "S", ""]),
            wait(7.0, ["LWLock", "BufferContent", "futex_wait_queue", "S", ""]),
            wait(5.0, ["IO", "DataFileExtend", "balance_dirty_pages", "D", "host.dirty@8:0"]),
            wait(2.0, ["IPC", "ProcArrayGroupUpdate", "futex_wait_queue", "S", ""]),
        ],
        statements: vec![
            statement(30.0, -6_102_345_678_901_234_567, "UPDATE accounts SET balance = balance + $1 WHERE aid = $2"),
            statement(25.0, 2_203_456_789_012_345_678, "SELECT balance FROM accounts WHERE aid = $1"),
            statement(15.0, 304_567_890_123_456_789, "UPDATE tellers SET balance = balance + $1 WHERE tid = $2"),
            statement(15.0, -8_405_678_901_234_567_890, "UPDATE branches SET balance = balance + $1 WHERE bid = $2"),
            statement(
                10.0,
                5_506_789_012_345_678_901,
                "INSERT INTO history (tid, bid, aid, delta) VALUES ($1, $2, $3, $4)",
            ),
            statement(5.0, 6_607_890_123_456_789_012, "COMMIT"),
        ],
        carriers: carriers(),
    }
}

fn sample(at: Moment, session: &mut Session, words: &Words, dice: &mut Dice) -> Sample {
    let [wait_event_type, wait_event, kernel_wait, kernel_state, queue] = dice.pick(&words.waits).clone();
    let (query_id, query) = dice.pick(&words.statements).clone();
    let age_ms = dice.exponential(8.0).floor();
    session.in_transaction_ms = if dice.share() < 0.4 { 0.0 } else { dice.exponential(15.0).floor() };
    Sample {
        at,
        target: words.target.clone(),
        pid: session.pid,
        backend_type: Some(words.backend.clone()),
        user: Some(words.user.clone()),
        database: Some(words.database.clone()),
        application: Some(words.application.clone()),
        client_addr: Some(words.address.clone()),
        client_port: Some(session.port),
        state: Some(words.active.clone()),
        wait_event_type,
        wait_event,
        kernel_wait,
        kernel_state: kernel_state.and_then(|state| state.chars().next()),
        query_id: Some(query_id),
        query: Some(query),
        query_age_ms: Some(age_ms as i64),
        xact_age_ms: Some((age_ms + session.in_transaction_ms) as i64),
        queue,
    }
}

/// The processes that carry WAL and pages, which have a sample at every look: mostly they wait for work.
const CARRIERS: [(&str, &str, &str); 8] = [
    ("walwriter", "WalWriterMain", "WALSync"),
    ("checkpointer", "CheckpointerMain", "CheckpointWriteDelay"),
    ("background writer", "BgWriterMain", "BgWriterHibernate"),
    ("archiver", "ArchiverMain", "ArchiveCommand"),
    ("walsender", "WalSenderMain", "WalSenderWriteData"),
    ("walsender", "WalSenderMain", "WalSenderWriteData"),
    ("io worker", "IoWorkerMain", "DataFileRead"),
    ("io worker", "IoWorkerMain", "DataFileRead"),
];
/// How often a carrier is found at work.
const AT_WORK: f64 = 0.2;

/// Texts of one carrier: type, wait class and event while it has nothing to do, and while it works.
struct Carrier {
    pid: i32,
    backend: Text,
    idle: [Text; 2],
    works: [Text; 2],
}

fn carriers() -> Vec<Carrier> {
    let texts = |class: &str, event: &str| [Text::from(class), Text::from(event)];
    let carrier = |(number, (kind, idle, works)): (usize, &(&str, &str, &str))| Carrier {
        pid: 300 + number as i32,
        backend: Text::from(*kind),
        idle: texts("Activity", idle),
        works: texts("IO", works),
    };
    CARRIERS.iter().enumerate().map(carrier).collect()
}

fn carrier_sample(at: Moment, carrier: &Carrier, words: &Words, dice: &mut Dice) -> Sample {
    let works = dice.share() < AT_WORK;
    let [class, event] = if works { carrier.works.clone() } else { carrier.idle.clone() };
    Sample {
        at,
        target: words.target.clone(),
        pid: carrier.pid,
        backend_type: Some(carrier.backend.clone()),
        wait_event_type: Some(class),
        wait_event: Some(event),
        kernel_state: works.then_some('D'),
        ..Sample::default()
    }
}

fn look(number: i64, sessions: &mut [Session], gauges: &mut [Gauge], words: &Words, dice: &mut Dice) -> Batch {
    let jitter = |dice: &mut Dice| dice.exponential(60.0) as i64;
    let at = Moment(3_600_000_000 + number * 1_000_000 / LOOKS_PER_S + jitter(dice));
    let mut batch = Batch::default();
    for session in sessions {
        if dice.share() < 0.1 {
            session.active = dice.share() < 0.8;
        }
        if session.active {
            batch.samples.push(sample(at, session, words, dice));
        }
    }
    for carrier in &words.carriers {
        batch.samples.push(carrier_sample(at, carrier, words, dice));
    }
    let host_at = Moment(at.0 + 150 + jitter(dice));
    for gauge in gauges.iter_mut().filter(|gauge| number % gauge.every_looks == 0) {
        let value = gauge.step(dice);
        batch.points.push(Point { at: host_at, series: gauge.id, epoch: Epoch(77_777_777_777), value, as_of: None });
    }
    batch
}

/// Processor time of this thread, so that neighbours do not count.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn peak_resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

fn main() {
    let minutes: i64 = std::env::args().nth(1).map_or(60, |minutes| minutes.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::new());
    let mut dice = Dice(88_172_645_463_325_252);
    let mut gauges = gauges(&registry);
    let words = words();
    let session = |number: i32| Session {
        pid: 4_000 + number * 3,
        port: 33_000 + number * 517 % 27_000,
        active: true,
        in_transaction_ms: 0.0,
    };
    let mut sessions: Vec<Session> = (0..62).map(session).collect();
    let mut writer = Writer::create(dir.path(), Default::default(), registry, Options::default()).unwrap();
    let mut busy = Duration::ZERO;
    for number in 0..minutes * 60 * LOOKS_PER_S {
        let batch = look(number, &mut sessions, &mut gauges, &words, &mut dice);
        let began = cpu();
        writer.write(&batch).unwrap();
        if number % LOOKS_PER_S == LOOKS_PER_S - 1 {
            writer.tick(Moment(3_600_000_000 + number * 1_000_000 / LOOKS_PER_S)).unwrap();
        }
        busy += cpu() - began;
    }
    let began = cpu();
    let summary = writer.close().unwrap();
    busy += cpu() - began;
    tell(dir.path(), minutes, summary, busy);
}

fn tell(dir: &Path, minutes: i64, summary: Summary, busy: Duration) {
    let seconds = (minutes * 60) as f64;
    println!("{summary:?} in {minutes} minutes");
    for table in ["points", "samples", "events"] {
        let files = std::fs::read_dir(dir.join(table)).unwrap();
        let sizes: Vec<u64> = files.map(|file| file.unwrap().metadata().unwrap().len()).collect();
        let rows = if table == "points" { summary.points } else { summary.samples };
        let bytes: u64 = sizes.iter().sum();
        println!("{table}: {} segments, {bytes} bytes, {:.3} bytes a row", sizes.len(), bytes as f64 / rows as f64);
    }
    let day = summary.bytes as f64 * 86_400.0 / seconds / (1 << 20) as f64;
    println!("a day: {day:.1} MiB");
    let share = busy.as_secs_f64() / seconds * 100.0;
    println!("writing: {share:.3} % of one core, at most {} MiB resident", peak_resident_mib());
    detail(&dir.join("samples"));
    detail(&dir.join("points"));
}

/// What each column takes, in the first segment.
fn detail(dir: &Path) {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let path = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let group = reader.metadata().row_group(0);
    for column in group.columns() {
        let each = column.compressed_size() as f64 / group.num_rows() as f64;
        println!("  {:18} {each:.3} bytes a row", column.column_path().string());
    }
}
