//! Where a benchmark works: its journal and directory, the server's programs, and the program that it measures.

use crate::Result;
use backwater_lab::servers::{self, Installed};
use backwater_undo::{Change, Journal};
use std::path::{Path, PathBuf};

/// Puts back what a killed run left, and makes a directory that the server's ordinary user can enter.
pub(crate) fn enter(state_dir: &Path, run: &str) -> Result<(Journal, PathBuf)> {
    backwater_undo::recover(state_dir)?;
    let journal = Journal::begin(state_dir, run)?;
    let temporary = Path::new("/var/tmp");
    let parent = if temporary.is_dir() { temporary.to_path_buf() } else { std::env::temp_dir() };
    let work = parent.join(format!("backwater-{}", journal.run()));
    journal.note(Change::Directory { path: work.clone() })?;
    std::fs::create_dir_all(&work)?;
    Ok((journal, work))
}

pub(crate) fn installed() -> Result<Installed> {
    match servers::find(None).into_iter().next() {
        Some(found) => Ok(found),
        None => Ok(servers::download(servers::DEFAULT_MAJOR, &servers::cache_dir(), &|_| true)?),
    }
}

/// `target/dist` (or another profile's), where this example lies in `examples` and the program beside it.
pub(crate) fn built_dir() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.ancestors().nth(2).ok_or("this example does not lie in target/PROFILE/examples")?.to_path_buf())
}
