//! What a run of the engine sets. Everything is told in seconds of what the load asks for (`need`: bytes that the volume
//! writes in the end, journal and data), so that the same queue fills at any rate that the machine can do.

use super::deed::Deed;
use super::draw::{Dice, Draw};
use super::setup::{Capacity, Setup, between, rate};
use crate::scenario::{DirtyLimit, EngineKind, LoadPart};
use backwater_model::Bytes;

/// Half of what is written in the end is the journal's: it stands before the data.
const JOURNAL: f64 = 0.5;
/// The journal's share of a cap that bursts are to reach, and the most that the mean of all may take of it.
const JOURNAL_FROM: f64 = 0.33;
const JOURNAL_TO: f64 = 0.4;
const MEAN_TO: f64 = 0.8;
/// Caps of a healthy run: at least so many times the need. A checkpoint writes several seconds' data at once.
const FREE_FROM: f64 = 10.0;
/// Bytes of the cache that an operation dirties beside its document: its entry, and what the engine adds.
const ENTRY_BYTES: f64 = 376.0;
/// Bytes of the journal that an operation logs beside its document; and the room for what is logged where much expires at once.
const LOGGED_BYTES: f64 = 120.0;
const LOGGED_FROM: f64 = 1.7;
const LOGGED_TO: f64 = 2.1;
/// Documents where bursts of data must outweigh the journal: what a sync adds to a small one is several times its size wherever
/// syncs are so fast that each covers one operation.
const LARGE_DOCUMENT_BYTES: u32 = 8_192;
/// Seconds in which as much is gathered as the volume needs seconds for; room in the cache over that; and checkpoints in a run.
const LONG_WAIT_S: f64 = 8.5;
const LEFT_ALONE: f64 = 1.6;
const BURSTS_SEEN: f64 = 3.2;
/// Operations a second at most with large documents, and while so much is gathered: all must fit the volume. And the journal's share
/// of the cap meanwhile.
const LARGE_PER_S: f64 = 12_000.0;
const LONG_PER_S: f64 = 4_000.0;
const LONG_JOURNAL_TO: f64 = 0.45;
/// When no majority confirms any more, in shares of a run; and the room below the trigger, in seconds of what is made dirty: some
/// runs come to the trigger, others to more than half of it.
const STANDS_FROM: f64 = 0.2;
const ROOM_FROM_S: f64 = 0.55;
const ROOM_TO_S: f64 = 1.2;
/// How long a snapshot is held that is to be found, in seconds; the room below the trigger, in shares of that; and how long one is held
/// that harms nobody.
const HELD_S: f64 = 40.0;
const HELD_ROOM_FROM: f64 = 0.3;
const HELD_ROOM_TO: f64 = 0.6;
const SHORT_FROM_S: f64 = 3.0;
const SHORT_TO_S: f64 = 8.0;
/// Threads that may live at once where each operation has its own.
const THREADS: usize = 1_000;

/// Operations a second.
fn asked(draw: &Draw, capacity: &Capacity) -> f64 {
    let load = draw.dice.load;
    // As much as leaves the processors to the recorder and whatever else.
    let share = if draw.deed.is_harmless() { between(0.08, 0.2, load) } else { between(0.15, 0.28, load) };
    match draw.deed {
        Deed::EngineIdle => between(10.0, 60.0, load),
        // Well under fifty a second, from which a rule may call it a storm.
        Deed::EngineFewThreads => between(5.0, 30.0, load),
        // The room that is left for what deletes log grows with this, and what they log does not.
        Deed::EngineExpiry => capacity.operations_per_s * between(0.03, 0.06, load),
        // Processors to spare for eviction that comes to nothing.
        Deed::EngineHeldSnapshot => capacity.operations_per_s * between(0.08, 0.15, load),
        // An oplog beside them: processors to spare for what that brings.
        Deed::EngineSlowMember | Deed::EngineMembersKeepUp => capacity.operations_per_s * between(0.05, 0.1, load),
        Deed::EngineCheckpoint => (capacity.operations_per_s * between(0.05, 0.1, load)).min(LARGE_PER_S),
        Deed::EngineCacheOversized => {
            (capacity.operations_per_s * between(0.05, 0.1, load)).min(LONG_PER_S * between(0.8, 1.0, load))
        }
        // Threads cost processor time: it must be felt, and a pool must do it with ease.
        Deed::EngineThreads => capacity.operations_per_s * between(0.4, 0.55, load),
        _ => capacity.operations_per_s * share,
    }
}

