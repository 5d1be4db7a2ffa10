//! The page in `web/`: that what is committed in `web/dist` is what the source builds.

use crate::{ci, run};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::DirEntry;

/// Builds the page and compares; installs what the browser's tests need. Without npm it is skipped, which is what comes back:
/// the committed page is what the program embeds, so nobody needs Node.js to build or run it.
pub(crate) fn check() -> anyhow::Result<Option<String>> {
    if !ci::on_path("npm") {
        return Ok(Some("that web/dist is what web/src builds: needs npm".to_owned()));
    }
    run::step("packages of the page", "npm", &["ci", "--prefix", "web", "--no-audit", "--no-fund"])?;
    let committed = built()?;
    run::step("the page", "npm", &["run", "--prefix", "web", "build"])?;
    if built()? != committed {
        bail!("web/dist was not what web/src builds: commit what `npm run build` has just made");
    }
    Ok(None)
}

/// What lies in web/dist, by name.
fn built() -> anyhow::Result<BTreeMap<OsString, Vec<u8>>> {
    let dir = run::workspace()?.join("web/dist");
    let read = |entry: std::io::Result<DirEntry>| {
        entry.and_then(|entry| Ok((entry.file_name(), std::fs::read(entry.path())?)))
    };
    std::fs::read_dir(&dir)
        .and_then(|entries| entries.map(read).collect())
        .with_context(|| format!("cannot read {}", dir.display()))
}
