//! Finds PostgreSQL servers that are installed on this machine.

use super::process;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A PostgreSQL whose programs are on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Major version: 12 to 18, or whatever there is.
    pub version: u32,
    /// Where `initdb` and `postgres` are.
    pub bin_dir: PathBuf,
    /// Whether `pgbench` and `psql` are there too.
    pub has_clients: bool,
}

/// Servers on this machine of this major version, or of any: the one in `BACKWATER_PG_BIN` first, then the one in
/// `PATH`, then those in the places where packages put them, newest first.
pub fn find(version: Option<u32>) -> Vec<Installed> {
    let given = std::env::var_os("BACKWATER_PG_BIN").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    find_in(given.as_deref(), &path, Path::new("/"), version)
}

fn find_in(given: Option<&Path>, path: &[PathBuf], root: &Path, version: Option<u32>) -> Vec<Installed> {
    if let Some(given) = given
        && Installed::at(given).is_none()
    {
        tracing::warn!(path = %given.display(), "BACKWATER_PG_BIN has no initdb and postgres that run");
    }
    let mut packaged: Vec<Installed> = packaged(root).iter().filter_map(|dir| Installed::at(dir)).collect();
    packaged.sort_by_key(|installed| std::cmp::Reverse(installed.version));
    let first = given.into_iter().chain(path.iter().map(PathBuf::as_path)).filter_map(Installed::at);
    let mut seen = HashSet::new();
    first
        .chain(packaged)
        .filter(|installed| version.is_none_or(|wanted| wanted == installed.version))
        .filter(|installed| seen.insert(installed.bin_dir.clone()))
        .collect()
}

/// Directories where packages put servers.
fn packaged(root: &Path) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    for (parent, prefix, suffix) in [
        ("usr/lib/postgresql", "", "bin"),
        ("usr", "pgsql-", "bin"),
        ("usr/local", "pgsql", "bin"),
        ("opt/homebrew/opt", "postgresql@", "bin"),
        ("home/linuxbrew/.linuxbrew/opt", "postgresql@", "bin"),
    ] {
        let Ok(entries) = std::fs::read_dir(root.join(parent)) else { continue };
        let named = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        dirs.extend(named.map(|entry| entry.path().join(suffix)));
    }
    dirs
}

impl Installed {
    /// The server whose programs are in this directory; none where `initdb` or a `postgres` that runs is missing. A
    /// link (Debian and others put one into `PATH`) is followed to where the programs really are.
    pub fn at(dir: &Path) -> Option<Installed> {
        let postgres = std::fs::canonicalize(dir.join("postgres")).ok()?;
        let bin_dir = postgres.parent()?.to_path_buf();
        if !bin_dir.join("initdb").is_file() {
            return None;
        }
        let output = process::clean(&postgres).arg("--version").output().ok()?;
        let version = parse_version(&String::from_utf8_lossy(&output.stdout))?;
        let has_clients = ["pgbench", "psql"].iter().all(|name| bin_dir.join(name).is_file());
        Some(Installed { version, bin_dir, has_clients })
    }

    /// One of its programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }
}

/// The major version out of `postgres (PostgreSQL) 15.18 (Debian …)`, `… 18beta1` or `… 19devel`.
fn parse_version(text: &str) -> Option<u32> {
    let rest = text.split_once("(PostgreSQL)")?.1.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn versions_are_read_as_distributions_write_them() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(parse_version("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(parse_version("postgres (PostgreSQL) 9.6.24"), Some(9));
        assert_eq!(parse_version("postgres (EnterpriseDB) x"), None);
    }

    fn fake_server(dir: &Path, version: &str, programs: &[&str]) {
        std::fs::create_dir_all(dir).unwrap();
        for program in programs {
            let file = dir.join(program);
            std::fs::write(&file, format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn given_comes_first_then_path_then_newest_and_none_twice() {
        let root = tempfile::tempdir().unwrap();
        let at = |part: &str| std::fs::canonicalize(root.path()).unwrap().join(part);
        fake_server(&at("given"), "13.1", &["initdb", "postgres"]);
        fake_server(&at("usr/lib/postgresql/12/bin"), "12.22", &["initdb", "postgres"]);
        fake_server(&at("usr/lib/postgresql/17/bin"), "17.6", &["initdb", "postgres", "pgbench", "psql"]);
        fake_server(&at("usr/pgsql-16/bin"), "16.1", &["postgres"]);
        fake_server(&at("path"), "14.3", &["initdb", "postgres"]);
        std::fs::create_dir_all(at("links")).unwrap();
        std::os::unix::fs::symlink(at("usr/lib/postgresql/17/bin/postgres"), at("links/postgres")).unwrap();

        let path = [at("missing"), at("path"), at("links")];
        let found = find_in(Some(&at("given")), &path, root.path(), None);
        assert_eq!(found.iter().map(|server| server.version).collect::<Vec<_>>(), [13, 14, 17, 12]);
        assert!(found[2].has_clients && !found[0].has_clients);
        assert_eq!(find_in(None, &path, root.path(), Some(12)).len(), 1);
        assert_eq!(find_in(None, &path, root.path(), Some(16)), []);
    }

    proptest! {
        #[test]
        fn any_output_is_survived(text in ".*") {
            let _ = parse_version(&text);
        }
    }
}
