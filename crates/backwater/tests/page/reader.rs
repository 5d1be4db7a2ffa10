//! What a page must show of a recording: worked out from the recording's own readings, not from the document inside the page.
//! The browser's tests (web/test) compare every panel with it. Only where the axis' pieces begin is taken from the page.

#![allow(clippy::unwrap_used, unreachable_pub)]

#[path = "curves.rs"]
mod curves;
#[path = "seen.rs"]
mod seen;

use backwater_diagnose::{Options, Shards, all_queues, diagnose, replication_path, standby_names};
use backwater_model::{Finding, Holes, Moment, Outcome, Point, QueueSpec, Source, Stage, Track, Window};
use backwater_record::{Recording, read_flow};
use serde_json::{Map, Value, json};
use std::path::Path;

/// What was read in each piece of the axis; none where nothing was.
pub type Lane = Vec<Option<Piece>>;

/// The least, the most, and the mean of one piece, to which each value counts for as long as it held.
#[derive(Clone, Copy, Debug, Default)]
pub struct Piece {
    low: f64,
    pub high: f64,
    values: f64,
    weights: f64,
    /// Share of the piece that is known: a reading stands for all of it.
    known: f64,
}

impl Piece {
    fn of(value: f64, weight: f64) -> Piece {
        let known = if weight > 0.0 { 1.0 } else { 0.0 };
        Piece { low: value, high: value, values: value * weight, weights: weight, known }
    }

    /// The same of changed values.
    pub fn map(self, change: impl Fn(f64) -> f64) -> Piece {
        let known = self.known;
        Piece { low: change(self.low), high: change(self.high), known, ..Piece::of(change(self.mean()), 1.0) }
    }

    fn mean(&self) -> f64 {
        if self.weights > 0.0 { self.values / self.weights } else { 0.0 }
    }
}

impl serde::Serialize for Piece {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.low, self.high, self.mean(), self.known).serialize(to)
    }
}

/// A recording's window, cut into pieces of a page's axis.
pub struct Reader<'a> {
    pub window: &'a Window,
    pub step_s: f64,
    pub count: usize,
}

/// What the page of this recording, whose axis is this one, must show.
pub fn figures(dir: &Path, axis: &Value, slot_pieces: usize) -> Value {
    let recording = Recording::open(dir).unwrap();
    let window = recording.window(None, None).unwrap();
    let count = axis["count"].as_u64().unwrap() as usize;
    let reader = Reader { window: &window, step_s: axis["step_s"].as_f64().unwrap(), count };
    let outcome: Option<Outcome> =
        std::fs::read_to_string(dir.join("outcome.json")).ok().map(|text| serde_json::from_str(&text).unwrap());
    let mut findings = match &outcome {
        Some(run) => {
            run.findings.iter().filter(|one| one.from <= window.to && one.to >= window.from).cloned().collect()
        }
        None => diagnose(&window, &Options::default()),
    };
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    json!({
        "from_unix_ms": window.meta.unix_us(window.from).map(|us| us as f64 / 1e3),
        "seconds": window.seconds(),
        "queues": all_queues(&window).iter().map(|spec| reader.queue(spec)).collect::<Vec<_>>(),
        "curves": reader.curves(),
        "stages": stages(&window),
        "events": reader.events(),
        "sessions": reader.sessions(slot_pieces),
        "findings": findings.iter().map(|finding| reader.finding(finding)).collect::<Vec<_>>(),
        "shards": Shards::of(&window).rows(),
        "lab": outcome,
        "flow": read_flow(dir),
    })
}

/// What moves WAL to each standby.
fn stages(window: &Window) -> Vec<Stage> {
    let of = |target: &str| -> Vec<Stage> {
        let standbys = standby_names(window, target);
        standbys.iter().flat_map(|name| replication_path(window, target, name, window.seconds()).stages).collect()
    };
    window.meta.targets.iter().flat_map(|target| of(&target.name)).collect()
}

