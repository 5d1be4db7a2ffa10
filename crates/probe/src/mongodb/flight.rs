//! The flight recorder as a source: a directory of diagnostic.data, or one of its files, as the same readings that a live
//! server gives. Time is wall-clock time here: a [`Moment`] is microseconds since 1970, and the clock anchor says so.
//!
//! Only the figures of the table are read, chunk by chunk, so that a week takes seconds and memory for an hour.

use super::beside::Beside;
use super::edges::{self, First};
use super::facts;
use super::faults::{self, Faults};
use super::log::History;
use super::reader::Reader;
use crate::ProbeError;
use backwater_model::{Batch, ClockAnchor, DeclaredVolume, Event, EventKind, Meta, Moment, Registry, Target, Window};
use ftdc::{Damage, DocumentKind, FtdcError, Metadata, Selection, Source, Timeline, Times};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a server's flight recorder wrote.
#[derive(Debug)]
pub struct Flight {
    source: Source,
    /// Which of its chunks follow one another.
    timeline: Arc<Timeline>,
    meta: Meta,
    /// Settings that changed from one start to the next.
    changes: Vec<Event>,
    span: Option<(Moment, Moment)>,
    log: Option<History>,
    faults: Faults,
    /// What is not understood of a release or an engine that is not known.
    unseen: Vec<String>,
}

/// So many other names of a server are told.
const NAMES_TOLD: usize = 5;

/// A time of the recorder as a moment.
pub(super) fn moment(unix_ms: i64) -> Moment {
    Moment(unix_ms.saturating_mul(1_000))
}

fn unix_ms(at: Moment) -> i64 {
    at.0.div_euclid(1_000)
}