/// What a run of the engine sets.
pub(super) fn engine(setup: Setup, draw: &Draw, capacity: &Capacity) -> Setup {
    let Dice { hold, second, clients, moment, .. } = draw.dice;
    let asked = asked(draw, capacity);
    let mut made = setup;
    made.asked_per_s = asked;
    made.load.rate_per_s = Some(asked);
    made.load.clients = 16 + (clients * 33.0) as usize;
    if matches!(draw.deed, Deed::EngineCheckpoint | Deed::EngineCacheOversized) {
        made.load.engine.document_bytes = LARGE_DOCUMENT_BYTES;
    }
    let dirtied = asked * (f64::from(made.load.engine.document_bytes) + ENTRY_BYTES);
    let need = asked * capacity.operation_bytes;
    let free = rate((need * between(FREE_FROM, 3.0 * FREE_FROM, hold)).max(f64::from(32 << 20)));
    made.arm.write_bytes_per_s = if draw.deed.is_harmless() { free } else { None };
    let seconds = made.load.seconds;
    match draw.deed {
        Deed::EngineCheckpoint => {
            // Nothing waits in the cache for long, and no application thread must help.
            let target = between(0.5, 1.5, second) * dirtied;
            made = made.cache(target / 0.05, (5.0, 80.0)).checkpoint(between(5.0, 6.5, moment));
            made.arm.write_bytes_per_s = rate(room_between_bursts(capacity, hold));
        }
        Deed::EngineCacheOversized => {
            // A checkpoint begins so long after the last has ended, and takes nearly as long itself: see the cap. Eviction begins
            // at more than it ever finds; and it takes several to see a habit. The cache is made before anything is measured.
            let wait_s = between(LONG_WAIT_S, 1.3 * LONG_WAIT_S, moment);
            made = made.cache(LEFT_ALONE * 2.0 * wait_s * dirtied / 0.2, (20.0, 80.0)).checkpoint(wait_s);
            made.load.seconds = seconds.max(BURSTS_SEEN * 2.0 * wait_s);
            made.arm.write_bytes_per_s = rate(room_for_half_the_time(capacity, hold));
        }
        Deed::EngineDirtyStall => {
            let trigger = between(1.5, 2.5, second) * dirtied;
            made = made.cache(trigger / 0.1, (3.0, 10.0)).checkpoint(between(4.0, 8.0, moment)).direct();
            // With more, a journal that is synced for fewer operations at a time takes it, and the cache seldom fills.
            made.arm.write_bytes_per_s = rate(need * between(0.6, 0.85, hold));
        }
        Deed::EngineExpiry => {
            let from_s = seconds * between(0.58, 0.62, moment);
            // No checkpoint, whose burst would be felt as well; and room for what operations log, if not for each in a sync of
            // its own, but little for what the deletes log.
            made = made.expiring(asked * between(110.0, 140.0, second), [from_s, from_s + 1.0]).checkpoint(60.0);
            let logged = asked * (f64::from(made.load.engine.document_bytes) + LOGGED_BYTES);
            made.arm.write_bytes_per_s = rate(logged * between(LOGGED_FROM, LOGGED_TO, hold));
        }
        Deed::EngineThreads => {
            // No checkpoint, whose burst would be felt as well.
            made = made.after_calm(1.0).checkpoint(60.0);
            made.load.clients = THREADS;
            made.load.engine.thread_per_operation = true;
        }
        Deed::EngineCapped => {
            made = made.direct();
            made.arm.write_bytes_per_s = rate(need * JOURNAL * between(0.3, 0.65, hold));
        }
        Deed::EngineDirtyLimit => {
            // What is evicted through the page cache keeps it full; the journal alone would have room.
            made = made.cache(2.0 * dirtied / 0.05, (5.0, 80.0));
            made.arm.write_bytes_per_s = rate(need * between(0.6, 0.8, hold));
            let limit = ((need * between(0.5, 1.5, second)) as u64).clamp(8 << 20, 256 << 20);
            made.dirty_limit_bytes = Some(limit);
            made.arm.dirty_limit = DirtyLimit::Bytes(Bytes(limit));
        }
        Deed::EngineSlowMember => made = slow_member(made, draw, dirtied, free),
        Deed::EngineHeldSnapshot => made = held_snapshot(made, draw, dirtied, free),
        _ => made = harmless(made, draw),
    }
    made
}

