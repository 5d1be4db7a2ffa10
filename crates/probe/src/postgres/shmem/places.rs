//! Where a server's sessions stand in its memory, found by its own words and held against what must stand there.

use super::at_least;
use super::layout::{Layout, PROCS_HEAD_BYTES, Status, word_at};
use super::reading::{Piece, Process};
use crate::postgres::link::{Link, QueryError};
use crate::postgres::row::get;
use std::collections::HashMap;
use std::path::Path;
use tokio_postgres::Row;

/// Names, places and sizes of what is read (pg_shmem_allocations, since 13; for pg_read_all_stats since 15, before that for a
/// superuser), and what is known of the session that asks.
const SQL: &str = "SELECT name, off, size, pg_backend_pid(), current_setting('server_encoding'), \
     (SELECT round(date_part('epoch', backend_start - timestamptz '2000-01-01 00:00:00+00') * 1000000)::int8 \
     FROM pg_stat_get_activity(pg_backend_pid())) FROM pg_shmem_allocations WHERE name IN \
     ('Backend Status Array', 'Backend Application Name Buffer', 'Backend Activity Buffer', 'Proc Header')";
const MAY_READ: &str = "SELECT has_table_privilege('pg_catalog.pg_shmem_allocations', 'select') \
     AND has_function_privilege('pg_catalog.pg_get_shmem_allocations()', 'execute')";
/// More than this is not read ten times a second: some twenty thousand connections.
const MOST_BYTES: usize = 16 << 20;
/// So much of a statement's text holds all that is kept of it: characters have four bytes at most.
const MOST_TEXT_BYTES: usize = 4 * super::CHARACTERS;

/// So much is read of each at first: more of all would take longer than all of the few that are longer.
const TEXT_BEGIN_BYTES: usize = 256;

/// The session that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) pid: i32,
    pub(super) began: Option<i64>,
}

#[cfg(test)]
impl Own {
    pub(super) fn of(pid: i32) -> Own {
        Own { pid, began: Some(pid.into()) }
    }
}

/// What the server says of its shared memory: an allocation by its name, from where in the segment and how many bytes.
#[derive(Debug)]
pub(super) struct Told {
    allocations: HashMap<String, (u64, usize)>,
    pub(super) own: Own,
}

impl Told {
    /// Asks; why it is not told, where it is not.
    pub(super) async fn by(link: &Link) -> Result<Result<Told, String>, QueryError> {
        let asked = async |what, sql| match link.rows(what, sql).await {
            Ok(rows) => Ok(Ok(rows)),
            Err(QueryError::Lost(error)) => Err(QueryError::Lost(error)),
            Err(QueryError::Denied(error) | QueryError::Failed(error)) => Ok(Err(error.to_string())),
        };
        // A refusal would stand in the server's log.
        match asked("right to shared memory", MAY_READ).await? {
            Ok(rows) if rows.first().and_then(|row| get(row, 0)) == Some(true) => {}
            Ok(_) => {
                return Ok(Err("this role may not read pg_shmem_allocations (pg_monitor may since 15)".to_owned()));
            }
            Err(why) => return Ok(Err(why)),
        }
        Ok(asked("shared memory", SQL).await?.and_then(|rows| Told::in_rows(&rows)))
    }

    fn in_rows(rows: &[Row]) -> Result<Told, String> {
        // Texts stand there in the encoding of their session's database.
        if rows.iter().any(|row| get::<&str>(row, 4) != Some("UTF8")) {
            return Err("the database's encoding is not UTF8".to_owned());
        }
        let allocation = |row: &Row| {
            let (name, from, bytes): (String, i64, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
            Some((name, (from.cast_unsigned(), usize::try_from(bytes).ok()?)))
        };
        let own = rows.first().and_then(|row| Some(Own { pid: get(row, 3)?, began: get(row, 5) }));
        let own = own.ok_or_else(|| "no place of it is told".to_owned())?;
        Ok(Told { allocations: rows.iter().filter_map(allocation).collect(), own })
    }

    fn of(&self, name: &str) -> Result<(u64, usize), String> {
        let found = self.allocations.get(name).filter(|(_, bytes)| (1..=MOST_BYTES).contains(bytes)).copied();
        found.ok_or_else(|| format!("'{name}' is not there, or is too large"))
    }
}

/// Where everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) layout: Layout,
    /// How many sessions there can be, and processes of the server's own.
    pub(super) slots: usize,
    statuses: u64,
    applications: u64,
    application_bytes: usize,
    texts: u64,
    text_bytes: usize,
    procs: u64,
    pub(super) proc_count: usize,
}

