//! Chunks of the flight recorder as points: each figure of the table a column, each server's life an epoch.

use super::flight::moment;
use super::life::Life;
use super::plan::{Match, Planner};
use super::state::State;
use super::table::{Row, rows};
use backwater_model::catalogue as cat;
use backwater_model::{Epoch, Event, EventKind, Moment, Point, Registry, SeriesId};
use ftdc::{Element, Schema, Selection};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Figures that tell besides their own series, where they have one: lives apart, how long an answer took, what the member is.
const PID: &str = "serverStatus.pid";
const UPTIME: &str = "serverStatus.uptimeMillis";
const BEGUN: &str = "serverStatus.start";
const ENDED: &str = "serverStatus.end";
const BOOT: &str = "systemMetrics.cpu.btime";
const STATE: &str = "replSetGetStatus.myState";
const OWN: [&str; 6] = [PID, UPTIME, BEGUN, ENDED, BOOT, STATE];
/// The kernel computes the time of its start anew each time, so it wavers by a second; and clocks are set.
const SAME_BOOT_S: i64 = 60;
/// Schemas whose plans are remembered: a server goes back and forth between a few.
const PLANS_KEPT: usize = 16;

/// Makes points of chunks.
pub(super) struct Reader {
    target: String,
    registry: Arc<Registry>,
    planner: Planner,
    plans: Vec<(Arc<Schema>, Arc<Plan>)>,
    life: Life,
    boot_s: Option<i64>,
    state: State,
}

/// What one chunk brought: a column for each series, and happenings.
pub(super) struct Taken {
    pub(super) columns: Vec<Vec<Point>>,
    pub(super) events: Vec<Event>,
}

/// Figures of one schema. Columns are counted among those chosen.
struct Plan {
    /// Hosts of the members of the replica set, by their number.
    members: BTreeMap<String, String>,
    figures: Vec<(usize, SeriesId, &'static Row)>,
    response: Option<SeriesId>,
    /// Columns of [`OWN`].
    own: [Option<usize>; 6],
}

impl Reader {
    pub(super) fn new(target: &str, registry: Arc<Registry>) -> Self {
        Reader {
            target: target.to_owned(),
            registry,
            planner: Planner::new(rows()),
            plans: Vec::new(),
            life: Life::default(),
            boot_s: None,
            state: State::default(),
        }
    }

    /// Everything it wants to see.
    pub(super) fn selection(&self) -> Selection {
        let own = OWN.map(|path| format!("*{path}"));
        Selection::of(self.planner.patterns().chain(own))
    }

    /// The points of one chunk. Chunks must come in order of time.
    pub(super) fn take(&mut self, chunk: &ftdc::Batch) -> Taken {
        let columns: Vec<(&str, &[i64])> =
            chunk.columns().map(|(metric, values)| (metric.path.as_str(), values)).collect();
        let plan = self.plan(chunk.schema(), &columns, members(chunk.reference()));
        let times: Vec<Moment> = chunk.times_ms().iter().copied().map(moment).collect();
        let own = |which: usize| plan.own[which].map(|column| columns[column].1);
        let (epochs, mut events) = self.epochs(&times, own(0), own(1));
        events.extend(self.states(&times, own(5)));
        events.sort_by_key(|event| event.at);
        let boot = self.boot(own(4));
        let mut taken = Taken { columns: Vec::with_capacity(plan.figures.len() + 1), events };
        for (column, series, row) in &plan.figures {
            let of_host = !row.def.labels.contains(&"target");
            let epoch = |at: usize| if of_host { boot } else { epochs[at] };
            let values = columns[*column].1.iter().zip(&times).enumerate();
            let point = |(place, (raw, at)): (usize, (&i64, &Moment))| {
                let value = row.reading.read(*raw as f64)?;
                Some(Point { at: *at, series: *series, epoch: epoch(place), value, as_of: None })
            };
            taken.columns.push(values.filter_map(point).collect());
        }
        if let (Some(series), Some(begun), Some(ended)) = (plan.response, own(2), own(3)) {
            let both = begun.iter().zip(ended).zip(&times).zip(&epochs);
            let point = |(((begun, ended), at), epoch): (((&i64, &i64), &Moment), &Epoch)| {
                let took_ms = ended.saturating_sub(*begun).max(0);
                Point { at: *at, series, epoch: *epoch, value: took_ms as f64 * 1e3, as_of: None }
            };
            taken.columns.push(both.map(point).collect());
        }
        taken
    }