impl Flight {
    /// Whether a path looks like the recorder's: a directory with `metrics.*` files or a `diagnostic.data` in it, or
    /// such a file.
    pub fn is_at(path: &Path) -> bool {
        let named = |path: &Path| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("metrics."))
        };
        if path.is_file() {
            return named(path);
        }
        let holds =
            |dir: &Path| std::fs::read_dir(dir).is_ok_and(|list| list.flatten().any(|entry| named(&entry.path())));
        path.is_dir() && (holds(path) || holds(&path.join("diagnostic.data")))
    }

    /// Opens it and reads what the server said of itself.
    ///
    /// # Errors
    /// [`ProbeError::FlightRecorder`] where nothing can be read, or where nothing of the recorder is in it. Damage is
    /// no error: what lies behind it is read (see [`warnings`](Flight::warnings)).
    pub fn open(path: &Path) -> Result<Flight, ProbeError> {
        Flight::of(Source::open(path)?)
    }

    /// Opens what holds its last so many seconds: files that end before them are not read. What the server said of itself
    /// stands at the beginning of each file.
    ///
    /// # Errors
    /// As those of [`open`](Flight::open).
    pub fn open_last(path: &Path, last_s: f64) -> Result<Flight, ProbeError> {
        // A time that is no number is none; one that is too long is all there is.
        Flight::of(Source::open(path)?.tail((last_s * 1e3).ceil() as i64))
    }

    fn of(mut source: Source) -> Result<Flight, ProbeError> {
        let (mut told, mut times, faults) = (Told::default(), Times::default(), Faults::default());
        for document in source.documents() {
            match document {
                Ok(document) => {
                    times.take(&document);
                    if let Err(damage) = told.take(&document) {
                        let (file, byte) = (document.file().display(), document.offset());
                        faults.note(format!("{file}, byte {byte}: what the server said of itself: {damage}"));
                    }
                }
                Err(FtdcError::Damaged(fault)) => faults.note_fault(&fault),
                Err(error) => return Err(error.into()),
            }
        }
        let timeline = Arc::new(times.settle(&mut source));
        timeline.misplaced().iter().for_each(|chunks| faults.note(chunks.to_string()));
        let span = span(&source, &timeline);
        let First { disks, engine } = First::of(&source, &timeline);
        let target = told.target.clone().unwrap_or_else(|| facts::target(&told.metadata, None));
        let unseen = facts::not_understood(&told.metadata, engine.as_deref()).into_iter();
        let unseen = unseen.chain(edges::oplog_left_out(&source, &timeline));
        let unseen = unseen.map(|unseen| format!("{} are not seen: {}", unseen.what, unseen.why));
        let unseen: Vec<String> = unseen.chain(several_names(&told.others, &target.name)).collect();
        unseen.iter().for_each(|told| faults::warn_once(told));
        let meta = meta(&told.metadata, target, &disks, span);
        Ok(Flight { changes: told.changes, span, source, timeline, log: None, faults, unseen, meta })
    }

    /// What a user says that volumes are rated for.
    pub fn declare(&mut self, volumes: Vec<DeclaredVolume>) {
        self.meta.declared_volumes = volumes;
    }

    /// Puts the server's log files beside it: their slow operations are then in every window and batch.
    ///
    /// # Errors
    /// [`ProbeError::Read`] and [`ProbeError::Log`], where a file cannot be read, is no log of mongod's, or tells of
    /// another time.
    pub fn add_logs(&mut self, paths: &[PathBuf]) -> Result<(), ProbeError> {
        if let Some(span) = self.span.filter(|_| !paths.is_empty()) {
            self.log = Some(History::read(paths, self.name(), span)?);
        }
        Ok(())
    }

    /// What the server said of itself and of its host.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// First and last sample; none where there is none.
    pub fn span(&self) -> Option<(Moment, Moment)> {
        self.span
    }

    /// What of it is not understood, or was damaged, as far as it was read: what was found as it was opened, and in each stretch
    /// that was read since. Each is told once, and logged once however often it is opened.
    pub fn warnings(&self) -> Vec<String> {
        self.faults.list().into_iter().chain(self.unseen.iter().cloned()).collect()
    }

    /// What of it was damaged, as far as it was read.
    pub fn damage(&self) -> Vec<String> {
        self.faults.list()
    }

    /// Which share of all that the files hold was lost to damage, about, as far as it was read: by bytes that could not be told apart,
    /// and by chunks that could not be opened.
    pub fn lost_share(&self) -> f64 {
        let (count, lost_bytes) = self.faults.lost();
        let bytes: u64 = self.source.files().iter().map(ftdc::SourceFile::bytes).sum();
        let chunks = self.timeline.times_ms().len() as u64 + count;
        (lost_bytes as f64 / bytes.max(1) as f64).max(count as f64 / chunks.max(1) as f64)
    }

    /// The readings between two moments, a batch a chunk, each in order of time. Damage is an error in its place; the
    /// batches behind it still come.
    pub fn batches<'f>(
        &'f self,
        from: Moment,
        to: Moment,
        registry: &Arc<Registry>,
    ) -> impl Iterator<Item = Result<Batch, ProbeError>> + use<'f> {
        let mut reader = self.reader(registry);
        let mut beside = Beside::new(self.log.as_ref(), self.name(), registry, from);
        let changes = self.changes_between(from, to);
        let chunks = self.chunks(&reader, from, to).map(move |chunk| {
            let chunk = chunk?;
            let taken = reader.take(&chunk);
            let span = first(&chunk).zip(last(&chunk));
            let (own, told) = span.map(|(first, last)| beside.take(first, last.min(to))).unwrap_or_default();
            let mut points: Vec<_> = taken.columns.into_iter().chain(own).flatten().collect();
            points.sort_by_key(|point| point.at);
            let events = taken.events.into_iter().chain(told).collect();
            Ok(Batch { points, events, ..Batch::default() })
        });
        let told = (!changes.is_empty()).then_some(Ok(Batch { events: changes, ..Batch::default() }));
        told.into_iter().chain(chunks)
    }

    /// Everything between two moments.
    ///
    /// # Errors
    /// Only what the system refuses; damage is left out (see [`warnings`](Flight::warnings)).
    pub fn window(&self, from: Moment, to: Moment) -> Result<Window, ProbeError> {
        // One stretch as long as all of it.
        match self.windows(from, to, f64::INFINITY).next() {
            Some(window) => window,
            None => Ok(Window::new(from, to, Arc::new(self.meta.clone()), Vec::new(), Vec::new(), Vec::new())),
        }
    }

    /// Stretches of `seconds` one after the other, those without readings left out. Memory is bounded by one stretch
    /// and one chunk.
    pub fn windows(&self, from: Moment, to: Moment, seconds: f64) -> Windows<'_> {
        let registry = Arc::new(Registry::new());
        let reader = self.reader(&registry);
        let chunks = Box::new(self.chunks(&reader, from, to));
        let beside = Beside::new(self.log.as_ref(), self.name(), &registry, from);
        let length_us = (seconds * 1e6).min(i64::MAX as f64 / 4.0).max(1e6) as i64;
        Windows {
            flight: self,
            chunks,
            reader,
            beside,
            registry,
            next: (from, Moment(from.0.saturating_add(length_us).min(to.0))),
            to,
            length_us,
            tracks: Vec::new(),
            events: Vec::new(),
            read_until: Moment(i64::MIN),
            ended: false,
        }
    }

    /// The server's name.
    fn name(&self) -> &str {
        self.meta.targets.first().map_or("mongod", |target| target.name.as_str())
    }

    /// What its chunks hold between two moments of what is read.
    fn chunks(
        &self,
        reader: &Reader,
        from: Moment,
        to: Moment,
    ) -> impl Iterator<Item = Result<ftdc::Batch, FtdcError>> + use<> {
        self.source.select_onwards(&reader.selection(), stretch(from, to), &self.timeline)
    }

    fn reader(&self, registry: &Arc<Registry>) -> Reader {
        Reader::new(self.name(), Arc::clone(registry))
    }

    fn changes_between(&self, from: Moment, to: Moment) -> Vec<Event> {
        self.changes.iter().filter(|event| from <= event.at && event.at <= to).cloned().collect()
    }
}

