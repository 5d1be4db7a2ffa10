//! Several sources read by one thread: at ten looks a second, waking a thread costs more than most of what it reads.

use super::SOURCE;
use crate::{Probe, ProbeError, Sink};
use std::time::Duration;

/// Sources read with the shortest of their periods, or at every so many of these looks where a source's own is longer. One
/// that fails is said to be absent and tried again; the others run on. Only when all fail does the look fail.
pub(super) struct Together {
    name: &'static str,
    parts: Vec<Box<dyn Probe>>,
    brief: bool,
    looks: u32,
}

impl Together {
    pub(super) fn new(name: &'static str, parts: Vec<Box<dyn Probe>>) -> Self {
        Together { name, parts, brief: false, looks: 0 }
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
        let (period_ms, look) = (self.period().as_millis(), self.looks);
        self.looks = look.wrapping_add(1);
        let is_due = |part: &&mut Box<dyn Probe>| {
            u128::from(look).is_multiple_of((part.period().as_millis() / period_ms.max(1)).max(1))
        };
        let all = self.parts.len();
        let (mut failed, mut last) = (0, None);
        for part in self.parts.iter_mut().filter(is_due) {
            if let Err(error) = part.read(sink) {
                sink.absent(SOURCE, part.name(), &error.to_string(), None);
                failed += 1;
                last = Some(error);
            }
        }
        last.filter(|_| failed == all).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::Look;
    use crate::host::{NO_LABELS, Roots, cpu, memory};
    use backwater_model::{Batch, Epoch, Registry, catalogue};
    use std::collections::HashSet;

    const LEAST: Duration = Duration::from_millis(100);

    struct Steady(Duration);

    impl Probe for Steady {
        fn name(&self) -> &str {
            "steady"
        }

        fn period(&self) -> Duration {
            self.0
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
        let look = Look::of_many(&mut Together::new("host.fast", vec![broken(), Box::new(Steady(LEAST))]), 2);
        assert_eq!(look.value("host.cpu.user_s", &[]), Some(1.0));
        assert!(look.lacks("host.vm"));
        assert_eq!((look.batch.points.len(), look.batch.events.len()), (2, 1));
    }

    #[test]
    fn one_of_a_longer_period_is_read_at_every_so_many_looks() {
        let parts: Vec<Box<dyn Probe>> = vec![Box::new(Steady(LEAST)), Box::new(Steady(LEAST * 5))];
        let look = Look::of_many(&mut Together::new("host.fast", parts), 11);
        assert_eq!(look.batch.points.len(), 11 + 3);
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
