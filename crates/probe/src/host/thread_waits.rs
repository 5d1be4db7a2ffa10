//! What the threads of a server do where a connection is a thread, as in mongod: those that run or that the kernel holds. One
//! that sleeps until something happens may wait for work as well as for a lock, so it is left out, and what is left are threads
//! at work.

use super::task::directory;
use super::{KernelWaits, Roots, file};
use crate::Sink;
use backwater_model::catalogue::THREADS_LOOKED;
use backwater_model::{Epoch, Sample, Text};
use std::collections::HashMap;
use std::fs::read_dir;

/// Threads that are looked at each time; of more, these and then the next ones in turn.
const MOST: usize = 256;
/// How mongod names the threads of connections, and as what they count.
const OF_CONNECTION: &str = "conn";
const CLIENT: &str = "client backend";

/// Looks at the threads of one process again and again.
#[derive(Debug)]
pub struct ThreadWaits {
    roots: Roots,
    kernel: KernelWaits,
    /// By thread, what it counts as.
    kinds: HashMap<i32, Text>,
    /// Kernel functions, each once.
    functions: HashMap<String, Text>,
    /// The thread looked at last.
    last: i32,
}

impl ThreadWaits {
    /// A reader that has looked at nothing yet.
    pub fn new(roots: &Roots) -> Self {
        ThreadWaits {
            roots: roots.clone(),
            kernel: KernelWaits::new(roots),
            kinds: HashMap::new(),
            functions: HashMap::new(),
            last: 0,
        }
    }

    /// Adds a sample for each thread of the process that is at work, of those whose turn it is, and how many were looked at: a
    /// look that finds none at work is a look, too. A process that is gone has none.
    pub fn look(&mut self, pid: i32, target: &Text, sink: &mut Sink<'_>) {
        let threads = self.turn(pid);
        if !threads.is_empty() {
            let epoch = Epoch::of(&["host.threads", &pid.to_string()]);
            sink.put(&THREADS_LOOKED, &[("target", target)], epoch, threads.len() as f64);
        }
        self.kernel.forget_others(&threads);
        self.kinds.retain(|thread, _| threads.binary_search(thread).is_ok());
        for thread in threads {
            let (function, Some(state)) = self.kernel.read(thread) else { continue };
            if !matches!(state, 'R' | 'D') {
                continue;
            }
            let (at, target, backend_type) = (sink.at, Text::clone(target), self.kind(pid, thread));
            let kernel_wait = function.map(|name| self.function(name));
            let kernel_state = Some(state);
            sink.sample(Sample {
                at,
                target,
                pid: thread,
                backend_type,
                kernel_wait,
                kernel_state,
                ..Sample::default()
            });
        }
    }

    /// The threads to look at now, by number.
    fn turn(&mut self, pid: i32) -> Vec<i32> {
        let entries = read_dir(directory(&self.roots, pid).join("task")).into_iter().flatten().flatten();
        let mut all: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        all.sort_unstable();
        if all.len() > MOST {
            let next = all.partition_point(|thread| *thread <= self.last) % all.len();
            all.rotate_left(next);
            all.truncate(MOST);
            self.last = all[MOST - 1];
            all.sort_unstable();
        }
        all
    }

    /// What a thread counts as; none where its name cannot be read.
    fn kind(&mut self, pid: i32, thread: i32) -> Option<Text> {
        if let Some(known) = self.kinds.get(&thread) {
            return Some(Text::clone(known));
        }
        let path = directory(&self.roots, pid).join(format!("task/{thread}/comm"));
        let name = file::read(&path).ok()?;
        let kind = Text::from(if name.starts_with(OF_CONNECTION) { CLIENT } else { name.trim() });
        self.kinds.insert(thread, Text::clone(&kind));
        Some(kind)
    }

