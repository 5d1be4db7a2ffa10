//! The last minutes of a live run, in memory, for everybody who looks.

use crate::LiveError;
use backwater_diagnose::{Options, diagnose, warn};
use backwater_model::{Batch, Finding, Meta, Moment, Span, Window};
use backwater_probe::now;
use backwater_probe::session::{Known, Session};
use backwater_record::{EachSecond, Ring};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How far ahead a warning comes, in seconds: who scrapes every fifteen seconds hears of it half a minute late.
const AHEAD_S: f64 = 120.0;
/// How long the thread waits for a batch before it looks at the clock.
const LOOK: Duration = Duration::from_millis(200);

/// The last seconds of what probes read. Cheap to clone: all clones are one feed.
#[derive(Clone)]
pub struct Feed {
    ring: Arc<Mutex<Ring>>,
    known: Known,
    history_s: f64,
}

impl Feed {
    /// A feed of a session's last `history_s` seconds. Nothing arrives before [`Feed::take`].
    pub fn of(session: &Session, history_s: f64) -> Feed {
        Feed {
            ring: Arc::new(Mutex::new(Ring::new(history_s, Arc::clone(&session.registry)))),
            known: session.known().clone(),
            history_s,
        }
    }

    /// Takes batches on a thread of its own until nobody is left who could send one, and passes each on to `next`, which gets
    /// them as they came. `each_second` adds readings of the program itself.
    ///
    /// Errors: no thread is to be had.
    pub fn take(
        &self,
        batches: Receiver<Batch>,
        next: Option<SyncSender<Batch>>,
        each_second: Option<EachSecond>,
    ) -> Result<(), LiveError> {
        let taker = Taker { ring: Arc::clone(&self.ring), batches, next, each_second };
        let spawned = std::thread::Builder::new().name("feed".into()).spawn(move || taker.run());
        spawned.map(|_runs_until_the_session_ends| ()).map_err(LiveError::system("cannot start a thread"))
    }

    /// What is known now of what is watched.
    pub fn meta(&self) -> Arc<Meta> {
        self.known.meta()
    }

    /// How much is remembered, in seconds.
    pub fn history_s(&self) -> f64 {
        self.history_s
    }

    /// The newest `last_s` seconds, from a whole second on, so that what is drawn of two looks has the same pieces.
    pub fn window(&self, last_s: f64) -> Window {
        let ring = lock(&self.ring);
        let (first, last) = ring.span().unwrap_or((now(), now()));
        let wanted = last - Span::from_seconds(last_s.min(self.history_s));
        let from = Moment::from_seconds(wanted.max(first).seconds().floor());
        ring.window(Some(from), Some(last), &self.meta())
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("history_s", &self.history_s).finish_non_exhaustive()
    }
}

fn lock(ring: &Mutex<Ring>) -> MutexGuard<'_, Ring> {
    // A panic while a batch is added leaves at worst that batch out.
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Taker {
    ring: Arc<Mutex<Ring>>,
    batches: Receiver<Batch>,
    next: Option<SyncSender<Batch>>,
    each_second: Option<EachSecond>,
}

impl Taker {
    fn run(mut self) {
        let mut last = now();
        loop {
            match self.batches.recv_timeout(LOOK) {
                Ok(batch) => {
                    lock(&self.ring).push(batch.clone());
                    if let Some(next) = &self.next
                        && next.send(batch).is_err()
                    {
                        // Whoever wrote has ended; those who look may go on.
                        self.next = None;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let at = now();
            if let Some(each) = self.each_second.as_mut().filter(|_| at.seconds_since(last) >= 1.0) {
                last = at;
                let own = each(at);
                lock(&self.ring).push(own);
            }
        }
    }
}

/// What is wrong in a window, and what soon will be: of the same rule, queue and server only the first, if it is found already.
pub fn found_now(window: &Window) -> Vec<Finding> {
    let mut found = diagnose(window, &Options::default());
    let ahead = ahead_of(window, &found);
    found.extend(ahead);
    found
}

/// What soon will be wrong, where it is not found to be so already. Costs much less than to look for all that can be wrong.
pub fn ahead_of(window: &Window, found: &[Finding]) -> Vec<Finding> {
    // An earlier warning is no reason to keep quiet: this one may be graver.
    let is_so = |warning: &Finding| found.iter().any(|one| same(one, warning) && one.cause != warning.cause);
    warn(window, AHEAD_S).into_iter().filter(|warning| !is_so(warning)).collect()
}

/// Whether two are of the same rule, queue and server: another server's queue of that name says nothing of this one's.
fn same(one: &Finding, warning: &Finding) -> bool {
    (&one.rule, &one.queue) == (&warning.rule, &warning.queue) && one.concerns(warning.server.as_deref())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_befell_one_servers_slot_does_not_silence_the_warning_of_anothers() {
        let of = |server: &str, cause: &str| -> Finding {
            let value = serde_json::json!({
                "rule": "wal-removed", "cause": cause, "severity": "critical", "queue": "pg.wal.retained@s1",
                "server": server, "from": 0, "to": 1, "foreground_lost": null, "summary": "", "evidence": [],
                "ruled_out": [], "unseen": [], "confidence": "high", "victims": [], "remedies": [],
            });
            serde_json::from_value(value).unwrap()
        };
        assert!(same(&of("a", "slot-lost"), &of("a", "approaching")));
        assert!(!same(&of("a", "slot-lost"), &of("b", "approaching")));
    }
}