/// A majority that stands still from some moment on, on a volume that takes everything, and a cache with room for most of what is made
/// dirty then.
fn slow_member(setup: Setup, draw: &Draw, dirtied: f64, free: Option<Bytes>) -> Setup {
    let Dice { second, moment, .. } = draw.dice;
    let seconds = setup.load.seconds;
    let stands_s = seconds * between(STANDS_FROM, 1.3 * STANDS_FROM, moment);
    let room_s = (seconds - stands_s) * between(ROOM_FROM_S, ROOM_TO_S, second);
    let mut made = setup.cache(room_s * dirtied / 0.2, (5.0, 20.0)).checkpoint(between(3.0, 6.0, moment)).replicated();
    made.load.engine.majority_stands_s = Some([stands_s, 2.0 * seconds]);
    made.arm.write_bytes_per_s = free;
    made
}

/// A reader from the beginning of the load to its end, on a volume that takes everything. No checkpoint ends meanwhile, which alone
/// would clean what eviction cannot, and the cache has room for what is made dirty in a part of the time.
fn held_snapshot(setup: Setup, draw: &Draw, dirtied: f64, free: Option<Bytes>) -> Setup {
    let seconds = setup.load.seconds.max(HELD_S);
    let room_s = seconds * between(HELD_ROOM_FROM, HELD_ROOM_TO, draw.dice.second);
    let mut made = setup.cache(room_s * dirtied / 0.2, (5.0, 20.0)).checkpoint(2.0 * seconds);
    made.load.seconds = seconds;
    made.load.engine.hold_snapshot = true;
    made.arm.write_bytes_per_s = free;
    made
}

/// A cap with room to spare between bursts: the journal by itself must not be what it binds, nor may bursts run into each other.
fn room_between_bursts(capacity: &Capacity, hold: f64) -> f64 {
    let (journal, data) = (capacity.journal_bytes_per_s, capacity.data_bytes_per_s);
    (journal / between(JOURNAL_FROM, JOURNAL_TO, hold)).max((journal + data) / MEAN_TO)
}

/// A cap that takes the data, beside the journal, in half of the time.
fn room_for_half_the_time(capacity: &Capacity, hold: f64) -> f64 {
    let (journal, data) = (capacity.journal_bytes_per_s, capacity.data_bytes_per_s);
    (journal + 2.0 * between(0.95, 1.1, hold) * data).max(journal / LONG_JOURNAL_TO)
}

/// What harms nobody.
fn harmless(setup: Setup, draw: &Draw) -> Setup {
    let Dice { second, moment, .. } = draw.dice;
    let (asked, seconds) = (setup.asked_per_s, setup.load.seconds);
    let mut made = setup;
    match draw.deed {
        Deed::EngineLargeCache => made = made.checkpoint(between(4.0, 8.0, moment)).direct(),
        Deed::EngineReads => {
            made.load.engine.kind = EngineKind::ReadMixed;
            made.load.engine.documents = (asked * 10.0) as u64;
            made.load.engine.read_share = between(0.8, 0.97, second);
        }
        Deed::EngineBurst => made = made.after_calm(between(0.15, 0.3, second)),
        Deed::EngineCheckpoints => made = made.checkpoint(1.0),
        Deed::EngineScatteredExpiry => {
            made = made.expiring(asked * seconds * between(0.1, 0.3, second), [2.5, 2.0 * seconds]);
        }
        Deed::EngineMembersKeepUp => made = made.checkpoint(between(3.0, 6.0, moment)).replicated(),
        Deed::EngineFewThreads => {
            made.load.clients = THREADS;
            made.load.engine.thread_per_operation = true;
        }
        Deed::EngineShortSnapshot => made = made.after_reader(between(SHORT_FROM_S, SHORT_TO_S, second)),
        _ => {}
    }
    made
}

