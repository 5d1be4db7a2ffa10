//! The console by drivers as people use them: each says the article's statements as they stand, changes a pool within a
//! transaction, is refused, and must read back the same.

use super::servers::CONSOLE_PASSWORD;
use super::told::{bounded, fetching, must};
use super::{pgx, python};
use crate::run;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const NODE_POSTGRES: &str = "8.16.3";
const PGJDBC: &str = "42.7.7";

const STATEMENTS: [&str; 4] = [
    "CREATE EXCEPT RULE bandwidth_rule1 WITH (bandwidth=128, ELAPSEDTIME=60, action='penalty')",
    "CREATE RESOURCE POOL rp1 WITH (EXCEPT_RULE='bandwidth_rule1')",
    "CREATE USER user1 RESOURCE POOL 'rp1' PASSWORD 'xxxxxxxx'",
    "SET low_priority_bandwidth = 256",
];
/// What is made is gone before the next driver comes.
const AFTERWARDS: [&str; 3] = ["DROP USER user1", "DROP RESOURCE POOL rp1", "DROP EXCEPT RULE bandwidth_rule1"];
/// The rule and how often it acted, the user, why a pool that is not there cannot be dropped, and what the transaction set.
const WANTED: &str = "bandwidth_rule1 penalty 0\nuser1 rp1\n42704\n3";

/// A driver that was fetched, with what starts its visit.
pub(super) struct Visitor {
    name: &'static str,
    version: String,
    dir: PathBuf,
    command: Vec<String>,
}

/// What a driver's visit came to.
pub(super) struct Visit {
    pub(super) driver: &'static str,
    pub(super) version: String,
    /// What it said instead of what it should.
    pub(super) unlike: Option<String>,
}

/// Fetches node-postgres and pgjdbc, which no suite brings, and lays every program where its driver is found.
pub(super) fn fetched(room: &Path, python: &Path, pgx: &Path) -> anyhow::Result<Vec<Visitor>> {
    let dir = room.join("console");
    std::fs::create_dir_all(dir.join("go"))?;
    for (name, text) in [
        ("visit.py", include_str!("visit.py")),
        ("visit.js", include_str!("visit.js")),
        ("Visit.java", include_str!("Visit.java")),
    ] {
        std::fs::write(dir.join(name), text)?;
    }
    run::say(&format!("node-postgres {NODE_POSTGRES} and pgjdbc {PGJDBC}"));
    let mut npm = fetching(&dir, "npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", &format!("pg@{NODE_POSTGRES}")]);
    must(npm)?;
    let mut maven = fetching(&dir, "mvn");
    maven.args(["-q", "-B", "dependency:copy", "-DoutputDirectory=.", "-Dmdep.stripVersion=true"]);
    maven.arg(format!("-Dartifact=org.postgresql:postgresql:{PGJDBC}"));
    must(maven)?;
    // A program of the module that is there: nothing else is fetched for it.
    std::fs::create_dir_all(pgx.join("visit"))?;
    std::fs::write(pgx.join("visit/main.go"), include_str!("visit.go"))?;
    let interpreter = python.join("environment/bin/python").display().to_string();
    let visitor = |name, version: &str, dir: &Path, command: &[&str]| Visitor {
        name,
        version: version.to_owned(),
        dir: dir.to_owned(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
    };
    Ok(vec![
        visitor("psycopg2", python::PSYCOPG2, &dir, &[&interpreter, "visit.py", "psycopg2"]),
        visitor("asyncpg", python::ASYNCPG, &dir, &[&interpreter, "visit.py", "asyncpg"]),
        visitor("node-postgres", NODE_POSTGRES, &dir, &["node", "visit.js"]),
        visitor("pgx", pgx::VERSION, pgx, &["go", "run", "./visit"]),
        visitor("pgjdbc", PGJDBC, &dir, &["java", "-cp", "postgresql.jar", "Visit.java"]),
    ])
}

impl Visitor {
    /// Lets it visit the console that listens at this port, and clears up behind it.
    pub(super) fn visit(&self, port: u16) -> anyhow::Result<Visit> {
        run::say(&format!("the console by {}", self.name));
        let mut command = bounded(LIMIT, &self.command[0]);
        command.args(&self.command[1..]).current_dir(&self.dir).env("STATEMENTS", STATEMENTS.join("\n"));
        command.env("PORT", port.to_string()).env("PASSWORD", CONSOLE_PASSWORD);
        let mut unlike = unlike(command)?;
        for statement in AFTERWARDS {
            // Where something was not made it cannot be dropped: that was told by what the driver said.
            if let Err(error) = said(port, statement) {
                unlike.get_or_insert_with(|| format!("what it made is not there: {error:#}"));
            }
        }
        Ok(Visit { driver: self.name, version: self.version.clone(), unlike })
    }
}

/// Says a statement on the console.
fn said(port: u16, statement: &str) -> anyhow::Result<String> {
    let mut psql = bounded(LIMIT, "psql");
    psql.args(["-X", "-q", "-h", "127.0.0.1", "-U", "dba", "-d", "backwater", "-c", statement]);
    psql.args(["-p", &port.to_string()]).env("PGPASSWORD", CONSOLE_PASSWORD);
    must(psql)
}

/// What it says, where that is something else than what is wanted.
fn unlike(mut command: Command) -> anyhow::Result<Option<String>> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let complained = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let is_wanted = output.status.success() && said == WANTED;
    Ok((!is_wanted).then(|| format!("{said} {complained}").trim().replace('\n', ", ")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{WANTED, unlike};
    use std::process::Command;

    #[test]
    fn a_driver_must_read_back_what_was_said_and_end_well() {
        let says = |text: &str, ends: &str| {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("printf '%s\\n' \"$SAID\"; echo oh >&2; {ends}")).env("SAID", text);
            unlike(shell).unwrap()
        };
        assert_eq!(says(WANTED, "exit 0"), None);
        assert!(says(WANTED, "exit 1").unwrap().ends_with("3 oh"));
        assert_eq!(says("a\nb", "exit 0").unwrap(), "a, b oh");
    }
}
