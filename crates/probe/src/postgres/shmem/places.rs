//! Where a server's sessions stand in its memory, found by its own words and held against what must stand there.

use super::layout::{Layout, PROCS_HEAD_BYTES, Status};
use super::mapped::Segment;
use super::own::Own;
use crate::postgres::link::{Link, QueryError};
use crate::postgres::row::get;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
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

/// A text is read piece by piece, as much as a processor fetches at once: most are short, and each piece was written by another
/// processor a moment ago.
const TEXT_PIECE_BYTES: usize = 64;
/// How often a session is read that is being written.
pub(super) const TRIES: usize = 16;
/// What stands in an image of what was never read: a count that is odd, and no process.
const NOT_READ: u8 = 0xff;

/// What the server says of its shared memory: an allocation by its name, from where in the segment and how many bytes.
#[derive(Debug)]
pub(super) struct Told {
    allocations: HashMap<String, (usize, usize)>,
    /// Of the session that asked.
    pub(super) pid: i32,
    pub(super) began: Option<i64>,
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
            Some((name, (usize::try_from(from).ok()?, usize::try_from(bytes).ok()?)))
        };
        let own = rows.first().and_then(|row| Some((get(row, 3)?, get(row, 5))));
        let (pid, began) = own.ok_or_else(|| "no place of it is told".to_owned())?;
        Ok(Told { allocations: rows.iter().filter_map(allocation).collect(), pid, began })
    }

    fn of(&self, name: &str) -> Result<(usize, usize), String> {
        self.allocations.get(name).copied().ok_or_else(|| format!("'{name}' is not there"))
    }
}

/// Where everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) layout: Layout,
    /// How many sessions there can be, and processes of the server's own.
    pub(super) slots: usize,
    statuses: usize,
    applications: usize,
    application_bytes: usize,
    texts: usize,
    text_bytes: usize,
    procs: usize,
    proc_count: usize,
}

impl Places {
    /// One part after the other: sessions, applications' names, texts, processes.
    #[cfg(any(test, fuzzing))]
    pub(super) fn one_by_one(layout: Layout, slots: usize) -> Places {
        let (application_bytes, text_bytes) = (64, 1_024);
        let applications = slots * layout.status_bytes;
        let texts = applications + slots * application_bytes;
        let procs = texts + slots * text_bytes;
        let (statuses, proc_count) = (0, slots);
        Places { layout, slots, statuses, applications, application_bytes, texts, text_bytes, procs, proc_count }
    }

    /// # Errors
    /// Something else stands there.
    pub(super) fn find(told: &Told, layout: Layout, segment: &Segment) -> Result<Places, String> {
        let (statuses, status_bytes) = told.of("Backend Status Array")?;
        let (applications, application_bytes) = told.of("Backend Application Name Buffer")?;
        let (texts, text_bytes) = told.of("Backend Activity Buffer")?;
        let slots = status_bytes / layout.status_bytes;
        if status_bytes > MOST_BYTES {
            return Err(format!("it has room for {slots} sessions"));
        }
        let is_whole = |bytes: usize, each: usize| each > 0 && bytes.is_multiple_of(each);
        if ![(status_bytes, layout.status_bytes), (application_bytes, slots), (text_bytes, slots)]
            .into_iter()
            .all(|(bytes, each)| is_whole(bytes, each))
        {
            return Err("its parts have other sizes than this major's".to_owned());
        }
        let mut head = [0; PROCS_HEAD_BYTES];
        segment.copy(told.of("Proc Header")?.0, &mut head)?;
        let (procs, proc_count) = layout.procs(&head).unwrap_or_default();
        let procs_bytes = proc_count.saturating_mul(layout.proc_bytes);
        let procs = segment.place(procs).filter(|_| proc_count >= slots / 2 && procs_bytes <= MOST_BYTES);
        let procs = procs.ok_or_else(|| format!("it has {proc_count} processes for {slots} sessions"))?;
        let (application_bytes, text_bytes) = (application_bytes / slots, text_bytes / slots);
        Ok(Places { layout, slots, statuses, applications, application_bytes, texts, text_bytes, procs, proc_count })
    }

    /// What of a session points to its application_name and to its text must point there, used or not; and the session that asked
    /// must be there as the server told it: what kind of process it is, a client's, is returned.
    ///
    /// # Errors
    /// In what it differs.
    pub(super) fn check(&self, segment: &Segment, image: &Image, own: &Own) -> Result<u32, String> {
        let points = |slot: usize| {
            let status = image.status(self, slot);
            let nth = |from: usize, bytes: usize| Some(from + slot * bytes);
            segment.place(status.application_at()) == nth(self.applications, self.application_bytes)
                && segment.place(status.text_at()) == nth(self.texts, self.text_bytes)
        };
        if !(0..self.slots).all(points) {
            return Err("its sessions do not stand where this major's do".to_owned());
        }
        let found = image.statuses(self).map(|(_, status)| status).find(|status| own.is(*status));
        found.map(|own| own.kind()).ok_or_else(|| "the session that asked is not there".to_owned())
    }

