//! A long recording, taken in part by part: a day of it does not fit into memory at once, and its page is small.
//!
//! Every part is put on the axis of the whole. A piece has its least and its most, so that it does not matter how often a reading
//! is seen: parts overlap a little, and no rate is lost where one ends. Sessions are averages, so that each is counted in one part only.

use super::axis::Axis;
use super::document::{Document, Mark, Panel, QueueView, Series, Sessions, StageView, WaterPath};
use super::{Part, marks, sessions, whole};
use backwater_diagnose::{Options, Shards, Sight, diagnose, gather};
use backwater_model::{Event, EventKind, Finding, Gaps, Meta, Moment, OpenGaps, Outcome, Span, Unseen, Window};
use std::sync::Arc;

/// Up to this length, in seconds, a recording is taken in at once.
const SHORT_S: f64 = 3_600.0;
/// About the length of a part, in seconds.
const PART_S: f64 = 1_800.0;
/// How much of the part before is read again, in seconds: more than twice the slowest source's period.
const LEAD_S: f64 = 150.0;

/// One stretch that is to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// From where to read.
    pub from: Moment,
    /// Until where.
    pub to: Moment,
    /// From where on sessions and events are new.
    pub since: Moment,
}

/// The document of a recording of any length between two moments. `read` gives a window of it, `told` hears how many of how many
/// parts are done. Findings are those of a lab run, where it is one, which was diagnosed arm by arm; else what rules find in
/// each part, each claim told once.
///
/// Errors: those of `read`.
pub fn document_of<E>(
    (from, to): (Moment, Moment),
    meta: &Arc<Meta>,
    beside: (Option<&Outcome>, &[String]),
    options: &Options,
    mut read: impl FnMut(Moment, Moment) -> Result<Window, E>,
    mut told: impl FnMut(usize, usize),
) -> Result<Document, E> {
    let (outcome, warnings) = beside;
    let mut parts = Parts::of(from, to, meta);
    let stretches = parts.stretches();
    let mut found = Vec::new();
    for (number, stretch) in stretches.iter().enumerate() {
        let window = read(stretch.from, stretch.to)?;
        if outcome.is_none() {
            found.push(diagnose(&window, options));
        }
        parts.add(&window, stretch.since);
        told(number + 1, stretches.len());
    }
    let within = |finding: &&Finding| finding.from <= to && finding.to >= from;
    let findings: Vec<Finding> = match outcome {
        Some(run) => run.findings.iter().filter(within).cloned().collect(),
        None if found.len() == 1 => found.remove(0),
        None => gather(found),
    };
    Ok(parts.document(&findings, outcome, warnings))
}

/// What was taken in so far.
pub struct Parts {
    pub(super) axis: Axis,
    pub(super) to: Moment,
    pub(super) meta: Arc<Meta>,
    pub(super) part: Part,
    pub(super) marks: Vec<Mark>,
    pub(super) phases: Vec<Event>,
    pub(super) decisions: Vec<Event>,
    pub(super) shards: Shards,
    pub(super) unseen: Vec<Unseen>,
    pub(super) failing: OpenGaps,
    pub(super) sight: Sight,
    gaps: Gaps,
    pub(super) sessions: Option<Sessions>,
    /// Seconds over which stages are known.
    staged_s: f64,
}

impl Parts {
    /// Nothing yet, of a recording between two moments.
    pub fn of(from: Moment, to: Moment, meta: &Arc<Meta>) -> Parts {
        Parts {
            axis: Axis::between(from, to, meta),
            to,
            meta: Arc::clone(meta),
            part: Part { series: Vec::new(), panels: Vec::new(), path: WaterPath::default() },
            marks: Vec::new(),
            phases: Vec::new(),
            decisions: Vec::new(),
            shards: Shards::default(),
            unseen: Vec::new(),
            failing: OpenGaps::default(),
            sight: Sight::default(),
            gaps: Gaps::default(),
            sessions: None,
            staged_s: 0.0,
        }
    }

