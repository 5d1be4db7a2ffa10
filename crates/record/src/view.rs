//! One consistent look at the files of a recording, which a writer may be changing at the same time.

use crate::RecordError;
use crate::catalogue::Catalogue;
use crate::layout::{Listing, Range, tail_name};
use crate::table::Table;
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// A writer changes the list of files every few minutes: so many looks that all meet a change do not happen.
const MOST_LOOKS: usize = 20;

/// One table's files.
pub(crate) struct TableView {
    pub(crate) table: Table,
    pub(crate) dir: PathBuf,
    pub(crate) segments: Vec<Range>,
    /// Tails with their contents.
    pub(crate) tails: Vec<(PathBuf, Bytes)>,
}

/// All files, as they were at one moment. Segments may be gone by the time they are read: see [`stable`].
pub(crate) struct View {
    pub(crate) tables: Vec<TableView>,
    pub(crate) catalogue: Catalogue,
}

impl View {
    /// Lists the files and reads the tails; none if the list changed meanwhile.
    fn look(dir: &Path) -> Result<Option<View>, RecordError> {
        let list =
            || Table::ALL.iter().map(|table| Listing::read(&dir.join(table.name()))).collect::<Result<Vec<_>, _>>();
        let before = list()?;
        let mut tables = Vec::new();
        for (table, listing) in Table::ALL.into_iter().zip(&before) {
            let dir = dir.join(table.name());
            let mut tails = Vec::new();
            for sequence in &listing.tails {
                let path = dir.join(tail_name(*sequence));
                let bytes = std::fs::read(&path).map_err(RecordError::at("read", &path))?;
                tails.push((path, bytes.into()));
            }
            tables.push(TableView { table, dir, segments: listing.segments.clone(), tails });
        }
        if list()? != before {
            return Ok(None);
        }
        // After the tails: every series is named before its points are written.
        Ok(Some(View { tables, catalogue: Catalogue::read(dir)? }))
    }
}

/// Reads from one look at the files, and anew when a file went away between: it was folded, joined or expired.
pub(crate) fn stable<T>(dir: &Path, mut read: impl FnMut(&View) -> Result<T, RecordError>) -> Result<T, RecordError> {
    let mut last = None;
    for _ in 0..MOST_LOOKS {
        let found = View::look(dir).and_then(|view| view.as_ref().map(&mut read).transpose());
        match found {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => {}
            Err(error) if error.is_not_found() => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    let why = "the files change faster than they can be read";
    Err(last.unwrap_or_else(|| RecordError::damaged(dir, why)))
}