    /// The life each sample belongs to, and restarts.
    fn epochs(&mut self, times: &[Moment], pids: Option<&[i64]>, uptimes: Option<&[i64]>) -> (Vec<Epoch>, Vec<Event>) {
        let mut events = Vec::new();
        let mut epochs = Vec::with_capacity(times.len());
        for (place, at) in times.iter().enumerate() {
            let pid = pids.map(|pids| pids[place]);
            let uptime = uptimes.map(|uptimes| uptimes[place] as f64);
            let belongs = self.life.of(&self.target, pid, uptime, *at);
            if belongs.restarted {
                let message = format!("{} was started anew", self.target);
                events.push(Event::new(*at, &self.target, EventKind::Restart, message, &[]));
            }
            epochs.push(belongs.epoch);
        }
        (epochs, events)
    }

    /// Where the member is in another state than before.
    fn states(&mut self, times: &[Moment], states: Option<&[i64]>) -> Vec<Event> {
        let both = times.iter().zip(states.unwrap_or_default());
        both.filter_map(|(at, state)| self.state.take(&self.target, Some(*state), *at)).collect()
    }

    /// The life of the host.
    fn boot(&mut self, boots: Option<&[i64]>) -> Epoch {
        if let Some(now) = boots.and_then(|boots| boots.first().copied()) {
            let same = self.boot_s.is_some_and(|known| known.abs_diff(now) <= SAME_BOOT_S as u64);
            if !same {
                self.boot_s = Some(now);
            }
        }
        self.boot_s.map_or(Epoch::default(), |boot| Epoch::of(&["boot", &boot.to_string()]))
    }

    fn plan(
        &mut self,
        schema: &Arc<Schema>,
        columns: &[(&str, &[i64])],
        members: BTreeMap<String, String>,
    ) -> Arc<Plan> {
        let same = |known: &Arc<Schema>, plan: &Plan| Arc::ptr_eq(known, schema) && plan.members == members;
        if let Some((_, plan)) = self.plans.iter().find(|(known, plan)| same(known, plan)) {
            return Arc::clone(plan);
        }
        let found = self.planner.plan(columns.iter().map(|(path, _)| *path));
        let own = OWN.map(|wanted| columns.iter().position(|(path, _)| super::plan::without_role(path) == wanted));
        let series = |found: &Match| self.series(found, &members);
        let figures = found.iter().filter_map(|found| Some((found.place, series(found)?, found.row))).collect();
        let response = self.registry.intern(cat::MONGO_PROBE_RESPONSE.series(&[("target", &self.target)]));
        let plan = Arc::new(Plan { members, figures, response, own });
        if self.plans.len() == PLANS_KEPT {
            self.plans.remove(0);
        }
        self.plans.push((Arc::clone(schema), Arc::clone(&plan)));
        plan
    }

    fn series(&self, found: &Match, members: &BTreeMap<String, String>) -> Option<SeriesId> {
        let host = members.get(&found.part).filter(|_| found.row.def.labels.contains(&"member"));
        let labels = labels(found.row, &self.target, host.unwrap_or(&found.part));
        self.registry.intern(found.row.def.series(&labels))
    }
}

/// Hosts of the members of the replica set, by their number, as a chunk's first sample tells them.
fn members(reference: &[u8]) -> BTreeMap<String, String> {
    below_role(reference, &["replSetGetStatus", "members"]).map(|list| hosts(&list)).unwrap_or_default()
}

/// What stands at a path of a sample, be it below a role of the server, as since MongoDB 8.0.
pub(super) fn below_role<'d>(sample: &'d [u8], path: &[&str]) -> Option<Element<'d>> {
    let below = |role: &str| ftdc::find_path(sample, &[&[role][..], path].concat());
    ftdc::find_path(sample, path).or_else(|| ftdc::ROLES.into_iter().find_map(below))
}

/// The host of each member, by its number in the list of replSetGetStatus.
pub(super) fn hosts(list: &Element<'_>) -> BTreeMap<String, String> {
    let host = |member: Element<'_>| {
        let name = ftdc::find(member.value, "name")?.text()?.into_owned();
        Some((String::from_utf8_lossy(member.key).into_owned(), name))
    };
    list.elements().into_iter().flatten().map_while(Result::ok).filter_map(host).collect()
}

/// The labels of a row's series: the target where it has one, and the row's own, which may be a part of the path.
pub(super) fn labels<'a>(row: &Row, target: &'a str, part: &'a str) -> Vec<(&'static str, &'a str)> {
    let own = row.label.map(|(name, value)| (name, if value.is_empty() { part } else { value }));
    let target = row.def.labels.contains(&"target").then_some(("target", target));
    target.into_iter().chain(own).collect()
}
