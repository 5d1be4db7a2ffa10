//! `[limits]`: bounds of what the proxy does, and what becomes of a session that is beyond one.

use super::live::{Doing, Ending};
use crate::GateError;
use backwater_model::Moment;
use serde::Deserialize;
use std::time::Duration;

/// The longest time of a limit, in seconds: a year.
const MOST_SECONDS: f64 = 31_536_000.0;
/// Each of the workers is a thread.
const MOST_WORKERS: usize = 1024;

/// Bounds of what the proxy does.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Sessions at once, in all pools.
    pub max_connections: u32,
    /// Seconds in which a client must have said who it is, again in which its login must be done, and in which a message outside
    /// a transaction must have been said.
    pub login_timeout_s: f64,
    /// Seconds in which an address of the server must have taken a connection: each has so many, as of libpq's connect_timeout.
    pub connect_timeout_s: f64,
    /// Seconds that sessions have to come to a good end when the proxy stops.
    pub drain_timeout_s: f64,
    /// Seconds that a session may be idle outside a transaction; 0 for as long as it likes.
    pub idle_timeout_s: f64,
    /// Threads that relay urgent sessions; 0 for one less than there are cores, and at least one. One more relays the
    /// low class.
    pub workers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_connections: 10_000,
            login_timeout_s: 60.0,
            connect_timeout_s: 10.0,
            drain_timeout_s: 30.0,
            idle_timeout_s: 0.0,
            workers: 0,
        }
    }
}

impl Limits {
    /// Whether each can be meant.
    pub(super) fn check(&self) -> Result<(), GateError> {
        let times = [
            ("login_timeout_s", self.login_timeout_s, true),
            ("connect_timeout_s", self.connect_timeout_s, true),
            ("drain_timeout_s", self.drain_timeout_s, false),
            ("idle_timeout_s", self.idle_timeout_s, false),
        ];
        for (name, value, must_be_above_0) in times {
            if must_be_above_0 && value == 0.0 {
                return Err(GateError::Limit { name, why: "it must be above 0" });
            }
            // Also of what is no number.
            if !(0.0..=MOST_SECONDS).contains(&value) {
                return Err(GateError::Limit { name, why: "it must be a number of seconds from 0 to a year" });
            }
        }
        if self.workers > MOST_WORKERS {
            return Err(GateError::Limit { name: "workers", why: "there can be 1024 at most" });
        }
        Ok(())
    }

    pub(super) fn login_timeout(&self) -> Duration {
        seconds(self.login_timeout_s)
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        seconds(self.connect_timeout_s)
    }

    pub(super) fn drain_timeout(&self) -> Duration {
        seconds(self.drain_timeout_s)
    }

    /// Ends a session that logs in for too long, or does nothing for too long, or does not end what it began to say.
    pub(super) fn overstayed(&self, doing: Doing, since: Moment, now: Moment) -> Option<Ending> {
        let for_s = now.seconds_since(since);
        let told = |sqlstate, why: &str| Some(Ending { sqlstate, why: why.to_owned() });
        match doing {
            Doing::LoggingIn if for_s >= self.login_timeout_s => {
                told("57014", "terminating connection: the login took longer than the proxy's login_timeout_s")
            }
            Doing::Speaking if for_s >= self.login_timeout_s => told(
                "57P05",
                "terminating connection: a message was begun and not ended within the proxy's login_timeout_s",
            ),
            Doing::Idle if self.idle_timeout_s > 0.0 && for_s >= self.idle_timeout_s => {
                told("57P05", "terminating connection due to the proxy's idle_timeout_s")
            }
            _ => None,
        }
    }
}

/// So that no value can overflow a deadline.
fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.clamp(0.0, MOST_SECONDS)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_limit_that_cannot_be_meant_is_refused() {
        let checked = |text: &str| toml::from_str::<Limits>(text).unwrap().check().map_err(|error| error.to_string());
        for name in ["login_timeout_s", "connect_timeout_s", "drain_timeout_s", "idle_timeout_s"] {
            for wrong in ["-1.0", "nan", "inf", "1e9"] {
                let refused = checked(&format!("{name} = {wrong}")).unwrap_err();
                assert!(refused.starts_with(&format!("limits.{name}: it must be a number of seconds")), "{refused}");
            }
        }
        for name in ["login_timeout_s", "connect_timeout_s"] {
            assert_eq!(checked(&format!("{name} = 0.0")).unwrap_err(), format!("limits.{name}: it must be above 0"));
        }
        assert!(checked("workers = 1025").unwrap_err().contains("1024 at most"));
        assert_eq!(checked("drain_timeout_s = 0.0\nidle_timeout_s = 0.0\nworkers = 1024"), Ok(()));
        assert_eq!(Limits::default().check().map_err(|error| error.to_string()), Ok(()));
    }
}
