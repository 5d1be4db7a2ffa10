//! The recorder's own cost beside a busy server: sessions that are active whenever they are looked at, a fifth of
//! them with another text each time, and a little work that keeps every counter moving; or sessions that all work.

use crate::options::Options;
use crate::recorder::{Recorder, ask, cpu_s, peak_resident_bytes, size_bytes, threads};
use crate::{Bench, Result, SCALE};
use backwater_lab::workloads::{Arrivals, LoadSpec, Protocol, Script, Tpcb, Workload};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SETTLE: Duration = Duration::from_secs(5);
/// One session in so many has another text each time.
const OWN_TEXT_SHARE: usize = 5;
/// Of all sessions together, so that many sessions are no more work for the server than few.
const STATEMENTS_PER_S: f64 = 1_000.0;
const WORKERS: usize = 4;
/// On a host with processors to spare. (There whatever wakes is slower: caches are cold.)
const WORK_PER_S: f64 = 100.0;
/// Some milliseconds of computing, so that with many sessions nearly all are at work whenever they are looked at.
const COMPUTE_SQL: &str = "SELECT count(*) FROM generate_series(1, 50000);";
const ACTIVE_SQL: &str = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()";
const ASKED_SQL: &str = " AND (wait_event_type IS NULL OR wait_event_type NOT IN ('Activity', 'Client', 'Extension', 'IPC', 'Lock', 'Timeout'))";
/// Of the whole host.
const TARGET_CPU: f64 = 0.005;
const TARGET_BYTES: u64 = 64 << 20;
/// Threads that are named.
const THREADS_SHOWN: usize = 6;

/// What was counted by one moment.
struct Spent {
    recorder_s: f64,
    /// None where the session it began with is gone: a server without any time to spare may lose it.
    backend_s: Option<f64>,
    bytes: u64,
    peak_bytes: u64,
    threads: BTreeMap<String, f64>,
}

/// What the server does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// The sessions sleep; little work beside them.
    Calm,
    /// The sessions sleep; as much work beside them as the processors can do.
    Saturated,
    /// The sessions themselves compute, and so are on CPU or in line for one: of each of them the kernel is asked.
    Computing,
}

impl Load {
    pub(crate) const ALL: [Load; 3] = [Load::Calm, Load::Saturated, Load::Computing];

    pub(crate) fn named(name: &str) -> Result<Load> {
        let known = Load::ALL.into_iter().find(|load| format!("{load:?}").eq_ignore_ascii_case(name));
        known.ok_or_else(|| format!("there is no load {name}; there are calm, saturated and computing").into())
    }

    fn says(self, sessions: usize) -> String {
        let asleep = format!("{sessions} sessions, {} of them with a new text each time", sessions / OWN_TEXT_SHARE);
        match self {
            Load::Calm => format!("{asleep}, and TPC-B at {WORK_PER_S}/s (processors to spare)"),
            Load::Saturated => {
                format!("{asleep}, and TPC-B by {WORKERS} clients as fast as they can (no processor to spare)")
            }
            Load::Computing => format!("{sessions} sessions that compute as fast as they can (no processor to spare)"),
        }
    }

    /// Scripts with their clients and rates.
    fn workloads(self, sessions: usize) -> Result<Vec<Clients>> {
        if let Load::Computing = self {
            let compute = Script::parse("computing", COMPUTE_SQL, Protocol::Simple, SCALE)?;
            return Ok(vec![(Box::new(compute), sessions, None)]);
        }
        let (own_text, pause_s) = (sessions / OWN_TEXT_SHARE, sessions as f64 / STATEMENTS_PER_S);
        let same_sql = format!("SELECT pg_sleep({pause_s});");
        let own_sql =
            format!("\\set n random(1, 1000000000)\nSELECT pg_sleep({pause_s}), :n AS n, 'order ' || :n AS label;");
        let same = Script::parse("waiting", &same_sql, Protocol::Prepared, SCALE)?;
        let own = Script::parse("waiting", &own_sql, Protocol::Simple, SCALE)?;
        let work_per_s = matches!(self, Load::Calm).then_some(WORK_PER_S);
        Ok(vec![
            (Box::new(same), sessions - own_text, None),
            (Box::new(own), own_text, None),
            (Box::new(Tpcb::new(SCALE)?), WORKERS, work_per_s),
        ])
    }
}

/// A workload, how many clients carry it out, and how often a second together.
type Clients = (Box<dyn Workload>, usize, Option<f64>);

/// What is measured: how many sessions, doing what, looked at how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) sessions: usize,
    pub(crate) load: Load,
    pub(crate) every: Duration,
}

pub(crate) fn measure(bench: &Bench, program: &Path, cost: Cost, options: &Options) -> Result<()> {
    let workloads = cost.load.workloads(cost.sessions)?;
    let cancel = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (workload, clients, rate_per_s) in &workloads {
            let (clients, rate_per_s) = (*clients, *rate_per_s);
            let duration = Duration::from_secs(3_600);
            let arrivals = Arrivals::Poisson;
            let spec = LoadSpec { clients, rate_per_s, arrivals, warmup: Duration::ZERO, duration, seed: 1 };
            let cancel = &cancel;
            running.push(scope.spawn(move || bench.drive(&**workload, &spec, cancel)));
        }
        let told = watch(bench, program, cost, options);
        let ended_early = running.iter().any(|load| load.is_finished());
        cancel.store(true, Ordering::SeqCst);
        let results: Vec<_> = running.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        if ended_early {
            return Err(format!("a load ended by itself: {results:?}").into());
        }
        told
    })
}

