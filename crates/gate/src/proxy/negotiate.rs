//! From an accepted connection to a session: the opening, the server's connection, the pool and the place in it.
//!
//! Encryption is passed through here: the client's request goes to the server, and if the server takes it, what follows
//! is relayed unseen. User and statements are then hidden, and the session belongs to the default pool.

use super::admission::{Admission, Place};
use super::stream::{Detached, LOW_NOT_SENT_BYTES, Stream, URGENT_NOT_SENT_BYTES};
use super::{Address, Limits, ProxyConfig};
use crate::wire::{MOST_OPENING_BYTES, Opening, StartUp, Tracker, read_opening, refusal};
use backwater_flow::{DEFAULT_POOL, Priority, State};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The setting by which a connection names its pool: `options=-c backwater.pool=p`.
const POOL_OPTION: &str = "backwater.pool";
/// The answer to a request for encryption that declines it.
const NO_ENCRYPTION: u8 = b'N';
/// Bytes read at once of an opening: most have a few hundred.
const OPENING_READ: usize = 1024;
/// A cancel request that the server does not take in this time is given up.
const CANCEL_WITHIN: Duration = Duration::from_secs(10);

/// What negotiations need to know.
pub(super) struct Terms {
    pub(super) server: Address,
    pub(super) limits: Limits,
    pub(super) state: State,
    pub(super) admission: Admission,
}

/// A session on its way to its worker.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Detached,
    pub(super) server: Detached,
    /// What the client said already and the server has not heard yet.
    pub(super) heard: Vec<u8>,
    pub(super) tracker: Tracker,
    pub(super) pool: String,
    pub(super) user: String,
    pub(super) peer: String,
    pub(super) place: Place,
}

impl Terms {
    pub(super) fn new(config: &ProxyConfig) -> Arc<Terms> {
        Arc::new(Terms {
            server: config.server.clone(),
            limits: config.limits.clone(),
            state: config.state.clone(),
            admission: Admission::new(config.limits.max_connections),
        })
    }

    /// Negotiates. None where the connection came to its end here: a cancel request, a refusal, a client that left.
    pub(super) async fn negotiate(&self, client: Stream) -> Option<Session> {
        let peer = client.peer();
        let opening = self.open(client, &peer);
        match tokio::time::timeout(self.limits.login_timeout(), opening).await {
            Ok(Ok(session)) => session,
            Ok(Err(error)) => {
                tracing::debug!(%peer, %error, "a connection failed before its session began");
                None
            }
            Err(_) => {
                tracing::info!(%peer, "a client did not say who it is in time");
                None
            }
        }
    }

    async fn open(&self, mut client: Stream, peer: &str) -> io::Result<Option<Session>> {
        let mut heard = Vec::new();
        let mut server: Option<Stream> = None;
        let mut unreachable: Option<String> = None;
        loop {
            let (opening, length) = match read_whole(&mut client, &mut heard).await? {
                Ok(Some(read)) => read,
                Ok(None) => return Ok(None),
                Err(error) => {
                    tracing::info!(%peer, %error, "refused");
                    return refuse(client, "08P01", &error.to_string()).await;
                }
            };
            match opening {
                Opening::Cancel => return self.cancel(&heard[..length]).await.map(|()| None),
                Opening::StartUp(start) => match unreachable {
                    Some(why) => return refuse(client, "08006", &why).await,
                    None => return self.start(client, server, heard, length, &start, peer).await,
                },
                Opening::DirectTls => return self.start_hidden(client, server, heard, peer).await,
                Opening::Ssl | Opening::Gss => {
                    let request = heard.drain(..length).collect::<Vec<_>>();
                    let answer = match self.ask_for_encryption(&mut server, &request).await {
                        Ok(Some(answer)) => answer,
                        Ok(None) => return Ok(None),
                        // Clients do not show an error in answer to this request. They show one to what they ask next.
                        Err(why) => {
                            tracing::warn!(%peer, "{why}");
                            unreachable = Some(why);
                            NO_ENCRYPTION
                        }
                    };
                    client.write_all(&[answer]).await?;
                    if answer != NO_ENCRYPTION {
                        return self.start_hidden(client, server, heard, peer).await;
                    }
                }
            }
        }
    }

