//! Several sources read by one thread: at ten looks a second, waking a thread costs more than most of what it reads.

use super::SOURCE;
use crate::{Probe, ProbeError, Sink};
use std::time::Duration;

/// Sources with the same period. One that fails is said to be absent and tried again at the next look; the others run
/// on. Only when all fail does the look fail.
pub(super) struct Together {
    name: &'static str,
    parts: Vec<Box<dyn Probe>>,
    brief: bool,
}

impl Together {
    pub(super) fn new(name: &'static str, parts: Vec<Box<dyn Probe>>) -> Self {
        Together { name, parts, brief: false }
    }

    /// The same of sources whose looks take some tens of microseconds.
    pub(super) fn brief(name: &'static str, parts: Vec<Box<dyn Probe>>) -> Self {
        Together { brief: true, ..Together::new(name, parts) }
    }
}

impl Probe for Together {
    fn name(&self) -> &str {
        self.name
    }

    fn period(&self) -> Duration {
        self.parts.iter().map(|part| part.period()).min().unwrap_or(Duration::from_secs(1))
    }

    fn is_brief(&self) -> bool {
        self.brief
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        let (mut failed, mut last) = (0, None);
        for part in &mut self.parts {
            if let Err(error) = part.read(sink) {
                sink.absent(SOURCE, part.name(), &error.to_string(), None);
                failed += 1;
                last = Some(error);
            }
        }
        last.filter(|_| failed == self.parts.len()).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::Look;
    use crate::host::{NO_LABELS, Roots, cpu, memory};
    use backwater_model::{Batch, Epoch, Registry, catalogue};
    use std::collections::HashSet;

    struct Steady;

    impl Probe for Steady {
        fn name(&self) -> &str {
            "steady"
        }

        fn period(&self) -> Duration {
            Duration::from_millis(500)
        }

        fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
            sink.put(&catalogue::CPU_USER, NO_LABELS, Epoch::default(), 1.0);
            Ok(())
        }
    }

    fn broken() -> Box<dyn Probe> {
        Box::new(memory::PageCache::new(&Roots::under("/nonexistent".as_ref())))
    }

    #[test]
    fn one_that_fails_is_said_once_and_the_others_run_on() {
        let look = Look::of_many(&mut Together::new("host.fast", vec![broken(), Box::new(Steady)]), 2);
        assert_eq!(look.value("host.cpu.user_s", &[]), Some(1.0));
        assert!(look.lacks("host.vm"));
        assert_eq!((look.batch.points.len(), look.batch.events.len()), (2, 1));
    }

    #[test]
    fn the_look_fails_when_all_fail_and_the_shortest_period_is_kept() {
        let other = Box::new(cpu::Processors::new(&Roots::under("/nonexistent".as_ref())));
        let mut probe = Together::new("host.fast", vec![broken(), other]);
        let (registry, mut batch, mut absences) = (Registry::new(), Batch::default(), HashSet::new());
        assert!(probe.read(&mut Sink::new(crate::now(), &registry, &mut batch, &mut absences)).is_err());
        assert_eq!(probe.period(), Duration::from_millis(100));
    }
}
