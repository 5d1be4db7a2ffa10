//! What the tests of the host probes share: captured trees, and one look of a probe with its readings by name.

#![allow(clippy::unwrap_used)]

use super::{Roots, Server, Watch};
use crate::{Probe, Sink, now};
use backwater_model::{Batch, Registry};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// A captured tree of `tests/fixtures`, with its loop device 7:0 and its server watched.
pub(super) fn fixture(name: &str) -> (Roots, Arc<Watch>) {
    let roots = Roots::under(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name));
    let watch = Arc::new(Watch::new());
    watch.add_device(&roots, "7:0");
    watch.add_server(Server { target: "main".into(), postmaster_pid: 10_911 });
    (roots, watch)
}

/// What one or more looks of a probe brought.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) batch: Batch,
    pub(super) registry: Registry,
    absences: HashSet<String>,
}

impl Look {
    pub(super) fn of(probe: &mut dyn Probe) -> Look {
        Look::of_many(probe, 1)
    }

    pub(super) fn of_many(probe: &mut dyn Probe, times: usize) -> Look {
        let mut look = Look::default();
        for _ in 0..times {
            look.again(probe);
        }
        look
    }

    /// Looks once more, into the same batch.
    pub(super) fn again(&mut self, probe: &mut dyn Probe) {
        let mut sink = Sink::new(now(), &self.registry, &mut self.batch, &mut self.absences);
        probe.read(&mut sink).unwrap();
    }

    /// The newest value of the series of this name that has these labels.
    pub(super) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let newest = self.batch.points.iter().rev().find(|point| {
            let series = self.registry.get(point.series).unwrap();
            series.name == name && labels.iter().all(|(label, value)| series.labels.get(label) == Some(value))
        });
        newest.map(|point| point.value)
    }

    /// Whether something was said to be absent whose name contains this.
    pub(super) fn lacks(&self, what: &str) -> bool {
        self.batch.events.iter().any(|event| event.fields.get("what").is_some_and(|have| have.contains(what)))
    }
}
