//! A server that could not be reached when all began, while others could.

use super::known::Arrivals;
use super::wanted::{Reach, Wanted};
use crate::{Probe, ProbeError, Sink};
use std::time::Duration;

/// Reaches for the server like a probe that fails, so that the gap is told as any other, and reads it from then on.
pub(super) struct Awaited {
    /// As the probe of a server that is met is called.
    name: String,
    target: String,
    period: Duration,
    reach: Reach,
    arrivals: Arrivals,
    met: Option<Box<dyn Probe>>,
}

impl Awaited {
    pub(super) fn new(wanted: Wanted, arrivals: Arrivals) -> Self {
        let Wanted { target, period, reach, .. } = wanted;
        let name = format!("{}.{}", target.kind, target.name);
        Awaited { name, target: target.name, period, reach, arrivals, met: None }
    }
}

impl Probe for Awaited {
    fn name(&self) -> &str {
        &self.name
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        if let Some(probe) = &mut self.met {
            return probe.read(sink);
        }
        let met = (self.reach)(Some(&self.target))?;
        if !met.behind.is_empty() {
            tracing::warn!("{} is a router: the shards behind it are watched from the next start on", self.target);
        }
        self.arrivals.meet(&met.target)?;
        self.met.insert(met.probe).read(sink)
    }
}
