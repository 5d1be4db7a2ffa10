//! What a page shows, as one JSON document: everything that a report holds, and later what a live view is sent. Times are
//! seconds since the axis' begin. Fields are added, never changed in meaning; a page refuses a newer [`VERSION`].

use super::axis::{Axis, Lane};
use backwater_diagnose::ShardRow;
use backwater_model::{Finding, Unit};
use serde::Serialize;
use std::collections::BTreeMap;

/// The document's version.
pub const VERSION: u32 = 1;

/// A whole page.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// Always `backwater-page`.
    pub format: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// What was watched, in words.
    pub about: About,
    /// The time axis of all series and sessions.
    pub axis: Axis,
    /// Every series of the page; other parts name them by their place here.
    pub series: Vec<Series>,
    /// Charts of the timeline, in the order in which people ask.
    pub panels: Vec<Panel>,
    /// The queues from clients to durable storage and to standbys.
    pub path: WaterPath,
    /// What happened, in order of time.
    pub events: Vec<Mark>,
    /// Events that are left out because there were too many.
    pub events_left_out: usize,
    /// The arms of a lab run and their phases, in order of time.
    pub phases: Vec<Phase>,
    /// What was found, the worst first.
    pub findings: Vec<FindingView>,
    /// Of each rule that found something, its line and its page in Markdown.
    pub rules: BTreeMap<String, RuleView>,
    /// The shards of a cluster side by side; empty where fewer than two were seen.
    pub shards: Vec<ShardRow>,
    /// What could not be read at all.
    pub unseen: Vec<backwater_model::Unseen>,
    /// What is no longer read at the end, in words: which probe, and why.
    pub failing: Vec<String>,
    /// Servers that were not seen, so that they may not be healthy though nothing was found, in words.
    pub blind: Vec<String>,
    /// What sessions waited on; none where nobody looked.
    pub sessions: Option<Sessions>,
    /// The lab run, where the recording is of one.
    pub lab: Option<Lab>,
    /// What holds work back, where something does.
    pub flow: Option<FlowView>,
}

/// What was watched.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// A line for the page's head.
    pub title: String,
    /// Program and version that recorded, such as `Backwater 0.1.0` or `MongoDB 7.0.12`.
    pub written_by: String,
    /// Version of Backwater that made this document.
    pub made_by: &'static str,
    /// Length in seconds.
    pub seconds: f64,
    /// Facts as name and value: host, kernel, processors, memory, servers, devices.
    pub facts: Vec<(String, String)>,
    /// What was lost or left out of the recording.
    pub warnings: Vec<String>,
}

/// A series on the axis.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// What people call it.
    pub label: String,
    /// Its unit.
    pub unit: Unit,
    /// Its values.
    #[serde(flatten)]
    pub lane: Lane,
}

/// What a curve is in its chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CurveRole {
    /// A measured line.
    Line,
    /// Where background draining begins.
    SoftLimit,
    /// Where it breaks.
    HardLimit,
}

/// A curve of a chart.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Curve {
    /// Place of the series.
    pub series: usize,
    /// What it is.
    pub role: CurveRole,
}

/// A chart of the timeline. All its curves have one unit.
#[derive(Clone, Debug, Serialize)]
pub struct Panel {
    /// Its heading.
    pub title: String,
    /// The part of the system it belongs to: `Load`, `Device 7:0`, a queue's name.
    pub group: String,
    /// Unit of its curves.
    pub unit: Unit,
    /// Its curves.
    pub curves: Vec<Curve>,
    /// Whether it is drawn before anybody asks for it.
    pub shown: bool,
}

/// The queues of a system and what flows between them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WaterPath {
    /// What the rows of queues are: `localhost:5432: commits and WAL`.
    pub rows: Vec<String>,
    /// The queues.
    pub queues: Vec<QueueView>,
    /// From which queue work flows into which, by their places.
    pub links: Vec<(usize, usize)>,
    /// What moves WAL to standbys, and how it spent the recording.
    pub stages: Vec<StageView>,
}

/// A queue of the path. What cannot be known has no series.
#[derive(Clone, Debug, Serialize)]
pub struct QueueView {
    /// Its name, as findings give it: `host.dirty@7:0`.
    pub name: String,
    /// The server whose it is, where its name does not tell.
    pub target: Option<String>,
    /// What people call it.
    pub title: String,
    /// What it is.
    pub about: &'static str,
    /// What happens at its limit.
    pub at_limit: &'static str,
    /// Pages that tell more, elsewhere.
    pub docs: Vec<DocPage>,
    /// Its row.
    pub row: usize,
    /// How many steps it is away from the row's begin.
    pub step: usize,
    /// Unit of its level.
    pub unit: Unit,
    /// Series of what stands in it.
    pub level: Option<usize>,
    /// Series of where background draining begins.
    pub soft_limit: Option<usize>,
    /// Series of where it breaks.
    pub hard_limit: Option<usize>,
    /// Whether whoever fills it is held from half-way between the two limits on, not only at the hard one.
    pub held_midway: bool,
    /// Series of what arrives.
    pub inflow: Option<usize>,
    /// Series of what leaves.
    pub outflow: Option<usize>,
    /// Series of the sessions that wait on it.
    pub waiters: Option<usize>,
    /// Whether more stands in it and leaves it than was read: its level and flows are lower bounds.
    pub at_least: bool,
    /// Places of the panels that show it.
    pub panels: Vec<usize>,
}

/// A page elsewhere; nothing is asked of it unless somebody follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DocPage {
    /// What it tells.
    pub title: &'static str,
    /// Its address.
    pub url: &'static str,
}

