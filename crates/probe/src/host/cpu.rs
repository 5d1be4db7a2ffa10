//! Processors: the first line of `/proc/stat`, in clock ticks.

use super::file::{CHUNK_BYTES, KernelFile, boot_id};
use super::{NO_LABELS, Roots};
use crate::{Probe, ProbeError, Sink};
use backwater_model::Epoch;
use backwater_model::catalogue::{self, Def};
use std::time::Duration;

/// Which fields of the line add up to which series. Guest time is part of user time already.
const FIELDS: [(&Def, &[usize]); 5] = [
    (&catalogue::CPU_USER, &[0, 1]),
    (&catalogue::CPU_SYSTEM, &[2, 5, 6]),
    (&catalogue::CPU_IDLE, &[3]),
    (&catalogue::CPU_IOWAIT, &[4]),
    (&catalogue::CPU_STEAL, &[7]),
];

/// Reads what all processors together did.
#[derive(Debug)]
pub(super) struct Processors {
    stat: KernelFile,
    path: std::path::PathBuf,
    ticks_per_s: f64,
    epoch: Epoch,
}

impl Processors {
    pub(super) fn new(roots: &Roots) -> Self {
        let path = roots.proc.join("stat");
        Processors {
            stat: KernelFile::new(&path),
            path,
            ticks_per_s: rustix::param::clock_ticks_per_second() as f64,
            epoch: Epoch::of(&["boot", &boot_id(roots)]),
        }
    }
}

/// Clock ticks of each of [`FIELDS`]; none where the first line is not that of all processors.
fn ticks(stat: &str) -> Option<[u64; FIELDS.len()]> {
    let mut words = stat.lines().next()?.split_ascii_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let fields: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    // User, nice, system and idle have always been there; the rest came in time and counts as zero.
    (fields.len() >= 4).then(|| {
        FIELDS.map(|(_, places)| {
            places.iter().filter_map(|place| fields.get(*place)).fold(0, |sum: u64, field| sum.saturating_add(*field))
        })
    })
}

impl Probe for Processors {
    fn name(&self) -> &str {
        "host.cpu"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        // The first line alone; a page holds it on every host.
        let text = self.stat.first_lines(CHUNK_BYTES)?;
        let Some(ticks) = ticks(&text) else {
            let found = text.lines().next().unwrap_or_default().to_owned();
            return Err(ProbeError::Parse { path: self.path.clone(), line: 1, wanted: "'cpu' and clock ticks", found });
        };
        for ((def, _), ticks) in FIELDS.iter().zip(ticks) {
            sink.put(def, NO_LABELS, self.epoch, ticks as f64 / self.ticks_per_s);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn captured_ticks_are_added_up() {
        let text = include_str!("../../tests/fixtures/capped/proc/stat");
        assert_eq!(ticks(text), Some([6_291 + 53_481, 15_096 + 118, 301_499, 5_776, 104]));
    }

    #[test]
    fn other_first_lines_are_refused() {
        for text in ["", "cpu0 1 2 3 4", "cpu 1 2 x 4", "cpu 1 2 3"] {
            assert_eq!(ticks(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*", numbers in proptest::collection::vec(any::<u64>(), 0..12)) {
            ticks(&text);
            let line: Vec<String> = numbers.iter().map(u64::to_string).collect();
            ticks(&format!("cpu  {}", line.join(" ")));
        }
    }
}
