//! What the server's answers teach of what stands in its memory, and whether they bear it out.

use super::layout::Status;
use super::names::class_of;
use super::places::{Image, Places};
use super::reading::Process;
use super::trust;
use super::{CLIENT, Known, Memory, What, at_least};
use crate::postgres::look::Look;
use crate::postgres::running::Running;
use backwater_model::CARRIERS;
use std::collections::{HashMap, HashSet};

/// All that stood there at one time.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) image: Image,
    procs: Vec<u8>,
}

impl Reading {
    pub(super) fn read(&mut self, process: &mut Process, places: &Places) -> Result<(), String> {
        self.image.read(process, places)?;
        self.read_procs(process, places)
    }

    pub(super) fn read_procs(&mut self, process: &mut Process, places: &Places) -> Result<(), String> {
        let piece = places.procs_piece();
        process.read(&[piece], at_least(&mut self.procs, piece.bytes))
    }

    /// Each process that there is: its number, its PGPROC's place and its wait_event_info.
    pub(super) fn waits<'r>(&'r self, places: &'r Places) -> impl Iterator<Item = (i32, usize, u32)> + 'r {
        places.waits(&self.procs)
    }

    /// Each process by its number. Before 17 a PGPROC keeps the number of whose it was: one that stands there twice is none's.
    pub(super) fn by_pid(&self, places: &Places) -> HashMap<i32, (usize, u32)> {
        let (mut found, mut twice) = (HashMap::new(), Vec::new());
        for (pid, proc, wait) in self.waits(places) {
            if found.insert(pid, (proc, wait)).is_some() {
                twice.push(pid);
            }
        }
        twice.iter().for_each(|pid| _ = found.remove(pid));
        found
    }
}

impl Memory {
    /// Before the server is asked: where there is something to be learned, all is read.
    pub(in crate::postgres) fn before_answer(&mut self, all: bool) {
        let wants = std::mem::take(&mut self.wants_answer) || all;
        self.is_read = wants && self.before.read(&mut self.process, &self.places).is_ok();
    }

    /// When it has answered.
    pub(in crate::postgres) fn after_answer(&mut self) {
        self.is_read = self.is_read && self.after.read(&mut self.process, &self.places).is_ok();
    }

    /// Learns from an answer, which had `all` sessions or those at work, once it was put down.
    pub(in crate::postgres) fn learn(&mut self, target: &str, look: &Look<'_>, all: bool, running: &mut Running) {
        if !std::mem::take(&mut self.is_read) {
            return;
        }
        let why = self.compare(look, all, running).err();
        if !self.trust.outlasts(why.is_some()) {
            let why = why.unwrap_or_default();
            tracing::warn!(
                "{target}: what its shared memory says of sessions is not what it answers ({why}), so it is asked each time"
            );
            self.is_believed = false;
        }
    }

    fn compare(&mut self, look: &Look<'_>, all: bool, running: &mut Running) -> Result<(), String> {
        let there = self.there();
        let (before, after) = (self.before.by_pid(&self.places), self.after.by_pid(&self.places));
        // The session that asks had nothing to do before.
        if before.get(&self.own.pid).is_some_and(|(_, wait)| class_of(*wait) != Some("Client")) {
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
            if !self.status(slot).lasted(self.after.image.status(&self.places, slot)) {
                continue;
            }
            let application = self.before.image.application(&self.places, slot);
            different = different.or(trust::difference(row, self.status(slot), application, is_carrier));
            if let Some((proc, wait)) = before.get(&row.pid).filter(|found| after.get(&row.pid) == Some(found)) {
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

    /// The sessions that were there before the answer and after it, with their slots.
    fn there(&self) -> HashMap<i32, usize> {
        let stayed = |slot: usize, status: Status<'_>| {
            let later = self.after.image.status(&self.places, slot);
            (status.pid(), status.began(), status.kind()) == (later.pid(), later.began(), later.kind())
        };
        let sessions = self.before.image.statuses(&self.places);
        sessions.filter(|(slot, status)| stayed(*slot, *status)).map(|(slot, status)| (status.pid(), slot)).collect()
    }

    /// What is known of the session that has this slot now.
    fn known_at(&mut self, slot: usize) -> &mut Known {
        let status = self.before.image.status(&self.places, slot);
        let (pid, began) = (status.pid(), status.began());
        let known = &mut self.known[slot];
        if (known.pid, known.began) != (pid, began) {
            *known = Known { pid, began, ..Known::default() };
        }
        known
    }
}
