//! One way into the server: hosts in turn, TLS as asked, and errors that say what to do.

use super::conninfo::{Address, ConnInfo, Server, SessionAttrs, SslMode};
use super::direct::Direct;
use super::explain::{self, Attempt};
use super::tls;
use crate::ProbeError;
use std::future::Future;
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio_postgres::{AsyncMessage, CancelToken, Client, Config, Connection, NoTls, config};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What carries a client's messages; it must be polled (spawned) for the client to work, and ends with the connection.
pub type ConnectionTask = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send>>;

/// Hears what the server says besides its answers (`RAISE NOTICE` and the like), as soon as it is said.
pub type Hearer = Arc<dyn Fn(&str) + Send + Sync>;

/// How long a connection may take where the address does not say (libpq would wait for ever).
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The connect_timeout of those who must know what becomes of a session: a server that cannot be reached is given up as
/// ever, but one that was reached may be making the session, so it is waited for until it lets in, refuses or hangs up.
pub(super) const UNTIL_LET_IN: Duration = Duration::MAX;

/// A fresh connection, and where it leads.
pub(super) struct Opened {
    pub(super) client: Client,
    pub(super) task: ConnectionTask,
    pub(super) server: Server,
    /// The socket itself, where it was asked for; none where it is a network's.
    pub(super) direct: Option<Direct>,
}

/// Connects to the first of the servers that answers and fits. The returned task must be spawned.
///
/// # Errors
/// [`ProbeError::Connect`] or [`ProbeError::Unreached`]: what failed, where, why, and what to do next.
pub async fn connect_client(info: &ConnInfo) -> Result<(Client, ConnectionTask), ProbeError> {
    let opened = open(info).await?;
    Ok((opened.client, opened.task))
}

/// As [`connect_client`], with somebody who hears the server's notices.
///
/// # Errors
/// As [`connect_client`].
pub async fn connect_client_hearing(info: &ConnInfo, hearer: &Hearer) -> Result<(Client, ConnectionTask), ProbeError> {
    let opened = open_as(info, Kind { hearer: Some(hearer), direct: false }).await?;
    Ok((opened.client, opened.task))
}

/// As [`connect_client`], telling which server it was.
pub(super) async fn open(info: &ConnInfo) -> Result<Opened, ProbeError> {
    open_as(info, Kind::default()).await
}

/// As [`open`], with the socket itself beside the library.
pub(super) async fn open_direct(info: &ConnInfo) -> Result<Opened, ProbeError> {
    open_as(info, Kind { direct: true, ..Kind::default() }).await
}

/// What a connection has besides its client.
#[derive(Clone, Copy, Default)]
struct Kind<'a> {
    hearer: Option<&'a Hearer>,
    direct: bool,
}

async fn open_as(info: &ConnInfo, kind: Kind<'_>) -> Result<Opened, ProbeError> {
    let mut failures = Vec::new();
    // prefer-standby takes anybody in a second round.
    let rounds: &[SessionAttrs] = match info.attrs {
        SessionAttrs::PreferStandby => &[SessionAttrs::Standby, SessionAttrs::Any],
        _ => std::slice::from_ref(&info.attrs),
    };
    for attrs in rounds {
        failures.clear();
        for server in &info.servers {
            match to_server(info, server, *attrs, kind).await {
                Ok(opened) => return Ok(opened),
                Err(failure) => failures.push((server, failure)),
            }
        }
    }
    let why = explain::all(info, &failures);
    let away = !failures.is_empty() && failures.iter().all(|(_, failure)| failure.is_away());
    Err(if away { ProbeError::Unreached(why) } else { ProbeError::Connect(why) })
}

/// Tries one server, in the ways that sslmode allows, the preferred one first.
async fn to_server(info: &ConnInfo, server: &Server, attrs: SessionAttrs, kind: Kind<'_>) -> Result<Opened, Attempt> {
    let local = matches!(server.address, Address::Unix(_));
    let ways: &[config::SslMode] = match info.tls.mode {
        _ if local => &[config::SslMode::Disable],
        SslMode::Disable => &[config::SslMode::Disable],
        SslMode::Allow => &[config::SslMode::Disable, config::SslMode::Require],
        SslMode::Prefer => &[config::SslMode::Prefer, config::SslMode::Disable],
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => &[config::SslMode::Require],
    };
    let mut first: Option<Attempt> = None;
    for way in ways {
        match attempt(info, server, *way, kind).await {
            Ok(connected) => return fitting(connected, server, attrs).await,
            // The first failure is the telling one.
            Err(failure) if failure.is_final() => return Err(first.unwrap_or(failure)),
            Err(failure) => first = Some(first.unwrap_or(failure)),
        }
    }
    Err(first.unwrap_or(Attempt::TimedOut(CONNECT_TIMEOUT)))
}

/// A client, what carries its messages, and its socket.
type Connected = (Client, ConnectionTask, Option<Direct>);

