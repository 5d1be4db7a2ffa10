//! What each process of a watched server read, wrote and computed: `/proc/PID/{io,stat}`.
//!
//! A server with short connections would make a new set of series a second, so a client's session counts only once it
//! has been seen for a few looks, and only so many at once and over time.

use super::allowance::Allowance;
use super::file::KernelFile;
use super::numbered::Numbered;
use super::task::{Stat, directory, effective_user, parse_stat};
use super::text::pairs;
use super::title::{CLIENT, backend_type};
use super::turns::{Due, Turns};
use super::{Roots, SOURCE, Server, Watch, file};
use crate::{Probe, ProbeError, Sink};
use backwater_model::catalogue::{self, Def};
use backwater_model::{Epoch, Moment};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Sessions of one server that are read at once.
const MOST_SESSIONS: usize = 200;
/// Looks for which a session must have been there before it is read.
const LOOKS_BEFORE_READING: u32 = 3;
/// Of a client's session, `stat` is read at every so many of its readings: the kernel takes twice as long over that one line as
/// over all I/O counters (4.4 and 2.2 µs with warm caches, Linux 6.18).
const READINGS_PER_STAT: u32 = 5;
/// But after no more looks than this, however rarely a session is read: half a minute then has two thirds of its accounts, and more
/// than rules ask for.
const LOOKS_PER_STAT: u32 = 10;
/// At every one where it computes more than this share of the time: there cannot be many such, and how long they computed is what
/// samples of their waits are held against.
const COMPUTES: f64 = 0.1;
/// More than this share, and it counts as one that did something: a tick in ten seconds is no work that a reading at every look
/// would show.
const WORKS: f64 = 0.01;
/// What the process is called that begins all others of a server.
const POSTMASTER: &str = "postmaster";
/// The user a process runs as changes rarely: it is read with the `stat` that comes after so many readings, or so many looks.
const READINGS_PER_USER: u32 = 60;
const LOOKS_PER_USER: u32 = 120;

/// Processes whose files are kept open between looks, two for each: opening is most of what a reading costs, and a process
/// may have a thousand files open by default.
const MOST_KEPT_OPEN: usize = MOST_SESSIONS + 40;

/// Lines of `/proc/PID/io`.
const COUNTERS: [(&str, &Def); 5] = [
    ("read_bytes", &catalogue::PROC_READ_BYTES),
    ("write_bytes", &catalogue::PROC_WRITE_BYTES),
    ("cancelled_write_bytes", &catalogue::PROC_CANCELLED_BYTES),
    ("syscr", &catalogue::PROC_READ_CALLS),
    ("syscw", &catalogue::PROC_WRITE_CALLS),
];

/// Reads the processes of watched servers.
#[derive(Debug)]
pub(super) struct Processes {
    roots: Roots,
    watch: Arc<Watch>,
    boot: String,
    ticks_per_s: f64,
    /// Whether the kernel measures waits for block I/O, as of this look.
    delays: bool,
    known: HashMap<i32, Known>,
    allowance: Allowance,
    turns: Turns,
    looks: u32,
    /// Of how many processes files are kept open.
    kept_open: usize,
}

/// A process that was seen before.
#[derive(Debug)]
struct Known {
    start_ticks: u64,
    what: Option<String>,
    looks: u32,
    admitted: bool,
    user: Due,
    stat: Due,
    cpu_ticks: u64,
    stat_at: Moment,
    /// Whether it computed for more than a trace of the time between the last two readings of `stat`.
    computed: bool,
    /// All its counters together, and whether that was more than at the reading before.
    sum: f64,
    moved: bool,
    files: Option<Files>,
    numbered: Option<Numbered>,
}

/// What is read of a process, kept open.
#[derive(Debug)]
struct Files {
    stat: KernelFile,
    io: KernelFile,
}

impl Processes {
    pub(super) fn new(roots: &Roots, watch: &Arc<Watch>) -> Self {
        Processes {
            roots: roots.clone(),
            watch: Arc::clone(watch),
            boot: file::boot_id(roots),
            ticks_per_s: rustix::param::clock_ticks_per_second() as f64,
            delays: false,
            known: HashMap::new(),
            allowance: Allowance::default(),
            turns: Turns::default(),
            looks: 0,
            kept_open: 0,
        }
    }

