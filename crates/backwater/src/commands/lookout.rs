//! Looks for findings while a recording is written, and runs a command when one begins, becomes worse or ends.

use crate::signals;
use backwater_live::{Alerts, Feed, Hook, ahead_of, found_now};
use backwater_model::{Batch, Finding, Moment, Severity};
use backwater_probe::now;
use backwater_probe::session::Session;
use std::sync::mpsc::{Receiver, sync_channel};

/// Findings are looked for in the last minute, this often, in seconds.
const WINDOW_S: f64 = 60.0;
const EVERY_S: f64 = 10.0;
/// What is about to happen is looked for in the last seconds, oftener: a page cache may fill within a quarter of a minute. That
/// is enough for a warning of what is near, and costs a small part of the other.
const AHEAD_WINDOW_S: f64 = 12.0;
const AHEAD_EVERY_S: f64 = 2.0;
/// A finding that was not seen for so long has ended.
const QUIET_S: f64 = 120.0;
/// Batches that may wait for the recorder; as many as may wait for whoever takes them from the probes.
const WAITING: usize = 300;

/// Remembers the last minute beside the recorder.
pub(crate) struct Lookout {
    feed: Feed,
    alerts: Alerts,
    hook: Hook,
    /// What was found when all was looked for, and when that was.
    found: Vec<Finding>,
    whole: Moment,
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
        let (alerts, at) = (Alerts::new(Severity::Warning, QUIET_S), now());
        let hook = Hook::start(command)?;
        let running = hook.running();
        signals::at_once(move || running.end());
        Ok((next, Lookout { feed, alerts, hook, found: Vec::new(), whole: at, last: at }))
    }

    /// Looks, if it is time to, and tells the command what is new.
    pub(crate) fn look(&mut self) {
        let at = now();
        let due = |last: Moment, every_s: f64| at.seconds_since(last) >= every_s;
        let (ahead, meta) = if due(self.whole, EVERY_S) {
            self.whole = at;
            let window = self.feed.window(WINDOW_S);
            self.found = found_now(&window);
            (Vec::new(), window.meta)
        } else if due(self.last, AHEAD_EVERY_S) {
            let window = self.feed.window(AHEAD_WINDOW_S);
            (ahead_of(&window, &self.found), window.meta)
        } else {
            return;
        };
        self.last = at;
        let seen: Vec<Finding> = self.found.iter().cloned().chain(ahead).collect();
        let Lookout { alerts, hook, .. } = self;
        alerts.update(at, &seen, |turn| hook.tell(turn, &meta));
    }
}