    /// What is to be read, in this order: all at once up to an hour, else about half an hour each.
    pub fn stretches(&self) -> Vec<Stretch> {
        if self.to.seconds_since(self.axis.begin()) <= SHORT_S {
            return vec![Stretch { from: self.axis.begin(), to: self.to, since: self.axis.begin() }];
        }
        let slot_s = sessions::pieces_in_slot(&self.axis) as f64 * self.axis.step_s;
        let length_s = (PART_S / slot_s).ceil().max(1.0) * slot_s;
        let begin = self.axis.begin();
        let count = (self.to.seconds_since(begin) / length_s).ceil().max(1.0) as usize;
        let at = |number: usize| begin + Span::from_seconds(number as f64 * length_s);
        let stretch = |number: usize| Stretch {
            from: (at(number) - Span::from_seconds(LEAD_S)).max(begin),
            // The moment at which the next begins is the next one's.
            to: if number + 1 == count { self.to } else { at(number + 1) - Span(1) },
            since: at(number),
        };
        (0..count).map(stretch).collect()
    }

    /// Takes in a window; of its sessions and events those from `since` on.
    pub fn add(&mut self, window: &Window, since: Moment) {
        let part = Part::of(window, self.axis);
        self.absorb(part, window.seconds());
        self.marks.extend(marks::marks(&mut self.gaps, window, &self.axis, since));
        let of = |kind| window.events_of(kind).filter(|event| event.at >= since).cloned();
        self.phases.extend(of(EventKind::Mark));
        self.decisions.extend(of(EventKind::Decision));
        self.shards.take(window, since);
        self.failing.take(window, since);
        self.sight.take(window);
        for unseen in marks::unseen(window) {
            if !self.unseen.contains(&unseen) {
                self.unseen.push(unseen);
            }
        }
        match (&mut self.sessions, sessions::sessions(window, &self.axis, since)) {
            (Some(known), Some(part)) => sessions::absorb(known, part),
            (known @ None, part) => *known = part,
            (Some(_), None) => {}
        }
    }

    /// The document of all that was taken in.
    pub fn document(self, findings: &[Finding], outcome: Option<&Outcome>, warnings: &[String]) -> Document {
        whole(self, findings, outcome, warnings)
    }

    fn absorb(&mut self, part: Part, seconds: f64) {
        if self.part.series.is_empty() {
            (self.part, self.staged_s) = (part, seconds);
            return;
        }
        let Part { series, panels, path } = part;
        let mut places: Vec<Option<usize>> = vec![None; series.len()];
        for mut panel in panels {
            let same = |known: &Panel| known.group == panel.group && known.title == panel.title;
            let known = self.part.panels.iter().position(same);
            for curve in &mut panel.curves {
                let label = &series[curve.series].label;
                let there = known.and_then(|known| {
                    let mut curves = self.part.panels[known].curves.iter();
                    curves.find(|one| one.role == curve.role && self.part.series[one.series].label == *label).copied()
                });
                let fresh = there.is_none();
                let place = self.put(&series[curve.series], there.map(|curve| curve.series));
                places[curve.series] = Some(place);
                curve.series = place;
                if let Some(known) = known.filter(|_| fresh) {
                    self.part.panels[known].curves.push(*curve);
                }
            }
            if known.is_none() {
                self.part.panels.push(panel);
            }
        }
        self.absorb_stages(&path.stages, seconds);
        self.absorb_path(path, &series, &mut places);
    }

    /// Puts a series to the one that is known, or behind all; says where it stands.
    fn put(&mut self, series: &Series, known: Option<usize>) -> usize {
        match known {
            Some(place) => {
                self.part.series[place].lane.absorb(&series.lane);
                place
            }
            None => {
                self.part.series.push(series.clone());
                self.part.series.len() - 1
            }
        }
    }