    fn function(&mut self, name: String) -> Text {
        let text = Text::from(name.as_str());
        Text::clone(self.functions.entry(name).or_insert(text))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::now;
    use backwater_model::{Batch, Registry};
    use std::collections::HashSet;
    use std::path::Path;

    const STAT: &str = include_str!("../../tests/fixtures/capped/proc/11173/stat");

    /// Threads of process 40: number, name, state, function. The kernel shows each as a process too, though it lists it in none.
    fn threads(root: &Path, threads: &[(i32, &str, char, &str)]) -> ThreadWaits {
        let roots = Roots::under(root);
        for (thread, name, state, function) in threads {
            let (own, task) = (directory(&roots, *thread), directory(&roots, 40).join(format!("task/{thread}")));
            std::fs::create_dir_all(&own).unwrap();
            std::fs::create_dir_all(&task).unwrap();
            std::fs::write(own.join("stat"), STAT.replace(") D ", &format!(") {state} "))).unwrap();
            std::fs::write(own.join("wchan"), function).unwrap();
            std::fs::write(task.join("comm"), format!("{name}\n")).unwrap();
        }
        ThreadWaits::new(&roots)
    }

    fn look(waits: &mut ThreadWaits, pid: i32) -> Vec<Sample> {
        looked(waits, pid).samples
    }

    fn looked(waits: &mut ThreadWaits, pid: i32) -> Batch {
        let (registry, mut batch, mut absences) = (Registry::new(), Batch::default(), HashSet::new());
        waits.look(pid, &Text::from("m"), &mut Sink::new(now(), &registry, &mut batch, &mut absences));
        batch
    }

    #[test]
    fn threads_at_work_are_told_and_those_that_sleep_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut waits = threads(
            dir.path(),
            &[
                (40, "mongod", 'S', "futex_do_wait"),
                (41, "conn7", 'D', "balance_dirty_pages"),
                (42, "conn8", 'S', "do_poll"),
                (43, "conn9", 'R', "0"),
                (44, "WTEviction", 'D', "balance_dirty_pages"),
            ],
        );
        let seen = look(&mut waits, 40);
        let told: Vec<_> = seen.iter().map(|s| (s.pid, s.backend_type.as_deref(), s.kernel_wait.as_deref())).collect();
        let expected = [
            (41, Some(CLIENT), Some("balance_dirty_pages")),
            (43, Some(CLIENT), None),
            (44, Some("WTEviction"), Some("balance_dirty_pages")),
        ];
        assert_eq!(told, expected);
        assert_eq!((seen[0].kernel_state, seen[1].kernel_state, &*seen[0].target), (Some('D'), Some('R'), "m"));
        let gone = looked(&mut waits, 99);
        assert!(gone.samples.is_empty() && gone.points.is_empty(), "there is no such process");
    }

    #[test]
    fn a_look_that_finds_none_at_work_is_a_look() {
        let dir = tempfile::tempdir().unwrap();
        let mut waits = threads(dir.path(), &[(41, "conn7", 'S', "do_poll"), (42, "conn8", 'S', "futex_do_wait")]);
        let seen = looked(&mut waits, 40);
        assert!(seen.samples.is_empty());
        assert_eq!(seen.points.iter().map(|point| point.value).collect::<Vec<_>>(), [2.0]);
    }

    #[test]
    fn of_many_threads_each_has_its_turn() {
        let dir = tempfile::tempdir().unwrap();
        let all: Vec<_> = (0..600).map(|n| (1_000 + n, "conn1", 'R', "0")).collect();
        let mut waits = threads(dir.path(), &all);
        let looks: Vec<Vec<Sample>> = (0..3).map(|_| look(&mut waits, 40)).collect();
        assert!(looks.iter().all(|look| look.len() == MOST));
        let seen: HashSet<i32> = looks.iter().flatten().map(|sample| sample.pid).collect();
        assert_eq!(seen.len(), 600);
    }

    #[test]
    fn the_threads_of_this_process_are_seen_at_work() {
        let mut waits = ThreadWaits::new(&Roots::default());
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let seen = look(&mut waits, std::process::id() as i32);
        assert!(seen.iter().any(|sample| sample.pid == own && sample.kernel_state == Some('R')), "{seen:?}");
    }
}