/// A stage with its shares of the recording's time.
#[derive(Clone, Debug, Serialize)]
pub struct StageView {
    /// The standby it serves.
    pub standby: String,
    /// The stage.
    #[serde(flatten)]
    pub stage: backwater_model::Stage,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    /// When.
    pub at_s: f64,
    /// What sort.
    pub kind: backwater_model::EventKind,
    /// Who says so.
    pub source: String,
    /// One line.
    pub message: String,
}

/// A phase of an arm of a lab run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// The arm.
    pub arm: String,
    /// The phase: `load`, `drain`.
    pub phase: String,
    /// From when.
    pub from_s: f64,
    /// Until when.
    pub to_s: f64,
}

/// A finding on the axis.
#[derive(Clone, Debug, Serialize)]
pub struct FindingView {
    /// From when.
    pub from_s: f64,
    /// Until when.
    pub to_s: f64,
    /// The finding itself; its own `from` and `to` are microseconds since boot.
    #[serde(flatten)]
    pub finding: Finding,
}

/// A rule as people look it up.
#[derive(Clone, Debug, Serialize)]
pub struct RuleView {
    /// One line.
    pub summary: &'static str,
    /// Its page, in Markdown.
    pub page: &'static str,
}

/// Active sessions over time. A slot is so many pieces of the axis; figures are sessions on average.
#[derive(Clone, Debug, Serialize)]
pub struct Sessions {
    /// Pieces of the axis in a slot.
    pub pieces: usize,
    /// Whether somebody looked, slot by slot.
    pub looked: Vec<bool>,
    /// By class of wait, what runs first, then the largest.
    pub classes: Vec<Group>,
    /// Lists by other words.
    pub tops: Vec<Top>,
}

/// One way to count sessions.
#[derive(Clone, Debug, Serialize)]
pub struct Top {
    /// By what: `wait event`.
    pub by: String,
    /// The largest groups, the largest first; the last one, `others`, is all that is left.
    pub groups: Vec<Group>,
}

/// Sessions that have a name in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The name.
    pub name: String,
    /// Slots in which there were any, and how many sessions on average.
    pub slots: Vec<(usize, f64)>,
}

/// A lab run.
#[derive(Clone, Debug, Serialize)]
pub struct Lab {
    /// The scenario.
    pub scenario: String,
    /// Where it ran, in words.
    pub machine: String,
    /// Whether every arm was diagnosed as expected.
    pub met: bool,
    /// Metrics that any arm has, in the order in which people ask.
    pub metrics: Vec<Metric>,
    /// The arms, in the scenario's order.
    pub arms: Vec<ArmView>,
    /// What was published, where something was.
    pub published: Option<PublishedView>,
    /// Figures of the whole run: noise floor, changes between arms.
    pub figures: Vec<(String, String)>,
    /// Arms that could not run here, and why not.
    pub skipped: BTreeMap<String, String>,
    /// What makes the figures doubtful.
    pub doubts: Vec<String>,
}

/// A metric of a lab run.
#[derive(Clone, Debug, Serialize)]
pub struct Metric {
    /// Its name, as in `outcome.json`.
    pub name: String,
    /// What people call it.
    pub label: String,
}

/// An arm of a lab run.
#[derive(Clone, Debug, Serialize)]
pub struct ArmView {
    /// Its name.
    pub name: String,
    /// What was set for it, in words.
    pub set: String,
    /// How often it ran.
    pub repeats: usize,
    /// Its metrics by name.
    pub values: BTreeMap<String, Measured>,
    /// What it was expected to be diagnosed with, in words.
    pub expected: String,
    /// What it was diagnosed with.
    pub found: String,
    /// Whether that was met.
    pub met: bool,
}

/// A measured value.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The median, as a number.
    pub value: f64,
    /// The least and the most of the repeats.
    pub spread: Option<[f64; 2]>,
    /// Both as people read them.
    pub text: String,
}

/// A published table beside ours.
#[derive(Clone, Debug, Serialize)]
pub struct PublishedView {
    /// Who measured, on what.
    pub source: &'static str,
    /// What keeps the two from being compared figure by figure.
    pub caution: &'static str,
    /// Names of the columns that say what was set.
    pub columns: Vec<&'static str>,
    /// Its rows.
    pub rows: Vec<PublishedPair>,
}

/// A published row with ours.
#[derive(Clone, Debug, Serialize)]
pub struct PublishedPair {
    /// What was set there.
    pub set: Vec<&'static str>,
    /// What was seen there.
    pub seen: &'static str,
    /// Our arm.
    pub arm: &'static str,
    /// What was set here; none where the arm did not run.
    pub our_set: Option<Vec<String>>,
    /// What was seen here.
    pub our_seen: Option<String>,
}

/// What holds work back: the newest state, and what rules did over the recording.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowView {
    /// When the state was read; none without one.
    pub at_s: Option<f64>,
    /// Pools, rules and held sessions, where a proxy recorded them.
    pub state: Option<backwater_model::FlowState>,
    /// What rules did, in order of time.
    pub holds: Vec<HoldView>,
    /// Of the oldest, how many are not listed.
    pub left_out: usize,
}

/// One thing that a rule did to a session.
#[derive(Clone, Debug, Serialize)]
pub struct HoldView {
    /// From when.
    pub from_s: f64,
    /// Until when; none where it went on.
    pub to_s: Option<f64>,
    /// The rule.
    pub rule: String,
    /// Its action: `penalty`, `abort`, `dryrun`.
    pub action: String,
    /// The session's number.
    pub session: String,
    /// Whose it is.
    pub user: String,
    /// Its pool.
    pub pool: String,
    /// What was over, in words.
    pub message: String,
    /// Why it ended, where it did.
    pub end: Option<String>,
}
