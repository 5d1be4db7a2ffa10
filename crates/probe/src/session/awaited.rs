//! A server that could not be reached when all began, while others could.

use super::known::Arrivals;
use crate::{Probe, ProbeError, Sink};
use backwater_model::Target;
use std::time::Duration;

/// Reaches for the server.
pub(super) type Reach = Box<dyn FnMut() -> Result<(Box<dyn Probe>, Target), ProbeError> + Send>;

/// Reaches for the server like a probe that fails, so that the gap is told as any other, and reads it from then on.
pub(super) struct Awaited {
    /// As the probe of a server that is met would be called.
    name: String,
    target: String,
    period: Duration,
    reach: Reach,
    arrivals: Arrivals,
    met: Option<Box<dyn Probe>>,
}

impl Awaited {
    pub(super) fn new(kind: &str, target: String, period: Duration, reach: Reach, arrivals: Arrivals) -> Self {
        Awaited { name: format!("{kind}.{target}"), target, period, reach, arrivals, met: None }
    }
}

impl Probe for Awaited {
    fn name(&self) -> &str {
        self.met.as_ref().map_or(&self.name, |probe| probe.name())
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        if let Some(probe) = &mut self.met {
            return probe.read(sink);
        }
        let (probe, target) = (self.reach)()?;
        self.arrivals.meet(&self.target, target)?;
        self.met.insert(probe).read(sink)
    }
}