    fn absorb_path(&mut self, path: WaterPath, series: &[Series], places: &mut [Option<usize>]) {
        let WaterPath { rows, queues, links, .. } = path;
        let mut queue_places = Vec::new();
        for mut queue in queues {
            queue.row = self.row(&rows[queue.row]);
            let same = |known: &QueueView| known.name == queue.name && known.target == queue.target;
            let known = self.part.path.queues.iter().position(same);
            let old =
                known.map(|known| fields(&mut self.part.path.queues[known]).map(|field| *field)).unwrap_or_default();
            for (field, old) in fields(&mut queue).into_iter().zip(old) {
                // A series of a chart was taken in with it.
                let put = |own: usize| places[own].unwrap_or_else(|| self.put(&series[own], old));
                *field = field.map(put).or(old);
            }
            queue.at_least |= known.is_some_and(|known| self.part.path.queues[known].at_least);
            let of_it = fields(&mut queue).map(|field| *field);
            let shows = |panel: &Panel| panel.curves.iter().any(|curve| of_it.contains(&Some(curve.series)));
            queue.panels = (0..self.part.panels.len()).filter(|place| shows(&self.part.panels[*place])).collect();
            match known {
                Some(known) => self.part.path.queues[known] = queue,
                None => self.part.path.queues.push(queue),
            }
            queue_places.push(known.unwrap_or(self.part.path.queues.len() - 1));
        }
        for (from, to) in links {
            let link = (queue_places[from], queue_places[to]);
            if !self.part.path.links.contains(&link) {
                self.part.path.links.push(link);
            }
        }
    }

    /// The place of the row of this title.
    fn row(&mut self, title: &String) -> usize {
        let rows = &mut self.part.path.rows;
        rows.iter().position(|known| known == title).unwrap_or_else(|| {
            rows.push(title.clone());
            rows.len() - 1
        })
    }

    /// Shares of the whole are means of those of parts, by their lengths.
    fn absorb_stages(&mut self, stages: &[StageView], seconds: f64) {
        let before_s = self.staged_s;
        self.staged_s += seconds;
        for new in stages {
            let same = |known: &&mut StageView| known.standby == new.standby && known.stage.name == new.stage.name;
            match self.part.path.stages.iter_mut().find(same) {
                None => self.part.path.stages.push(new.clone()),
                Some(known) => {
                    let mix = |old: Option<f64>, new: Option<f64>| match (old, new) {
                        (Some(old), Some(new)) => Some((old * before_s + new * seconds) / (before_s + seconds)),
                        (old, new) => old.or(new),
                    };
                    let (stage, new) = (&mut known.stage, &new.stage);
                    stage.shares.busy = mix(stage.shares.busy, new.shares.busy);
                    stage.shares.blocked = mix(stage.shares.blocked, new.shares.blocked);
                    stage.shares.starved = mix(stage.shares.starved, new.shares.starved);
                    stage.rate_per_s = mix(stage.rate_per_s, new.rate_per_s);
                    stage.ceiling = new.ceiling.or(stage.ceiling);
                }
            }
        }
    }
}