impl Places {
    /// One part after the other from here on: sessions, applications' names, texts, processes.
    #[cfg(test)]
    pub(super) fn from(at: u64, layout: Layout, slots: usize) -> Places {
        let (application_bytes, text_bytes) = (64, 1_024);
        let applications = at + (slots * layout.status_bytes) as u64;
        let texts = applications + (slots * application_bytes) as u64;
        let procs = texts + (slots * text_bytes) as u64;
        Places {
            layout,
            slots,
            statuses: at,
            applications,
            application_bytes,
            texts,
            text_bytes,
            procs,
            proc_count: slots,
        }
    }

    /// # Errors
    /// The segment cannot be read, or something else stands there.
    pub(super) fn find(told: &Told, layout: Layout, process: &mut Process, proc: &Path) -> Result<Places, String> {
        let segment = process.segment(proc)?;
        let place = |name| told.of(name).map(|(from, bytes)| (segment.wrapping_add(from), bytes));
        let (statuses, status_bytes) = place("Backend Status Array")?;
        let (applications, application_bytes) = place("Backend Application Name Buffer")?;
        let (texts, text_bytes) = place("Backend Activity Buffer")?;
        let slots = status_bytes / layout.status_bytes;
        let is_whole = |bytes: usize, each: usize| each > 0 && bytes.is_multiple_of(each);
        if ![(status_bytes, layout.status_bytes), (application_bytes, slots), (text_bytes, slots)]
            .into_iter()
            .all(|(bytes, each)| is_whole(bytes, each))
        {
            return Err("its parts have other sizes than this major's".to_owned());
        }
        let mut head = [0; PROCS_HEAD_BYTES];
        process.read(&[Piece { at: place("Proc Header")?.0, bytes: PROCS_HEAD_BYTES }], &mut head)?;
        let (procs, proc_count) = layout.procs(&head).unwrap_or_default();
        if proc_count < slots / 2 || proc_count.saturating_mul(layout.proc_bytes) > MOST_BYTES {
            return Err(format!("it has {proc_count} processes for {slots} sessions"));
        }
        Ok(Places {
            layout,
            slots,
            statuses,
            applications,
            application_bytes: application_bytes / slots,
            texts,
            text_bytes: text_bytes / slots,
            procs,
            proc_count,
        })
    }

    /// What of a session points to its application_name and to its text must point there, used or not; and the session that asked
    /// must be there as the server told it: what kind of process it is, a client's, is returned.
    ///
    /// # Errors
    /// In what it differs.
    pub(super) fn check(&self, image: &Image, own: Own) -> Result<u32, String> {
        let points = |slot: usize| {
            let status = image.status(self, slot);
            let nth = |from: u64, bytes: usize| from.wrapping_add((slot * bytes) as u64);
            status.application_at() == nth(self.applications, self.application_bytes)
                && status.text_at() == nth(self.texts, self.text_bytes)
        };
        if !(0..self.slots).all(points) {
            return Err("its sessions do not stand where this major's do".to_owned());
        }
        let is_own = |status: Status<'_>| status.pid() == own.pid && status.began() == own.began;
        let found = image.statuses(self).map(|(_, status)| status).find(|status| is_own(*status));
        found.map(|own| own.kind()).ok_or_else(|| "the session that asked is not there".to_owned())
    }

    fn statuses_bytes(&self) -> usize {
        self.slots * self.layout.status_bytes
    }