    fn status_at(&self, slot: usize) -> usize {
        self.statuses + slot * self.layout.status_bytes
    }

    /// A session's st_changecount, which is odd while the session writes.
    ///
    /// # Errors
    /// It is not in the segment.
    pub(super) fn count(&self, segment: &Segment, slot: usize) -> Result<u32, String> {
        segment.word(self.status_at(slot))
    }

    /// One process's wait_event_info.
    ///
    /// # Errors
    /// It is not in the segment.
    pub(super) fn wait(&self, segment: &Segment, proc: usize) -> Result<u32, String> {
        segment.word(self.procs + proc * self.layout.proc_bytes + self.layout.proc_wait_at)
    }

    /// Adds a statement's text, up to its NUL and as much as is kept of it; returns where it is.
    ///
    /// # Errors
    /// It is not in the segment.
    pub(super) fn text(&self, segment: &Segment, slot: usize, into: &mut Vec<u8>) -> Result<Range<usize>, String> {
        let (from, most) = (into.len(), self.text_bytes.min(MOST_TEXT_BYTES));
        let mut ends = false;
        while !ends && into.len() - from < most {
            let begun = into.len();
            let piece = TEXT_PIECE_BYTES.min(most - (begun - from));
            into.resize(begun + piece, 0);
            segment.copy(self.texts + slot * self.text_bytes + begun - from, &mut into[begun..])?;
            ends = into[begun..].contains(&0);
        }
        Ok(from..into.len())
    }

    /// Each process that there is: its number, its place and its wait_event_info.
    ///
    /// # Errors
    /// They are not in the segment.
    pub(super) fn waits(&self, segment: &Segment) -> Result<Vec<(i32, usize, u32)>, String> {
        let mut found = Vec::with_capacity(self.proc_count);
        for proc in 0..self.proc_count {
            let at = self.procs + proc * self.layout.proc_bytes;
            let pid = segment.word(at + self.layout.proc_pid_at)?.cast_signed();
            if pid != 0 {
                found.push((pid, proc, self.wait(segment, proc)?));
            }
        }
        Ok(found)
    }
}

/// All sessions, each as it stood there when it was last read, and their applications' names.
#[derive(Debug)]
pub(super) struct Image {
    bytes: Vec<u8>,
}

impl Image {
    pub(super) fn of(places: &Places) -> Image {
        Image { bytes: vec![NOT_READ; places.slots * (places.layout.status_bytes + places.application_bytes)] }
    }

    /// Reads a session where it was written since it was last read: what it wrote, and with it its application's name, counts up.
    /// The count that it has now; none where it was being written each time.
    ///
    /// # Errors
    /// It is not in the segment.
    pub(super) fn refresh(&mut self, segment: &Segment, places: &Places, slot: usize) -> Result<Option<u32>, String> {
        for _ in 0..TRIES {
            let count = places.count(segment, slot)?;
            if !is_whole(count) {
                std::hint::spin_loop();
                continue;
            }
            if self.status(places, slot).count() == count {
                return Ok(Some(count));
            }
            fence(Ordering::Acquire);
            let status = self.status_mut(places, slot);
            segment.copy(places.status_at(slot), status)?;
            // As its session does when it reads others (pgstat_read_current_status in backend_status.c): it is whole where it counts the
            // same before and after.
            status[..size_of::<u32>()].copy_from_slice(&count.to_le_bytes());
            let application = places.applications + slot * places.application_bytes;
            segment.copy(application, self.application_mut(places, slot))?;
            fence(Ordering::Acquire);
        }
        self.forget(places, slot);
        Ok(None)
    }

    fn forget(&mut self, places: &Places, slot: usize) {
        self.status_mut(places, slot).fill(NOT_READ);
    }

    pub(super) fn status<'m>(&'m self, places: &Places, slot: usize) -> Status<'m> {
        let bytes = places.layout.status_bytes;
        Status::of(self.bytes.get(slot * bytes..(slot + 1) * bytes).unwrap_or_default(), places.layout)
    }

    fn status_mut(&mut self, places: &Places, slot: usize) -> &mut [u8] {
        let bytes = places.layout.status_bytes;
        &mut self.bytes[slot * bytes..(slot + 1) * bytes]
    }

    fn application_at(places: &Places, slot: usize) -> Range<usize> {
        let from = places.slots * places.layout.status_bytes + slot * places.application_bytes;
        from..from + places.application_bytes
    }

    pub(super) fn application(&self, places: &Places, slot: usize) -> &[u8] {
        self.bytes.get(Image::application_at(places, slot)).unwrap_or_default()
    }

    fn application_mut(&mut self, places: &Places, slot: usize) -> &mut [u8] {
        &mut self.bytes[Image::application_at(places, slot)]
    }

    /// The sessions that there are, with their places.
    pub(super) fn statuses<'m>(&'m self, places: &'m Places) -> impl Iterator<Item = (usize, Status<'m>)> + 'm {
        (0..places.slots).map(|slot| (slot, self.status(places, slot))).filter(|(_, status)| status.pid() > 0)
    }
}

/// Whether its session does not write just now.
fn is_whole(count: u32) -> bool {
    count & 1 == 0
}
