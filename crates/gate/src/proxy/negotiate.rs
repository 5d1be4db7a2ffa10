//! From an accepted connection to a session: the opening, the server's connection, the pool and the place in it.
//!
//! Encryption is passed through unless the configuration has a certificate: where there is a place, the client's request goes
//! to the server, and if the server takes it, what follows is relayed unseen. User and statements are then hidden, and the session
//! belongs to its listener's pool. With a certificate the proxy ends the client's encryption, and begins its own towards the
//! server where it is told to.

use super::Address;
use super::admission::{Full, Place};
use super::cancel;
use super::console::{Admin, Visit};
use super::control::{Control, Entry};
use super::first_words::{first_words, read_more, read_whole};
use super::follow::Follow;
use super::last_words::{self, LAST_WORDS_WITHIN};
use super::live::Identity;
use super::log_limit::{self, shown};
use super::openings;
use super::placed::{Placed, is_exempt, placed};
use super::reach::{Asked, ENCRYPTION, NO_ENCRYPTION, connect, encrypted, in_time};
use super::relay::Moving;
use super::secure::Secure;
use super::stream::{LOW_NOT_SENT_BYTES, Stream, URGENT_NOT_SENT_BYTES};
use super::terms::Terms;
use crate::clock;
use crate::wire::{Opening, Side, StartUp, Tracker, read_proxy_header};
use backwater_flow::DEFAULT_POOL;
use backwater_model::Moment;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What an encrypted connection begins with.
const TLS_HANDSHAKE: u8 = 0x16;
/// connection_failure: the server cannot be reached.
const UNREACHABLE: &str = "08006";

/// Which door a client came by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// One of the proxy's, by the address as it is configured.
    Server(Arc<Address>),
    /// The console's own.
    Console,
}

impl Door {
    pub(super) fn server(address: &Address) -> Door {
        Door::Server(Arc::new(address.clone()))
    }
}

/// A session that was agreed upon.
pub(super) struct Agreed {
    pub(super) moving: Moving,
    pub(super) entry: Entry,
    pub(super) place: Place,
}

/// Why there will be no session, for a client that can be told only when it asks for one.
struct Denied {
    sqlstate: &'static str,
    why: String,
}

/// Negotiates by the terms in force. None where the connection came to its end here: a cancel request, a refusal, a
/// client that left.
pub(super) async fn negotiate(
    control: &Arc<Control>,
    client: Stream,
    door: Door,
    place: openings::Opening,
) -> Option<Agreed> {
    let terms = control.terms();
    let within = terms.limits.login_timeout();
    let source = client.peer();
    let (peer, address) = (source.to_string(), source.address());
    let mut negotiation = Negotiation { peer, address, door, terms, control: Arc::clone(control), place: &place };
    let ended = tokio::select! {
        opened = negotiation.open_announced(client) => match opened {
            Ok(agreed) => return agreed,
            Err(error) => error.to_string(),
        },
        () = place.is_mute(within) => "the client did not say in time who it is".to_owned(),
        () = place.gives_way() => "others came, and it had not said who it is".to_owned(),
    };
    tracing::debug!(peer = %negotiation.peer, "a connection failed before its session began: {ended}");
    None
}

/// One connection's negotiation.
struct Negotiation<'p> {
    peer: String,
    address: Option<IpAddr>,
    door: Door,
    terms: Arc<Terms>,
    control: Arc<Control>,
    place: &'p openings::Opening,
}