/// The series of a queue, in one order.
fn fields(queue: &mut QueueView) -> [&mut Option<usize>; 6] {
    let QueueView { level, soft_limit, hard_limit, inflow, outflow, waiters, .. } = queue;
    [level, soft_limit, hard_limit, inflow, outflow, waiters]
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("axis", &self.axis).field("to", &self.to).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::document;
    use super::*;
    use backwater_model::catalogue as cat;
    use backwater_model::{Device, Epoch, Point, Role, Sample, SeriesId, Target};

    /// Three hours of a device that fills and drains, with a server whose sessions wait, and one that comes later.
    fn long() -> Window {
        let target = |name: &str| Target {
            name: name.to_owned(),
            kind: "postgres".to_owned(),
            data_device: Some("7:0".to_owned()),
            ..Target::default()
        };
        let roles = vec![(Role::Data, "p".to_owned())];
        let device = Device { dev: "7:0".to_owned(), name: "loop0".to_owned(), roles, ..Device::default() };
        let meta = Meta { targets: vec![target("p"), target("q")], devices: vec![device], ..Meta::default() };
        let track = |def: &cat::Def, labels: &[(&'static str, &str)], begin: i64, value: &dyn Fn(f64) -> f64| {
            let point = |second: i64| Point {
                at: Moment(second * 1_000_000),
                series: SeriesId(0),
                epoch: Epoch(1),
                value: value(second as f64),
                as_of: None,
            };
            (Arc::new(def.series(labels)), (begin..=10_800).map(point).collect::<Vec<_>>())
        };
        let dev = [("dev", "7:0")];
        let series = vec![
            track(&cat::BDI_RECLAIMABLE, &dev, 0, &|at| (at * 37.0) % 2e6),
            track(&cat::BDI_WRITEBACK, &dev, 0, &|at| at % 5.0),
            track(&cat::BDI_DIRTIED, &dev, 0, &|at| at * 700.0 + (at / 900.0).sin()),
            track(&cat::DISK_WRITES, &dev, 0, &|at| at * 90.0),
            track(&cat::PG_WAL_INSERT, &[("target", "q")], 6_000, &|at| at * 500.0 + 100.0),
            track(&cat::PG_WAL_WRITE, &[("target", "q")], 6_000, &|at| at * 500.0),
        ];
        let sample = |number: i64| Sample {
            at: Moment(number * 500_000),
            target: "p".into(),
            state: Some("active".into()),
            user: Some(format!("user{}", number % 7).into()),
            wait_event_type: Some("IO".into()),
            wait_event: Some("WALSync".into()),
            ..Sample::default()
        };
        let samples = (0..21_600).map(sample).collect();
        let mark = |second: i64, arm: &str, phase: &str| {
            Event::new(Moment(second * 1_000_000), "lab", EventKind::Mark, "", &[("arm", arm), ("phase", phase)])
        };
        let absent = Event::new(Moment(5), "host", EventKind::Absent, "", &[("what", "PSI"), ("why", "old kernel")]);
        let events = vec![mark(100, "a", "load"), mark(7_000, "a", "drain"), mark(9_000, "a", "end"), absent];
        Window::new(Moment(0), Moment::from_seconds(10_800.0), Arc::new(meta), series, samples, events)
    }

    #[test]
    fn a_recording_in_parts_is_the_page_of_the_whole() {
        let window = long();
        let at_once = document(&window, &[], None, &[]);
        let mut parts = Parts::of(window.from, window.to, &window.meta);
        let stretches = parts.stretches();
        assert!(stretches.len() > 4, "{stretches:?}");
        for Stretch { from, to, since } in stretches {
            parts.add(&window.slice(from, to), since);
        }
        let in_parts = parts.document(&[], None, &[]);
        let [whole, parts] = [&at_once, &in_parts].map(|document| serde_json::to_value(document).unwrap());
        for key in ["axis", "events", "phases", "unseen", "findings", "sessions", "about"] {
            assert_eq!(whole[key], parts[key], "{key}");
        }
        let names = |document: &Document| {
            let mut list: Vec<_> = document.path.queues.iter().map(|queue| queue.name.clone()).collect();
            list.sort();
            (list, document.path.links.len(), document.panels.len(), document.series.len())
        };
        assert_eq!(names(&at_once), names(&in_parts));
        for queue in &at_once.path.queues {
            let other = in_parts
                .path
                .queues
                .iter()
                .find(|other| other.name == queue.name && other.target == queue.target)
                .unwrap();
            let lane =
                |document: &Document, place: Option<usize>| place.map(|place| document.series[place].lane.clone());
            assert_eq!(lane(&at_once, queue.level), lane(&in_parts, other.level), "{}", queue.name);
            assert_eq!(queue.panels.len(), other.panels.len());
            let (flow, other) = (lane(&at_once, queue.inflow), lane(&in_parts, other.inflow));
            let known = |lane: &super::super::Lane| lane.pieces().iter().flatten().count();
            assert_eq!(flow.as_ref().map(known), other.as_ref().map(known), "no rate is lost where a part ends");
        }
    }
}
