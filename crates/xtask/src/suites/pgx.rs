//! The tests of pgx, a driver for Go: its module carries them.

use super::Suite;
use super::outcome::{Outcome, go};
use super::servers::Place;
use super::told::{bounded, copy, fetching, into_file, must};
use crate::run;
use anyhow::{Context, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) const VERSION: &str = "v5.12.0";
const LIMIT: Duration = Duration::from_secs(1800);
const DATABASE: &str = "pgx_test";

pub(super) struct Pgx {
    pub(super) source: PathBuf,
}

/// Fetches the module and builds its tests, so that building is no part of a run.
pub(super) fn fetch(source: &Path) -> anyhow::Result<Pgx> {
    let room = source.parent().context("a room")?;
    run::say(&format!("pgx {VERSION}"));
    let mut download = fetching(room, "go");
    download.args(["mod", "download", "-json", &format!("github.com/jackc/pgx/v5@{VERSION}")]);
    let told: Value = serde_json::from_str(&must(download)?)?;
    let module = told["Dir"].as_str().context("go mod download names no directory")?;
    copy(Path::new(module), source)?;
    let mut build = fetching(source, "go");
    build.args(["test", "-count=1", "-run", "^$", "./..."]);
    must(build)?;
    Ok(Pgx { source: source.to_owned() })
}

impl Pgx {
    /// Makes the certificates that its tests and the server need, with its own program.
    pub(super) fn certificates(&self, into: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(into)?;
        let mut make = fetching(&self.source, "go");
        make.args(["build", "-o"]).arg(into.join("generate")).arg("testsetup/generate_certs.go");
        must(make)?;
        must(fetching(into, &into.join("generate").to_string_lossy())).map(|_| ())
    }
}

/// What its tests read: every way to log in.
fn variables(at: &Place) -> [(&'static str, String); 10] {
    let of = |rest: &str| format!("port={} dbname={DATABASE} {rest}", at.port);
    // Not by the environment, which some of its tests look at.
    let here = |rest: &str| of(&format!("host=127.0.0.1 sslmode={} password=secret user={rest}", at.sslmode));
    let file = |name: &str| at.certificates.join(name).display().to_string();
    let verified =
        |rest: &str| of(&format!("host=localhost sslmode=verify-full sslrootcert={} {rest}", file("ca.pem")));
    let certificate =
        format!("user=pgx_sslcert sslcert={} sslkey={}", file("pgx_sslcert.crt"), file("pgx_sslcert.key"));
    [
        ("PGX_TEST_DATABASE", here("pgx_md5")),
        ("PGX_TEST_TCP_CONN_STRING", here("pgx_md5")),
        ("PGX_TEST_MD5_PASSWORD_CONN_STRING", here("pgx_md5")),
        ("PGX_TEST_PLAIN_PASSWORD_CONN_STRING", here("pgx_pw")),
        ("PGX_TEST_SCRAM_PASSWORD_CONN_STRING", here("pgx_scram channel_binding=disable")),
        ("PGX_TEST_UNIX_SOCKET_CONN_STRING", of(&format!("host={} user=postgres", at.socket_dir.display()))),
        ("PGX_TEST_TLS_CONN_STRING", verified("user=pgx_ssl password=secret channel_binding=disable")),
        ("PGX_TEST_SCRAM_PLUS_CONN_STRING", verified("user=pgx_ssl password=secret channel_binding=require")),
        ("PGX_TEST_TLS_CLIENT_CONN_STRING", verified(&certificate)),
        // Of the client's key, which its program encrypts.
        ("PGX_SSL_PASSWORD", "certpw".to_owned()),
    ]
}

impl Suite for Pgx {
    fn name(&self) -> &'static str {
        "pgx"
    }

    fn version(&self) -> String {
        VERSION.to_owned()
    }

    fn run(&self, at: &Place, output: &Path) -> anyhow::Result<Outcome> {
        at.empty_database(DATABASE)?;
        let mut setup = bounded(LIMIT, "psql");
        // Its users are there already from the second time on, which is no harm.
        setup.args(["-X", "-q", "-d", DATABASE, "-f", "testsetup/postgresql_setup.sql"]);
        setup.envs(at.variables()).current_dir(&self.source);
        must(setup)?;
        let mut command = bounded(LIMIT, "go");
        // One package after the other: they share the database.
        command.args(["test", "-p", "1", "-count=1", "-timeout=25m", "-json", "./..."]).current_dir(&self.source);
        command.envs(variables(at));
        let begun = Instant::now();
        // Whether all passed is told test by test.
        let _status = into_file(command, output)?;
        let tests = go(&std::fs::read_to_string(output)?);
        if tests.is_empty() {
            bail!("go test ran no test; see {}", output.display());
        }
        Ok(Outcome { tests, took: begun.elapsed() })
    }
}
