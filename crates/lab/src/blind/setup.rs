//! What a run sets, in figures, from how its dice fell and what the servers can do with nothing in the way. Pure, so that
//! it can be proved of every throw: a limit that is to bind lies well under what is asked for, and in a healthy run no
//! limit comes near it.

use super::deed::{Deed, Stage};
use super::draw::{Dice, Draw};
use super::setup_engine;
use crate::scenario::{Arm, DirtyLimit, Hindrance, LoadKind, LoadPart};
use crate::workloads::commit_batches::Side;
use backwater_model::Bytes;

/// What the servers of a stage did with nothing in the way. What a stage has no use for stays 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Capacity {
    /// WAL made by one call of the storm, in bytes.
    pub(super) call_bytes: f64,
    /// How long one takes, in seconds.
    pub(super) call_s: f64,
    /// TPC-B-like transactions a second of [`CLIENTS`] clients that ask as fast as they are answered.
    pub(super) tps: f64,
    /// Page cache of the volume dirtied meanwhile, in bytes a second.
    pub(super) dirtied_bytes_per_s: f64,
    /// Writes of the volume meanwhile, a second.
    pub(super) writes_per_s: f64,
    /// What a row costs that is inserted by a procedure, in seconds.
    pub(super) row_s: f64,
    /// What a commit costs there, in seconds.
    pub(super) commit_s: f64,
    /// Operations a second of the engine, as fast as it takes them.
    pub(super) operations_per_s: f64,
    /// What the volume writes of one in the end, journal and data, in bytes.
    pub(super) operation_bytes: f64,
    /// What the volume writes of the journal, and of data in the end, at the rate that a run of the engine asks for, in bytes a
    /// second. A journal that is synced for fewer operations at a time takes more for each, so only that rate tells. Known once
    /// the run is warmed up.
    pub(super) journal_bytes_per_s: f64,
    pub(super) data_bytes_per_s: f64,
}

/// Clients with which transactions a second are measured.
pub(super) const CLIENTS: usize = 16;
/// Cap, shaper or writes a second of a run that is to be hindered: at most this share of what is asked for.
const BINDS_AT: f64 = 0.45;
/// Limits of a healthy run: at least so many times what is asked for. A call of the storm writes its WAL in a fraction of
/// a second, so a limit of twice the mean would already hold each call up.
const FREE_FROM: f64 = 8.0;
/// Share of a job's time that goes into its commits, where they are to be too small; and where they are not.
const COMMITS_BIND_FROM: f64 = 0.6;
const COMMITS_FREE_BELOW: f64 = 0.06;

/// WAL that may stand on a volume of 3 GiB in the end, beside its data and the segments that are kept for use again, in bytes.
const MOST_STANDING: f64 = 1_073_741_824.0;

/// Something that happens while a healthy run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    /// A checkpoint is asked for.
    Checkpoint,
    /// So many calls of the storm, one after the other.
    Burst(u32),
    /// The standby stops and starts.
    StandbyRestart,
}

/// All that one run sets.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Limits, settings, hindrances. Its name is the same in every run.
    pub(super) arm: Arm,
    pub(super) load: LoadPart,
    /// A load that goes before it, for comparison.
    pub(super) calm: Option<LoadPart>,
    /// The volume's dirty limit.
    pub(super) dirty_limit_bytes: Option<u64>,
    /// A slot is made that nobody reads from.
    pub(super) slot_left: bool,
    /// What happens, and how long after the load began, in seconds.
    pub(super) happening: Option<(Happening, f64)>,
    /// WAL that the load asks for, in bytes a second; 0 where that is not known.
    pub(super) wal_bytes_per_s: f64,
    /// Transactions a second that it would do with nothing in the way.
    pub(super) asked_per_s: f64,
}

/// From `low` to `high`, as the die says.
pub(super) fn between(low: f64, high: f64, die: f64) -> f64 {
    low + (high - low) * die
}

/// The setup of a run: `part` is the stage's load, `seconds` how long it lasts.
pub(super) fn resolve(draw: &Draw, capacity: &Capacity, part: &LoadPart, seconds: f64) -> Setup {
    let load = LoadPart { seconds, warmup_s: 2.0, drain_limit_s: 0.0, ..part.clone() };
    let setup = Setup {
        arm: Arm { name: "run".to_owned(), ..Arm::default() },
        load,
        calm: None,
        dirty_limit_bytes: None,
        slot_left: false,
        happening: None,
        wal_bytes_per_s: 0.0,
        asked_per_s: 0.0,
    };
    match draw.deed.stage() {
        Stage::Streaming => streaming(setup, draw, capacity),
        Stage::Volume => volume(setup, draw, capacity),
        Stage::Single | Stage::Far => commits(setup, draw, capacity),
        Stage::Engine => setup_engine::engine(setup, draw, capacity),
    }
}

