//! A past that is too long for one window is looked at hour by hour, so that memory stays small whatever its length.

use backwater_diagnose::{Options, Shards, Sight, diagnose};
use backwater_model::{Event, EventKind, Finding, Holes, Moment, Point, Series, Unit, Window, catalogue};
use backwater_report::html;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// How long a stretch is, in seconds.
pub(crate) const STRETCH_S: f64 = 3_600.0;
/// So many different things that could not be seen are kept of one past.
const MOST_UNSEEN: usize = 1_000;

/// What the stretches of a past tell together.
#[derive(Default)]
pub(crate) struct Walked {
    /// The findings of each stretch, in order of time.
    pub(crate) parts: Vec<Vec<Finding>>,
    pub(crate) shards: Shards,
    /// For how long servers were seen.
    pub(crate) sight: Sight,
    /// Whether there was a queue to judge.
    pub(crate) judged: bool,
    /// What could not be seen, each told once.
    pub(crate) unseen: Vec<Event>,
    /// The recorder's first and last word of itself in each of its lives: what failed in one is not known to last in the next.
    lives: Vec<Point>,
    /// Of how much time there are readings, in seconds.
    pub(crate) read_s: f64,
}

/// How much may be missing before it is said, in seconds and as a share of all.
const MISSING_S: f64 = 60.0;
pub(crate) const MISSING_SHARE: f64 = 0.05;
/// Shortest and longest pause between two readings that is bridged, in seconds.
const BRIDGED_S: (f64, f64) = (1.0, 15.0);

/// Of how much of a window there are readings, in seconds: by the series with the most of them.
fn read_s(window: &Window) -> f64 {
    let longest = window.all_tracks().max_by_key(|track| track.points.len());
    longest.map_or(0.0, |track| Holes::of(track, BRIDGED_S).bridged_s())
}

/// Where the stretches between two moments begin and end.
pub(crate) fn bounds(from: Moment, to: Moment) -> impl Iterator<Item = (Moment, Moment)> {
    let end = move |begin: Moment| Moment(begin.0.saturating_add((STRETCH_S * 1e6) as i64)).min(to);
    let begins = std::iter::successors(Some(from), move |begin| Some(end(*begin)));
    begins.take_while(move |begin| *begin < to).map(move |begin| (begin, end(begin)))
}

/// So many threads may look at windows that are small, as those of a flight recorder are, beside the one that reads.
pub(crate) fn several() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).clamp(1, 4))
}

/// Walks through windows that follow one another: this thread reads them, `workers` others look at what was read. In memory are at
/// most twice as many windows as there are workers.
pub(crate) fn walk(
    windows: impl Iterator<Item = anyhow::Result<Window>>,
    workers: usize,
    options: &Options,
) -> anyhow::Result<Walked> {
    let workers = workers.max(1);
    let (send, receive) = mpsc::sync_channel::<(usize, Window)>(workers - 1);
    let receive = Mutex::new(receive);
    let found = Mutex::new(Vec::new());
    let mut walked = Walked::default();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((place, window)) = next else { break };
                    let findings = diagnose(&window, options);
                    found.lock().unwrap_or_else(PoisonError::into_inner).push((place, findings));
                }
            });
        }
        let send = send;
        for (place, window) in windows.enumerate() {
            let window = window?;
            // Nobody receives only where every worker has panicked, which the scope tells.
            if walked.take(&window) && send.send((place, window)).is_err() {
                break;
            }
        }
        anyhow::Ok(())
    })?;
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(place, _)| *place);
    walked.parts = found.into_iter().map(|(_, findings)| findings).collect();
    Ok(walked)
}

impl Walked {
    /// That much of what was to be looked at is missing, where it is.
    pub(crate) fn missing(&self, (from, to): (Moment, Moment), source: &str, why: &str) -> Option<Event> {
        let all_s = to.seconds_since(from);
        let missing_s = all_s - self.read_s;
        let [missing, all] = [missing_s, all_s].map(|seconds| Unit::Seconds.show(seconds));
        let (what, message) = (format!("{missing} of {all}"), format!("{missing} of {all} cannot be seen: {why}"));
        let fields = [("what", what.as_str()), ("why", why)];
        (missing_s >= MISSING_S.max(MISSING_SHARE * all_s))
            .then(|| Event::new(from, source, EventKind::Absent, message, &fields))
    }