async fn attempt(info: &ConnInfo, server: &Server, way: config::SslMode, kind: Kind<'_>) -> Result<Connected, Attempt> {
    let config = config(info, server, way);
    let limit = info.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
    let connecting: Pin<Box<dyn Future<Output = _> + Send + '_>> = if let Address::Unix(directory) = &server.address {
        let config = &config;
        Box::pin(async move {
            let socket = local_socket(directory, server.port).await?;
            // The library is asked where no descriptor is left.
            let direct = kind.direct.then(|| socket.as_fd().try_clone_to_owned().ok().map(Direct::new)).flatten();
            let (client, task) = config.connect_raw(socket, NoTls).await.map_err(Attempt::Failed)?;
            Ok((client, carried(task, kind.hearer), direct))
        })
    } else if way == config::SslMode::Disable {
        Box::pin(async {
            let (client, task) = config.connect(NoTls).await.map_err(Attempt::Failed)?;
            Ok((client, carried(task, kind.hearer), None))
        })
    } else {
        let tls = MakeRustlsConnect::new(tls::client_config(&info.tls).map_err(Attempt::Unusable)?);
        let config = &config;
        Box::pin(async move {
            let (client, task) = config.connect(tls).await.map_err(Attempt::Failed)?;
            Ok((client, carried(task, kind.hearer), None))
        })
    };
    // Config's own connect_timeout covers the socket alone; a server that accepts and then says nothing is late too.
    tokio::time::timeout(limit, connecting).await.unwrap_or(Err(Attempt::TimedOut(limit)))
}

async fn local_socket(directory: &Path, port: u16) -> Result<UnixStream, Attempt> {
    UnixStream::connect(&directory.join(format!(".s.PGSQL.{port}"))).await.map_err(Attempt::Unreached)
}

/// Asks the server to end what a session is doing, by a connection that takes none of its places. Whether it does so is
/// not told.
pub(super) async fn cancel(info: &ConnInfo, server: &Server, session: &CancelToken) -> Result<(), Attempt> {
    let asking = Box::pin(async {
        if let Address::Unix(directory) = &server.address {
            let socket = local_socket(directory, server.port).await?;
            return session.cancel_query_raw(socket, NoTls).await.map_err(Attempt::Failed);
        }
        let asked = match tls::client_config(&info.tls) {
            // Used only where the session is encrypted: the token knows.
            Ok(config) => session.cancel_query(MakeRustlsConnect::new(config)).await,
            Err(_unusable) => session.cancel_query(NoTls).await,
        };
        asked.map_err(Attempt::Failed)
    });
    tokio::time::timeout(CONNECT_TIMEOUT, asking).await.unwrap_or(Err(Attempt::TimedOut(CONNECT_TIMEOUT)))
}

/// The task that carries a connection's messages, and brings notices to whom they are for.
fn carried<S, T>(mut connection: Connection<S, T>, hearer: Option<&Hearer>) -> ConnectionTask
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(hearer) = hearer.cloned() else { return Box::pin(connection) };
    Box::pin(async move {
        while let Some(message) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notice(notice) = message? {
                hearer(notice.message());
            }
        }
        Ok(())
    })
}

fn config(info: &ConnInfo, server: &Server, way: config::SslMode) -> Config {
    let mut config = Config::new();
    config.user(&info.user).dbname(&info.database).port(server.port).ssl_mode(way);
    if let Address::Tcp { host, addr } = &server.address {
        config.host(host);
        addr.map(|addr| config.hostaddr(addr));
    }
    config.application_name(info.application_name.as_deref().unwrap_or("backwater"));
    server.password.as_ref().map(|password| config.password(&password.0));
    info.options.as_ref().map(|options| config.options(options));
    if info.tls.direct && way == config::SslMode::Require {
        config.ssl_negotiation(config::SslNegotiation::Direct);
    }
    info.channel_binding.map(|on| {
        config.channel_binding(if on { config::ChannelBinding::Require } else { config::ChannelBinding::Disable })
    });
    if info.connect_timeout == Some(UNTIL_LET_IN) {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    let tcp = &info.tcp;
    tcp.keepalives.map(|on| config.keepalives(on));
    tcp.idle.map(|idle| config.keepalives_idle(idle));
    tcp.interval.map(|interval| config.keepalives_interval(interval));
    tcp.count.map(|count| config.keepalives_retries(count));
    tcp.user_timeout.map(|limit| config.tcp_user_timeout(limit));
    config
}

/// Lets the connection through if the server is of the sort that target_session_attrs asks for.
async fn fitting(connected: Connected, server: &Server, attrs: SessionAttrs) -> Result<Opened, Attempt> {
    let (client, mut task, direct) = connected;
    if attrs != SessionAttrs::Any {
        let asking = client.query_one(
            "SELECT pg_catalog.pg_is_in_recovery(), \
             pg_catalog.current_setting('default_transaction_read_only')::pg_catalog.bool",
            &[],
        );
        let row = tokio::select! {
            row = asking => row.map_err(Attempt::Failed)?,
            ended = &mut task => return Err(ended.err().map_or(Attempt::Ended, Attempt::Failed)),
        };
        let (standby, read_only): (bool, bool) = (row.get(0), row.get(1));
        let fits = match attrs {
            SessionAttrs::ReadWrite => !standby && !read_only,
            SessionAttrs::ReadOnly => standby || read_only,
            SessionAttrs::Primary => !standby,
            SessionAttrs::Standby => standby,
            SessionAttrs::Any | SessionAttrs::PreferStandby => true,
        };
        if !fits {
            return Err(Attempt::Unfit { standby });
        }
    }
    Ok(Opened { client, task, server: server.clone(), direct })
}