impl Setup {
    /// Calls of the storm at a rate.
    fn storm(mut self, capacity: &Capacity, calls_per_s: f64, clients: usize) -> Setup {
        self.load.kind = LoadKind::WalStorm;
        self.load.clients = clients;
        self.load.rate_per_s = Some(calls_per_s);
        self.wal_bytes_per_s = calls_per_s * capacity.call_bytes;
        self.asked_per_s = calls_per_s;
        self
    }

    /// TPC-B-like transactions at a rate; none for as many as the server takes.
    fn tpcb(mut self, capacity: &Capacity, rate_per_s: Option<f64>, clients: usize) -> Setup {
        self.load.kind = LoadKind::Tpcb;
        self.load.clients = clients;
        self.load.rate_per_s = rate_per_s;
        self.asked_per_s = rate_per_s.unwrap_or(capacity.tps);
        self
    }

    fn at(mut self, happening: Happening, die: f64) -> Setup {
        self.happening = Some((happening, self.load.seconds * between(0.25, 0.6, die)));
        self
    }

    fn synchronous(mut self) -> Setup {
        self.arm.settings.insert("synchronous_standby_names".to_owned(), "standby".to_owned());
        self
    }
}

/// Whole bytes a second; never so few that the server would stand still.
pub(super) fn rate(bytes_per_s: f64) -> Option<Bytes> {
    Some(Bytes((bytes_per_s as u64).max(256 << 10)))
}

fn streaming(setup: Setup, draw: &Draw, capacity: &Capacity) -> Setup {
    let Dice { load, hold, second, clients, moment, choice } = draw.dice;
    let fastest = 1.0 / capacity.call_s.max(0.01);
    // As much as leaves half of the processors to the standby, the recorder and whatever else.
    let calls = between(0.55, 1.15, load).min(0.4 * fastest);
    let few = 1 + (clients * 4.0) as usize;
    let stormy = |calls: f64| setup.clone().storm(capacity, calls, few);
    let asked = calls * capacity.call_bytes;
    let most_calls = MOST_STANDING / (capacity.call_bytes * setup.load.seconds).max(1.0);
    let capped = rate(asked * between(0.12, BINDS_AT, hold));
    let mut made = match draw.deed {
        Deed::Idle => setup.tpcb(capacity, Some(between(0.1, 0.5, load)), 1),
        Deed::Burst => {
            let calls = 2 + (choice * 3.0) as u32;
            let quiet = capacity.tps * between(0.02, 0.08, load);
            setup.tpcb(capacity, Some(quiet), few).at(Happening::Burst(calls), moment)
        }
        Deed::SyncStandby => setup.tpcb(capacity, Some(capacity.tps * between(0.05, 0.2, load)), few).synchronous(),
        Deed::SyncStandbyCapped | Deed::SyncStandbyStopped => {
            let many = 8 + (clients * 17.0) as usize;
            setup.tpcb(capacity, Some(capacity.tps * between(0.3, 0.6, load)), many).synchronous()
        }
        Deed::Large => stormy(between(0.4, 0.5, load) * fastest),
        // A hundredth of a processor replays a moderate load.
        Deed::ReplayStarved => stormy((between(0.3, 0.4, load) * fastest).min(most_calls)),
        _ => stormy(calls),
    };
    let arm = &mut made.arm;
    match draw.deed {
        Deed::PrimaryCapped => arm.write_bytes_per_s = capped,
        Deed::StandbyCapped => arm.standby.write_bytes_per_s = capped,
        Deed::BothCapped => (arm.write_bytes_per_s, arm.standby.write_bytes_per_s) = (capped, capped),
        Deed::PrimarySlow => arm.device_bytes_per_s = capped,
        Deed::NetworkNarrow => arm.network.bytes_per_s = capped,
        Deed::ReplayPaused => arm.standby.replay = Some(Hindrance::Paused),
        Deed::ReplayConflicting => arm.standby.replay = Some(Hindrance::Conflicting),
        Deed::ReplayStarved => arm.standby.replay_processor = Some(between(0.01, 0.02, hold)),
        Deed::WalsenderReading => {
            arm.read_bytes_per_s = capped;
            // So much that it is not through with it when the load ends.
            let read = capped.map_or(0.0, |rate| rate.0 as f64) * made.load.seconds;
            arm.standby.returns_after = rate((1.5 * read).clamp(f64::from(64 << 20), MOST_STANDING));
        }
        Deed::RetentionExceeded => {
            arm.settings.extend(["max_wal_size", "min_wal_size"].map(|name| (name.to_owned(), "32MB".to_owned())));
            (arm.standby.away, arm.standby.slot) = (true, Some(false));
        }
        Deed::SlotLeft => made.slot_left = true,
        Deed::StandbyStopped => (arm.standby.away, arm.standby.slot) = (true, Some(choice < 0.5)),
        // With a slot, or WAL might be removed meanwhile.
        Deed::SyncStandbyStopped => (arm.standby.away, arm.standby.slot) = (true, Some(true)),
        Deed::SyncStandbyCapped => arm.standby.write_iops = Some(between(10.0, 26.0, hold) as u64),
        Deed::LooseLimits => {
            let loose = |die: f64| rate(asked * between(FREE_FROM, 3.0 * FREE_FROM, die));
            arm.write_bytes_per_s = loose(hold);
            arm.standby.write_bytes_per_s = loose(second);
            arm.network.bytes_per_s = loose(choice);
        }
        Deed::Checkpoint => made = made.at(Happening::Checkpoint, moment),
        Deed::StandbyRestart => made = made.at(Happening::StandbyRestart, moment),
        _ => {}
    }
    made
}

