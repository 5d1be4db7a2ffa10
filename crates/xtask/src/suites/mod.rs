//! Other people's test suites, once direct and once through `backwater proxy`: PostgreSQL's own regression tests and the
//! tests that drivers carry. What passes direct and fails through the proxy is a defect of the proxy.
//!
//! Everything is started here, on loopback, in one temporary directory, and ended; what the suites printed stays in
//! target/nightly/suites.

mod kept;
mod outcome;
mod pgx;
mod python;
mod regress;
mod servers;
mod told;

use crate::run;
use anyhow::{Context, bail};
use kept::{Compared, Pair};
use outcome::Outcome;
use servers::{Place, Servers};
use std::path::{Path, PathBuf};

/// Tests that a relay may fail though it loses nothing: suite, test, reason.
const REASONS: &[(&str, &str, &str)] = &[(
    "asyncpg",
    "test_execute.py::TestExecuteMany::test_executemany_server_failure_during_writes",
    "wants the server's error to arrive while 4 MB are written, without waiting for it: a matter of time, which fails \
     direct too on a busy machine; a relay has two socket buffers of the kernel more, and one of 20 lines that only \
     copies bytes fails it now and then",
)];

/// A suite that was fetched and can be run anywhere.
trait Suite {
    fn name(&self) -> &'static str;
    /// Of what is run.
    fn version(&self) -> String;
    /// Runs all of it against a server that is reached at this place, with its output in this file.
    fn run(&self, at: &Place, output: &Path) -> anyhow::Result<Outcome>;
}

/// Runs all suites and keeps the result. An error where a test passes direct and fails through the proxy.
pub(crate) fn all() -> anyhow::Result<()> {
    let workspace = run::workspace()?;
    let printed = workspace.join("target/nightly/suites");
    if printed.exists() {
        std::fs::remove_dir_all(&printed).with_context(|| format!("cannot remove {}", printed.display()))?;
    }
    std::fs::create_dir_all(&printed).with_context(|| format!("cannot make {}", printed.display()))?;
    let room = Room::make()?;
    let suites = fetched(&room.0)?;
    run::step("the program itself", "cargo", &["build", "-p", "backwater"])?;
    let servers = Servers::start(&room.0, &workspace.join("target/debug/backwater"))?;
    let mut compared = Vec::new();
    for suite in &suites {
        compared.push(compare(suite.as_ref(), &servers, &printed)?);
    }
    let version = servers.version()?;
    servers.end(&printed)?;
    kept::write(&workspace, &version, &compared)?;
    let unlike: Vec<_> = compared.iter().flat_map(Compared::defects).collect();
    if !unlike.is_empty() {
        bail!("pass direct and fail through the proxy: {}; see docs/nightly/suites.md", unlike.join(", "));
    }
    Ok(())
}

fn fetched(room: &Path) -> anyhow::Result<Vec<Box<dyn Suite>>> {
    let python = python::environment(&room.join("python"))?;
    let pgx = pgx::fetch(&room.join("pgx"))?;
    pgx.certificates(&room.join("certificates"))?;
    Ok(vec![
        Box::new(regress::fetch(&room.join("regress"))?),
        Box::new(pgx),
        Box::new(python::psycopg2(&python)?),
        Box::new(python::asyncpg(&python)?),
    ])
}

/// One suite both ways; and both ways again where they differ, since a test that depends on time may fail either way.
fn compare(suite: &dyn Suite, servers: &Servers, printed: &Path) -> anyhow::Result<Compared> {
    let pair = |turn: u32| -> anyhow::Result<Pair> {
        let file = |way: &str| printed.join(format!("{}-{way}-{turn}.txt", suite.name()));
        run::say(&format!("{}, direct", suite.name()));
        let direct = suite.run(&servers.direct, &file("direct"))?;
        run::say(&format!("{}, through the proxy", suite.name()));
        Ok(Pair { direct, through: suite.run(&servers.through, &file("through"))? })
    };
    let first = pair(1)?;
    if first.direct.passed() == 0 {
        bail!("{}: no test passed direct; see {}", suite.name(), printed.display());
    }
    let second = if first.differences().is_empty() { None } else { Some(pair(2)?) };
    Ok(Compared { name: suite.name(), version: suite.version(), first, second })
}

/// A temporary directory that everybody may enter, since the server runs as a user of its own; removed in the end.
struct Room(PathBuf);

impl Room {
    fn make() -> anyhow::Result<Room> {
        // Short: the path of a Unix socket has 107 bytes.
        let path = std::env::temp_dir().join(format!("backwater-suites-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Room(path))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // What cannot be removed lies in the system's directory for such things.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}
