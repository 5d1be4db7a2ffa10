//! Since when something cannot be read, and when that is to be told again: who looks at the last minutes only would else take
//! silence for health.

use crate::ProbeError;
use backwater_model::{Event, EventKind, Moment, Span};

/// How often it is told again. Shorter than the shortest history that anybody looks at, a minute.
const AGAIN: Span = Span(30_000_000);
/// Who looks at a terminal hears of it when it will last longer than this, which a server needs to restart.
const RESTART: Span = Span(5_000_000);

/// Whether something cannot be read, since when, and when that was told last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failing(Option<Known>);

#[derive(Clone, Copy, Debug)]
struct Known {
    since: Moment,
    told: Moment,
    said: bool,
}

/// What is to be told of a failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tell {
    /// It begins.
    Begins,
    /// It has lasted so long.
    Lasts(Span),
}

impl Failing {
    /// Whether the last try failed.
    pub(crate) fn is_so(self) -> bool {
        self.0.is_some()
    }

    /// Notes that it failed; what is to be told of that now, if anything.
    pub(crate) fn failed(&mut self, now: Moment) -> Option<Tell> {
        match &mut self.0 {
            None => {
                self.0 = Some(Known { since: now, told: now, said: false });
                Some(Tell::Begins)
            }
            Some(known) if now >= known.told + AGAIN => {
                known.told = now;
                Some(Tell::Lasts(now - known.since))
            }
            Some(_) => None,
        }
    }

    /// Whether it is to be said at a terminal now, `next` being when it is tried again: once for a failure that lasts.
    pub(crate) fn is_to_be_said(&mut self, next: Moment) -> bool {
        let lasts = |known: &&mut Known| !known.said && next > known.since + RESTART;
        self.0.as_mut().filter(lasts).map(|known| known.said = true).is_some()
    }

    /// Notes that it worked; since when it had failed before, if it had.
    pub(crate) fn worked(&mut self) -> Option<Moment> {
        self.0.take().map(|known| known.since)
    }
}

impl Tell {
    /// The event that tells it. `cannot` is how a failure that begins is called: `cannot read`.
    pub(crate) fn event(self, at: Moment, source: &str, probe: &str, cannot: &str, error: &ProbeError) -> Event {
        let reason = error.to_string();
        let fields = [("probe", probe), ("reason", reason.as_str())];
        match self {
            Tell::Begins => Event::new(at, source, EventKind::Gap, format!("{probe} {cannot}: {reason}"), &fields),
            Tell::Lasts(lasted) => {
                let lasted_s = format!("{:.0}", lasted.seconds());
                let message = format!("{probe} has not been read for {lasted_s} s: {reason}");
                let [probe, reason] = fields;
                Event::new(at, source, EventKind::Gap, message, &[probe, reason, ("failing_s", &lasted_s)])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_told_again_but_not_each_time() {
        let at = |seconds: f64| Moment::default() + Span::from_seconds(seconds);
        let mut failing = Failing::default();
        assert_eq!(failing.failed(at(0.0)), Some(Tell::Begins));
        assert_eq!(failing.failed(at(10.0)), None, "it was told just now");
        let lasts = Some(Tell::Lasts(Span::from_seconds(40.0)));
        assert_eq!(failing.failed(at(40.0)), lasts, "or nobody who looks later would know");
        assert_eq!((failing.worked(), failing.worked()), (Some(at(0.0)), None));
    }

    #[test]
    fn only_what_lasts_longer_than_a_restart_is_said_and_once() {
        let at = |seconds: f64| Moment::default() + Span::from_seconds(seconds);
        let mut failing = Failing::default();
        assert!(!failing.is_to_be_said(at(9.0)), "it has not failed");
        failing.failed(at(1.0));
        assert_eq!([2.0, 5.0, 7.0, 9.0].map(|next| failing.is_to_be_said(at(next))), [false, false, true, false]);
        failing.worked();
        failing.failed(at(20.0));
        assert!(failing.is_to_be_said(at(3_600.0)), "tried again too late to wait for it");
    }
}
