//! A relay that delays: whatever comes in at its socket goes out to another server's a set time later, and back again, as on a
//! long way with much room. Kernels without netem have no other way to make a standby far away.

use super::ServerError;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the end of the relay is looked for while nobody connects.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of a piece, and pieces under way at most: then the sender has to wait, as for a full pipe.
const PIECE: usize = 65_536;
const UNDER_WAY: usize = 4_096;

/// A running relay. Dropping it closes its connections.
#[derive(Debug)]
pub struct Relay {
    dir: PathBuf,
    socket: PathBuf,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    to: PathBuf,
    /// One way, in microseconds.
    delay_us: AtomicU64,
    over: AtomicBool,
}

/// A piece of a stream and when it is due at the other end.
type Piece = (Instant, Vec<u8>);

impl Relay {
    /// Listens in the directory `dir`, which it makes, on a socket named like that of a server on `port`, for the socket `to`.
    ///
    /// # Errors
    /// Where the directory or the socket cannot be made.
    pub fn start(dir: &Path, port: u16, to: &Path, delay: Duration) -> Result<Relay, ServerError> {
        std::fs::create_dir_all(dir).map_err(ServerError::file("make", dir))?;
        let open = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
                .map_err(ServerError::file("open up", path))
        };
        open(dir, 0o755)?;
        let socket = dir.join(format!(".s.PGSQL.{port}"));
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(ServerError::file("remove", &socket)(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(&socket).map_err(ServerError::file("listen on", &socket))?;
        // Servers run as an ordinary user.
        open(&socket, 0o777)?;
        listener.set_nonblocking(true).map_err(ServerError::file("listen on", &socket))?;
        let shared = Arc::new(Shared {
            to: to.to_path_buf(),
            delay_us: AtomicU64::new(delay.as_micros() as u64),
            over: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let accepting = std::thread::Builder::new().name("relay".into()).spawn(move || accept(&listener, &own));
        let accepting = accepting.map_err(|source| ServerError::System { call: "clone", source })?;
        Ok(Relay { dir: dir.to_path_buf(), socket, shared, accepting: Some(accepting) })
    }

    /// Where its socket lies: a host as libpq understands it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Delays whatever comes in from now on by so much.
    pub fn delay_by(&self, delay: Duration) {
        self.shared.delay_us.store(delay.as_micros() as u64, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(accepting) = self.accepting.take()
            && accepting.join().is_err()
        {
            tracing::warn!("the relay's thread has panicked");
        }
        if let Err(error) = std::fs::remove_file(&self.socket) {
            tracing::warn!(socket = %self.socket.display(), %error, "the relay's socket stays");
        }
    }
}

/// Takes connections until the relay is over, and then ends them all.
fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    let mut open: Vec<UnixStream> = Vec::new();
    while !shared.over.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((near, _)) => match relay(near, shared) {
                Ok(ends) => open.extend(ends),
                // While its server restarts, nobody listens there.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                    tracing::debug!(%error, "nobody to relay a connection to");
                }
                Err(error) => tracing::warn!(%error, "a connection could not be relayed"),
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK),
            Err(error) => {
                tracing::warn!(%error, "the relay takes no more connections");
                break;
            }
        }
    }
    for end in open {
        // One that has ended already needs no ending.
        let _ended = end.shutdown(Shutdown::Both);
    }
}

/// Begins to relay one connection both ways.
fn relay(near: UnixStream, shared: &Arc<Shared>) -> std::io::Result<[UnixStream; 2]> {
    near.set_nonblocking(false)?;
    let far = UnixStream::connect(&shared.to)?;
    one_way(near.try_clone()?, far.try_clone()?, shared)?;
    one_way(far.try_clone()?, near.try_clone()?, shared)?;
    Ok([near, far])
}

/// A thread that reads and stamps, and one that waits and writes: pieces are delayed, not slowed down.
fn one_way(from: UnixStream, to: UnixStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    let (pieces, due) = sync_channel(UNDER_WAY);
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("relay-in".into()).spawn(move || take(from, &pieces, &shared))?;
    std::thread::Builder::new().name("relay-out".into()).spawn(move || give(to, &due))?;
    Ok(())
}

fn take(mut from: UnixStream, pieces: &SyncSender<Piece>, shared: &Shared) {
    let mut buffer = vec![0; PIECE];
    while let Ok(count) = from.read(&mut buffer) {
        let due = Instant::now() + Duration::from_micros(shared.delay_us.load(Ordering::Relaxed));
        // An end of the stream arrives as late as its last byte: the writer hears of it by the closed channel.
        if count == 0 || pieces.send((due, buffer[..count].to_vec())).is_err() {
            return;
        }
    }
}

fn give(mut to: UnixStream, due: &Receiver<Piece>) {
    while let Ok((at, piece)) = due.recv() {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            // Nobody reads there any more, so that nobody will answer either.
            let _gone = to.shutdown(Shutdown::Both);
            return;
        }
    }
    // Whoever reads there shall hear that no more comes, and may still answer.
    let _ended = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A server that sends back what it hears.
    fn echo(path: &Path) {
        let listener = UnixListener::bind(path).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
                    let _copied = std::io::copy(&mut from, &mut to);
                    let _ended = to.shutdown(Shutdown::Both);
                });
            }
        });
    }

    fn round_trip(stream: &mut UnixStream) -> Duration {
        let began = Instant::now();
        stream.write_all(b"x").unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        began.elapsed()
    }

    #[test]
    fn what_comes_is_handed_on_whole_and_late() {
        let dir = tempfile::tempdir().unwrap();
        let server = dir.path().join("server");
        echo(&server);
        let relay = Relay::start(&dir.path().join("relay"), 5432, &server, Duration::from_millis(20)).unwrap();
        let mut stream = UnixStream::connect(relay.dir().join(".s.PGSQL.5432")).unwrap();
        assert!(round_trip(&mut stream) >= Duration::from_millis(40));
        relay.delay_by(Duration::ZERO);
        // The best of many: the machine may be busy, but no delay is in force any more.
        assert!((0..50).map(|_| round_trip(&mut stream)).min().unwrap() < Duration::from_millis(20));
        // More than fits into a piece and into a socket's buffer; delayed, but not slowed down by it.
        relay.delay_by(Duration::from_millis(5));
        let sent: Vec<u8> = (0..4_000_000_u32).map(|n| n as u8).collect();
        let mut writer = stream.try_clone().unwrap();
        let all = sent.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(&all).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        writing.join().unwrap();
        assert!(heard == sent, "{} of {} bytes came back", heard.len(), sent.len());
    }

    #[test]
    fn an_ended_relay_ends_its_connections() {
        let dir = tempfile::tempdir().unwrap();
        let server = dir.path().join("server");
        echo(&server);
        let relay = Relay::start(&dir.path().join("relay"), 5432, &server, Duration::ZERO).unwrap();
        let mut stream = UnixStream::connect(relay.dir().join(".s.PGSQL.5432")).unwrap();
        round_trip(&mut stream);
        drop(relay);
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
        assert!(!dir.path().join("relay/.s.PGSQL.5432").exists());
    }
}