impl Reader<'_> {
    pub fn seconds(&self, at: Moment) -> f64 {
        at.seconds_since(self.window.from)
    }

    /// The piece in which a moment lies; the window's end belongs to the last one.
    pub fn piece(&self, at: Moment) -> usize {
        ((self.seconds(at) / self.step_s) as usize).min(self.count - 1)
    }

    fn end(&self, piece: usize) -> Moment {
        Moment::from_seconds(self.window.from.seconds() + (piece + 1) as f64 * self.step_s).min(self.window.to)
    }

    fn queue(&self, spec: &QueueSpec) -> Value {
        let level: Lane = self.gauge(&spec.level);
        let level: Lane = level.into_iter().map(|piece| piece.map(|piece| piece.map(|value| value.max(0.0)))).collect();
        json!({
            "name": spec.name,
            "target": spec.label("target").filter(|target| *target != "host"),
            "unit": spec.unit,
            "level": level,
            "soft_limit": self.gauge(&spec.soft_limit),
            "hard_limit": self.gauge(&spec.hard_limit),
            "waiters": self.gauge(&spec.waiters),
            "inflow": self.rate(&spec.inflow),
            "outflow": self.rate(&spec.outflow),
            "at_least": spec.at_least,
            "arrived": self.increase(&spec.inflow),
            "left": self.increase(&spec.outflow),
        })
    }

    /// A level or a limit: every reading of the slowest of its series counts; a piece without one has the newest before its end
    /// that is not too old.
    pub fn gauge(&self, source: &Source) -> Lane {
        if let Source::Fixed(value) = source {
            return vec![Some(Piece::of(*value, 1.0)); self.count];
        }
        if let Source::Total(list) = source {
            return self.total(list);
        }
        if let Source::Steps(steps) = source {
            let lanes: Vec<Lane> = steps.iter().map(|(_, one)| self.gauge(one)).collect();
            let holds = |piece: usize| steps.iter().rposition(|(from, _)| *from <= self.end(piece));
            return (0..self.count).map(|piece| lanes[holds(piece)?][piece]).collect();
        }
        let mut lane = vec![None; self.count];
        let read = source.tracks(self.window).into_iter().map(|(track, _)| track);
        let Some(slowest) = read.filter(|track| !track.points.is_empty()).min_by_key(|track| track.points.len()) else {
            return lane;
        };
        let holes = holes(slowest);
        for point in slowest.points {
            if let Some(value) = source.value(self.window, point.at, holes.at_s(point.at)) {
                take(&mut lane[self.piece(point.at)], value, 1.0);
            }
        }
        for (piece, slot) in lane.iter_mut().enumerate().filter(|(_, slot)| slot.is_none()) {
            let end = self.end(piece);
            source.value(self.window, end, holes.at_s(end)).into_iter().for_each(|value| take(slot, value, 1.0));
        }
        lane
    }

    /// What comes and goes: at every moment the sum of what was read then.
    fn total(&self, list: &[Source]) -> Lane {
        let read = list.iter().flat_map(|source| source.tracks(self.window));
        let mut points: Vec<(Moment, f64)> =
            read.flat_map(|(track, _)| track.points.iter().map(|point| (point.at, point.value))).collect();
        points.sort_by_key(|(at, _)| *at);
        let mut lane = vec![None; self.count];
        for look in points.chunk_by(|a, b| a.0 == b.0) {
            take(&mut lane[self.piece(look[0].0)], look.iter().map(|(_, value)| value).sum(), 1.0);
        }
        lane
    }

    /// Units a second of a counter, or of a sum of counters, over stretches of a second or of its own period.
    pub fn rate(&self, source: &Source) -> Lane {
        let mut lane: Lane = vec![None; self.count];
        if let Source::Total(list) = source {
            let all: Vec<(Moment, Moment, f64)> =
                list.iter().flat_map(|one| one.tracks(self.window)).flat_map(|(track, _)| rates(track)).collect();
            let mut edges: Vec<Moment> = all.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
            edges.sort();
            edges.dedup();
            let mut sums = Vec::new();
            for pair in edges.windows(2) {
                let read = all.iter().filter(|(from, to, _)| *from <= pair[0] && pair[1] <= *to);
                let read: Vec<f64> = read.map(|(_, _, rate)| *rate).collect();
                if !read.is_empty() {
                    sums.push((pair[0], pair[1], read.iter().sum()));
                }
            }
            sums.iter().for_each(|(from, to, rate)| self.cover(&mut lane, *from, *to, *rate));
            self.weigh(&mut lane, &sums);
            return lane;
        }
        let found = source.tracks(self.window);
        let mut list = Vec::new();
        if let [(track, factor)] = found.as_slice() {
            list = rates(*track);
            list.iter_mut().for_each(|(_, _, rate)| *rate *= factor);
        } else if let Some((lead, _)) = found.first() {
            let step_s = period_s(*lead).max(1.0);
            let mut from = self.window.from;
            while from < self.window.to {
                let to = Moment::from_seconds(from.seconds() + step_s);
                let beyond = Moment::from_seconds(to.seconds() + step_s / 2.0);
                if let Some(per_second) = source.rate(self.window, beyond, 2.0 * step_s) {
                    list.push((from, to, per_second));
                }
                from = to;
            }
        }
        list.iter().for_each(|(from, to, rate)| self.cover(&mut lane, *from, *to, *rate));
        self.weigh(&mut lane, &list);
        lane
    }

    /// By how much a counter grew, and in how many seconds, where it is a single one without a break: by its readings at the
    /// begin of its first rate and at the end of its last.
    fn increase(&self, source: &Source) -> Option<(f64, f64)> {
        let found = source.tracks(self.window);
        let [(track, factor)] = found.as_slice() else { return None };
        let unbroken = |pair: &[Point]| {
            pair[1].at.seconds_since(pair[0].at) <= holes(*track).at_s(pair[0].at)
                && pair[1].epoch == pair[0].epoch
                && pair[1].value >= pair[0].value
        };
        let list = rates(*track);
        let ((from, ..), (_, to, _)) = list.first().zip(list.last())?;
        if *from < self.window.from || !track.points.windows(2).all(unbroken) {
            return None;
        }
        let at = |moment: &Moment| track.points.iter().find(|point| point.true_at() == *moment);
        Some(((at(to)?.value - at(from)?.value) * factor, to.seconds_since(*from)))
    }

    /// A value in every piece whose middle lies in a stretch, else in the one in which the stretch's middle lies.
    pub fn cover(&self, lane: &mut Lane, from: Moment, to: Moment, value: f64) {
        let middle = |piece: usize| (piece as f64 + 0.5) * self.step_s;
        let (from_s, to_s) = (self.seconds(from), self.seconds(to));
        let first = (from_s / self.step_s - 1.0).max(0.0) as usize;
        let ahead = (first..self.count).skip_while(|piece| middle(*piece) <= from_s);
        let inside: Vec<usize> = ahead.take_while(|piece| middle(*piece) <= to_s).collect();
        let inside = if inside.is_empty() {
            vec![self.piece(Moment::from_seconds(f64::midpoint(from.seconds(), to.seconds())))]
        } else {
            inside
        };
        inside.into_iter().for_each(|piece| take(&mut lane[piece], value, 0.0));
    }

    /// To the mean of a piece a value counts for as long as it held there, however short that was.
    fn weigh(&self, lane: &mut Lane, list: &[(Moment, Moment, f64)]) {
        for (piece, slot) in lane.iter_mut().enumerate() {
            let (begin, end) = (piece as f64 * self.step_s, (piece + 1) as f64 * self.step_s);
            let (mut values, mut seconds) = (0.0, 0.0);
            for (from, to, value) in list {
                let held = (self.seconds(*to).min(end) - self.seconds(*from).max(begin)).max(0.0);
                values += value * held;
                seconds += held;
            }
            if seconds > 0.0 {
                let known = slot.get_or_insert(Piece::of(values / seconds, 0.0));
                (known.values, known.weights) = (values, seconds);
                known.known = (seconds / self.step_s).min(1.0);
            }
        }
    }
}