impl Setup {
    fn set(mut self, name: &str, value: String) -> Setup {
        self.arm.settings.insert(name.to_owned(), value);
        self
    }

    /// A cache of so many bytes, with the shares at which eviction begins and at which application threads help.
    fn cache(self, bytes: f64, (target, trigger): (f64, f64)) -> Setup {
        let mib = ((bytes / f64::from(1 << 20)) as u64).max(16);
        self.set("cache_size", format!("{mib}MB"))
            .set("eviction_dirty_target", target.to_string())
            .set("eviction_dirty_trigger", trigger.to_string())
    }

    /// So many seconds from the end of one checkpoint to the next.
    fn checkpoint(self, wait_s: f64) -> Setup {
        self.set("checkpoint", format!("(wait={:.0},log_size=2GB)", wait_s.round().max(1.0)))
    }

    /// Data files pass the page cache by.
    fn direct(self) -> Setup {
        self.set("direct_io", "[data]".to_owned())
    }

    /// As the primary of a set, whose clients do not wait for its journal.
    fn replicated(mut self) -> Setup {
        self.load.engine.replicated = true;
        self.load.engine.journalled = false;
        self
    }

    fn expiring(mut self, documents: f64, between_s: [f64; 2]) -> Setup {
        self.load.engine.kind = EngineKind::TtlDelete;
        self.load.engine.documents = documents as u64;
        self.load.engine.expire_s = Some(between_s);
        self
    }

    /// Half of the run goes by before, with a pool and this share of the rate.
    fn after_calm(mut self, share: f64) -> Setup {
        self.load.seconds /= 2.0;
        let rate_per_s = self.load.rate_per_s.map(|rate| rate * share);
        self.calm = Some(LoadPart { rate_per_s, ..self.load.clone() });
        self
    }

    /// So many seconds of the run go by before, while a snapshot is held.
    fn after_reader(mut self, seconds: f64) -> Setup {
        let mut calm = LoadPart { seconds, ..self.load.clone() };
        calm.engine.hold_snapshot = true;
        self.load.seconds -= seconds;
        self.calm = Some(calm);
        self
    }
}

/// What is driven, in words for people.
pub(super) fn words(setup: &Setup) -> String {
    let (load, engine) = (&setup.load, &setup.load.engine);
    let document = Bytes(u64::from(engine.document_bytes));
    let mut words = format!("{} {:.0} a second of {document}", engine.kind.word(), load.rate_per_s.unwrap_or(0.0));
    if engine.thread_per_operation {
        words.push_str(", a thread and session for each");
    } else {
        words.push_str(&format!(", {} threads", load.clients));
    }
    if engine.kind == EngineKind::ReadMixed {
        words.push_str(&format!(", {:.0} % reads", 1e2 * engine.read_share));
    }
    if let Some([from, to]) = engine.expire_s {
        words.push_str(&format!(", {} documents expire from {from:.0} s to {to:.0} s", engine.documents));
    }
    if engine.replicated {
        words.push_str(", as in a replica set");
    }
    if let Some([from, _]) = engine.majority_stands_s {
        words.push_str(&format!(", no majority confirms from {from:.0} s on"));
    }
    if engine.hold_snapshot {
        words.push_str(&format!(", a snapshot held for all {:.0} s", load.seconds));
    }
    if let Some(calm) = &setup.calm {
        let (seconds, rate) = (calm.seconds, calm.rate_per_s.unwrap_or(0.0));
        let held = if calm.engine.hold_snapshot { ", a snapshot being held" } else { "" };
        words.push_str(&format!(", after {seconds:.0} s of {rate:.0} a second by a pool{held}"));
    }
    words
}

#[cfg(test)]
#[path = "setup_engine_tests.rs"]
mod tests;