/// The first sample of a chunk, and the last.
fn first(chunk: &ftdc::Batch) -> Option<Moment> {
    chunk.times_ms().iter().copied().map(moment).min()
}

fn last(chunk: &ftdc::Batch) -> Option<Moment> {
    chunk.times_ms().iter().copied().map(moment).max()
}

fn stretch(from: Moment, to: Moment) -> Range<i64> {
    unix_ms(from)..unix_ms(to).saturating_add(1)
}

/// Files of several servers in one directory, or of one that got another name.
fn several_names(others: &BTreeSet<String>, name: &str) -> Option<String> {
    let others: Vec<&str> = others.iter().map(String::as_str).take(NAMES_TOLD).collect();
    (!others.is_empty()).then(|| {
        format!(
            "a part of it was written by {}: all of it is told as {name}'s (if these are several servers, give each a directory of \
             its own)",
            others.join(", ")
        )
    })
}

/// What the documents told, gathered in one pass that inflates nothing.
#[derive(Default)]
struct Told {
    metadata: Metadata,
    target: Option<Target>,
    /// Other names that it goes by later.
    others: BTreeSet<String>,
    settings: std::collections::BTreeMap<String, String>,
    changes: Vec<Event>,
}

impl Told {
    fn take(&mut self, document: &ftdc::Document) -> Result<(), Damage> {
        if document.kind() == DocumentKind::Chunk {
            return Ok(());
        }
        let first = document.kind() == DocumentKind::MetadataDelta && self.metadata.periodic().is_none();
        self.metadata.take(document)?;
        let own = facts::target(&self.metadata, None);
        let Some(known) = &self.target else {
            self.settings.clone_from(&own.settings);
            self.target = Some(own);
            return Ok(());
        };
        if self.metadata.host().is_some() && own.name != known.name {
            self.others.insert(own.name);
        }
        let target = Target { name: known.name.clone(), ..own };
        if document.kind() == DocumentKind::MetadataDelta {
            self.note_parameters(&target, first);
        }
        self.note_changes(document.at_ms(), &target);
        Ok(())
    }

    /// Parameters come behind the first samples: what they are when they are first told, they were before, however the command line spells
    /// them; but for those of which a change was seen.
    fn note_parameters(&mut self, now: &Target, first: bool) {
        for (name, value) in now.settings.iter().filter(|(name, _)| name.starts_with("setParameter.")) {
            if !first && self.settings.contains_key(name) {
                continue;
            }
            let changed = self.changes.iter().any(|event| event.fields.get("name") == Some(name));
            if let Some(target) = self.target.as_mut().filter(|_| !changed) {
                target.settings.insert(name.clone(), value.clone());
            }
            self.settings.insert(name.clone(), value.clone());
        }
    }

    /// Settings that are not what they were before the server was started anew.
    fn note_changes(&mut self, at_ms: i64, now: &Target) {
        let names: BTreeSet<&String> = self.settings.keys().chain(now.settings.keys()).collect();
        for name in names {
            let (before, after) = (self.settings.get(name), now.settings.get(name));
            if before == after {
                continue;
            }
            let text = |value: Option<&String>| value.cloned().unwrap_or_default();
            let (before, after) = (text(before), text(after));
            let fields = [("name", name.as_str()), ("before", &before), ("after", &after)];
            let message = format!("{name} is now '{after}', was '{before}'");
            self.changes.push(Event::new(moment(at_ms), &now.name, EventKind::Setting, message, &fields));
        }
        self.settings.clone_from(&now.settings);
    }
}

/// The first and the last sample, by their own times: those of their chunks are of one end or the other. Only the chunks at the ends
/// are inflated.
fn span(source: &Source, timeline: &Arc<Timeline>) -> Option<(Moment, Moment)> {
    let times = timeline.times_ms();
    let (first_ms, last_ms) = (*times.first()?, *times.last()?);
    let before_last_ms = times.iter().rev().nth(1).copied().unwrap_or(i64::MIN);
    let samples = |from_ms: i64| {
        let batches = source.select_onwards(&Selection::default(), from_ms..i64::MAX, timeline).filter_map(Result::ok);
        batches.filter_map(|batch| Some((*batch.times_ms().first()?, *batch.times_ms().last()?)))
    };
    let first = samples(i64::MIN).next().map_or(first_ms, |(first, _)| first);
    let last = samples(before_last_ms).last().map_or(last_ms, |(_, last)| last);
    Some((moment(first), moment(last)))
}

