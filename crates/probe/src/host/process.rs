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
/// Of a client's session, `stat` is read at every so many looks: the kernel takes twice as long over that one line as over all I/O
/// counters (4.4 and 2.2 µs with warm caches, Linux 6.18).
const LOOKS_PER_STAT: u32 = 5;
/// At every one where it computes more than this share of the time: there cannot be many such, and how long they computed is what
/// samples of their waits are held against.
const COMPUTES: f64 = 0.1;
/// What the process is called that begins all others of a server.
const POSTMASTER: &str = "postmaster";
/// The user a process runs as is read again with the `stat` that comes after so many looks; what is known is told with each.
const LOOKS_PER_USER: u32 = 60;

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
    /// At every how many of its looks `stat` is read.
    looks_per_stat: u32,
    /// The user it runs as.
    uid: Option<u32>,
    cpu_ticks: u64,
    stat_at: Moment,
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
            kept_open: 0,
        }
    }

    fn read_server(&mut self, sink: &mut Sink<'_>, server: &Server, present: &mut HashSet<i32>) {
        let mut sessions = 0;
        let pids = self.watch.children(&self.roots, server, sink.at);
        for pid in std::iter::once(server.postmaster_pid).chain(pids.iter().copied()) {
            if self.reads_io_alone(sink, pid) {
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

    /// What the process is; none while that cannot be told.
    fn recognise(&mut self, sink: &Sink<'_>, pid: i32, stat: Stat, server: &Server) -> Option<String> {
        let fresh = || Known {
            start_ticks: stat.start_ticks,
            what: None,
            looks: 0,
            admitted: false,
            looks_per_stat: 1,
            uid: None,
            cpu_ticks: 0,
            stat_at: Moment::default(),
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
        let kept = self.known.get_mut(&pid).and_then(|known| known.numbered.take());
        // The second reading of a session has its processor time again, so that one that soon ends had a rate.
        let first = kept.is_none();
        let mut numbered = kept.unwrap_or_else(|| {
            let (number, start) = (pid.to_string(), stat.start_ticks.to_string());
            let epoch = Epoch::of(&["process", &self.boot, &number, &start]);
            Numbered::new(epoch, vec![("target", server.target.clone()), ("pid", number), ("what", what.to_owned())])
        });
        numbered.put(sink, &catalogue::PROC_CPU, stat.cpu_ticks as f64 / self.ticks_per_s);
        if let Some(ticks) = stat.blkio_ticks.filter(|_| self.delays) {
            numbered.put(sink, &catalogue::PROC_BLKIO_DELAY, ticks as f64 / self.ticks_per_s);
        }
        if let Some(uid) = self.user(pid) {
            numbered.put(sink, &catalogue::PROC_UID, f64::from(uid));
        }
        match self.io(pid, what) {
            Ok(text) => put_counters(&mut numbered, sink, &text),
            Err(error) if file::denied(&error) => {
                file::tell_absent(sink, &format!("I/O of the processes of {}", server.target), &error, None);
            }
            // The process has ended since, or the kernel does not account for I/O.
            Err(_) => {}
        }
        if let Some(known) = self.known.get_mut(&pid) {
            let computed_s = stat.cpu_ticks.saturating_sub(known.cpu_ticks) as f64 / self.ticks_per_s;
            let computes = computed_s > COMPUTES * sink.at.seconds_since(known.stat_at);
            known.looks_per_stat = if what != CLIENT || first || computes { 1 } else { LOOKS_PER_STAT };
            (known.cpu_ticks, known.stat_at) = (stat.cpu_ticks, sink.at);
            known.numbered = Some(numbered);
        }
    }

    /// Takes a client's session that is well known at a look without its `stat`, and tells whether it did. Its I/O is read only through
    /// the descriptor that is kept open: that is of the process it was opened for, and fails once that has ended. Where none is kept
    /// (it may not be read, or too many are), opening it is left to the look that reads `stat`.
    fn reads_io_alone(&mut self, sink: &mut Sink<'_>, pid: i32) -> bool {
        let waits = |known: &&mut Known| !has_turn(pid, known.looks.saturating_add(1), known.looks_per_stat);
        let Some(known) = self.known.get_mut(&pid).filter(waits) else { return false };
        let kept = known.files.as_mut().map(|files| &mut files.io).filter(|io| io.is_open());
        if let (Some(io), Some(numbered)) = (kept, &mut known.numbered) {
            let Ok(text) = io.read_kept() else { return false };
            put_counters(numbered, sink, &text);
        }
        known.looks = known.looks.saturating_add(1);
        true
    }

    /// The user a process runs as, which changes rarely.
    fn user(&mut self, pid: i32) -> Option<u32> {
        let known = self.known.get_mut(&pid)?;
        if known.uid.is_none() || has_turn(pid, known.looks, LOOKS_PER_USER) {
            known.uid = effective_user(&self.roots, pid);
        }
        known.uid
    }
}

/// By the process' number, so that those that were all there at the start do not come all at once.
fn has_turn(pid: i32, look: u32, every: u32) -> bool {
    look.wrapping_add(pid.unsigned_abs()).is_multiple_of(every)
}

/// Puts the lines of `/proc/PID/io` down.
fn put_counters(numbered: &mut Numbered, sink: &mut Sink<'_>, io: &str) {
    counters(io).for_each(|(def, value)| numbered.put(sink, def, value));
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
    fn of_many_sessions_each_is_read_at_every_look() {
        use std::io::{Read, Write};
        let watch = Arc::new(Watch::new());
        watch.add_server(Server { target: "me".into(), postmaster_pid: std::process::id() as i32 });
        let mut others: Vec<_> = (0..60).map(|_| session()).collect();
        let mut child = session();
        let (mut orders, mut answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        // Once it has answered, it is what its title says.
        orders.write_all(b"x\n").unwrap();
        answers.read_exact(&mut [0; 2]).unwrap();
        let mut probe = Processes::new(&Roots::default(), &watch);
        let mut look = Look::of_many(&mut probe, 4);
        let pid = child.id().to_string();
        let readings = |look: &Look, name: &str| {
            let ours = |point: &&backwater_model::Point| {
                let series = look.registry.get(point.series).unwrap();
                series.name == name && series.labels.get("pid") == Some(&pid)
            };
            look.batch.points.iter().filter(ours).count()
        };
        let both = |look: &Look| ["host.process.write_calls", "host.process.cpu_s"].map(|name| readings(look, name));
        let begun = both(&look);
        assert_eq!(begun, [2, 2], "the second time too, so that one that soon ends had a rate");
        (0..10).for_each(|_| look.again(&mut probe));
        let [calls, cpu] = both(&look);
        others.push(child);
        for session in &mut others {
            session.kill().unwrap();
            session.wait().unwrap();
        }
        assert_eq!([calls - begun[0], cpu - begun[1]], [10, 2], "processor time at every fifth look");
        look.again(&mut probe);
        assert_eq!(both(&look), [calls, cpu], "what has ended is not read");
    }

    #[test]
    fn each_look_reads_the_processor_time_of_a_fifth_and_the_user_with_it() {
        for look in 0..10 {
            assert_eq!((100..150).filter(|pid| has_turn(*pid, look, LOOKS_PER_STAT)).count(), 10);
        }
        assert!(LOOKS_PER_USER.is_multiple_of(LOOKS_PER_STAT));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            counters(&text).count();
        }
    }
}
