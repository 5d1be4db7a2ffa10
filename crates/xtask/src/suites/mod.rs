//! Other people's test suites, direct, through `backwater proxy`, through one that holds sessions, and through one that ends encryption
//! on both sides: PostgreSQL's own regression tests and the tests that drivers carry. What passes direct and fails through a proxy is a defect of the
//! proxy. And drivers at its console.
//!
//! Everything is started here, on loopback, in one temporary directory, and ended; what the suites printed stays in
//! target/nightly/suites.

mod console;
mod kept;
mod outcome;
mod pgx;
mod python;
mod regress;
mod servers;
mod told;

use crate::run;
use anyhow::{Context, bail};
use console::Visitor;
use kept::{Compared, Pair};
use outcome::Outcome;
use servers::{ENDED, HELD, Place, Servers, THROUGH};
use std::path::{Path, PathBuf};

/// Tests that a relay may fail though it loses nothing.
struct Reason {
    suite: &'static str,
    /// By which proxies.
    ways: &'static [&'static str],
    tests: &'static [&'static str],
    why: &'static str,
}

const REASONS: &[Reason] = &[
    Reason {
        suite: "asyncpg",
        ways: &[THROUGH, HELD, ENDED],
        tests: &["test_execute.py::TestExecuteMany::test_executemany_server_failure_during_writes"],
        why: "wants the server's error to arrive while 4 MB are written, without waiting for it: a matter of time, which fails \
              direct too on a busy machine; a relay has two socket buffers of the kernel more, and one of 20 lines that only \
              copies bytes fails it now and then",
    },
    Reason {
        suite: "pgx",
        ways: &[ENDED],
        tests: &["pgconn/TestConnectTLS", "pgconn/TestConnectTLS/WithChannelBinding"],
        why: "binds its login to the channel with the server, and that ends at the proxy",
    },
    Reason {
        suite: "pgx",
        ways: &[ENDED],
        tests: &[
            "pgconn/TestConnectTLSPasswordProtectedClientCertWithGetSSLPasswordConfigOption",
            "pgconn/TestConnectTLSPasswordProtectedClientCertWithSSLPassword",
        ],
        why: "logs in by a certificate of its own, which the server does not see where the proxy ends encryption",
    },
];

/// A suite that was fetched and can be run anywhere.
trait Suite {
    fn name(&self) -> &'static str;
    /// Of what is run.
    fn version(&self) -> String;
    /// Runs all of it against a server that is reached at this place, with its output in this file.
    fn run(&self, at: &Place, output: &Path) -> anyhow::Result<Outcome>;
}

type Suites = Vec<Box<dyn Suite>>;

/// Runs all suites and keeps the result. An error where a test passes direct and fails through the proxy.
pub(crate) fn all() -> anyhow::Result<()> {
    let workspace = run::workspace()?;
    let printed = workspace.join("target/nightly/suites");
    if printed.exists() {
        std::fs::remove_dir_all(&printed).with_context(|| format!("cannot remove {}", printed.display()))?;
    }
    std::fs::create_dir_all(&printed).with_context(|| format!("cannot make {}", printed.display()))?;
    let room = Room::make()?;
    let (suites, visitors) = fetched(&room.0)?;
    run::step("the program itself", "cargo", &["build", "-p", "backwater"])?;
    let servers = Servers::start(&room.0, &workspace.join("target/debug/backwater"))?;
    let mut compared = Vec::new();
    for suite in &suites {
        compared.extend(compare(suite.as_ref(), &servers, &printed)?);
    }
    let visits =
        visitors.iter().map(|visitor| visitor.visit(servers.console_port)).collect::<anyhow::Result<Vec<_>>>()?;
    let version = servers.version()?;
    servers.end(&printed)?;
    kept::write(&workspace, &version, &compared, &visits)?;
    let mut unlike: Vec<_> = compared.iter().flat_map(Compared::defects).collect();
    unlike
        .extend(visits.iter().filter(|visit| visit.unlike.is_some()).map(|visit| format!("console: {}", visit.driver)));
    if !unlike.is_empty() {
        bail!("not what they are without the proxy: {}; see docs/nightly/suites.md", unlike.join(", "));
    }
    Ok(())
}

fn fetched(room: &Path) -> anyhow::Result<(Suites, Vec<Visitor>)> {
    let python = python::environment(&room.join("python"))?;
    let pgx = pgx::fetch(&room.join("pgx"))?;
    pgx.certificates(&room.join("certificates"))?;
    let visitors = console::fetched(room, &python, &pgx.source)?;
    let suites: Suites = vec![
        Box::new(regress::fetch(&room.join("regress"))?),
        Box::new(pgx),
        Box::new(python::psycopg2(&python)?),
        Box::new(python::asyncpg(&python)?),
    ];
    Ok((suites, visitors))
}

/// One suite direct and through each proxy, encrypted where it is there; and both ways again where they differ, since a test that depends on time may fail
/// either way.
fn compare(suite: &dyn Suite, servers: &Servers, printed: &Path) -> anyhow::Result<Vec<Compared>> {
    let run = |way: &str, at: &Place, file: &str| -> anyhow::Result<Outcome> {
        run::say(&format!("{}, {way}", suite.name()));
        suite.run(at, &printed.join(format!("{}-{file}.txt", suite.name())))
    };
    let mut compared = Vec::new();
    for ((direct_is, direct_at), ways) in servers.ways() {
        let direct = run(direct_is, direct_at, direct_is)?;
        if direct.passed() == 0 {
            bail!("{}: no test passed {direct_is}; see {}", suite.name(), printed.display());
        }
        for (way, at) in ways {
            let first = Pair { direct: direct.clone(), through: run(way, at, way)? };
            let again = || -> anyhow::Result<Pair> {
                let direct = run(&format!("{direct_is} again"), direct_at, &format!("{direct_is}-beside-{way}"))?;
                Ok(Pair { direct, through: run(&format!("{way} again"), at, &format!("{way}-again"))? })
            };
            let second = if first.differences().is_empty() { None } else { Some(again()?) };
            compared.push(Compared { name: suite.name(), way, version: suite.version(), first, second });
        }
    }
    Ok(compared)
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