/// What a page that is dirtied comes to on its way to the volume, in bytes.
const PAGE_BYTES: f64 = 8_192.0;

fn volume(setup: Setup, draw: &Draw, capacity: &Capacity) -> Setup {
    let Dice { load, hold, second, clients, moment, .. } = draw.dice;
    if draw.deed == Deed::DirtyLimit {
        let many = CLIENTS / 2 + (clients * CLIENTS as f64) as usize;
        let mut made = setup.tpcb(capacity, None, many);
        let outflow = between(0.08, 0.3, hold);
        made.arm.write_iops = Some(((capacity.dirtied_bytes_per_s / PAGE_BYTES * outflow) as u64).max(50));
        // Filled, at this rate, within a third of the run at the latest.
        let filled_s = made.load.seconds * between(0.05, 0.33, second);
        let limit = capacity.dirtied_bytes_per_s * (1.0 - outflow) * filled_s;
        made.dirty_limit_bytes = Some((limit as u64).clamp(32 << 20, 1 << 30));
        made.arm.dirty_limit =
            made.dirty_limit_bytes.map_or(DirtyLimit::System, |bytes| DirtyLimit::Bytes(Bytes(bytes)));
        return made;
    }
    let made = setup.tpcb(capacity, Some(capacity.tps * between(0.02, 0.12, load)), 2 + (clients * 7.0) as usize);
    if draw.deed == Deed::DirtyingCheckpoint { made.at(Happening::Checkpoint, moment) } else { made }
}

fn commits(setup: Setup, draw: &Draw, capacity: &Capacity) -> Setup {
    let Dice { hold, second, clients, choice, .. } = draw.dice;
    if draw.deed == Deed::WritesCapped {
        let mut made = setup.tpcb(capacity, None, CLIENTS / 2 + (clients * CLIENTS as f64) as usize);
        made.arm.write_iops = Some(((capacity.writes_per_s * between(0.1, 0.35, hold)) as u64).max(20));
        return made;
    }
    let mut made = setup;
    let mut commit_s = capacity.commit_s;
    if draw.deed.stage() == Stage::Far {
        let delay_ms = between(3.0, 15.0, choice).round();
        made.arm.standby.delay_ms = Some(delay_ms);
        // There and back.
        commit_s += 2e-3 * delay_ms;
        made = made.synchronous();
    }
    let row_s = capacity.row_s.max(1e-7);
    // Rows of which as much time goes into the commit as into them.
    let even = commit_s / row_s;
    let rows_per_commit = if draw.deed.is_harmless() {
        (even * between(1.0 / COMMITS_FREE_BELOW, 4.0 / COMMITS_FREE_BELOW, hold)).ceil().max(200.0)
    } else {
        (even * (1.0 / COMMITS_BIND_FROM - 1.0) * between(0.02, 1.0, hold * hold)).floor().max(1.0)
    };
    let rows = made.load.seconds * between(0.75, 1.0, second) / (row_s + commit_s / rows_per_commit);
    made.load.kind = LoadKind::CommitBatches;
    made.load.clients = 1;
    // It ends with its rows: a warm-up would be a whole run.
    made.load.warmup_s = 0.0;
    made.load.batches.side = Side::Server;
    made.load.batches.rows_per_commit = rows_per_commit as u64;
    made.load.batches.rows = (rows as u64).max(rows_per_commit as u64);
    made.asked_per_s = 1.0 / row_s;
    made
}

#[cfg(test)]
#[path = "setup_tests.rs"]
mod tests;