impl Negotiation<'_> {
    /// Learns first whose connection it is, where its source passes others' connections on.
    async fn open_announced(&mut self, mut client: Stream) -> io::Result<Option<Agreed>> {
        let mut heard = Vec::new();
        if self.address.is_some_and(|address| self.terms.announcing.iter().any(|network| network.holds(address))) {
            let (announced, length) = loop {
                match read_proxy_header(&heard) {
                    Ok(Some(read)) => break read,
                    Ok(None) => {}
                    Err(error) => return self.refuse(client, "08P01", &error.to_string()).await,
                }
                if read_more(&mut client, &mut heard).await? == 0 {
                    return Ok(None);
                }
            };
            heard.drain(..length);
            if let Some(source) = announced {
                self.address = Some(source.ip());
                self.peer = source.to_string();
            }
        }
        self.open(client, heard).await
    }

    async fn open(&mut self, mut client: Stream, mut heard: Vec<u8>) -> io::Result<Option<Agreed>> {
        let mut asked: Option<Asked> = None;
        let mut denied: Option<Denied> = None;
        loop {
            let (opening, length) = match read_whole(&mut client, &mut heard).await? {
                Ok(Some(read)) => read,
                Ok(None) => return Ok(self.left(denied.is_some())),
                Err(error) => {
                    drop(asked);
                    return self.refuse(client, "08P01", &error.to_string()).await;
                }
            };
            if matches!(opening, Opening::Cancel | Opening::StartUp(_)) {
                self.said_who();
            }
            match opening {
                // Nothing that runs there can be cancelled.
                Opening::DirectTls | Opening::Cancel if self.door == Door::Console => return Ok(None),
                Opening::Cancel => {
                    return cancel::pass_on(&self.control, &self.terms, &heard[..length]).await.map(|()| None);
                }
                // Also of the console, which is told passwords.
                Opening::StartUp(_) if self.wants_encryption(&client) => {
                    return self.refuse(client, "28000", "the proxy takes encrypted connections only").await;
                }
                Opening::StartUp(start) if self.is_for_console(&start) => {
                    return self.visit(client, heard.split_off(length), start).map(|()| None);
                }
                // The console is not encrypted, and within encryption there is nothing to pass through.
                Opening::Ssl | Opening::Gss if self.declines(&opening, &client) => {
                    heard.drain(..length);
                    client.write_all(&[NO_ENCRYPTION]).await?;
                }
                Opening::Ssl | Opening::DirectTls if self.terms.tls.is_some() => {
                    let before = if opening == Opening::Ssl { length } else { 0 };
                    client = match self.encrypt(client, heard.split_off(before)).await? {
                        Some(client) => client,
                        None => return Ok(None),
                    };
                    heard.clear();
                }
                Opening::StartUp(start) => match denied {
                    Some(Denied { sqlstate, why }) if asked.is_none() => {
                        return self.dismiss(client, sqlstate, &why).await;
                    }
                    _ => return self.start(client, asked, &heard, length, &start).await,
                },
                Opening::DirectTls => return self.start_hidden(client, asked, heard).await,
                Opening::Ssl | Opening::Gss => {
                    let request = heard.drain(..length).collect::<Vec<_>>();
                    let answer = match self.ask_for_encryption(&mut asked, &request).await {
                        Ok(None) => return Ok(None),
                        Ok(Some(answer)) => answer,
                        // Clients do not show an error in answer to this request. They show one to what they ask next.
                        Err(why) => {
                            self.log(why.sqlstate, "no encryption", &why.why);
                            // What failed is of no more use, and its place is another's.
                            (asked, denied) = (None, Some(why));
                            NO_ENCRYPTION
                        }
                    };
                    self.place.holds_place(asked.is_some());
                    client.write_all(&[answer]).await?;
                    if answer != NO_ENCRYPTION {
                        return self.start_hidden(client, asked, heard).await;
                    }
                }
            }
        }
    }

    /// It is known whose connection it is, or that this will not be known. What is in force now is what counts: it may have said nothing
    /// for a minute.
    fn said_who(&mut self) {
        self.place.said_who();
        self.terms = self.control.terms();
    }

    /// Passes a request for encryption to the server, connecting to it first, which needs a place: nobody knows yet whose it is, and
    /// the server has a process for it all the same. Returns its answer of one byte, none where the server left.
    async fn ask_for_encryption(&self, asked: &mut Option<Asked>, request: &[u8]) -> Result<Option<u8>, Denied> {
        let unreachable = |error| Denied { sqlstate: UNREACHABLE, why: self.unreachable(&error) };
        let full = |full: Full| Denied { sqlstate: "53300", why: full.to_string() };
        let _servers_turn = self.place.awaits_server();
        let asked = match asked {
            Some(asked) => asked,
            None => {
                let place = self.admit_unknown().await.map_err(full)?;
                asked.insert(Asked::connect(&self.terms, place).await.map_err(unreachable)?)
            }
        };
        in_time(self.terms.limits.connect_timeout(), asked.ask(request)).await.map_err(unreachable)
    }

    /// A place in a pool. Who asked the server for encryption has one of the proxy's already.
    async fn admit(&self, asked: &mut Option<Asked>, pool: &str) -> Result<Place, Full> {
        let place = match asked.as_mut().and_then(|asked| asked.place.take()) {
            Some(place) => place,
            None => self.admit_unknown().await?,
        };
        place.enter(pool, self.most_of(pool))
    }

    /// A place of the proxy's.
    async fn admit_unknown(&self) -> Result<Place, Full> {
        self.place.with_room(|| self.terms.admission.admit_unknown()).await
    }

    /// Whether this request for encryption is declined here. What is ended here is TLS alone.
    fn declines(&self, request: &Opening, client: &Stream) -> bool {
        let not_here = *request == Opening::Gss && self.terms.tls.is_some();
        not_here || self.door == Door::Console || client.secure().is_some()
    }

    fn is_for_console(&self, start: &StartUp) -> bool {
        let named = |admin: &Arc<Admin>| admin.database == start.database();
        self.door == Door::Console || self.terms.admin.as_ref().is_some_and(named)
    }

    /// Shows a client to the console.
    fn visit(&self, client: Stream, heard: Vec<u8>, start: StartUp) -> io::Result<()> {
        client.set_options(URGENT_NOT_SENT_BYTES)?;
        let (client, peer, address) = (client.detach()?, self.peer.clone(), self.address);
        let at_own_door = self.door == Door::Console;
        self.control.visit(Visit { client, heard, start, peer, address, at_own_door });
        Ok(())
    }

    /// A session whose client said who it is.
    async fn start(
        &self,
        client: Stream,
        mut asked: Option<Asked>,
        heard: &[u8],
        length: usize,
        start: &StartUp,
    ) -> io::Result<Option<Agreed>> {
        let pool = match placed(&self.terms.state, start, self.pool_of_door()) {
            Ok(Placed { pool, in_vain }) => {
                in_vain.iter().for_each(|named| self.control.named_in_vain(start.user(), pool, named));
                pool
            }
            Err(unknown) => {
                drop(asked);
                let why = format!("there is no resource pool {}", backwater_flow::quote(&unknown));
                return self.refuse(client, "42704", &why).await;
            }
        };
        let place = match self.admit(&mut asked, pool).await {
            Ok(place) => place,
            Err(full) => {
                drop(asked);
                return self.refuse(client, "53300", &full.to_string()).await;
            }
        };
        let since = asked.as_ref().map_or_else(clock::now, |asked| asked.since);
        let mut server = match self.take_server(asked).await {
            Ok(server) => server,
            Err(why) => {
                // Others need not wait until this one has heard it.
                drop(place);
                return self.refuse(client, UNREACHABLE, &why).await;
            }
        };
        let entry = self.control.enter(self.identity(Some(start), &server, since), self.control.pools.get(pool));
        let mut tracker = Tracker::new();
        tracker.pass(Side::Up, &heard[length..]);
        if server.secure().is_none() {
            return agree((client, server), (heard, &[]), tracker, entry, place).map(Some);
        }
        let first = first_words(&mut server, &heard[..length]);
        let words = match in_time(self.terms.limits.login_timeout(), first).await {
            Ok(words) => words,
            Err(error) => {
                drop((server, entry, place));
                return self.refuse(client, UNREACHABLE, &self.unreachable(&error)).await;
            }
        };
        tracker.pass(Side::Down, &words);
        // They may be the whole login, after which nothing more comes until the client speaks.
        entry.live().passed(Side::Down, words.len(), &tracker);
        agree((client, server), (&heard[length..], &words), tracker, entry, place).map(Some)
    }

    /// Whether this client must encrypt and does not. A Unix socket needs no encryption, and the console's own addresses
    /// have none.
    fn wants_encryption(&self, client: &Stream) -> bool {
        let required = self.terms.tls.as_ref().is_some_and(|tls| tls.required) && self.door != Door::Console;
        required && client.secure().is_none() && !client.is_local()
    }

    /// Ends the client's encryption here. `heard` is what came of it already: with a request for it there may be nothing,
    /// or somebody in between put words into the client's mouth (CVE-2021-23222).
    async fn encrypt(&self, mut client: Stream, heard: Vec<u8>) -> io::Result<Option<Stream>> {
        let Some(tls) = &self.terms.tls else { return Ok(None) };
        let direct = heard.first() == Some(&TLS_HANDSHAKE);
        if !direct && !heard.is_empty() {
            return self.refuse(client, "08P01", "received unencrypted data after SSL request").await;
        }
        let mut secure = tls.begin()?;
        if direct {
            secure.hear(&heard)?;
        } else {
            client.write_all(&[ENCRYPTION]).await?;
        }
        let client = client.encrypt(secure).await?;
        let agreed = !direct || client.secure().is_some_and(Secure::is_postgresql);
        if !agreed {
            self.refused("08P01", "encryption that begins at once must name the protocol postgresql");
        }
        Ok(agreed.then_some(client))
    }

    /// A session of which nothing can be seen.
    async fn start_hidden(
        &mut self,
        mut client: Stream,
        mut asked: Option<Asked>,
        mut heard: Vec<u8>,
    ) -> io::Result<Option<Agreed>> {
        // Who was told to encrypt and does not begin to is mute like others, and makes room like them.
        let is_awaited = heard.is_empty() && asked.as_ref().is_some_and(|asked| asked.agreed);
        if is_awaited && read_more(&mut client, &mut heard).await? == 0 {
            return Ok(None);
        }
        self.said_who();
        // Nothing can be said to a client that has begun to encrypt.
        let pool = self.pool_of_door();
        let place = match self.admit(&mut asked, pool).await {
            Ok(place) => place,
            Err(full) => {
                self.refused("53300", &full.to_string());
                return Ok(None);
            }
        };
        let since = asked.as_ref().map_or_else(clock::now, |asked| asked.since);
        let server = match self.take_bare_server(asked).await {
            Ok(server) => server,
            Err(why) => {
                self.refused(UNREACHABLE, &why);
                return Ok(None);
            }
        };
        let entry = self.control.enter_hidden(self.identity(None, &server, since), self.control.pools.get(pool));
        agree((client, server), (&heard, &[]), Tracker::opaque(), entry, place).map(Some)
    }

    fn identity(&self, start: Option<&StartUp>, server: &Stream, server_since: Moment) -> Identity {
        let text = |of: &dyn Fn(&StartUp) -> &str| start.map_or_else(String::new, |start| of(start).to_owned());
        let application = |start: &StartUp| start.parameters.get("application_name").cloned();
        Identity {
            id: self.control.number(),
            user: text(&|start| start.user()),
            database: text(&|start| start.database()),
            application: start.and_then(application).unwrap_or_default(),
            peer: self.peer.clone(),
            server_mark: server.title_mark(),
            our_end: server.own_address(),
            server_end: server.other_address(),
            server_since,
            began: clock::now(),
            is_exempt: start.is_some_and(|start| is_exempt(&self.terms.state, start, self.pool_of_door())),
        }
    }

    /// The pool of whoever came by this door and is not told to be of another. The console may have dropped it.
    fn pool_of_door(&self) -> &str {
        let Door::Server(address) = &self.door else { return DEFAULT_POOL };
        let named = self.terms.listeners.get(&**address);
        named.filter(|pool| self.terms.state.pools().contains_key(*pool)).map_or(DEFAULT_POOL, String::as_str)
    }

    fn most_of(&self, pool: &str) -> Option<u32> {
        self.terms.state.pools().get(pool).and_then(|pool| pool.max_connections)
    }

    /// The connection there is, or a new one; as an error what the client is told if there can be none.
    async fn take_bare_server(&self, asked: Option<Asked>) -> Result<Stream, String> {
        match asked {
            Some(Asked { server, .. }) => Ok(server),
            None => connect(&self.terms).await.map_err(|error| self.unreachable(&error)),
        }
    }

    /// The same, encrypted as the configuration has it.
    async fn take_server(&self, asked: Option<Asked>) -> Result<Stream, String> {
        // One that was asked on behalf of its client may have said no already.
        let declined = asked.as_ref().is_some_and(|asked| asked.declined);
        let server = self.take_bare_server(asked).await?;
        encrypted(&self.terms, server, declined).await.map_err(|error| self.unreachable(&error))
    }

    /// Tells the client why there is no session, and gives it time to hear that.
    async fn refuse<T>(&self, client: Stream, sqlstate: &str, why: &str) -> io::Result<Option<T>> {
        self.log(sqlstate, "refused", why);
        self.dismiss(client, sqlstate, why).await
    }

    /// The same where that is logged already.
    async fn dismiss<T>(&self, mut client: Stream, sqlstate: &str, why: &str) -> io::Result<Option<T>> {
        self.count();
        // Whoever does not take it is gone.
        let told = clock::within(LAST_WORDS_WITHIN, last_words::tell(&mut client, sqlstate, why)).await;
        told.unwrap_or(Ok(()))?;
        self.place.leaves();
        // The runtime of openings has a timer, which costs less than one of the kernel's.
        let _ = tokio::time::timeout(Duration::from_secs_f64(LAST_WORDS_WITHIN.seconds()), client.hear_out()).await;
        Ok(None)
    }

    /// There is no session: that is counted and logged.
    fn refused(&self, sqlstate: &str, why: &str) {
        self.count();
        self.log(sqlstate, "refused", why);
    }

    fn count(&self) {
        self.control.counters.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn log(&self, sqlstate: &str, what: &str, why: &str) {
        let limit = if sqlstate == UNREACHABLE { &log_limit::UNREACHABLE } else { &log_limit::REFUSED };
        limit.write(|| tracing::warn!(peer = %self.peer, "{what}: {}", shown(why)));
    }

    /// The client left before it was told that it is refused.
    fn left<T>(&self, denied: bool) -> Option<T> {
        if denied {
            self.count();
        }
        None
    }

    fn unreachable(&self, error: &io::Error) -> String {
        format!("the server at {} cannot be reached: {error}", self.terms.server)
    }
}

/// The two sockets, set as their pool needs them, on their way to the worker.
fn agree(
    (client, server): (Stream, Stream),
    said: (&[u8], &[u8]),
    tracker: Tracker,
    entry: Entry,
    place: Place,
) -> io::Result<Agreed> {
    client.set_options(if entry.live().wants_low() { LOW_NOT_SENT_BYTES } else { URGENT_NOT_SENT_BYTES })?;
    server.set_options(URGENT_NOT_SENT_BYTES)?;
    let follow = Follow::new(tracker, Arc::clone(entry.live()));
    let moving = Moving::new(client.detach()?, server.detach()?, said, follow)?;
    Ok(Agreed { moving, entry, place })
}
