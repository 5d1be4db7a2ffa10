//! The recorder as users run it, a process of its own, and what the kernel says of it and of its session's process.

use crate::{Bench, Result};
use backwater_lab::workloads::connect;
use backwater_undo::{Entry, Stop};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_WITHIN: Duration = Duration::from_secs(30);
/// A server without time to spare may be asked by more than one session until the one that stays is there.
const STEADY_FOR: Duration = Duration::from_secs(2);
const STOP_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
/// Memory at the end is looked at more often: it peaks while the last segments are written.
const LAST_LOOKS: Duration = Duration::from_millis(1);

/// A running `backwater record`.
pub(crate) struct Recorder {
    child: Child,
    entry: Entry,
    /// Of its session in the server.
    pub(crate) backends: Vec<u32>,
    pub(crate) out: PathBuf,
}

/// What a recorder came to in all its life.
pub(crate) struct Ended {
    pub(crate) cpu_s: f64,
    pub(crate) peak_bytes: u64,
}

impl Recorder {
    /// Starts it, with sessions looked at so often, and waits until its session is in the server and its recording is begun.
    pub(crate) fn start(
        bench: &Bench,
        program: &Path,
        with: &[String],
        name: &str,
        every: Duration,
    ) -> Result<Recorder> {
        let (out, log) = (bench.work.join(name), bench.work.join("recorder.log"));
        let others = backends(bench)?;
        let mut command = Command::new(program);
        command.arg("record").arg(bench.server.conninfo()).arg("-o").arg(&out);
        command.arg("--sessions-every").arg(format!("{}ms", every.as_millis())).args(with);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log)?);
        let (child, entry) = bench.journal.spawn(&mut command, "the recorder that is measured", Stop::Interrupt)?;
        let mut recorder = Recorder { child, entry, backends: Vec::new(), out };
        let deadline = Instant::now() + START_WITHIN;
        let mut since = Instant::now();
        // It connects first; its directory comes with the first that it writes, late where no processor is to spare.
        while recorder.backends.is_empty() || since.elapsed() < STEADY_FOR || !recorder.out.is_dir() {
            if recorder.child.try_wait()?.is_some() || Instant::now() > deadline {
                return Err(format!("the recorder does not record: {}", std::fs::read_to_string(&log)?).into());
            }
            std::thread::sleep(LOOK);
            let own: Vec<u32> = backends(bench)?.into_iter().filter(|pid| !others.contains(pid)).collect();
            if own != recorder.backends {
                (recorder.backends, since) = (own, Instant::now());
            }
        }
        Ok(recorder)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as Ctrl-C does.
    pub(crate) fn stop(mut self, bench: &Bench) -> Result<Ended> {
        kill_process(Pid::from_child(&self.child), Signal::INT)?;
        let (pid, deadline) = (self.pid(), Instant::now() + STOP_WITHIN);
        let mut peak_bytes = 0;
        // Until it is waited for, what it used can still be read.
        while !has_ended(pid)? {
            peak_bytes = peak_resident_bytes(pid).unwrap_or(0).max(peak_bytes);
            if Instant::now() > deadline {
                return Err("the recorder does not end".into());
            }
            std::thread::sleep(LAST_LOOKS);
        }
        let cpu_s = cpu_s(pid)?;
        let status = self.child.wait()?;
        bench.journal.undo(self.entry)?;
        if !status.success() {
            return Err(format!("the recorder ended with {status}").into());
        }
        Ok(Ended { cpu_s, peak_bytes })
    }
}

/// The recorders' sessions in the server.
fn backends(bench: &Bench) -> Result<Vec<u32>> {
    let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'backwater'";
    Ok(ask(bench, sql)?.iter().filter_map(|pid| u32::try_from(*pid).ok()).collect())
}

/// The first column of what the server answers, as numbers.
pub(crate) fn ask(bench: &Bench, sql: &str) -> Result<Vec<i64>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Hundreds of sessions may connect at the same time.
        let (client, connection) = connect(&bench.server.conninfo().parse()?, &|| false).await?;
        let connection = tokio::spawn(connection);
        let rows = client.simple_query(sql).await?;
        drop(client);
        connection.await??;
        let number = |message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        };
        Ok(rows.into_iter().filter_map(number).collect())
    })
}

/// Fields of `/proc/PID/stat` from the third on: the second, a name, may hold anything.
fn stat(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let rest = text.rsplit_once(") ").ok_or("an odd line in /proc")?.1;
    Ok(rest.split_ascii_whitespace().map(str::to_owned).collect())
}

fn has_ended(pid: u32) -> Result<bool> {
    Ok(stat(&PathBuf::from(format!("/proc/{pid}/stat")))?.first().is_some_and(|state| state == "Z"))
}

/// Processor time of a process and its ended threads, user and system: whole clock ticks of an exact sum.
pub(crate) fn cpu_s(pid: u32) -> Result<f64> {
    let fields = stat(&PathBuf::from(format!("/proc/{pid}/stat")))?;
    let ticks = |place: usize| -> Result<f64> { Ok(fields.get(place).ok_or("a short line in /proc")?.parse()?) };
    Ok((ticks(11)? + ticks(12)?) / rustix::param::clock_ticks_per_second() as f64)
}

/// Processor time of each living thread, by name. One that ends while it is looked at is left out.
pub(crate) fn threads(pid: u32) -> Result<Vec<(String, f64)>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path();
        let texts = std::fs::read_to_string(path.join("schedstat"))
            .and_then(|ran| Ok((ran, std::fs::read_to_string(path.join("comm"))?)));
        let Ok((ran, name)) = texts else { continue };
        let ran_ns: f64 = ran.split(' ').next().unwrap_or("0").parse()?;
        found.push((name.trim().to_owned(), ran_ns / 1e9));
    }
    Ok(found)
}

/// The most memory a process has had resident so far; none once it has ended.
pub(crate) fn peak_resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// How many bytes lie in a directory and below.
pub(crate) fn size_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))? {
        let entry = entry?;
        // A segment's temporary file may have got its name meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += if metadata.is_dir() { size_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
