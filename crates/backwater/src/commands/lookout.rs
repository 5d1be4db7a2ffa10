//! Looks for findings while a recording is written, and runs a command when one begins, becomes worse or ends.

use backwater_live::{Alerts, Feed, Hook, found_now};
use backwater_model::{Batch, Moment, Severity};
use backwater_probe::now;
use backwater_probe::session::Session;
use std::sync::mpsc::{Receiver, sync_channel};

/// Findings are looked for in the last minute, this often, in seconds.
const WINDOW_S: f64 = 60.0;
const EVERY_S: f64 = 10.0;
/// A finding that was not seen for so long has ended.
const QUIET_S: f64 = 120.0;
/// Batches that may wait for the recorder; as many as may wait for whoever takes them from the probes.
const WAITING: usize = 300;

/// Remembers the last minute beside the recorder.
pub(crate) struct Lookout {
    feed: Feed,
    alerts: Alerts,
    hook: Hook,
    last: Moment,
}

impl Lookout {
    /// Takes the session's batches and gives them on, for the recorder.
    pub(crate) fn start(
        session: &Session,
        batches: Receiver<Batch>,
        command: &str,
    ) -> anyhow::Result<(Receiver<Batch>, Lookout)> {
        let (give, next) = sync_channel(WAITING);
        let feed = Feed::of(session, WINDOW_S);
        feed.take(batches, Some(give), None)?;
        let alerts = Alerts::new(Severity::Warning, QUIET_S);
        Ok((next, Lookout { feed, alerts, hook: Hook::start(command)?, last: now() }))
    }

    /// Looks, if it is time to, and tells the command what is new.
    pub(crate) fn look(&mut self) {
        let at = now();
        if at.seconds_since(self.last) < EVERY_S {
            return;
        }
        self.last = at;
        let found = found_now(&self.feed.window(WINDOW_S));
        for turn in self.alerts.update(at, &found) {
            self.hook.tell(turn);
        }
    }
}
