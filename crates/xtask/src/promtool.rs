//! Prometheus' own checker of rules and figures, for the tests of `docs/monitoring` and of `/metrics`. Debian has it in the
//! package of the whole server, whose dependencies are the libraries of a web page: so the program alone is taken out of it.

use crate::{ci, run};
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where it is: on the PATH, or fetched before, or fetched now where this is root on Debian or Ubuntu. None elsewhere: the tests
/// that need it then say that they are skipped.
pub(crate) fn find() -> anyhow::Result<Option<PathBuf>> {
    if ci::on_path("promtool") {
        return Ok(Some(PathBuf::from("promtool")));
    }
    let dir = run::workspace()?.join("target/promtool");
    let program = dir.join("usr/bin/promtool");
    if program.exists() {
        return Ok(Some(program));
    }
    if !ci::is_root()? || !ci::on_path("apt-get") {
        run::say("not installed: promtool; tests that need it will say that they are skipped");
        return Ok(None);
    }
    run::step("package lists", "apt-get", &["update", "-qq"])?;
    fetch(&dir).context("promtool cannot be taken out of Debian's package prometheus")?;
    Ok(Some(program))
}

/// Downloads the package into a directory and leaves nothing of it but the program.
fn fetch(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)?;
    run::say("promtool: apt-get download prometheus");
    let status = Command::new("apt-get").args(["download", "-qq", "prometheus"]).current_dir(dir).status()?;
    let entries = std::fs::read_dir(dir)?.flatten().map(|entry| entry.path());
    let package = entries.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "deb"));
    let Some(package) = package.filter(|_| status.success()) else { bail!("the package could not be downloaded") };
    let mut unpacked = Command::new("dpkg-deb").arg("--fsys-tarfile").arg(&package).stdout(Stdio::piped()).spawn()?;
    let files = unpacked.stdout.take().context("dpkg-deb has no output")?;
    let took = Command::new("tar").arg("-x").arg("-C").arg(dir).arg("./usr/bin/promtool").stdin(files).status()?;
    // Whoever is not read to the end is not interested in how it ended.
    let _ended = unpacked.wait()?;
    std::fs::remove_file(&package)?;
    if !took.success() {
        bail!("the package has no promtool");
    }
    Ok(())
}
