//! The recorder's own cost beside a busy server: 50 sessions that are active whenever they are looked at, a fifth of
//! them with another text each time, and a little work that keeps every counter moving.

use crate::recorder::{Recorder, ask, cpu_s, peak_resident_bytes, size_bytes, threads};
use crate::{Bench, Lengths, Result, SCALE};
use backwater_lab::workloads::{Arrivals, LoadSpec, Protocol, Script, Tpcb, Workload};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SETTLE: Duration = Duration::from_secs(5);
const SAME_TEXT: usize = 40;
const OWN_TEXT: usize = 10;
const WORKERS: usize = 4;
const WORK_PER_S: f64 = 100.0;
/// Of the whole host.
const TARGET_CPU: f64 = 0.005;
const TARGET_BYTES: u64 = 64 << 20;
/// Threads that are named.
const THREADS_SHOWN: usize = 6;

/// What was counted over the measured time.
struct Seen {
    seconds: f64,
    recorder_s: f64,
    backend_s: f64,
    grown_bytes: u64,
    peak_bytes: u64,
    sessions: Vec<i64>,
    threads: Vec<(String, f64)>,
}

pub(crate) fn measure(bench: &Bench, program: &Path, lengths: &Lengths) -> Result<()> {
    let same = Script::parse("waiting", "SELECT pg_sleep(0.05);", Protocol::Prepared, SCALE)?;
    let own_text = "\\set n random(1, 1000000000)\nSELECT pg_sleep(0.05), :n AS n, 'order ' || :n AS label;";
    let own = Script::parse("waiting", own_text, Protocol::Simple, SCALE)?;
    let work = Tpcb::new(SCALE)?;
    let loads: [(&dyn Workload, usize, Option<f64>); 3] =
        [(&same, SAME_TEXT, None), (&own, OWN_TEXT, None), (&work, WORKERS, Some(WORK_PER_S))];
    let cancel = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (workload, clients, rate_per_s) in loads {
            let duration = Duration::from_secs(3_600);
            let arrivals = Arrivals::Poisson;
            let spec = LoadSpec { clients, rate_per_s, arrivals, warmup: Duration::ZERO, duration, seed: 1 };
            let cancel = &cancel;
            running.push(scope.spawn(move || bench.drive(workload, &spec, cancel)));
        }
        let told = watch(bench, program, lengths);
        let ended_early = running.iter().any(|load| load.is_finished());
        cancel.store(true, Ordering::SeqCst);
        let results: Vec<_> = running.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        if ended_early {
            return Err(format!("a load ended by itself: {results:?}").into());
        }
        told
    })
}

fn watch(bench: &Bench, program: &Path, lengths: &Lengths) -> Result<()> {
    let recorder = Recorder::start(bench, program, "cost")?;
    std::thread::sleep(SETTLE);
    let seen = look(bench, &recorder, lengths.cost)?;
    let before_s = cpu_s(recorder.pid())?;
    let ended = recorder.stop(bench)?;
    tell(&seen);
    println!(
        "closing the recording            {:>6.0} ms of processor time, {:.1} MiB resident at most",
        (ended.cpu_s - before_s) * 1e3,
        mib(ended.peak_bytes)
    );
    Ok(())
}

fn look(bench: &Bench, recorder: &Recorder, length: Duration) -> Result<Seen> {
    let backends = || recorder.backends.iter().map(|pid| cpu_s(*pid)).sum::<Result<f64>>();
    let (recorder_s, backend_s) = (cpu_s(recorder.pid())?, backends()?);
    let (bytes, before) = (size_bytes(&recorder.out)?, threads(recorder.pid())?);
    let (began, mut sessions) = (Instant::now(), Vec::new());
    while began.elapsed() < length {
        std::thread::sleep(Duration::from_secs(5).min(length.saturating_sub(began.elapsed())));
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()";
        sessions.extend(ask(bench, sql)?);
    }
    let names: std::collections::BTreeMap<_, _> = before.into_iter().collect();
    let spent = |(name, cpu_s): (String, f64)| (name.clone(), cpu_s - names.get(&name).copied().unwrap_or(0.0));
    Ok(Seen {
        seconds: began.elapsed().as_secs_f64(),
        recorder_s: cpu_s(recorder.pid())? - recorder_s,
        backend_s: backends()? - backend_s,
        grown_bytes: size_bytes(&recorder.out)?.saturating_sub(bytes),
        peak_bytes: peak_resident_bytes(recorder.pid()).ok_or("the recorder has ended")?,
        sessions,
        threads: threads(recorder.pid())?.into_iter().map(spent).collect(),
    })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn verdict(within: bool) -> &'static str {
    if within { "within" } else { "OVER" }
}

fn tell(seen: &Seen) {
    let cores = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    let share = |cpu_s: f64| cpu_s / seen.seconds;
    let row = |name: &str, cpu_s: f64| {
        println!("{name:<28} {:>10.2} % {:>12.2} %", share(cpu_s) * 100.0, share(cpu_s) / cores * 100.0);
    };
    println!(
        "Cost over {:.0} s: {} sessions, {} of them with a new text each time, and TPC-B at {WORK_PER_S}/s;\n\
         {} to {} sessions active at {} looks\n\n{:<28} {:>12} {:>14} {:>10}",
        seen.seconds,
        SAME_TEXT + OWN_TEXT,
        OWN_TEXT,
        seen.sessions.iter().min().unwrap_or(&0),
        seen.sessions.iter().max().unwrap_or(&0),
        seen.sessions.len(),
        "processor time",
        "of one core",
        "of the host",
        "target"
    );
    row("recorder", seen.recorder_s);
    row("its session in the server", seen.backend_s);
    let both = share(seen.recorder_s + seen.backend_s);
    println!(
        "{:<28} {:>10.2} % {:>12.2} % {:>8.2} % {}",
        "together",
        both * 100.0,
        both / cores * 100.0,
        TARGET_CPU * 100.0,
        verdict(both / cores <= TARGET_CPU)
    );
    let mut threads = seen.threads.clone();
    threads.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (name, cpu_s) in threads.iter().take(THREADS_SHOWN) {
        println!("  thread {name:<19} {:>10.2} %", share(*cpu_s) * 100.0);
    }
    let within = verdict(seen.peak_bytes <= TARGET_BYTES);
    println!("memory resident, at most     {:>10.1} MiB {:>23} MiB {within}", mib(seen.peak_bytes), TARGET_BYTES >> 20);
    let kib_per_s = seen.grown_bytes as f64 / seen.seconds / 1024.0;
    println!("the recording grew by        {:>10.1} KiB/s while its segment is open (a day: see size.md)", kib_per_s);
}
