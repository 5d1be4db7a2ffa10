//! One uninterrupted life of a server: counters are comparable only within it.

use backwater_model::{Epoch, Moment};

/// The life that readings belong to, as told by process id and uptime.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    known: Option<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    pid: Option<i64>,
    uptime_ms: f64,
    epoch: Epoch,
}

/// What a reading says about the life it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Belongs {
    pub(crate) epoch: Epoch,
    /// Whether the server was started anew since the reading before.
    pub(crate) restarted: bool,
}

impl Life {
    /// The life of the last reading.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.known.map(|known| known.epoch)
    }

    /// The life of a reading. An uptime that went down, or another process id, is another life; without an uptime the
    /// life goes on.
    pub(crate) fn of(&mut self, target: &str, pid: Option<i64>, uptime_ms: Option<f64>, at: Moment) -> Belongs {
        let uptime_ms = uptime_ms.filter(|uptime| uptime.is_finite());
        if let Some(known) = &mut self.known {
            let same_process = pid.is_none() || known.pid.is_none() || pid == known.pid;
            if same_process && uptime_ms.is_none_or(|uptime| uptime >= known.uptime_ms) {
                known.uptime_ms = uptime_ms.unwrap_or(known.uptime_ms);
                known.pid = pid.or(known.pid);
                return Belongs { epoch: known.epoch, restarted: false };
            }
        }
        let started_s = (at.seconds() - uptime_ms.unwrap_or(0.0) / 1e3).round() as i64;
        let parts = [target, &pid.unwrap_or(0).to_string(), &started_s.to_string()];
        let epoch = Epoch::of(&["mongodb", parts[0], parts[1], parts[2]]);
        let restarted = self.known.is_some();
        self.known = Some(Known { pid, uptime_ms: uptime_ms.unwrap_or(0.0), epoch });
        Belongs { epoch, restarted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_uptime_or_another_process_is_another_life() {
        let mut life = Life::default();
        let mut at = |pid, uptime: f64, second: f64| life.of("a", pid, Some(uptime), Moment::from_seconds(second));
        let first = at(Some(7), 1_000.0, 10.0);
        assert!(!first.restarted);
        assert_eq!(at(Some(7), 2_000.0, 11.0), first);
        let second = at(Some(7), 100.0, 12.0);
        assert!(second.restarted && second.epoch != first.epoch);
        assert!(at(Some(8), 1_100.0, 13.0).restarted);
    }

    #[test]
    fn without_figures_the_life_goes_on() {
        let mut life = Life::default();
        let first = life.of("a", Some(7), Some(5.0), Moment(0));
        let next = life.of("a", None, None, Moment(1_000_000));
        assert_eq!(first.epoch, next.epoch);
        assert!(!next.restarted);
    }
}