    /// All sessions, and their applications' names.
    fn image(&self) -> [Piece; 2] {
        [
            Piece { at: self.statuses, bytes: self.statuses_bytes() },
            Piece { at: self.applications, bytes: self.slots * self.application_bytes },
        ]
    }

    pub(super) fn status_piece(&self, slot: usize) -> Piece {
        let bytes = self.layout.status_bytes;
        Piece { at: self.statuses + (slot * bytes) as u64, bytes }
    }

    pub(super) fn application_piece(&self, slot: usize) -> Piece {
        let bytes = self.application_bytes;
        Piece { at: self.applications + (slot * bytes) as u64, bytes }
    }

    /// As much of a statement's text as most have.
    pub(super) fn text_begin_piece(&self, slot: usize) -> Piece {
        let whole = self.text_piece(slot);
        Piece { bytes: whole.bytes.min(TEXT_BEGIN_BYTES), ..whole }
    }

    pub(super) fn text_piece(&self, slot: usize) -> Piece {
        let at = self.texts + (slot * self.text_bytes) as u64;
        Piece { at, bytes: self.text_bytes.min(MOST_TEXT_BYTES) }
    }

    /// All processes.
    pub(super) fn procs_piece(&self) -> Piece {
        Piece { at: self.procs, bytes: self.proc_count * self.layout.proc_bytes }
    }

    /// One process's wait_event_info.
    pub(super) fn wait_piece(&self, proc: usize) -> Piece {
        let at = self.procs + (proc * self.layout.proc_bytes + self.layout.proc_wait_at) as u64;
        Piece { at, bytes: size_of::<u32>() }
    }

    /// Each process that there is, of all of them as they were read: its number, its place and its wait_event_info.
    pub(super) fn waits<'p>(&'p self, procs: &'p [u8]) -> impl Iterator<Item = (i32, usize, u32)> + 'p {
        procs.chunks_exact(self.layout.proc_bytes).enumerate().filter_map(|(place, proc)| {
            let pid = word_at(proc, self.layout.proc_pid_at)?.cast_signed();
            (pid != 0).then_some((pid, place, word_at(proc, self.layout.proc_wait_at)?))
        })
    }
}

/// All sessions as they stood there at one time.
#[derive(Debug, Default)]
pub(super) struct Image {
    bytes: Vec<u8>,
}

impl Image {
    pub(super) fn read(&mut self, process: &mut Process, places: &Places) -> Result<(), String> {
        let pieces = places.image();
        process.read(&pieces, at_least(&mut self.bytes, pieces.iter().map(|piece| piece.bytes).sum()))
    }

    /// All sessions, without their applications' names, which do not change without them.
    pub(super) fn read_again(&mut self, process: &mut Process, places: &Places) -> Result<(), String> {
        let [statuses, _] = places.image();
        process.read(&[statuses], at_least(&mut self.bytes, statuses.bytes))
    }

    pub(super) fn status<'m>(&'m self, places: &Places, slot: usize) -> Status<'m> {
        let bytes = places.layout.status_bytes;
        Status::of(self.bytes.get(slot * bytes..(slot + 1) * bytes).unwrap_or_default(), places.layout)
    }

    pub(super) fn application(&self, places: &Places, slot: usize) -> &[u8] {
        let from = places.statuses_bytes() + slot * places.application_bytes;
        self.bytes.get(from..from + places.application_bytes).unwrap_or_default()
    }

    /// Puts in another reading of one session, and of its application's name.
    pub(super) fn set(&mut self, places: &Places, slot: usize, status: &[u8], application: &[u8]) {
        let from = slot * places.layout.status_bytes;
        self.bytes[from..from + status.len()].copy_from_slice(status);
        let from = places.statuses_bytes() + slot * places.application_bytes;
        self.bytes[from..from + application.len()].copy_from_slice(application);
    }

    /// The sessions that there are, with their places.
    pub(super) fn statuses<'m>(&'m self, places: &'m Places) -> impl Iterator<Item = (usize, Status<'m>)> + 'm {
        (0..places.slots).map(|slot| (slot, self.status(places, slot))).filter(|(_, status)| status.pid() > 0)
    }
}
