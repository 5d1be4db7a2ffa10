//! What the server's answers teach of what stands in its memory, and whether they bear it out.

use super::layout::Status;
use super::names::class_of;
use super::trust;
use super::{CLIENT, Known, Memory, What};
use crate::postgres::look::Look;
use crate::postgres::running::Running;
use backwater_model::CARRIERS;
use std::collections::{HashMap, HashSet};

/// How a session stood there; all zero where it was being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stood {
    /// Which one it is.
    pid: i32,
    began: Option<i64>,
    kind: u32,
    /// What it does. (How far a command is may differ, and with it st_changecount.)
    state: Option<&'static str>,
    begun: Option<i64>,
    transaction_begun: Option<i64>,
    query_id: Option<i64>,
}

impl Stood {
    fn of(status: Status<'_>) -> Stood {
        Stood {
            pid: status.pid(),
            began: status.began(),
            kind: status.kind(),
            state: status.state(),
            begun: status.statement_begun(),
            transaction_begun: status.transaction_begun(),
            query_id: status.query_id(),
        }
    }
}

/// How all stood there at one time.
#[derive(Debug)]
pub(super) struct Standing {
    sessions: Vec<Stood>,
    /// Of each process its PGPROC's place and its wait_event_info.
    waits: HashMap<i32, (usize, u32)>,
}

impl Memory {
    /// Before the server is asked: where there is something to be learned, all is read.
    pub(in crate::postgres) fn before_answer(&mut self, all: bool) {
        let wants = std::mem::take(&mut self.wants_answer) || all;
        self.before = if wants { self.standing().ok() } else { None };
    }

    /// When it has answered.
    pub(in crate::postgres) fn after_answer(&mut self) {
        self.after = if self.before.is_some() { self.standing().ok() } else { None };
    }

    fn standing(&mut self) -> Result<Standing, String> {
        let mut sessions = Vec::with_capacity(self.places.slots);
        for slot in 0..self.places.slots {
            let is_whole = self.image.refresh(&self.segment, &self.places, slot)?.is_some();
            sessions.push(if is_whole { Stood::of(self.status(slot)) } else { Stood::default() });
        }
        Ok(Standing { sessions, waits: self.by_pid()? })
    }

    /// Each process by its number. Before 17 a PGPROC keeps the number of whose it was: one that stands there twice is none's.
    pub(super) fn by_pid(&self) -> Result<HashMap<i32, (usize, u32)>, String> {
        let (mut found, mut twice) = (HashMap::new(), Vec::new());
        for (pid, proc, wait) in self.places.waits(&self.segment)? {
            if found.insert(pid, (proc, wait)).is_some() {
                twice.push(pid);
            }
        }
        twice.iter().for_each(|pid| _ = found.remove(pid));
        Ok(found)
    }

    /// Learns from an answer, which had `all` sessions or those at work, once it was put down.
    pub(in crate::postgres) fn learn(&mut self, target: &str, look: &Look<'_>, all: bool, running: &mut Running) {
        let Some((before, after)) = self.before.take().zip(self.after.take()) else { return };
        let why = self.compare((&before, &after), look, all, running).err();
        if !self.trust.outlasts(why.is_some()) {
            let why = why.unwrap_or_default();
            tracing::warn!(
                "{target}: what its shared memory says of sessions is not what it answers ({why}), so it is asked each time"
            );
            self.is_believed = false;
        }
    }

    fn compare(
        &mut self,
        (before, after): (&Standing, &Standing),
        look: &Look<'_>,
        all: bool,
        running: &mut Running,
    ) -> Result<(), String> {
        let there = there(before, after);
        // The session that asks had nothing to do before.
        if before.waits.get(&self.own.pid).is_some_and(|(_, wait)| class_of(*wait) != Some("Client")) {
            return Err("the session that asks waits for something else".to_owned());
        }
        let mut different = None;
        for row in &look.sessions {
            let Some(slot) = there.get(&row.pid).copied() else { continue };
            let kind = running.kind(row.pid);
            let is_carrier = kind.as_deref().is_some_and(|kind| CARRIERS.contains(&kind));
            if kind.is_some_and(|kind| &*kind != CLIENT) {
                self.known_at(slot).what = Some(if is_carrier { What::Carrier } else { What::Other });
            }
            if before.sessions[slot] != after.sessions[slot] {
                continue;
            }
            let application = self.image.application(&self.places, slot);
            different = different.or(trust::difference(row, self.status(slot), application, is_carrier));
            let wait = before.waits.get(&row.pid);
            if let Some((proc, wait)) = wait.filter(|wait| after.waits.get(&row.pid) == Some(wait)) {
                self.known_at(slot).proc = Some(*proc);
                self.names.learn(*wait, row.class.zip(row.event));
            }
        }
        if all {
            // What an answer of all sessions leaves out is no carrier.
            let told: HashSet<i32> = look.sessions.iter().map(|row| row.pid).collect();
            for (_, slot) in there.iter().filter(|(pid, _)| !told.contains(pid)) {
                self.known_at(*slot).what.get_or_insert(What::Other);
            }
        }
        different.map_or(Ok(()), |what| Err(format!("a session's {what} is another")))
    }

    /// What is known of the session that has this slot now.
    pub(super) fn known_at(&mut self, slot: usize) -> &mut Known {
        let status = self.image.status(&self.places, slot);
        let (pid, began) = (status.pid(), status.began());
        let known = &mut self.known[slot];
        if (known.pid, known.began) != (pid, began) {
            *known = Known { pid, began, ..Known::default() };
        }
        known
    }
}

/// The sessions that were there before an answer and after it, with their slots.
fn there(before: &Standing, after: &Standing) -> HashMap<i32, usize> {
    let is_same = |one: &Stood, other: &Stood| (one.pid, one.began, one.kind) == (other.pid, other.began, other.kind);
    let both = before.sessions.iter().zip(&after.sessions).enumerate();
    let stayed = both.filter(|(_, (before, after))| before.pid > 0 && is_same(before, after));
    stayed.map(|(slot, (before, _))| (before.pid, slot)).collect()
}
