//! Reads a recording, finished or still being written.

use crate::layout::{Range, SERIES};
use crate::segment::{self, Segment};
use crate::table::{AT, Columns, Misfit, Table, TextPool, each_event, each_point, each_sample};
use crate::tail::read_tail;
use crate::view::{TableView, View, stable};
use crate::{RecordError, meta_file};
use arrow_array::RecordBatch;
use arrow_array::types::Int64Type;
use backwater_model::{Event, EventKind, Meta, Moment, Point, Sample, Series, Span, Window, settings_at};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A recording on disk.
#[derive(Debug)]
pub struct Recording {
    dir: PathBuf,
    meta: Arc<Meta>,
    span: Option<(Moment, Moment)>,
    warnings: Vec<String>,
    known: HashMap<(&'static str, Range), Segment>,
}

/// Source of the events that say which file of a recording could not be read.
pub const UNREAD: &str = "recording";
/// What was noted this short a time after the last reading, as that it ended, belongs to the recording. Later than that is
/// a line of a log whose clock is wrong.
const LAST_WORDS: Span = Span::from_millis(5_000);

/// First and last moment met so far.
#[derive(Clone, Copy, Default)]
struct Extent(Option<(Moment, Moment)>);

impl Extent {
    fn widen(&mut self, span: Option<(Moment, Moment)>) {
        if let Some((first, last)) = span {
            let (low, high) = self.0.unwrap_or((first, last));
            self.0 = Some((low.min(first), high.max(last)));
        }
    }
}

impl Recording {
    /// Opens a recording: reads what it says of itself and what its files span. It may be being written.
    ///
    /// Errors: there is none here, it is of another format, or files cannot be read. Parts that are lost (the end
    /// of a tail, a broken segment) are no error: see [`warnings`](Recording::warnings).
    pub fn open(dir: &Path) -> Result<Recording, RecordError> {
        let meta = Arc::new(meta_file::read(dir)?);
        stable(dir, |view| {
            let mut recording = Recording {
                dir: dir.to_owned(),
                meta: Arc::clone(&meta),
                span: None,
                warnings: view.catalogue.warnings.clone(),
                known: HashMap::new(),
            };
            recording.learn(view)?;
            recording.span = recording.span_of(view)?;
            Ok(recording)
        })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the recording says of itself.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// First and last moment of its points and samples, and of what was noted right after them (of its events, if there is
    /// nothing else) when it was opened; none for an empty recording.
    pub fn span(&self) -> Option<(Moment, Moment)> {
        self.span
    }

    /// What was lost or left out, each with its file.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What happened between two moments, both included; none for either means the recording's own end, as it is
    /// now. What was said to be absent before stays said, and settings are those in force when it begins. Reads only the segments that overlap.
    pub fn window(&self, from: Option<Moment>, to: Option<Moment>) -> Result<Window, RecordError> {
        self.window_with(from, to, true)
    }

    /// A window; earlier absences only if wanted, since they are looked for in all earlier events.
    pub(crate) fn window_with(
        &self,
        from: Option<Moment>,
        to: Option<Moment>,
        absences: bool,
    ) -> Result<Window, RecordError> {
        if let (Some(from), Some(to)) = (from, to)
            && from > to
        {
            let why = "the end of the window lies before its beginning; swap --from and --to".to_owned();
            return Err(RecordError::BadOption { option: "--from/--to", why });
        }
        stable(&self.dir, |view| self.window_of(view, from, to, absences))
    }

    fn window_of(
        &self,
        view: &View,
        from: Option<Moment>,
        to: Option<Moment>,
        absences: bool,
    ) -> Result<Window, RecordError> {
        let (first, last) = self.span_of(view)?.unwrap_or_default();
        let (from, to) = (from.unwrap_or(first), to.unwrap_or(last.max(from.unwrap_or(last))));
        let mut found = Found { from, to, ..Found::default() };
        let mut lost = Vec::new();
        for table in &view.tables {
            let earliest = if absences && table.table == Table::Events { Moment(i64::MIN) } else { from };
            lost.extend(self.each_batch(table, earliest, to, |batch| found.add(table.table, &batch))?);
        }
        let unnamed = found.points.keys().filter(|id| view.catalogue.named(**id).is_none()).count();
        if unnamed > 0 {
            let why = format!("it has no names for {unnamed} series of which there are points");
            lost.push((self.dir.join(SERIES), why));
        }
        if absences {
            found.events.extend(lost.iter().map(|(path, why)| self.unread(from, path, why)));
        }
        Ok(found.window(&self.meta, &view.catalogue.series))
    }

    /// Says that a file which may hold readings of the window could not be read: nobody shall take them for not there.
    fn unread(&self, from: Moment, path: &Path, why: &str) -> Event {
        let what = format!("what was recorded in {}", path.strip_prefix(&self.dir).unwrap_or(path).display());
        let message = format!("{what} cannot be seen: {why}");
        let fields = [("what", what.as_str()), ("why", why), ("remedy", "restore that file from a copy")];
        Event::new(from, UNREAD, EventKind::Absent, message, &fields)
    }

    /// Gives the batches of a table that may hold rows between two moments to `visit`. A file that makes no sense is
    /// passed over, and returned with the reason.
    fn each_batch(
        &self,
        table: &TableView,
        from: Moment,
        to: Moment,
        mut visit: impl FnMut(RecordBatch) -> Result<(), Misfit>,
    ) -> Result<Vec<(PathBuf, String)>, RecordError> {
        let mut lost = Vec::new();
        let mut give = |path: &Path, batch| visit(batch).map_err(|error| RecordError::damaged(path, error));
        let mut read = |done: Result<(), RecordError>| match done {
            Err(RecordError::Damaged { path, why, .. }) => {
                lost.push((path, why));
                Ok(())
            }
            done => done,
        };
        for range in &table.segments {
            let outside = |span: (Moment, Moment)| span.1 < from || to < span.0;
            if self.segment(table, *range).and_then(|segment| segment.span).is_some_and(outside) {
                continue;
            }
            read(segment::read(&table.dir, *range, from, to, &mut give))?;
        }
        for (path, bytes) in &table.tails {
            read(read_tail(path, bytes.clone(), |batch| give(path, batch)).map(|_| ()))?;
        }
        Ok(lost)
    }

    fn segment(&self, table: &TableView, range: Range) -> Option<&Segment> {
        self.known.get(&(table.table.name(), range))
    }

    /// Reads what each segment says of itself, once.
    fn learn(&mut self, view: &View) -> Result<(), RecordError> {
        let named = view.catalogue.series.len() as u64;
        for table in &view.tables {
            for range in &table.segments {
                let segment = match segment::inspect(&table.dir, table.table, *range) {
                    Err(error @ RecordError::Damaged { .. }) => {
                        self.warnings.push(error.to_string());
                        continue;
                    }
                    segment => segment?,
                };
                let file = table.dir.join(range.to_string());
                if !segment.unknown_columns.is_empty() {
                    let columns = segment.unknown_columns.join(", ");
                    self.warnings.push(format!("{}: columns not known here are left out: {columns}", file.display()));
                }
                if segment.last_series.is_some_and(|last| u64::from(last) >= named) {
                    let what = "has points of series that series.jsonl does not name; they are left out";
                    self.warnings.push(format!("{} {what}", file.display()));
                }
                self.known.insert((table.table.name(), *range), segment);
            }
            for (path, bytes) in &table.tails {
                match read_tail(path, bytes.clone(), |_| Ok(())) {
                    Ok(warning) => self.warnings.extend(warning),
                    Err(error @ RecordError::Damaged { .. }) => self.warnings.push(error.to_string()),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn span_of(&self, view: &View) -> Result<Option<(Moment, Moment)>, RecordError> {
        let (mut readings, mut happenings) = (Extent::default(), Extent::default());
        for table in &view.tables {
            let extent = if table.table == Table::Events { &mut happenings } else { &mut readings };
            for range in &table.segments {
                match self.segment(table, *range) {
                    Some(segment) => extent.widen(segment.span),
                    None => match segment::inspect(&table.dir, table.table, *range) {
                        Err(RecordError::Damaged { .. }) => {}
                        segment => extent.widen(segment?.span),
                    },
                }
            }
            for (path, bytes) in &table.tails {
                let seen = read_tail(path, bytes.clone(), |batch| {
                    extent.widen(times(&batch));
                    Ok(())
                });
                seen.map(|_| ())?;
            }
        }
        let noted = happenings.0.map(|(_, last)| last);
        let whole = |(first, last): (Moment, Moment)| {
            let after = noted.filter(|noted| *noted <= last + LAST_WORDS);
            (first, after.map_or(last, |noted| last.max(noted)))
        };
        Ok(readings.0.map(whole).or(happenings.0))
    }
}

fn times(batch: &RecordBatch) -> Option<(Moment, Moment)> {
    let times = Columns(batch).all_numbers::<Int64Type>(AT).ok()?;
    Some((Moment(*times.iter().min()?), Moment(*times.iter().max()?)))
}

/// Rows of a window as they are read.
#[derive(Default)]
struct Found {
    from: Moment,
    to: Moment,
    points: BTreeMap<u32, Vec<Point>>,
    samples: Vec<Sample>,
    events: Vec<Event>,
    absences: HashSet<(Moment, String, String)>,
    /// Changes of settings before it began.
    settings: Vec<Event>,
    pool: TextPool,
}

impl Found {
    fn add(&mut self, table: Table, batch: &RecordBatch) -> Result<(), Misfit> {
        let (from, to) = (self.from, self.to);
        let within = |at: Moment| from <= at && at <= to;
        match table {
            Table::Points => each_point(batch, |point| {
                if within(point.at) {
                    self.points.entry(point.series.0).or_default().push(point);
                }
            }),
            Table::Samples => each_sample(batch, &mut self.pool, |sample| {
                if within(sample.at) {
                    self.samples.push(sample);
                }
            }),
            Table::Events => {
                let (events, absences, settings) = (&mut self.events, &mut self.absences, &mut self.settings);
                let from = self.from;
                let unknown = each_event(batch, &mut self.pool, |event| {
                    if event.kind == EventKind::Setting && event.at < from {
                        settings.push(event);
                        return;
                    }
                    let absent = event.kind == EventKind::Absent;
                    // Carried over when its segment expired, an absence may be found twice.
                    let mut again = || !absences.insert((event.at, event.source.clone(), event.message.clone()));
                    if (within(event.at) || (absent && event.at <= to)) && !(absent && again()) {
                        events.push(event);
                    }
                })?;
                if unknown > 0 {
                    tracing::warn!(unknown, "events of kinds that are not known here are left out");
                }
                Ok(())
            }
        }
    }

    fn window(mut self, meta: &Arc<Meta>, catalogue: &[Option<Arc<Series>>]) -> Window {
        let named = |(id, points): (u32, Vec<Point>)| Some((catalogue.get(id as usize)?.clone()?, points));
        let series = joined(self.points.into_iter().filter_map(named));
        self.settings.sort_by_key(|event| event.at);
        let meta = settings_at(meta, &self.settings, self.from);
        Window::new(self.from, self.to, meta, series, self.samples, self.events)
    }
}

/// Series with their points, in order of their numbers. One that came back after it had been let go has two numbers, of which the
/// later is larger.
pub(crate) fn joined(numbered: impl IntoIterator<Item = (Arc<Series>, Vec<Point>)>) -> Vec<(Arc<Series>, Vec<Point>)> {
    let mut places: HashMap<Arc<Series>, usize> = HashMap::new();
    let mut list: Vec<(Arc<Series>, Vec<Point>)> = Vec::new();
    for (series, points) in numbered {
        match places.get(&series).and_then(|place| list.get_mut(*place)) {
            Some((_, known)) => known.extend(points),
            None => {
                places.insert(Arc::clone(&series), list.len());
                list.push((series, points));
            }
        }
    }
    list
}