    fn read_server(&mut self, sink: &mut Sink<'_>, server: &Server, present: &mut HashSet<i32>) {
        let mut sessions = 0;
        let pids = self.watch.children(&self.roots, server, sink.at);
        for pid in std::iter::once(server.postmaster_pid).chain(pids.iter().copied()) {
            if self.waits_for_its_turn(pid) || self.reads_io_alone(sink, pid) {
                present.insert(pid);
                sessions += 1;
                continue;
            }
            let Some(stat) = self.stat(pid) else { continue };
            present.insert(pid);
            let Some(what) = self.recognise(sink, pid, stat, server) else { continue };
            if what == CLIENT && !self.admit(sink, pid, &mut sessions, server) {
                continue;
            }
            self.read_process(sink, server, pid, &what, stat);
        }
    }

    fn stat(&mut self, pid: i32) -> Option<Stat> {
        match self.known.get_mut(&pid).and_then(|known| known.files.as_mut()) {
            Some(files) => parse_stat(&files.stat.read().ok()?),
            None => parse_stat(&file::record(&directory(&self.roots, pid).join("stat")).ok()?),
        }
    }

    /// The text of a process that is read again and again. To what a process did, the kernel adds all that its children did
    /// once it has reaped them (`wait_task_zombie` in kernel/exit.c): a postmaster's is that of its one thread.
    fn io(&mut self, pid: i32, what: &str) -> Result<Cow<'_, str>, ProbeError> {
        let directory = directory(&self.roots, pid);
        let io = || if what == POSTMASTER { directory.join(format!("task/{pid}/io")) } else { directory.join("io") };
        let Some(known) = self.known.get_mut(&pid) else { return file::record(&io()).map(Cow::Owned) };
        if known.files.is_none() && self.kept_open < MOST_KEPT_OPEN {
            let stat = KernelFile::short(directory.join("stat"));
            known.files = Some(Files { stat, io: KernelFile::short(io()) });
            self.kept_open += 1;
        }
        match &mut known.files {
            Some(files) => files.io.read(),
            None => file::record(&io()).map(Cow::Owned),
        }
    }

    /// Whether it is a client's session that is read already and that another look reads.
    fn waits_for_its_turn(&mut self, pid: i32) -> bool {
        let Some(known) = self.known.get_mut(&pid).filter(|known| known.admitted) else { return false };
        // By its number, so that sessions that were all there at the start do not come all at once.
        if self.looks.wrapping_add(pid.unsigned_abs()).is_multiple_of(self.turns.of(known.moved)) {
            return false;
        }
        known.looks = known.looks.saturating_add(1);
        true
    }

    /// What the process is; none while that cannot be told.
    fn recognise(&mut self, sink: &Sink<'_>, pid: i32, stat: Stat, server: &Server) -> Option<String> {
        let fresh = || Known {
            start_ticks: stat.start_ticks,
            what: None,
            looks: 0,
            admitted: false,
            user: Due::default(),
            stat: Due::default(),
            cpu_ticks: 0,
            stat_at: Moment::default(),
            computed: false,
            sum: 0.0,
            moved: false,
            files: None,
            numbered: None,
        };
        let known = self.known.entry(pid).or_insert_with(fresh);
        if known.start_ticks != stat.start_ticks {
            let files = known.files.take();
            known.numbered.iter().for_each(|numbered| numbered.leave(sink));
            *known = Known { files, ..fresh() };
        }
        known.looks = known.looks.saturating_add(1);
        if known.what.is_none() {
            known.what = if pid == server.postmaster_pid {
                Some(POSTMASTER.to_owned())
            } else {
                backend_type(&file::read(&directory(&self.roots, pid).join("cmdline")).unwrap_or_default())
            };
        }
        known.what.clone()
    }

    fn admit(&mut self, sink: &mut Sink<'_>, pid: i32, sessions: &mut usize, server: &Server) -> bool {
        let Some(known) = self.known.get_mut(&pid).filter(|known| known.looks >= LOOKS_BEFORE_READING) else {
            return false;
        };
        let room = *sessions < MOST_SESSIONS && (known.admitted || self.allowance.take(sink.at));
        known.admitted |= room;
        *sessions += usize::from(room);
        if !room {
            let what = format!("I/O of some client backends of {}", server.target);
            let why = format!("only {MOST_SESSIONS} are read at once, {}", Allowance::why());
            sink.absent(SOURCE, &what, &why, None);
        }
        room
    }

    fn read_process(&mut self, sink: &mut Sink<'_>, server: &Server, pid: i32, what: &str, stat: Stat) {
        let known = self.known.get_mut(&pid).and_then(|known| known.numbered.take());
        let mut numbered = known.unwrap_or_else(|| {
            let (number, start) = (pid.to_string(), stat.start_ticks.to_string());
            let epoch = Epoch::of(&["process", &self.boot, &number, &start]);
            Numbered::new(epoch, vec![("target", server.target.clone()), ("pid", number), ("what", what.to_owned())])
        });
        numbered.put(sink, &catalogue::PROC_CPU, stat.cpu_ticks as f64 / self.ticks_per_s);
        if let Some(ticks) = stat.blkio_ticks.filter(|_| self.delays) {
            numbered.put(sink, &catalogue::PROC_BLKIO_DELAY, ticks as f64 / self.ticks_per_s);
        }
        if let Some(uid) = self.user_if_due(pid) {
            numbered.put(sink, &catalogue::PROC_UID, f64::from(uid));
        }
        let mut sum = stat.cpu_ticks as f64;
        match self.io(pid, what) {
            Ok(text) => sum += put_counters(&mut numbered, sink, &text),
            Err(error) if file::denied(&error) => {
                file::tell_absent(sink, &format!("I/O of the processes of {}", server.target), &error, None);
            }
            // The process has ended since, or the kernel does not account for I/O.
            Err(_) => {}
        }
        if let Some(known) = self.known.get_mut(&pid) {
            let computed_s = stat.cpu_ticks.saturating_sub(known.cpu_ticks) as f64 / self.ticks_per_s;
            let passed_s = sink.at.seconds_since(known.stat_at);
            let computes = computed_s > COMPUTES * passed_s;
            // The second reading of a session has it again, so that one that soon ends had a rate.
            let again = what != CLIENT || known.sum == 0.0 || computes;
            known.stat = Due::read(known.looks, if again { 1 } else { READINGS_PER_STAT });
            known.computed = computed_s > WORKS * passed_s && known.sum > 0.0;
            (known.cpu_ticks, known.stat_at) = (stat.cpu_ticks, sink.at);
            known.adds_up_to(sum);
            known.numbered = Some(numbered);
        }
    }

    /// Reads the I/O of a client's session that is well known, and tells whether it did. Only through the descriptor that is
    /// kept open: that is of the process it was opened for, and fails once that has ended.
    fn reads_io_alone(&mut self, sink: &mut Sink<'_>, pid: i32) -> bool {
        let turns = self.turns;
        let can_wait = |known: &&mut Known| {
            known.stat.can_wait(known.looks.saturating_add(1), turns.of(known.moved), LOOKS_PER_STAT)
        };
        let Some(known) = self.known.get_mut(&pid).filter(can_wait) else { return false };
        let (Some(files), Some(numbered)) = (&mut known.files, &mut known.numbered) else { return false };
        let Ok(text) = files.io.read_kept() else { return false };
        let sum = known.cpu_ticks as f64 + put_counters(numbered, sink, &text);
        known.stat.passed();
        known.user.passed();
        known.looks = known.looks.saturating_add(1);
        known.adds_up_to(sum);
        true
    }
}

