//! Writes a recording: once a second to the tails, now and then to segments, within the bounds it was given.

use crate::catalogue::CatalogueWriter;
use crate::lane::Lane;
use crate::layout::META;
use crate::meta_file;
use crate::place;
use crate::retention;
use crate::table::{EventRows, PointRows, Rows, SampleRows};
use crate::{Options, RecordError};
use backwater_model::{Batch, Event, EventKind, Meta, Moment, Registry};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows that may wait in memory if nobody calls [`Writer::tick`].
const WAITING_ROWS: usize = 50_000;

/// What a recording holds once it is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Size of all files, in bytes.
    pub bytes: u64,
    /// Rows of `points`.
    pub points: u64,
    /// Rows of `samples`.
    pub samples: u64,
    /// Rows of `events`.
    pub events: u64,
}

/// Writes a recording. Holds at most a second's rows, and one segment's data while it closes it. After an error it
/// takes no more; what was written before stays readable.
pub struct Writer {
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    registry: Arc<Registry>,
    pub(crate) series: CatalogueWriter,
    pub(crate) points: Lane<PointRows>,
    pub(crate) samples: Lane<SampleRows>,
    pub(crate) events: Lane<EventRows>,
    /// What the recording said of itself when this writer continued it.
    before: Option<Meta>,
    meta: Meta,
    meta_bytes: u64,
    now: Moment,
    stopped: Option<String>,
    closed: bool,
    strangers: u64,
    // Held until the writer is gone: one recording has one writer.
    _lock: place::Lock,
}

impl Writer {
    /// Begins a recording in a directory that is empty or does not exist, or continues the recording that is there.
    /// The registry's series get numbers of their own on disk.
    ///
    /// Errors: the directory holds something else, is being recorded to, was recorded before the host was
    /// restarted, is of another format, cannot be written, or lies on a file system with too little space.
    pub fn create(dir: &Path, meta: Meta, registry: Arc<Registry>, options: Options) -> Result<Writer, RecordError> {
        let options = options.checked()?;
        let made = place::make_dir(dir)?;
        let writer = Writer::begin(dir, meta, registry, options);
        if writer.is_err() && made {
            // Nothing was there before and nothing must stay; a directory that is not empty is not removed.
            let _ = std::fs::remove_dir(dir);
        }
        writer
    }

    fn begin(dir: &Path, meta: Meta, registry: Arc<Registry>, options: Options) -> Result<Writer, RecordError> {
        let lock = place::lock(dir)?;
        let before = place::existing(dir)?;
        place::room(dir, options.free_floor_bytes)?;
        if let Some(before) = &before {
            place::same_boot(dir, before, &meta)?;
        } else {
            meta_file::write(dir, &meta, options.durable)?;
        }
        let points = Lane::<PointRows>::open(dir, &options)?;
        let first_free = points.shelf.segments.iter().filter_map(|segment| segment.last_series).max();
        let mut writer = Writer {
            series: CatalogueWriter::open(dir, first_free.map_or(0, |last| last + 1), options.durable)?,
            points,
            samples: Lane::open(dir, &options)?,
            events: Lane::open(dir, &options)?,
            dir: dir.to_owned(),
            options,
            registry,
            before,
            now: meta.anchors.iter().map(|anchor| anchor.boot).max().unwrap_or_default(),
            meta,
            meta_bytes: 0,
            stopped: None,
            closed: false,
            strangers: 0,
            _lock: lock,
        };
        writer.not_before_its_past()?;
        writer.store_meta()?;
        Ok(writer)
    }

