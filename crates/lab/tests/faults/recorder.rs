//! Servers recorded in memory and diagnosed, as `backwater record` and `backwater diagnose` would.

use backwater_diagnose::{Options, diagnose};
use backwater_model::{Batch, Event, EventKind, Finding, Meta, Point, Track, Window};
use backwater_probe::session::{Session, Setup};
use backwater_record::Ring;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than any test.
const KEPT_S: f64 = 600.0;
const LOOK: Duration = Duration::from_millis(100);

pub struct Recorder {
    session: Session,
    batches: Receiver<Batch>,
    ring: Ring,
    meta: Arc<Meta>,
}

impl Recorder {
    /// Watches these servers, by their addresses.
    pub fn of(targets: Vec<String>) -> Recorder {
        let (session, batches) = Session::start(Setup { targets, ..Setup::default() }).unwrap();
        let meta = session.meta();
        let ring = Ring::new(KEPT_S, Arc::clone(&session.registry));
        Recorder { session, batches, ring, meta }
    }

    /// The name of the server that was given in this place.
    pub fn name(&self, place: usize) -> String {
        self.meta.targets[place].name.clone()
    }

    /// Everything recorded so far.
    pub fn window(&mut self) -> Window {
        self.batches.try_iter().for_each(|batch| self.ring.push(batch));
        self.ring.window(None, None, &self.meta)
    }

    /// Records until something is seen.
    pub fn until(&mut self, what: &str, mut seen: impl FnMut(&Window) -> bool) {
        let begun = Instant::now();
        loop {
            let window = self.window();
            if seen(&window) {
                return;
            }
            let events: Vec<_> = window.events().iter().map(|event| &event.message).collect();
            assert!(begun.elapsed() < PATIENCE, "not seen: {what}; events: {events:#?}");
            std::thread::sleep(LOOK);
        }
    }

    /// Records for so many seconds more: what is asked is what such a stretch brings.
    pub fn go_on(&mut self, seconds: f64) {
        let from = self.window().to;
        self.until("time", |window| window.to.seconds_since(from) >= seconds);
    }

    /// Ends the recording.
    pub fn end(mut self) -> Window {
        let window = self.window();
        self.session.stop();
        window
    }
}

/// What the rules say of a window, in a line each.
pub fn found(window: &Window) -> Vec<String> {
    let line = |finding: Finding| format!("{} {} {}: {}", finding.rule, finding.cause, finding.queue, finding.summary);
    diagnose(window, &Options::default()).into_iter().map(line).collect()
}

pub fn event<'a>(window: &'a Window, source: &str, kind: EventKind, text: &str) -> Option<&'a Event> {
    window.events().iter().find(|event| event.source == source && event.kind == kind && event.message.contains(text))
}

/// The series of one server.
pub fn track<'a>(window: &'a Window, name: &str, target: &str) -> Option<Track<'a>> {
    window.track(name, &[("target", target)]).filter(|track| !track.points.is_empty())
}

pub fn last(window: &Window, name: &str, target: &str) -> Option<f64> {
    Some(track(window, name, target)?.points.last()?.value)
}

/// Positions go back only where another life of the server begins, and that is marked.
pub fn positions_go_back_in_another_life_alone(window: &Window) {
    for name in ["pg.wal.insert_bytes", "pg.wal.flush_bytes", "pg.wal.replay_bytes", "pg.checkpoint.redo_bytes"] {
        for track in window.tracks(name, &[]) {
            let back = |pair: &&[Point]| pair[0].epoch == pair[1].epoch && pair[1].value < pair[0].value;
            assert_eq!(track.points.windows(2).find(back), None, "{name}");
        }
    }
}