impl Known {
    fn adds_up_to(&mut self, sum: f64) {
        self.moved = self.computed || (sum > self.sum && self.sum > 0.0);
        self.sum = sum;
    }
}

/// Puts the lines of `/proc/PID/io` down, and returns their sum.
fn put_counters(numbered: &mut Numbered, sink: &mut Sink<'_>, io: &str) -> f64 {
    let mut sum = 0.0;
    for (def, value) in counters(io) {
        numbered.put(sink, def, value);
        sum += value;
    }
    sum
}

impl Processes {
    fn user_if_due(&mut self, pid: i32) -> Option<u32> {
        let known = self.known.get_mut(&pid)?;
        if known.user.can_wait(known.looks, self.turns.of(known.moved), LOOKS_PER_USER) {
            known.user.passed();
            return None;
        }
        known.user = Due::read(known.looks, READINGS_PER_USER);
        effective_user(&self.roots, pid)
    }
}

/// Whether the kernel measures how long processes wait for block I/O (always before 5.14, by a switch since).
pub(super) fn accounts_for_delays(roots: &Roots) -> bool {
    file::word(&roots.proc.join("sys/kernel/task_delayacct")).is_none_or(|value| value != "0")
}

fn counters(io: &str) -> impl Iterator<Item = (&'static Def, f64)> {
    pairs(io).filter_map(|(key, value)| {
        let (_, def) = COUNTERS.iter().find(|(name, _)| *name == key)?;
        Some((*def, value as f64))
    })
}