/// A value that held for so long of a piece.
pub fn take(slot: &mut Option<Piece>, value: f64, weight: f64) {
    if value.is_finite() {
        let new = Piece::of(value, weight);
        *slot = Some(slot.map_or(new, |old| Piece {
            low: old.low.min(value),
            high: old.high.max(value),
            values: old.values + new.values,
            weights: old.weights + weight,
            known: old.known.max(new.known),
        }));
    }
}

/// Stretches of a counter's readings with its rate, but for those that bridge a hole.
pub fn rates(track: Track<'_>) -> Vec<(Moment, Moment, f64)> {
    let holes = holes(track);
    let longest_s = |from: Moment| holes.at_s(from).max(2.5);
    let near = track.rates(1.0).into_iter().filter(|rate| rate.to.seconds_since(rate.from) <= longest_s(rate.from));
    near.map(|rate| (rate.from, rate.to, rate.per_second)).collect()
}

fn period_s(track: Track<'_>) -> f64 {
    let mut steps: Vec<f64> = track.points.windows(2).map(|pair| pair[1].at.seconds_since(pair[0].at)).collect();
    steps.sort_by(f64::total_cmp);
    steps.get(steps.len() / 2).copied().unwrap_or(0.0)
}

fn holes(track: Track<'_>) -> Holes<'_> {
    Holes::of(track, (1.0, f64::INFINITY))
}

impl Reader<'_> {
    /// A finding in the words and figures of whoever found it.
    fn finding(&self, finding: &Finding) -> Value {
        let mut told: Map<String, Value> = serde_json::to_value(finding).unwrap().as_object().unwrap().clone();
        let shown = |figures: &[backwater_model::Figure]| -> Vec<Value> {
            figures.iter().map(|figure| json!([figure.label, figure.show()])).collect()
        };
        told.insert("from_s".to_owned(), json!(self.seconds(finding.from)));
        told.insert("to_s".to_owned(), json!(self.seconds(finding.to)));
        told.insert("shown".to_owned(), json!(shown(&finding.evidence)));
        told.insert(
            "lost".to_owned(),
            json!(finding.foreground_lost.map(|share| backwater_model::Unit::Ratio.show(share))),
        );
        let predicted: Vec<_> = finding.remedies.iter().map(|remedy| shown(&remedy.predicted)).collect();
        told.insert("predicted".to_owned(), json!(predicted));
        Value::Object(told)
    }
}