fn meta(told: &Metadata, target: Target, disks: &[String], span: Option<(Moment, Moment)>) -> Meta {
    let device = facts::data_device(told, &target, disks);
    let boot = span.map_or(Moment(0), |(first, _)| first);
    Meta {
        host: facts::host(told),
        anchors: vec![ClockAnchor { boot, unix_us: boot.0 }],
        // The host whose figures it recorded is the server's own.
        targets: vec![Target { local: true, data_device: device.as_ref().map(|device| device.dev.clone()), ..target }],
        devices: device.into_iter().collect(),
        written_by: told.version().map_or_else(|| "MongoDB".to_owned(), |version| format!("MongoDB {version}")),
        ..Meta::default()
    }
}

/// See [`Flight::windows`].
pub struct Windows<'f> {
    flight: &'f Flight,
    chunks: Box<dyn Iterator<Item = Result<ftdc::Batch, FtdcError>> + 'f>,
    reader: Reader,
    beside: Beside<'f>,
    registry: Arc<Registry>,
    /// The stretch that is gathered.
    next: (Moment, Moment),
    to: Moment,
    length_us: i64,
    /// Points by the number of their series.
    tracks: Vec<Vec<backwater_model::Point>>,
    events: Vec<Event>,
    read_until: Moment,
    ended: bool,
}

impl Windows<'_> {
    fn gather(&mut self, chunk: &ftdc::Batch) {
        let taken = self.reader.take(chunk);
        self.read_until = last(chunk).unwrap_or(self.read_until);
        let (own, told) = self.beside.take(first(chunk).unwrap_or(self.read_until), self.read_until.min(self.to));
        self.events.extend(taken.events.into_iter().chain(told));
        for column in taken.columns.into_iter().chain(own) {
            let Some(series) = column.first().map(|point| point.series.0 as usize) else { continue };
            if self.tracks.len() <= series {
                self.tracks.resize_with(series + 1, Vec::new);
            }
            self.tracks[series].extend(column);
        }
    }

    /// The stretch that is complete, if it has readings. The reading at its end begins the next one too, so that no
    /// second between two stretches is lost.
    fn cut(&mut self) -> Option<Window> {
        let (from, to) = self.next;
        self.begin_at(to);
        let mut series = Vec::new();
        for (number, points) in self.tracks.iter_mut().enumerate() {
            let end = points.partition_point(|point| point.at < to);
            let edge = points.get(end).filter(|point| point.at == to).copied();
            let rest = points.split_off(end);
            let mut own = std::mem::replace(points, rest);
            own.extend(edge);
            let named = self.registry.get(backwater_model::SeriesId(number as u32)).filter(|_| !own.is_empty());
            series.extend(named.map(|named| (named, own)));
        }
        let (past, rest): (Vec<Event>, Vec<Event>) = self.events.drain(..).partition(|event| event.at < to);
        self.events = rest;
        let flight = self.flight;
        let events = past.into_iter().chain(flight.changes_between(from, to)).collect();
        let meta = backwater_model::settings_at(&Arc::new(flight.meta.clone()), &flight.changes, from);
        if series.is_empty() {
            self.pass_over_nothing();
            return None;
        }
        Some(Window::new(from, to, meta, series, Vec::new(), events))
    }

    fn begin_at(&mut self, from: Moment) {
        self.next = (from, Moment(from.0.saturating_add(self.length_us).min(self.to.0)));
    }

    /// Goes to the stretch in which readings go on: a recorder may have stood for months.
    fn pass_over_nothing(&mut self) {
        let first = self.tracks.iter().filter_map(|points| points.first()).map(|point| point.at).min();
        let from = self.next.0;
        match first {
            Some(first) if first > from => {
                let stretches = (first.0.saturating_sub(from.0)) / self.length_us;
                let from = Moment(from.0.saturating_add(stretches.saturating_mul(self.length_us)));
                self.events.retain(|event| event.at >= from);
                self.begin_at(from);
            }
            None if self.ended => self.begin_at(self.to),
            _ => {}
        }
    }
}

impl Iterator for Windows<'_> {
    type Item = Result<Window, ProbeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (from, to) = self.next;
            if from >= self.to {
                return None;
            }
            if self.ended || self.read_until > to {
                if let Some(window) = self.cut() {
                    return Some(Ok(window));
                }
                continue;
            }
            match self.chunks.next() {
                Some(Ok(chunk)) => self.gather(&chunk),
                Some(Err(FtdcError::Damaged(fault))) => self.flight.faults.note_fault(&fault),
                Some(Err(error)) => {
                    self.next.0 = self.to;
                    return Some(Err(error.into()));
                }
                None => self.ended = true,
            }
        }
    }
}