    /// Passes a request for encryption to the server, connecting to it first. Returns its answer of one byte, none where
    /// the server left; as an error why it cannot be reached.
    async fn ask_for_encryption(&self, server: &mut Option<Stream>, request: &[u8]) -> Result<Option<u8>, String> {
        let unreachable = |error| self.unreachable(&error);
        let stream = match server {
            Some(stream) => stream,
            None => server.insert(self.connect().await.map_err(unreachable)?),
        };
        stream.write_all(request).await.map_err(unreachable)?;
        let mut answer = [0];
        let count = stream.read(&mut answer).await.map_err(unreachable)?;
        Ok((count > 0).then_some(answer[0]))
    }

    /// A session whose client said who it is.
    async fn start(
        &self,
        mut client: Stream,
        server: Option<Stream>,
        heard: Vec<u8>,
        length: usize,
        start: &StartUp,
        peer: &str,
    ) -> io::Result<Option<Session>> {
        let pool = match pool_of(&self.state, start) {
            Ok(pool) => pool,
            Err(unknown) => {
                let why = format!("there is no resource pool {}", backwater_flow::quote(&unknown));
                return refuse(client, "42704", &why).await;
            }
        };
        let Some(place) = self.admit(&mut client, pool, peer).await? else { return Ok(None) };
        let Some(server) = self.take_server(server, &mut client, peer).await? else { return Ok(None) };
        let mut tracker = Tracker::new();
        tracker.pass(crate::wire::Side::Up, &heard[length..]);
        let (client, server) = self.detach(client, server, pool)?;
        let (pool, user, peer) = (pool.to_owned(), start.user().to_owned(), peer.to_owned());
        Ok(Some(Session { client, server, heard, tracker, pool, user, peer, place }))
    }

    /// A session of which nothing can be seen.
    async fn start_hidden(
        &self,
        mut client: Stream,
        server: Option<Stream>,
        heard: Vec<u8>,
        peer: &str,
    ) -> io::Result<Option<Session>> {
        let Ok(place) = self.admission.admit(DEFAULT_POOL, self.most_of(DEFAULT_POOL)) else {
            // Nothing can be said to a client that has begun to encrypt.
            return Ok(None);
        };
        let Some(server) = self.take_server(server, &mut client, peer).await? else { return Ok(None) };
        let (client, server) = self.detach(client, server, DEFAULT_POOL)?;
        let (pool, user, peer) = (DEFAULT_POOL.to_owned(), String::new(), peer.to_owned());
        Ok(Some(Session { client, server, heard, tracker: Tracker::opaque(), pool, user, peer, place }))
    }

    /// The two sockets, set as their pool needs them, on their way to the worker.
    fn detach(&self, client: Stream, server: Stream, pool: &str) -> io::Result<(Detached, Detached)> {
        let low = self.state.pools().get(pool).is_some_and(|pool| pool.priority == Priority::Low);
        client.set_options(if low { LOW_NOT_SENT_BYTES } else { URGENT_NOT_SENT_BYTES })?;
        server.set_options(URGENT_NOT_SENT_BYTES)?;
        Ok((client.detach()?, server.detach()?))
    }

    async fn admit(&self, client: &mut Stream, pool: &str, peer: &str) -> io::Result<Option<Place>> {
        match self.admission.admit(pool, self.most_of(pool)) {
            Ok(place) => Ok(Some(place)),
            Err(full) => {
                tracing::warn!(%peer, "{full}");
                client.write_all(&refusal("53300", &full.to_string())).await?;
                client.shutdown().await?;
                Ok(None)
            }
        }
    }

