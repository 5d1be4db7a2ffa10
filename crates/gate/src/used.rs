//! What a process of this host has used, as the system tells anybody: processor time and private memory. (proc(5):
//! /proc/PID/stat, /proc/PID/statm.)

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
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let cpu_ticks = read("stat").as_deref().and_then(cpu_ticks);
        let private_pages = read("statm").as_deref().and_then(private_pages);
        Used {
            cpu_s: cpu_ticks.map(|ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64),
            memory_bytes: private_pages.map(|pages| pages as f64 * rustix::param::page_size() as f64),
        }
    }
}

/// Percent of one processor that a statement used in the mean. Below a tenth of a second a hundredth says little.
pub(crate) fn cpu_percent(cpu_s: f64, elapsed_s: f64) -> Option<f64> {
    (elapsed_s >= 0.1).then(|| (100.0 * cpu_s / elapsed_s).min(100.0))
}

/// User and system time; the name, in parentheses, may hold anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
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
        assert_eq!(cpu_ticks("7 (a) S 1) R 1 2 3 4 5 6 7 8 9 10 30 12 0 0"), Some(42));
        assert_eq!(private_pages("9000 700 500 40 0 300 0"), Some(200));
    }

    #[test]
    fn a_mean_of_almost_no_time_is_none_and_one_processor_is_all_that_there_is() {
        assert_eq!([cpu_percent(0.05, 0.09), cpu_percent(1.0, 2.0)], [None, Some(50.0)]);
        assert_eq!(cpu_percent(0.12, 0.11), Some(100.0));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".*") {
            let _ = (cpu_ticks(&text), private_pages(&text));
        }
    }
}
