//! The tests of two drivers for Python, out of their source distributions, against the built ones.

use super::Suite;
use super::outcome::{Outcome, pytest};
use super::servers::Place;
use super::told::{bounded, fetching, into_file, must};
use crate::run;
use anyhow::bail;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(1200);
pub(super) const PSYCOPG2: &str = "2.9.13";
pub(super) const ASYNCPG: &str = "0.32.0";

/// An environment of its own with both drivers, and what their tests import.
pub(super) fn environment(dir: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(dir)?;
    run::say("an environment of Python with psycopg2 and asyncpg");
    let mut venv = fetching(dir, "python3");
    venv.args(["-m", "venv", "environment"]);
    must(venv)?;
    let mut install = fetching(dir, &dir.join("environment/bin/pip").to_string_lossy());
    install.args(["install", "-q", &format!("psycopg2-binary=={PSYCOPG2}"), &format!("asyncpg=={ASYNCPG}")]);
    install.args(["pytest==9.2.0", "distro==1.9.0"]);
    must(install)?;
    Ok(dir.to_owned())
}

/// A driver's tests, in a directory without its source, so that the built driver is what they import.
pub(super) struct Driver {
    name: &'static str,
    version: &'static str,
    environment: PathBuf,
    /// Made anew before each run, with these extensions.
    database: &'static str,
    extensions: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
}

pub(super) fn psycopg2(environment: &Path) -> anyhow::Result<Driver> {
    let driver = Driver {
        name: "psycopg2",
        version: PSYCOPG2,
        environment: environment.to_owned(),
        database: "psycopg2_test",
        extensions: &["hstore"],
        // Set but empty: its tests of replication run, on the same server.
        variables: &[("PSYCOPG2_TEST_REPL_DSN", "")],
    };
    driver.fetched()
}

pub(super) fn asyncpg(environment: &Path) -> anyhow::Result<Driver> {
    let driver = Driver {
        name: "asyncpg",
        version: ASYNCPG,
        environment: environment.to_owned(),
        database: "asyncpg_test",
        extensions: &[],
        variables: &[],
    };
    driver.fetched()
}

impl Driver {
    fn tests(&self) -> PathBuf {
        self.environment.join(format!("{}-tests", self.name))
    }

    fn fetched(self) -> anyhow::Result<Driver> {
        let (name, version) = (self.name, self.version);
        run::say(&format!("the tests of {name} {version}"));
        let mut download = fetching(&self.environment, "environment/bin/pip");
        download.args(["download", "-q", "--no-deps", "--no-binary", name, &format!("{name}=={version}")]);
        must(download)?;
        std::fs::create_dir_all(self.tests())?;
        let mut tar = fetching(&self.environment, "tar");
        tar.args(["-x", "--strip-components=1", "-f", &format!("{name}-{version}.tar.gz"), "-C"]).arg(self.tests());
        // Last: where it is unpacked to holds only for the names that follow.
        tar.args(["--wildcards", &format!("{name}-{version}/tests/*")]);
        must(tar)?;
        Ok(self)
    }
}

impl Suite for Driver {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> String {
        self.version.to_owned()
    }

    fn run(&self, at: &Place, output: &Path) -> anyhow::Result<Outcome> {
        at.empty_database(self.database)?;
        for extension in self.extensions {
            at.sql(self.database, &[&format!("CREATE EXTENSION {extension}")])?;
        }
        let mut command = bounded(LIMIT, &self.environment.join("environment/bin/python").to_string_lossy());
        command.args(["-m", "pytest", "-v", "-p", "no:cacheprovider", "tests"]).current_dir(self.tests());
        command.envs(at.variables()).env("PGDATABASE", self.database).envs(self.variables.iter().copied());
        let begun = Instant::now();
        // Whether all passed is told test by test.
        let _status = into_file(command, output)?;
        let tests = pytest(&std::fs::read_to_string(output)?);
        if tests.is_empty() {
            bail!("pytest ran no test; see {}", output.display());
        }
        Ok(Outcome { tests, took: begun.elapsed() })
    }
}