    /// Takes note of what could not be seen, each told once. That a gap lasts, and that it is over, is told again and again: the last
    /// word says how it stands in the end, and a gap of a day takes no more room than others.
    fn note(&mut self, event: &Event) {
        let again = ["failing_s", "ended"].into_iter().find(|field| event.fields.contains_key(*field));
        if let Some(field) = again {
            let is_same = |known: &Event| {
                known.source == event.source
                    && known.fields.get("probe") == event.fields.get("probe")
                    && known.fields.contains_key(field)
            };
            self.unseen.retain(|known| !is_same(known));
        }
        // The same server may be started anew again and again.
        let is_same = |known: &Event| {
            known.message == event.message && (event.kind != EventKind::Restart || known.at == event.at)
        };
        if self.unseen.len() < MOST_UNSEEN && !self.unseen.iter().any(is_same) {
            self.unseen.push(event.clone());
        }
    }

    fn note_life(&mut self, point: &Point) {
        let known = self.lives.iter().rev().take(2).filter(|known| known.epoch == point.epoch).count();
        if known == 2 {
            self.lives.pop();
        }
        self.lives.push(*point);
    }

    /// These readings of the recorder itself, as a window of the whole is to have them.
    pub(crate) fn recorder(&self) -> (Arc<Series>, Vec<Point>) {
        (Arc::new(catalogue::SELF_DROPPED.series::<&str>(&[])), self.lives.clone())
    }

    /// Takes what is told of the whole; whether anything was read that a finding could rest on.
    fn take(&mut self, window: &Window) -> bool {
        let told = |event: &&Event| matches!(event.kind, EventKind::Absent | EventKind::Gap | EventKind::Restart);
        window.events().iter().filter(told).for_each(|event| self.note(event));
        self.sight.take(window);
        let itself = window.track(catalogue::SELF_DROPPED.name, &[]);
        itself.iter().flat_map(|track| track.points).for_each(|point| self.note_life(point));
        self.read_s += read_s(window);
        let read = window.all_tracks().any(|track| !track.points.is_empty());
        if read {
            self.judged = self.judged || html::has_queue(window);
            self.shards.take(window, window.from);
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backwater_model::{Epoch, SeriesId};

    #[test]
    fn of_a_gap_the_last_word_is_kept() {
        let gap = |second: f64, fields: &[(&str, &str)]| {
            let message = fields.iter().map(|(name, value)| format!("{name} {value} ")).collect::<String>();
            Event::new(Moment::from_seconds(second), "a", EventKind::Gap, message, fields)
        };
        let (view, reason) = (("probe", "postgres.a pg_stat_replication"), ("reason", "no answer"));
        let mut walked = Walked::default();
        let mut told = |second: f64, more: Option<(&str, &str)>| {
            let fields: Vec<(&str, &str)> = [view, reason].into_iter().chain(more).collect();
            walked.note(&gap(second, &fields));
            walked.unseen.iter().map(|event| event.at.seconds()).collect::<Vec<_>>()
        };
        assert_eq!(told(1.0, None), [1.0]);
        assert_eq!(told(31.0, Some(("failing_s", "30"))), [1.0, 31.0]);
        assert_eq!(told(40.0, Some(("ended", "true"))), [1.0, 31.0, 40.0]);
        // The same again, for longer.
        assert_eq!(told(101.0, None), [1.0, 31.0, 40.0]);
        assert_eq!(told(131.0, Some(("failing_s", "30"))), [1.0, 40.0, 131.0]);
        assert_eq!(told(161.0, Some(("failing_s", "60"))), [1.0, 40.0, 161.0]);
        assert_eq!(told(170.0, Some(("ended", "true"))), [1.0, 161.0, 170.0]);
    }

    #[test]
    fn stretches_cover_the_past_without_a_gap_and_none_is_empty() {
        let hour = 3_600_000_000;
        for (length, count) in [(0, 0), (1, 1), (hour, 1), (hour + 1, 2), (3 * hour, 3)] {
            let (from, to) = (Moment(7), Moment(7 + length));
            let all: Vec<_> = bounds(from, to).collect();
            assert_eq!(all.len(), count, "{length}");
            assert!(all.iter().all(|(begin, end)| begin < end));
            assert!(all.windows(2).all(|pair| pair[0].1 == pair[1].0));
            let ends = all.first().zip(all.last()).map(|(first, last)| (first.0, last.1));
            assert_eq!(ends, (count > 0).then_some((from, to)));
        }
    }

    #[test]
    fn of_each_life_of_the_recorder_the_first_and_the_last_word_are_kept() {
        let mut walked = Walked::default();
        for (second, life) in [(0, 1), (1, 1), (2, 1), (9, 2), (20, 3), (21, 3)] {
            let at = Moment::from_seconds(f64::from(second));
            walked.note_life(&Point { at, series: SeriesId(0), epoch: Epoch(life), value: 0.0, as_of: None });
        }
        let kept: Vec<f64> = walked.recorder().1.iter().map(|point| point.at.seconds()).collect();
        assert_eq!(kept, [0.0, 2.0, 9.0, 20.0, 21.0]);
    }
}