fn watch(bench: &Bench, program: &Path, cost: Cost, options: &Options) -> Result<()> {
    let beside = options.beside.as_deref().map(|program| (program, &options.beside_with));
    let programs = [Some((program, &options.with)), beside].into_iter().flatten().enumerate();
    let start = |(number, (program, with)): (usize, (&Path, &Vec<String>))| {
        let name = format!("cost-{}-{:?}-{}ms-{number}", cost.sessions, cost.load, cost.every.as_millis());
        Recorder::start(bench, program, with, &name, cost.every)
    };
    let recorders = programs.map(start).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(SETTLE);
    let before = recorders.iter().map(spent).collect::<Result<Vec<_>>>()?;
    let (began, mut active, mut asked) = (Instant::now(), Vec::new(), Vec::new());
    while began.elapsed() < options.cost_length {
        std::thread::sleep(Duration::from_secs(5).min(options.cost_length.saturating_sub(began.elapsed())));
        active.extend(ask(bench, ACTIVE_SQL)?);
        asked.extend(ask(bench, &format!("{ACTIVE_SQL}{ASKED_SQL}"))?);
    }
    let after = recorders.iter().map(spent).collect::<Result<Vec<_>>>()?;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "\nCost over {seconds:.0} s: {};\na look is due every {} ms; {} sessions active, and {} in waits of which the kernel is \
         asked, at {} looks of this bench",
        cost.load.says(cost.sessions),
        cost.every.as_millis(),
        range(&active),
        range(&asked),
        active.len()
    );
    for (number, (recorder, (before, after))) in recorders.into_iter().zip(before.iter().zip(&after)).enumerate() {
        if number > 0 {
            println!("\nthe other build, at the same time");
        }
        tell(seconds, before, after);
        end(bench, recorder)?;
    }
    Ok(())
}

fn range(counts: &[i64]) -> String {
    format!("{} to {}", counts.iter().min().unwrap_or(&0), counts.iter().max().unwrap_or(&0))
}

fn end(bench: &Bench, recorder: Recorder) -> Result<()> {
    let before_s = cpu_s(recorder.pid())?;
    let ended = recorder.stop(bench)?;
    println!(
        "closing the recording            {:>6.0} ms of processor time, {:.1} MiB resident at most",
        (ended.cpu_s - before_s) * 1e3,
        mib(ended.peak_bytes)
    );
    Ok(())
}

/// What a recorder came to by now.
fn spent(recorder: &Recorder) -> Result<Spent> {
    Ok(Spent {
        recorder_s: cpu_s(recorder.pid())?,
        backend_s: recorder.backends.iter().map(|pid| cpu_s(*pid).ok()).sum(),
        bytes: size_bytes(&recorder.out)?,
        peak_bytes: peak_resident_bytes(recorder.pid()).ok_or("the recorder has ended")?,
        threads: threads(recorder.pid())?.into_iter().collect(),
    })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn verdict(within: bool) -> &'static str {
    if within { "within" } else { "OVER" }
}

fn tell(seconds: f64, before: &Spent, after: &Spent) {
    let cores = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    let share = |cpu_s: f64| cpu_s / seconds;
    let row = |name: &str, cpu_s: f64| {
        println!("{name:<28} {:>10.2} % {:>12.2} %", share(cpu_s) * 100.0, share(cpu_s) / cores * 100.0);
    };
    println!("\n{:<28} {:>12} {:>14} {:>10}", "processor time", "of one core", "of the host", "target");
    let recorder_s = after.recorder_s - before.recorder_s;
    row("recorder", recorder_s);
    if let Some(backend_s) = after.backend_s.zip(before.backend_s).map(|(after, before)| after - before) {
        row("its session in the server", backend_s);
        let both = share(recorder_s + backend_s);
        println!(
            "{:<28} {:>10.2} % {:>12.2} % {:>8.2} % {}",
            "together",
            both * 100.0,
            both / cores * 100.0,
            TARGET_CPU * 100.0,
            verdict(both / cores <= TARGET_CPU)
        );
    } else {
        println!("its session in the server was replaced meanwhile: what both came to is not known");
    }
    let used =
        |(name, cpu_s): (&String, &f64)| (name.clone(), cpu_s - before.threads.get(name).copied().unwrap_or(0.0));
    let mut threads: Vec<_> = after.threads.iter().map(used).collect();
    threads.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (name, cpu_s) in threads.iter().take(THREADS_SHOWN) {
        println!("  thread {name:<19} {:>10.2} %", share(*cpu_s) * 100.0);
    }
    let within = verdict(after.peak_bytes <= TARGET_BYTES);
    println!(
        "memory resident, at most     {:>10.1} MiB {:>23} MiB {within}",
        mib(after.peak_bytes),
        TARGET_BYTES >> 20
    );
    let kib_per_s = after.bytes.saturating_sub(before.bytes) as f64 / seconds / 1024.0;
    println!("the recording grew by        {:>10.1} KiB/s while its segment is open (a day: see size.md)", kib_per_s);
}
