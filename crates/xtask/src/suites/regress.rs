//! PostgreSQL's own regression tests, out of the source package of the server that is installed.

use super::Suite;
use super::outcome::{Outcome, pg_regress};
use super::servers::{Place, as_ordinary_user, hand_over};
use super::told::{bounded, fetching, into_file, must};
use crate::run;
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(1200);
pub(super) struct Regress {
    version: String,
    /// Tests and what they should print, as the source has them.
    tests: PathBuf,
    /// Functions that the tests load into the server.
    libraries: PathBuf,
}

/// Fetches the tests that belong to the installed server, and compiles the functions that they load.
pub(super) fn fetch(dir: &Path) -> anyhow::Result<Regress> {
    std::fs::create_dir_all(dir.join("lists/partial"))?;
    let server = installed()?;
    run::say(&format!("sources of {}", server.join(" ")));
    let [package, version] = &server;
    let mut sources = String::new();
    for kind in ["deb", "deb-src"] {
        let repository = format!("{kind} $(REPO_URI) $(RELEASE) $(COMPONENT)");
        sources += &run::output("apt-get", &["indextargets", "--format", &repository, "Created-By: Packages"], &[])?;
    }
    std::fs::write(dir.join("sources.list"), sources)?;
    must(apt(dir, &["update"]))?;
    must(apt(dir, &["source", "--download-only", &format!("{package}={version}")]))
        .context("the repositories have no source of the installed server: bring it up to date")?;
    let development = package.replace("postgresql-", "postgresql-server-dev-");
    must(apt(dir, &["download", &format!("{development}={version}")]))?;
    unpack(dir)?;
    let tests = dir.join("source/src/test/regress");
    let libraries = dir.join("libraries");
    compile(dir, &tests.join("regress.c"), &libraries)?;
    Ok(Regress { version: version.clone(), tests, libraries })
}

/// The source package of the server whose programs are taken, and its version.
fn installed() -> anyhow::Result<[String; 2]> {
    let bin = run::output("pg_config", &["--bindir"], &[])?;
    let postgres = format!("{}/postgres", bin.trim());
    let owner = run::output("dpkg-query", &["-S", &postgres], &[])?;
    let owner = owner.split(':').next().unwrap_or_default();
    let text = run::output("dpkg-query", &["-W", "-f", "${source:Package} ${source:Version}", owner], &[])?;
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    words.try_into().map_err(|_| anyhow::anyhow!("{postgres} belongs to no package that has a source: {text}"))
}

/// apt-get with the host's repositories in lists of its own: the host's may have no sources, and stay as they are.
fn apt(dir: &Path, arguments: &[&str]) -> Command {
    let here = dir.display();
    let mut command = fetching(dir, "apt-get");
    command.arg("-qq");
    for option in [
        format!("Dir::Etc::sourcelist={here}/sources.list"),
        "Dir::Etc::sourceparts=-".to_owned(),
        format!("Dir::State::Lists={here}/lists"),
        "Dir::Cache::pkgcache=".to_owned(),
        "Dir::Cache::srcpkgcache=".to_owned(),
        // The user of apt's downloads cannot write here.
        "APT::Sandbox::User=root".to_owned(),
    ] {
        command.arg("-o").arg(option);
    }
    command.args(arguments);
    command
}

/// Takes the regression tests out of the source, and the headers out of their package.
fn unpack(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir.join("source"))?;
    let mut tests = fetching(dir, "tar");
    tests.args(["-x", "-C", "source", "--strip-components=1", "--wildcards", "*/src/test/regress/*", "-f"]);
    tests.arg(downloaded(dir, ".orig.tar.")?);
    must(tests)?;
    let mut headers = fetching(dir, "dpkg-deb");
    headers.arg("-x").arg(downloaded(dir, "server-dev")?).arg("headers");
    must(headers).map(|_| ())
}

/// The file with this in its name; a signature is none.
fn downloaded(dir: &Path, part: &str) -> anyhow::Result<PathBuf> {
    let mut files = std::fs::read_dir(dir)?.flatten().map(|entry| entry.path());
    let found = files.find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains(part) && !name.ends_with(".asc")
    });
    found.with_context(|| format!("nothing was downloaded with {part} in its name"))
}

/// The tests' own functions, and beside them those of the server's that the tests look for in the same place.
fn compile(dir: &Path, source: &Path, libraries: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(libraries)?;
    let installed = run::output("pg_config", &["--includedir-server"], &[])?;
    let include = dir.join("headers").join(installed.trim().trim_start_matches('/'));
    let mut cc = fetching(dir, "cc");
    cc.args(["-shared", "-fPIC", "-O2", "-fwrapv", "-I"]).arg(include).arg(source);
    cc.arg("-o").arg(libraries.join("regress.so"));
    must(cc)?;
    let shipped = PathBuf::from(run::output("pg_config", &["--pkglibdir"], &[])?.trim());
    for name in ["refint.so", "autoinc.so"] {
        let from = shipped.join(name);
        std::fs::copy(&from, libraries.join(name)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

impl Suite for Regress {
    fn name(&self) -> &'static str {
        "postgresql"
    }

    fn version(&self) -> String {
        self.version.clone()
    }

    fn run(&self, at: &Place, output: &Path) -> anyhow::Result<Outcome> {
        let results = self.libraries.with_file_name(format!("results-{}", at.port));
        std::fs::create_dir_all(&results)?;
        hand_over(&results)?;
        let library = run::output("pg_config", &["--pkglibdir"], &[])?;
        let program = format!("{}/pgxs/src/test/regress/pg_regress", library.trim());
        let mut command = bounded(LIMIT, &program);
        command.args(["--host=127.0.0.1", "--user=postgres", "--no-locale", "--encoding=UTF8"]).envs(at.variables());
        command.arg(format!("--port={}", at.port)).arg("--bindir").arg(&at.bin).arg("--dlpath").arg(&self.libraries);
        command.arg("--inputdir").arg(&self.tests).arg("--outputdir").arg(&results);
        command.arg("--schedule").arg(self.tests.join("parallel_schedule")).current_dir(&results);
        // Where that user would keep certificates is not ours.
        command.env("HOME", &results);
        as_ordinary_user(&mut command)?;
        let begun = Instant::now();
        // Whether all passed is told test by test.
        let _status = into_file(command, output)?;
        let tests = pg_regress(&std::fs::read_to_string(output)?);
        let differences = results.join("regression.diffs");
        if differences.exists() {
            std::fs::copy(&differences, output.with_extension("diffs"))?;
        }
        if tests.is_empty() {
            bail!("pg_regress ran no test; see {}", output.display());
        }
        Ok(Outcome { tests, took: begun.elapsed() })
    }
}