    fn most_of(&self, pool: &str) -> Option<u32> {
        self.state.pools().get(pool).and_then(|pool| pool.max_connections)
    }

    /// The connection there is, or a new one; the client is told if there can be none.
    async fn take_server(&self, known: Option<Stream>, client: &mut Stream, peer: &str) -> io::Result<Option<Stream>> {
        if let Some(server) = known {
            return Ok(Some(server));
        }
        let why = match self.connect().await {
            Ok(server) => return Ok(Some(server)),
            Err(error) => self.unreachable(&error),
        };
        tracing::warn!(%peer, "{why}");
        client.write_all(&refusal("08006", &why)).await?;
        client.shutdown().await?;
        Ok(None)
    }

    fn unreachable(&self, error: &io::Error) -> String {
        format!("the server at {} cannot be reached: {error}", self.server)
    }

    async fn connect(&self) -> io::Result<Stream> {
        let within = self.limits.connect_timeout();
        match tokio::time::timeout(within, Stream::connect(&self.server)).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {} s", within.as_secs_f64()))),
        }
    }

    /// Passes a cancel request on as it is, and waits until the server has closed it, as libpq waits for us.
    async fn cancel(&self, packet: &[u8]) -> io::Result<()> {
        let passed = async {
            let mut server = self.connect().await?;
            server.write_all(packet).await?;
            server.read(&mut [0; 16]).await.map(|_| ())
        };
        tokio::time::timeout(CANCEL_WITHIN, passed).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// The pool of a session: of its user, unless the connection names another one. A user that is bound to a pool can only
/// go to a low one instead: nobody raises himself.
fn pool_of<'s>(state: &'s State, start: &StartUp) -> Result<&'s str, String> {
    let own = state.pool_of(start.user());
    let Some(named) = start.option(POOL_OPTION) else { return Ok(own) };
    let Some((name, pool)) = state.pools().get_key_value(&named) else { return Err(named) };
    let bound = state.users().contains_key(start.user());
    Ok(if bound && pool.priority == Priority::High { own } else { name })
}

/// Reads until the opening is whole. None where the client left.
async fn read_whole(
    client: &mut Stream,
    heard: &mut Vec<u8>,
) -> io::Result<Result<Option<(Opening, usize)>, crate::wire::OpeningError>> {
    loop {
        match read_opening(heard) {
            Ok(None) => {}
            decided => return Ok(decided),
        }
        let have = heard.len();
        heard.resize((have + OPENING_READ).min(MOST_OPENING_BYTES + OPENING_READ), 0);
        let count = client.read(&mut heard[have..]).await?;
        heard.truncate(have + count);
        if count == 0 {
            return Ok(Ok(None));
        }
    }
}

async fn refuse<T>(mut client: Stream, sqlstate: &str, why: &str) -> io::Result<Option<T>> {
    client.write_all(&refusal(sqlstate, why)).await?;
    client.shutdown().await?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_connection_may_name_its_pool_but_not_raise_itself() {
        let toml = "[pools.batch]\npriority = 'low'\n[pools.gold]\n[users]\netl = 'batch'\nboss = 'gold'";
        let state: State = toml::from_str(toml).unwrap();
        let pool = |user: &str, named: Option<&str>| {
            let mut start = StartUp::default();
            start.parameters.insert("user".to_owned(), user.to_owned());
            if let Some(named) = named {
                start.parameters.insert("options".to_owned(), format!("-c backwater.pool={named}"));
            }
            pool_of(&state, &start).map(str::to_owned)
        };
        assert_eq!(pool("etl", None).unwrap(), "batch");
        assert_eq!(pool("etl", Some("gold")).unwrap(), "batch");
        assert_eq!(pool("boss", Some("batch")).unwrap(), "batch");
        assert_eq!(pool("anybody", Some("gold")).unwrap(), "gold");
        assert_eq!(pool("anybody", None).unwrap(), DEFAULT_POOL);
        assert_eq!(pool("anybody", Some("no")).unwrap_err(), "no");
    }
}
