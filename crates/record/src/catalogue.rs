//! `series.jsonl`: the number, name and labels of every series, one JSON object a line, in order of first use. A line is
//! written before the first point that refers to it; a last line without its end was being written when the recorder died.

use crate::RecordError;
use crate::append::AppendFile;
use crate::layout::SERIES;
use backwater_model::{Registry, Series, SeriesId};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// The most series that a recording names.
const MOST_NAMED: usize = 64 * Registry::LIMIT;
/// Series that a writer knows before it looks which of them are needed no more.
const MOST_KEPT: usize = 2 * Registry::LIMIT;

#[derive(Serialize, Deserialize)]
struct Line<S> {
    id: u32,
    series: S,
}

/// The series of a recording as read.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    /// By number; none where a line was lost.
    pub(crate) series: Vec<Option<Arc<Series>>>,
    /// Length of the part that is complete, in bytes.
    pub(crate) complete_bytes: u64,
    /// What could not be read.
    pub(crate) warnings: Vec<String>,
}

impl Catalogue {
    /// Reads the catalogue; none is an empty one.
    pub(crate) fn read(dir: &Path) -> Result<Catalogue, RecordError> {
        let path = dir.join(SERIES);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Catalogue::default()),
            text => text.map_err(RecordError::at("read", &path))?,
        };
        let mut catalogue = Catalogue::default();
        for (place, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let warning = |what: &str| format!("{}, line {}: {what}", path.display(), place + 1);
            if !line.ends_with(b"\n") {
                catalogue.warnings.push(warning("cut short when the recorder ended; ignored"));
                break;
            }
            catalogue.complete_bytes += line.len() as u64;
            match serde_json::from_slice::<Line<Series>>(line) {
                Ok(line) if (line.id as usize) < MOST_NAMED => catalogue.put(line),
                _ => catalogue.warnings.push(warning("not a series; its points are left out")),
            }
        }
        Ok(catalogue)
    }

    /// The series of this number, where it is known.
    pub(crate) fn named(&self, id: u32) -> Option<&Arc<Series>> {
        self.series.get(id as usize)?.as_ref()
    }

    fn put(&mut self, line: Line<Series>) {
        let place = line.id as usize;
        if self.series.len() <= place {
            self.series.resize(place + 1, None);
        }
        self.series[place] = Some(Arc::new(line.series));
    }
}

/// Writes the catalogue and knows its numbers.
#[derive(Debug)]
pub(crate) struct CatalogueWriter {
    file: AppendFile,
    ids: HashMap<Arc<Series>, u32>,
    next_id: u32,
    /// From the numbers of the run's registry to the recording's own.
    remap: HashMap<SeriesId, u32>,
    unwritten: Vec<u8>,
    /// Whether it was said that it is full.
    full: bool,
}

impl CatalogueWriter {
    /// Continues the catalogue in `dir` or begins one. `first_free` is a number that no point on disk has.
    pub(crate) fn open(dir: &Path, first_free: u32, durable: bool) -> Result<Self, RecordError> {
        let known = Catalogue::read(dir)?;
        for warning in &known.warnings {
            tracing::warn!("{warning}");
        }
        let next_id = first_free.max(known.series.len() as u32);
        let numbered = known.series.into_iter().enumerate();
        let ids = numbered.filter_map(|(id, series)| Some((series?, id as u32))).collect();
        let file = AppendFile::open(&dir.join(SERIES), known.complete_bytes, durable)?;
        Ok(CatalogueWriter { file, ids, next_id, remap: HashMap::new(), unwritten: Vec::new(), full: false })
    }

    /// The recording's number for a series of the run; none if the registry does not know it.
    pub(crate) fn id_of(&mut self, id: SeriesId, registry: &Registry) -> Option<u32> {
        if let Some(known) = self.remap.get(&id) {
            return Some(*known);
        }
        if self.remap.len().max(self.ids.len()) >= MOST_KEPT {
            self.let_go(registry);
        }
        let series = registry.get(id)?;
        let own = match self.ids.get(&series) {
            Some(own) => *own,
            None => self.add(series)?,
        };
        self.remap.insert(id, own);
        Some(own)
    }

