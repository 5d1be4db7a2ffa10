//! What a process of this host is and has used, as the system tells anybody: title, begin, processor time and private memory.
//! (proc(5): /proc/PID/cmdline, /proc/PID/stat, /proc/PID/statm.)

use rustix::time::{ClockId, Timespec, clock_gettime};

/// What is known of it; nothing of one that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Used {
    /// Processor seconds since it began; the system counts in hundredths.
    pub(crate) cpu_s: Option<f64>,
    /// Bytes that it has in memory and shares with nobody: neither PostgreSQL's shared buffers nor what is mapped from
    /// files. The same as RssAnon in /proc/PID/status, in one short line and of kernels before 4.5 too.
    pub(crate) memory_bytes: Option<f64>,
}

impl Used {
    /// What the process with this number has used until now.
    pub(crate) fn of(pid: i32) -> Used {
        let cpu_ticks = read(pid, "stat").as_deref().and_then(cpu_ticks);
        let private_pages = read(pid, "statm").as_deref().and_then(private_pages);
        Used {
            cpu_s: cpu_ticks.map(|ticks| ticks as f64 / ticks_per_s()),
            memory_bytes: private_pages.map(|pages| pages as f64 * rustix::param::page_size() as f64),
        }
    }
}

fn read(pid: i32, name: &str) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/{name}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn ticks_per_s() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// Whether the title of a process holds all of these marks, as PostgreSQL writes them there: ` USER `, and `(PORT)` or `[local]` for
/// where the client is. A number alone may be another process's: of a server in a container, numbers are its own.
pub(crate) fn is_titled(pid: i32, marks: &[&str]) -> bool {
    let title = read(pid, "cmdline").unwrap_or_default().replace('\0', " ");
    marks.iter().all(|mark| title.contains(mark))
}

/// When a process began, in clock ticks since boot: with its number that is its identity.
pub(crate) fn began_ticks(pid: i32) -> Option<u64> {
    begin_ticks(&read(pid, "stat")?)
}

/// The same in microseconds since 1970, by the present clock.
pub(crate) fn unix_us(ticks: u64) -> i64 {
    let since_boot_us = ticks as f64 / ticks_per_s() * 1e6;
    let us = |time: Timespec| time.tv_sec * 1_000_000 + time.tv_nsec / 1_000;
    let boot_us = us(clock_gettime(ClockId::Realtime)) - us(clock_gettime(ClockId::Boottime));
    boot_us + since_boot_us as i64
}

/// Percent of one processor that a statement used in the mean. Below a tenth of a second a hundredth says little.
pub(crate) fn cpu_percent(cpu_s: f64, elapsed_s: f64) -> Option<f64> {
    (elapsed_s >= 0.1).then(|| (100.0 * cpu_s / elapsed_s).min(100.0))
}

/// User and system time.
fn cpu_ticks(stat: &str) -> Option<u64> {
    field(stat, 14)?.checked_add(field(stat, 15)?)
}

/// When it began, since boot.
fn begin_ticks(stat: &str) -> Option<u64> {
    field(stat, 22)
}

/// A number of /proc/PID/stat, by proc(5)'s count; the second field, the name in parentheses, may hold anything.
fn field(stat: &str, number: usize) -> Option<u64> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

/// Resident pages that are not shared.
fn private_pages(statm: &str) -> Option<u64> {
    let mut fields = statm.split_whitespace().skip(1).map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (fields.next()??, fields.next()??);
    resident.checked_sub(shared)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_process_shows_what_it_used_and_one_that_is_gone_nothing() {
        let used = Used::of(i32::try_from(std::process::id()).unwrap());
        assert!(used.cpu_s.is_some() && used.memory_bytes.unwrap() > 1e4, "{used:?}");
        assert_eq!(Used::of(i32::MAX), Used::default());
    }

    #[test]
    fn a_name_may_hold_anything_and_only_what_is_not_shared_counts() {
        let stat = "7 (a) S 1) R 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0 1 0 99";
        assert_eq!((cpu_ticks(stat), begin_ticks(stat)), (Some(42), Some(99)));
        assert_eq!(private_pages("9000 700 500 40 0 300 0"), Some(200));
    }

    #[test]
    fn a_process_that_begins_is_seen_to_begin_now_and_by_its_own_title() {
        use std::time::SystemTime;
        let unix_us = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as i64;
        let before_us = unix_us();
        let mut child = std::process::Command::new("sleep").args(["600"]).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let (began_us, after_us) = (super::unix_us(began_ticks(pid).unwrap()), unix_us());
        // A program is begun before it has a title, by a moment: its arguments are put down last.
        while read(pid, "cmdline").unwrap().is_empty() {
            assert_eq!(child.try_wait().unwrap(), None, "it ended before it had one");
            std::thread::yield_now();
        }
        let titled = [is_titled(pid, &["sleep 600"]), is_titled(pid, &["sleep", "[local]"])];
        child.kill().unwrap();
        child.wait().unwrap();
        assert!((before_us - 20_000..=after_us + 20_000).contains(&began_us), "{before_us} {began_us} {after_us}");
        assert_eq!(titled, [true, false]);
        assert_eq!(began_ticks(i32::MAX), None);
    }

    #[test]
    fn a_mean_of_almost_no_time_is_none_and_one_processor_is_all_that_there_is() {
        assert_eq!([cpu_percent(0.05, 0.09), cpu_percent(1.0, 2.0)], [None, Some(50.0)]);
        assert_eq!(cpu_percent(0.12, 0.11), Some(100.0));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".*") {
            let _ = (cpu_ticks(&text), begin_ticks(&text), private_pages(&text));
        }
    }
}
