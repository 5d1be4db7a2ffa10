//! Why a server cannot be had or run, each with what to do next.

use std::path::PathBuf;

/// Why a server cannot be found, downloaded, made or run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// There is no pinned build of this version for this machine.
    #[error(
        "there is no PostgreSQL {version} for {architecture} to download; there are: {known}. Install one \
         (`apt-get install postgresql`) or name the folder of its programs in BACKWATER_PG_BIN"
    )]
    NoBuild {
        /// Major version asked for.
        version: u32,
        /// What this machine is.
        architecture: String,
        /// Majors there are for it.
        known: String,
    },
    /// The place to download from is a program that is not there.
    #[error(
        "cannot download PostgreSQL {version}: BACKWATER_MAVEN_URL asks for the program `mvn`, which is not there to fetch \
         {artifact}. Install PostgreSQL (`apt-get install postgresql`), install Maven (`apt-get install maven`), or set \
         BACKWATER_MAVEN_URL to the base address of a Maven repository (https://, http:// or file://)"
    )]
    NoSource {
        /// Full version.
        version: &'static str,
        /// Maven coordinates of what is wanted.
        artifact: String,
    },
    /// Downloading failed.
    #[error(
        "cannot download {url}: {reason}. Check the network and the proxy (HTTPS_PROXY), name the right certificates in \
         SSL_CERT_FILE, set BACKWATER_MAVEN_URL to a repository that this machine reaches, or install PostgreSQL"
    )]
    Download {
        /// From where.
        url: String,
        /// Why.
        reason: String,
    },
    /// What came is not what was pinned.
    #[error(
        "{url} is not the build that was pinned: its SHA-256 is {found} instead of {wanted}. It was not used. A proxy or \
         mirror may have changed it; set BACKWATER_MAVEN_URL to another repository, or install PostgreSQL"
    )]
    Checksum {
        /// From where.
        url: String,
        /// The pinned checksum.
        wanted: &'static str,
        /// What came.
        found: String,
    },
    /// The archive cannot be unpacked.
    #[error("cannot unpack {path}: {reason}. Delete it and try again")]
    Archive {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file or directory cannot be made or changed.
    #[error("cannot {action} {path}: {source}{}", advice(.source))]
    File {
        /// What was tried: `write`, `make`.
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A program cannot be started.
    #[error("cannot start {program}: {source}{}", start_advice(.source))]
    Program {
        /// Which.
        program: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The WiredTiger engine, or its driver, is not there.
    #[error(
        "this scenario runs on the WiredTiger engine: {why}. {next} (or name a folder with \
         include/wiredtiger.h and lib/libwiredtiger.so in WIREDTIGER_DIR, or a built driver in BACKWATER_WT_DRIVER)"
    )]
    NoEngine {
        /// What was looked for and not found.
        why: String,
        /// What brings it there.
        next: String,
    },
    /// The driver of WiredTiger refused a command, or ended.
    #[error("the driver of WiredTiger: {0}")]
    Engine(String),
    /// A program ran and failed.
    #[error("{program} failed ({status}):\n{output}")]
    Failed {
        /// Which.
        program: PathBuf,
        /// How it ended.
        status: String,
        /// The end of what it said.
        output: String,
    },
    /// The server cannot run as root and no ordinary user is known.
    #[error(
        "PostgreSQL refuses to run as root, and neither 'postgres' nor 'nobody' is in /etc/passwd. Make a user for it: \
         `useradd --system postgres`"
    )]
    NoOrdinaryUser,
    /// The user that the server runs as cannot get to a directory.
    #[error(
        "the server runs as user {uid}, who cannot get to {path}: {shut} is shut to it. `chmod o+x {shut}` opens it"
    )]
    Unreachable {
        /// What it must get to.
        path: PathBuf,
        /// Which directory above it is shut.
        shut: PathBuf,
        /// The user.
        uid: u32,
    },
    /// A setting's name or value cannot be written to the configuration.
    #[error("'{name}' = '{value}' is no setting that can be written: {why}")]
    Setting {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The path of the server's socket is longer than the kernel takes.
    #[error("the socket {path} has a path longer than {limit} bytes: set TMPDIR to a shorter one")]
    SocketPath {
        /// Which.
        path: PathBuf,
        /// The most bytes.
        limit: usize,
    },
    /// Another program listens on the port.
    #[error("port {port} on 127.0.0.1 is in use by another program: choose another port, or none to use a socket only")]
    PortInUse {
        /// Which.
        port: u16,
    },
    /// The server ended before it was ready.
    #[error("the server in {data_dir} ended before it was ready ({status}). The end of its log {log}:\n{tail}")]
    Died {
        /// Its data directory.
        data_dir: PathBuf,
        /// How it ended.
        status: String,
        /// Its log.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
    /// The server was not ready in time.
    #[error("the server in {data_dir} was not ready after {seconds:.0} s. The end of its log {log}:\n{tail}")]
    NotReady {
        /// Its data directory.
        data_dir: PathBuf,
        /// How long was waited.
        seconds: f64,
        /// Its log.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
    /// The change could not be noted, so it was not made.
    #[error("{0}")]
    Journal(#[from] backwater_undo::UndoError),
    /// A system call failed.
    #[error("{call} failed: {source}")]
    System {
        /// Which.
        call: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl ServerError {
    /// For `map_err`: a [`ServerError::File`].
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> ServerError {
        let path = path.into();
        move |source| ServerError::File { action, path, source }
    }

    /// For `map_err`: a [`ServerError::System`].
    pub(crate) fn system(call: &'static str) -> impl FnOnce(rustix::io::Errno) -> ServerError {
        move |error| ServerError::System { call, source: error.into() }
    }
}

fn advice(source: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            ". The disk is full: free some space (a server takes about 100 MB), or name another place in XDG_CACHE_HOME"
        }
        ErrorKind::ReadOnlyFilesystem => ". It is mounted read-only: name another place in XDG_CACHE_HOME",
        ErrorKind::PermissionDenied => ". Run as its owner, or choose another place",
        _ => "",
    }
}

fn start_advice(source: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match source.kind() {
        ErrorKind::PermissionDenied => {
            ". The user that the server runs as must be able to read it and to enter every directory above it"
        }
        ErrorKind::NotFound => ". It, or the loader it was built for, is not on this machine",
        _ => "",
    }
}