impl Probe for Processes {
    fn name(&self) -> &str {
        "host.process"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        if self.watch.servers().is_empty() {
            return Ok(());
        }
        self.looks = self.looks.wrapping_add(1);
        self.delays = accounts_for_delays(&self.roots);
        if !self.delays {
            let why = "kernel.task_delayacct is off";
            sink.absent(SOURCE, "time blocked on I/O by process", why, Some("sysctl kernel.task_delayacct=1"));
        }
        let mut present = HashSet::new();
        for server in self.watch.servers() {
            self.read_server(sink, &server, &mut present);
        }
        let ended = self.known.extract_if(|pid, _| !present.contains(pid));
        ended.filter_map(|(_, known)| known.numbered).for_each(|numbered| numbered.leave(sink));
        let sessions = self.known.values().filter(|known| known.admitted);
        let (busy, quiet): (Vec<_>, Vec<_>) = sessions.partition(|known| known.moved);
        self.turns = Turns::among(busy.len(), quiet.len());
        self.kept_open = self.known.values().filter(|known| known.files.is_some()).count();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host::testing::{Look, fixture};
    use proptest::prelude::*;

    #[test]
    fn a_captured_session_is_read_once_it_has_stayed() {
        let (roots, watch) = fixture("capped");
        let mut probe = Processes::new(&roots, &watch);
        let labels = [("target", "main"), ("pid", "11173"), ("what", "client backend")];
        let mut look = Look::of_many(&mut probe, 2);
        assert_eq!(look.value("host.process.write_bytes", &labels), None);
        look.again(&mut probe);
        assert_eq!(look.value("host.process.write_bytes", &labels), Some(19_046_400.0));
        assert_eq!(look.value("host.process.write_calls", &labels), Some(5_207.0));
        assert_eq!(look.value("host.process.cpu_s", &labels), Some(0.58));
    }

    #[test]
    fn this_process_is_read_as_a_postmaster_and_its_child_is_no_server_process() {
        let watch = Arc::new(Watch::new());
        let pid = std::process::id();
        watch.add_server(Server { target: "me".into(), postmaster_pid: pid as i32 });
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let look = Look::of_many(&mut Processes::new(&Roots::default(), &watch), 4);
        child.kill().unwrap();
        child.wait().unwrap();
        let pid = pid.to_string();
        assert!(look.value("host.process.read_calls", &[("pid", &pid), ("what", "postmaster")]).unwrap() > 0.0);
        let uid = f64::from(rustix::process::geteuid().as_raw());
        assert_eq!(look.value("host.process.uid", &[("pid", &pid)]), Some(uid));
        assert_eq!(look.value("host.process.cpu_s", &[("pid", &child.id().to_string())]), None);
    }

    /// A child that looks like a client's session and works as often as it is given a line.
    fn session() -> std::process::Child {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new("sh");
        command.arg0("postgres: app shop [local] idle").args(["-c", "while read -r line; do echo \"$line\"; done"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn of_many_sessions_one_that_works_is_read_at_every_look_and_one_that_stands_still_at_every_second() {
        use std::io::{Read, Write};
        let watch = Arc::new(Watch::new());
        watch.add_server(Server { target: "me".into(), postmaster_pid: std::process::id() as i32 });
        let mut others: Vec<_> = (0..60).map(|_| session()).collect();
        let mut child = session();
        let (mut orders, mut answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut work = || {
            orders.write_all(b"x\n").unwrap();
            answers.read_exact(&mut [0; 2]).unwrap();
        };
        // Once it has answered, it is what its title says.
        work();
        let mut probe = Processes::new(&Roots::default(), &watch);
        let mut look = Look::of_many(&mut probe, 4);
        let pid = child.id().to_string();
        let readings_of = |look: &Look, name: &str| {
            let ours = |point: &&backwater_model::Point| {
                let series = look.registry.get(point.series).unwrap();
                series.name == name && series.labels.get("pid") == Some(&pid)
            };
            look.batch.points.iter().filter(ours).count()
        };
        let readings = |look: &Look| readings_of(look, "host.process.write_calls");
        let begun = readings(&look);
        (0..6).for_each(|_| look.again(&mut probe));
        assert_eq!(readings(&look) - begun, 3, "it stood still, as did the others");
        // It is seen to work at the next reading, and from then on each look reads it.
        for _ in 0..2 {
            work();
            look.again(&mut probe);
        }
        let begun = readings(&look);
        for _ in 0..4 {
            work();
            look.again(&mut probe);
        }
        let read = readings(&look) - begun;
        let begun = (readings(&look), readings_of(&look, "host.process.cpu_s"));
        for _ in 0..10 {
            work();
            look.again(&mut probe);
        }
        let later = (readings(&look) - begun.0, readings_of(&look, "host.process.cpu_s") - begun.1);
        others.push(child);
        for session in &mut others {
            session.kill().unwrap();
            session.wait().unwrap();
        }
        assert_eq!(read, 4);
        assert_eq!(later, (10, 2), "processor time at every fifth reading");
        let before = readings(&look);
        look.again(&mut probe);
        assert_eq!(readings(&look), before, "what has ended is not read");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            counters(&text).count();
        }
    }
}