    /// A clock that is behind what was recorded began anew. Looked at where boot ids do not tell.
    fn not_before_its_past(&self) -> Result<(), RecordError> {
        if self.meta.host.boot_id.is_some() && self.before.as_ref().is_some_and(|before| before.host.boot_id.is_some())
        {
            return Ok(());
        }
        let shelves = [&self.points.shelf, &self.samples.shelf];
        let last = shelves.iter().flat_map(|shelf| &shelf.segments).filter_map(|segment| Some(segment.span?.1)).max();
        let clock = self.meta.anchors.iter().map(|anchor| anchor.boot).max();
        match (last, clock) {
            (Some(last), Some(clock)) if last > clock => Err(RecordError::OtherBoot {
                dir: self.dir.clone(),
                why: format!(
                    "its last reading is of {:.0} s after boot, and it is {:.0} s after boot now",
                    last.seconds(),
                    clock.seconds()
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Takes the readings of one look. They are on disk after the next [`tick`](Writer::tick).
    pub fn write(&mut self, batch: &Batch) -> Result<(), RecordError> {
        self.refuse_if_stopped()?;
        for point in &batch.points {
            match self.series.id_of(point.series, &self.registry) {
                Some(series) => self.points.rows.push(point, series),
                None => self.strangers += 1,
            }
        }
        batch.samples.iter().for_each(|sample| self.samples.rows.push(sample));
        batch.events.iter().for_each(|event| self.events.rows.push(event));
        if self.points.rows.len() + self.samples.rows.len() + self.events.rows.len() > WAITING_ROWS {
            return self.guarded(Writer::flush);
        }
        Ok(())
    }

    /// To be called about once a second: writes what waits to disk, closes segments, deletes what is too old or too
    /// much, and looks whether there is still room.
    ///
    /// After an error (the file system is full, or its free space is under the floor) the recording is complete up
    /// to the last tick, and this and [`write`](Writer::write) only say so again.
    pub fn tick(&mut self, now: Moment) -> Result<(), RecordError> {
        self.refuse_if_stopped()?;
        self.now = now;
        self.guarded(|writer| {
            writer.flush()?;
            place::room(&writer.dir, writer.options.free_floor_bytes)?;
            let options = &writer.options;
            writer.points.close_if_due(now, options)?;
            writer.samples.close_if_due(now, options)?;
            writer.events.close_if_due(now, options)?;
            retention::keep_bounds(writer, now)
        })
    }

    /// Stores what is newly known of the host and the targets; nothing new costs nothing.
    pub fn update_meta(&mut self, meta: Meta) -> Result<(), RecordError> {
        self.refuse_if_stopped()?;
        if meta == self.meta {
            return Ok(());
        }
        self.meta = meta;
        self.guarded(Writer::store_meta)
    }

    /// Writes what waits, makes the tails into segments and ends the recording.
    pub fn close(mut self) -> Result<Summary, RecordError> {
        self.closed = true;
        let done = self.flush().and_then(|()| self.close_tails());
        match done {
            Err(error) if self.stopped.is_none() => Err(error),
            _ => Ok(self.summary()),
        }
    }

    /// What is on disk by now.
    pub fn summary(&self) -> Summary {
        Summary {
            bytes: self.bytes(),
            points: self.points.rows_written(),
            samples: self.samples.rows_written(),
            events: self.events.rows_written(),
        }
    }

    /// Points that were left out because the registry does not know their series: a defect of who wrote them.
    pub fn points_without_series(&self) -> u64 {
        self.strangers
    }

    /// Bytes on disk, tails included.
    pub(crate) fn bytes(&self) -> u64 {
        self.meta_bytes + self.series.bytes() + self.points.bytes() + self.samples.bytes() + self.events.bytes()
    }

    /// Writes what waits to the tails, the names of series before their points.
    pub(crate) fn flush(&mut self) -> Result<(), RecordError> {
        self.series.flush()?;
        self.points.flush(self.now, &self.options)?;
        self.samples.flush(self.now, &self.options)?;
        self.events.flush(self.now, &self.options)
    }

    fn close_tails(&mut self) -> Result<(), RecordError> {
        self.points.close_tail()?;
        self.samples.close_tail()?;
        self.events.close_tail()
    }

    fn store_meta(&mut self) -> Result<(), RecordError> {
        let merged = self.before.as_ref().map(|before| meta_file::merge(before, &self.meta));
        meta_file::write(&self.dir, merged.as_ref().unwrap_or(&self.meta), self.options.durable)?;
        let path = self.dir.join(META);
        self.meta_bytes = std::fs::metadata(&path).map_err(RecordError::at("look at", &path))?.len();
        Ok(())
    }

    fn refuse_if_stopped(&self) -> Result<(), RecordError> {
        self.stopped.as_ref().map_or(Ok(()), |why| Err(RecordError::Stopped { why: why.clone() }))
    }

    /// Does something, and ends the recording if it fails.
    fn guarded(&mut self, act: impl FnOnce(&mut Self) -> Result<(), RecordError>) -> Result<(), RecordError> {
        let done = act(self);
        if let Err(error) = &done {
            let why = error.to_string();
            tracing::error!("{why}");
            let message = format!("recording stopped: {why}");
            self.events.rows.push(&Event::new(
                self.now,
                "recorder",
                EventKind::Recorder,
                message,
                &[("stopped", &why)],
            ));
            // There may be no room for it: then the error alone tells.
            let _ = self.flush();
            self.stopped = Some(why);
        }
        done
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.closed
            && let Err(error) = self.flush()
        {
            tracing::error!("{error}");
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("dir", &self.dir).field("stopped", &self.stopped).finish_non_exhaustive()
    }
}
