//! Connections: who is taken, how many at once, and how long anybody is waited for.

use super::access::Access;
use super::board::Board;
use super::patient::Patient;
use super::routes::{Desk, routes};
use super::tls;
use crate::{LiveError, Source};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// Connections at once. A page holds two or three.
const MOST_CONNECTIONS: usize = 512;
/// How long a client may take to say what it wants, or to greet.
const GREETING: Duration = Duration::from_secs(15);
/// Threads on which documents are made.
const MAKERS: usize = 4;

/// Files of a certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate, followed by those that vouch for it.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes one that is free.
    pub bind: SocketAddr,
    /// What whoever looks must know; none lets everybody look who can connect.
    pub token: Option<String>,
    /// Names of this server beside `localhost` and its addresses.
    pub host_names: Vec<String>,
    /// Encrypts, where given.
    pub tls: Option<Tls>,
    /// Whether figures for Prometheus need no token.
    pub open_metrics: bool,
    /// How often pages learn of something newer.
    pub refresh: Duration,
    /// How long a viewer may leave what it asked for untaken.
    pub patience: Duration,
}

/// Serves these sources until `end` comes. `ready` is told the address to open, with the token in it, once connections are taken.
///
/// Errors: the address is taken or not this host's, the token could be guessed, or the certificate makes no sense.
pub fn serve(
    sources: Vec<Source>,
    options: &Options,
    end: impl Future<Output = ()>,
    ready: impl FnOnce(&str),
) -> Result<(), LiveError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAKERS)
        .thread_name("page")
        .build()
        .map_err(LiveError::system("cannot start the server"))?;
    let served = runtime.block_on(async {
        let acceptor = options.tls.as_ref().map(tls::acceptor).transpose()?;
        let fail = |source| LiveError::Listen { address: options.bind, source };
        let listener = TcpListener::bind(options.bind).await.map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        let access =
            Access::new(options.token.clone(), options.host_names.clone(), address.port(), options.open_metrics)?;
        let board = Arc::new(Board::new(sources, options.refresh));
        let desk = Desk { board: Arc::clone(&board), access: Arc::new(access), tls: acceptor.is_some() };
        let hall = Hall { router: routes(desk), acceptor, patience: options.patience };
        ready(&url(options, address));
        tokio::select! {
            () = end => {}
            () = board.tick() => {}
            () = hall.accept(&listener) => {}
        }
        Ok(())
    });
    // Pages follow without end: nobody waits for them.
    runtime.shutdown_background();
    served
}

/// The address to open.
fn url(options: &Options, address: SocketAddr) -> String {
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let place = match options.host_names.first() {
        Some(name) => format!("{name}:{}", address.port()),
        None if address.ip().is_unspecified() => format!("localhost:{}", address.port()),
        None => address.to_string(),
    };
    let token = options.token.as_ref().map(|token| format!("?token={token}")).unwrap_or_default();
    format!("{scheme}://{place}/{token}")
}

struct Hall {
    router: Router,
    acceptor: Option<TlsAcceptor>,
    patience: Duration,
}

impl Hall {
    async fn accept(&self, listener: &TcpListener) {
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            // Never closed, so there is always room some time.
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
            let (stream, peer) = match listener.accept().await {
                Ok(taken) => taken,
                Err(error) => {
                    // Too many open files, mostly: it passes when somebody leaves.
                    tracing::warn!(%error, "cannot take a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (router, acceptor, patience) = (self.router.clone(), self.acceptor.clone(), self.patience);
            tokio::spawn(async move {
                if let Err(why) = connection(stream, router, acceptor, patience).await {
                    tracing::debug!(%peer, why, "a connection ended");
                }
                drop(place);
            });
        }
    }
}

async fn connection(
    stream: TcpStream,
    router: Router,
    acceptor: Option<TlsAcceptor>,
    patience: Duration,
) -> Result<(), String> {
    let _slower = stream.set_nodelay(true);
    let stream = Patient::new(stream, patience);
    match acceptor {
        None => http(stream, router).await,
        Some(acceptor) => match tokio::time::timeout(GREETING, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => http(stream, router).await,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_too_long) => Err("the client did not greet".to_owned()),
        },
    }
}

async fn http<S: AsyncRead + AsyncWrite + Unpin + 'static>(stream: S, router: Router) -> Result<(), String> {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(GREETING);
    let served = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    served.await.map_err(|error| error.to_string())
}
