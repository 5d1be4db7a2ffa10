//! Takes connections, and hands the sessions that come of them to the workers.

use super::Address;
use super::control::Control;
use super::negotiate::{Agreed, Door, negotiate};
use super::openings::Openings;
use super::stream::{Stream, begin};
use super::worker::{Arrival, Phase, Worker};
use crate::GateError;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// Connections that are not sessions yet; where there is one more, one that has said nothing of itself makes room.
const NEGOTIATING: usize = 4096;
/// The same at the console's own addresses: however many come to the others and stay, whoever is to do something about it gets in.
const NEGOTIATING_AT_CONSOLE: usize = 1024;
/// When the process has no file descriptors left, accepting is tried again after this.
const BREATHER: Duration = Duration::from_millis(50);
/// An address that is taken at the start may be free within so long, and is tried again this often meanwhile.
const FREE_WITHIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A socket that is listened on, not yet in a runtime.
pub(super) enum Bound {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, PathBuf),
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Where sessions go.
pub(super) struct Workers {
    pub(super) urgent: Vec<Worker>,
    pub(super) low: Worker,
}

impl Bound {
    /// Begins to listen: at each of the addresses that a name has.
    pub(super) fn bind(address: &Address) -> Result<Vec<Bound>, GateError> {
        let begun = Instant::now();
        loop {
            match Bound::bind_now(address) {
                // One that was told to end a moment ago may not have heard it yet. (Whether a Unix socket is somebody's is asked by
                // connecting, which he would hear again and again.)
                Err(error) if is_taken(&error) && address.path().is_none() && begun.elapsed() < FREE_WITHIN => {
                    std::thread::sleep(LOOK_AGAIN);
                }
                bound => return bound.map_err(|source| GateError::Listen { address: address.to_string(), source }),
            }
        }
    }

    fn bind_now(address: &Address) -> io::Result<Vec<Bound>> {
        match address {
            Address::Tcp(name) => Ok(bind_all(name.to_socket_addrs()?)?.into_iter().map(Bound::Tcp).collect()),
            Address::Unix(path) => {
                remove_stale(path)?;
                let listener = std::os::unix::net::UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                Ok(vec![Bound::Unix(listener, path.clone())])
            }
        }
    }