    /// Forgets what the registry has let go: of a server whose clients come and go that is in time most of it. One that
    /// comes back gets another line.
    fn let_go(&mut self, registry: &Registry) {
        self.remap.retain(|id, _| registry.get(*id).is_some());
        let kept: HashSet<u32> = self.remap.values().copied().collect();
        self.ids.retain(|_, own| kept.contains(own));
    }

    fn add(&mut self, series: Arc<Series>) -> Option<u32> {
        let id = self.next_id;
        if id as usize >= MOST_NAMED {
            if !std::mem::replace(&mut self.full, true) {
                tracing::warn!("the recording names {MOST_NAMED} series, and takes no new ones; begin another one");
            }
            return None;
        }
        serde_json::to_writer(&mut self.unwritten, &Line { id, series: &*series }).ok()?;
        self.unwritten.push(b'\n');
        self.ids.insert(series, id);
        self.next_id += 1;
        Some(id)
    }

    /// Writes the series that are new.
    pub(crate) fn flush(&mut self) -> Result<(), RecordError> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        self.file.append(&self.unwritten)?;
        self.unwritten.clear();
        Ok(())
    }

    /// Size of the file in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::catalogue::{DISK_BUSY_MS, PG_WAL_INSERT, TCP_ACKED};

    #[test]
    fn a_catalogue_cut_anywhere_keeps_its_whole_lines_and_can_be_continued() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new();
        let busy = registry.intern(DISK_BUSY_MS.series(&[("dev", "7:0")])).unwrap();
        let insert = registry.intern(PG_WAL_INSERT.series(&[("target", "a=b,\n")])).unwrap();
        let mut writer = CatalogueWriter::open(dir.path(), 0, false).unwrap();
        assert_eq!((writer.id_of(insert, &registry), writer.id_of(busy, &registry)), (Some(0), Some(1)));
        writer.flush().unwrap();
        drop(writer);
        let path = dir.path().join(SERIES);
        let text = std::fs::read(&path).unwrap();
        for cut in 0..=text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            let whole = text[..cut].iter().filter(|byte| **byte == b'\n').count();
            let read = Catalogue::read(dir.path()).unwrap();
            assert_eq!(read.series.len(), whole);
            assert_eq!(read.warnings.is_empty(), cut == 0 || text[cut - 1] == b'\n');
            let mut writer = CatalogueWriter::open(dir.path(), 0, false).unwrap();
            assert_eq!((writer.id_of(insert, &registry), writer.id_of(busy, &registry)), (Some(0), Some(1)));
            writer.flush().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_writer_of_endless_connections_lets_go_of_what_the_registry_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new();
        let mut writer = CatalogueWriter::open(dir.path(), 0, false).unwrap();
        let stays = registry.intern(DISK_BUSY_MS.series(&[("dev", "7:0")])).unwrap();
        let own = writer.id_of(stays, &registry);
        let connection = |pid: usize| registry.intern(TCP_ACKED.series(&[("pid", pid)])).unwrap();
        for pid in 0..MOST_KEPT + 9 {
            let id = connection(pid);
            assert!(writer.id_of(id, &registry).is_some());
            registry.gone([id]);
        }
        assert!(writer.remap.len() <= MOST_KEPT && writer.ids.len() == writer.remap.len());
        assert_eq!(writer.id_of(stays, &registry), own);
        let again = writer.id_of(connection(0), &registry);
        writer.flush().unwrap();
        let read = Catalogue::read(dir.path()).unwrap();
        assert_eq!((read.series.len(), read.warnings.len()), (MOST_KEPT + 11, 0));
        assert_eq!(read.series[again.unwrap() as usize], read.series[1], "that which came back has two numbers");
    }
}