    /// The address with the port that it got.
    pub(super) fn address(&self) -> io::Result<Address> {
        match self {
            Bound::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?.to_string())),
            Bound::Unix(_, path) => Ok(Address::Unix(path.clone())),
        }
    }

    fn listen(self) -> io::Result<Listener> {
        match self {
            Bound::Tcp(listener) => TcpListener::from_std(listener).map(Listener::Tcp),
            Bound::Unix(listener, _) => UnixListener::from_std(listener).map(Listener::Unix),
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// All addresses of a name that this host has. One that is taken is an error: whoever comes there would find somebody else.
fn bind_all(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<Vec<std::net::TcpListener>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut bound: Vec<std::net::TcpListener> = Vec::new();
    for mut address in addresses {
        // Any port is one port for all of them.
        if let (0, Some(first)) = (address.port(), bound.first()) {
            address.set_port(first.local_addr()?.port());
        }
        // A name may be given the same address twice.
        if bound.iter().any(|listener| listener.local_addr().is_ok_and(|ours| ours == address)) {
            continue;
        }
        match listen_at(address) {
            Ok(listener) => bound.push(listener),
            Err(error) if is_taken(&error) => return Err(error),
            Err(error) => last = error,
        }
    }
    if bound.is_empty() { Err(last) } else { Ok(bound) }
}

fn listen_at(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    begin(&SockRef::from(&socket), address)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Removes a socket that nobody listens on any more. Anything else that stands there is left for binding to refuse,
/// also a socket that we may not connect to: that is somebody's.
fn remove_stale(path: &std::path::Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_left = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err_and(is_left) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

impl Listener {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => Ok(listener.accept().await?.0.into()),
            Listener::Unix(listener) => Ok(listener.accept().await?.0.into()),
        }
    }
}

impl Workers {
    /// Low sessions go to the one worker that keeps their class, urgent ones to the least busy of the others.
    pub(super) fn hand(&self, session: Arrival) {
        if session.moving.live().wants_low() {
            self.low.hand(session);
        } else if let Some(worker) = self.urgent.iter().min_by_key(|worker| worker.load()) {
            worker.hand(session);
        }
    }
}

/// What every connection needs.
#[derive(Clone)]
pub(super) struct Reception {
    pub(super) control: Arc<Control>,
    /// Takes the sessions that come of them.
    pub(super) hand: Arc<dyn Fn(Agreed) + Send + Sync>,
}

/// Accepts on all of these until the proxy no longer runs.
pub(super) async fn accept(
    bound: Vec<(Bound, Door)>,
    reception: Reception,
    mut phase: watch::Receiver<Phase>,
) -> io::Result<()> {
    let (sessions, visits) = (Openings::new(NEGOTIATING), Openings::new(NEGOTIATING_AT_CONSOLE));
    let mut tasks = tokio::task::JoinSet::new();
    for (bound, door) in bound {
        let listener = bound.listen()?;
        let openings = Arc::clone(if door == Door::Console { &visits } else { &sessions });
        tasks.spawn(listen(listener, door, reception.clone(), openings));
    }
    // An error means that the proxy was dropped: that ends it too.
    let _ = phase.wait_for(|phase| *phase != Phase::Running).await;
    Ok(())
}

async fn listen(listener: Listener, door: Door, reception: Reception, openings: Arc<Openings>) {
    loop {
        let client = match listener.accept().await {
            Ok(client) => client,
            Err(error) => {
                // A client that gave up is its own affair; no descriptors left is everybody's.
                if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
                    tracing::warn!(%error, "cannot accept connections for a moment");
                    tokio::time::sleep(BREATHER).await;
                }
                continue;
            }
        };
        let Some(opening) = openings.begin().await else { return };
        let (Reception { control, hand }, door) = (reception.clone(), door.clone());
        tokio::spawn(async move {
            if let Some(agreed) = negotiate(&control, client, door, opening).await {
                hand(agreed);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    #[test]
    fn what_comes_from_this_host_is_paced_by_no_timer_from_its_beginning_and_waits_for_no_acknowledgement() {
        let mut bound = Bound::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let Some(Bound::Tcp(listener)) = bound.pop() else { panic!("no TCP") };
        listener.set_nonblocking(false).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let control = SockRef::from(&accepted).tcp_congestion().unwrap();
        assert!(control.starts_with(b"reno"), "{control:?}");
        assert!(accepted.nodelay().unwrap());
    }

    #[test]
    fn only_a_socket_that_nobody_listens_on_any_more_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let bind = |name: &str| Bound::bind(&Address::Unix(at(name)));
        drop(UnixListener::bind(at("left")).unwrap());
        assert!(bind("left").is_ok());
        let _listens = UnixListener::bind(at("used")).unwrap();
        // No stream connects with it, and it is somebody's all the same.
        let _datagrams = UnixDatagram::bind(at("other")).unwrap();
        for name in ["used", "other"] {
            assert!(bind(name).is_err() && at(name).exists(), "{name}");
        }
    }

    #[test]
    fn a_name_is_listened_on_at_each_of_its_addresses_and_never_beside_somebody_else() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let all = bind_all([at("127.0.0.1:0"), at("127.0.0.2:0"), at("127.0.0.1:0"), at("192.0.2.77:0")].into_iter())
            .unwrap();
        let addresses: Vec<SocketAddr> = all.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let port = addresses[0].port();
        assert_eq!(
            addresses,
            [at(&format!("127.0.0.1:{port}")), at(&format!("127.0.0.2:{port}"))],
            "the last is not ours"
        );
        let beside = bind_all([at("127.0.0.3:0"), addresses[1]].into_iter().map(|mut address| {
            address.set_port(port);
            address
        }));
        assert!(is_taken(&beside.unwrap_err()));
    }
}
