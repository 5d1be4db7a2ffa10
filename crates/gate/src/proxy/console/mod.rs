//! The admin console: PostgreSQL's protocol, spoken by the proxy itself, so that psql, drivers and scripts reach it. It
//! has a database name of its own on the proxy's addresses, and can have addresses of its own besides; it always asks for
//! a password, and takes connections only from where it is told to. Statements are [`backwater_flow::statement`]'s.

mod answer;
mod block;
mod extended;
mod login;
mod message;
pub(super) mod scram;
mod show;

use super::control::Control;
use super::last_words::{self, LAST_WORDS_WITHIN};
use super::log_limit::{self, shown};
use super::sources::{Network, admits};
use super::stream::{Detached, Stream};
use super::worker::Phase;
use super::{Address, change::ChangeError};
use crate::GateError;
use crate::clock;
use crate::wire::StartUp;
use answer::Answer;
use backwater_flow::StateError;
use backwater_flow::statement::{Request, SessionCommand, Show, Statement, parse_requests};
use block::Block;
use extended::Extended;
use message::{Complaint, Reply, Said};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};

/// Visitors at once by the console's own addresses, and again by the proxy's; more are refused.
const MOST_VISITORS: usize = 32;
/// A visitor that has not logged in by then is sent away.
const LOGIN_WITHIN: Duration = Duration::from_secs(10);
/// Answers are sent when so much has been collected.
const SEND_AT: usize = 64 * 1024;

/// Where the console is, and who may use it.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Its database's name on the proxy's own addresses.
    pub database: String,
    /// Addresses of its own.
    pub listen: Vec<Address>,
    /// From where it takes connections.
    pub from: Vec<Network>,
    /// Who may use it.
    pub(super) users: BTreeMap<String, scram::Verifier>,
}

/// Somebody at the console's door.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) client: Detached,
    /// What was read after the start-up message.
    pub(super) heard: Vec<u8>,
    pub(super) start: StartUp,
    pub(super) peer: String,
    pub(super) address: Option<IpAddr>,
    /// It came by an address of the console's own.
    pub(super) at_own_door: bool,
}

/// The names of the columns of something that can be shown.
pub(crate) fn shown_columns(what: Show) -> Vec<&'static str> {
    show::columns(what).iter().map(|column| column.name).collect()
}

/// Starts the console's thread. It ends with the proxy.
pub(super) fn start(
    control: Arc<Control>,
    mut visits: mpsc::UnboundedReceiver<Visit>,
    mut phase: watch::Receiver<Phase>,
) -> Result<(), GateError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().enable_time().build().map_err(GateError::system("start the console"))?;
    let receiving = async move {
        // Apart: who comes by the proxy's addresses and does not log in keeps nobody out who comes by the console's own.
        let [own, shared] = [MOST_VISITORS; 2].map(|most| Arc::new(Semaphore::new(most)));
        loop {
            let visit = tokio::select! {
                biased;
                // An error means that the proxy was dropped, which is the same.
                _ = phase.wait_for(|phase| *phase == Phase::Ending) => return,
                visit = visits.recv() => visit,
            };
            let Some(visit) = visit else { return };
            let (control, phase) = (Arc::clone(&control), phase.clone());
            let places = Arc::clone(if visit.at_own_door { &own } else { &shared });
            tokio::spawn(async move {
                let place = places.try_acquire();
                let peer = visit.peer.clone();
                if let Err(error) = receive(&control, &phase, visit, place.is_ok()).await {
                    tracing::debug!(%peer, %error, "a console connection broke off");
                }
                drop(place);
            });
        }
    };
    let run = move || {
        runtime.block_on(receiving);
        // A change that is being written to a slow disk holds nobody up.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("console".to_owned());
    thread.spawn(run).map_err(GateError::system("start the console"))?;
    Ok(())
}

async fn receive(
    control: &Arc<Control>,
    phase: &watch::Receiver<Phase>,
    visit: Visit,
    has_place: bool,
) -> io::Result<()> {
    let Visit { client, heard, start, peer, address, .. } = visit;
    let mut connection = Connection { stream: client.attach()?, read: heard, reply: Reply::default() };
    let terms = control.terms();
    let refusal = match &terms.admin {
        None => Some(Complaint::new("3D000", "there is no console here: the configuration has no [admin]")),
        Some(admin) if !admits(&admin.from, address) => {
            let who = address.map_or_else(|| "here".to_owned(), |address| address.to_string());
            Some(Complaint::new("28000", format!("the console takes no connections from {who} (see admin.from)")))
        }
        Some(_) if !has_place => Some(Complaint::new("53300", "too many connections to the console")),
        Some(_) if start.is_replication() => Some(Complaint::new("0A000", "the console does not replicate")),
        Some(_) => None,
    };
    if let Some(complaint) = refusal {
        control.counters.refused.fetch_add(1, Ordering::Relaxed);
        let user = shown(start.user());
        log_limit::REFUSED.write(|| tracing::warn!(%peer, %user, "refused at the console: {}", complaint.message));
        // Not waited for: it may have no place, and there is no bound to how many of these there are.
        return connection.tell_last(&complaint).await;
    }
    let Some(admin) = &terms.admin else { return Ok(()) };
    match tokio::time::timeout(LOGIN_WITHIN, login::login(&mut connection, admin, &start)).await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => {
            control.counters.refused.fetch_add(1, Ordering::Relaxed);
            let user = shown(start.user());
            let line = || tracing::warn!(%peer, %user, "a wrong password or an unknown user at the console");
            log_limit::CONSOLE_LOGINS.write(line);
            let why = format!("password authentication failed for user {}", backwater_flow::quote(start.user()));
            return connection.refuse(&Complaint::new("28P01", why)).await;
        }
        Ok(Err(error)) => return Err(error),
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    }
    tracing::info!(%peer, user = start.user(), "logged in to the console");
    let speaker = Speaker { control, phase, user: start.user(), block: Block::of(&start), discarded: false };
    converse(speaker, connection).await
}

/// One connection to the console.
struct Connection {
    stream: Stream,
    /// What was read and not yet understood.
    read: Vec<u8>,
    reply: Reply,
}

impl Connection {
    /// The next message, after everything that is to be said has been said. None where the client left.
    async fn hear(&mut self) -> io::Result<Option<Said>> {
        loop {
            match message::take(&mut self.read) {
                Ok(Some(said)) => return Ok(Some(said)),
                Ok(None) => {}
                Err(error) => {
                    self.refuse(&Complaint::new("08P01", error.to_string())).await?;
                    return Ok(None);
                }
            }
            let mut some = [0; 4096];
            let count = self.stream.read(&mut some).await?;
            if count == 0 {
                return Ok(None);
            }
            self.read.extend_from_slice(&some[..count]);
        }
    }

    async fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&std::mem::take(&mut self.reply.bytes)).await
    }

    /// A last word, with time to hear it.
    async fn refuse(&mut self, complaint: &Complaint) -> io::Result<()> {
        self.tell_last(complaint).await?;
        self.stream.linger(LAST_WORDS_WITHIN).await;
        Ok(())
    }

    /// A last word, after everything that is to be said before. Who takes neither does not keep its place.
    async fn tell_last(&mut self, complaint: &Complaint) -> io::Result<()> {
        let both = async {
            self.send().await?;
            last_words::tell(&mut self.stream, complaint.sqlstate, &complaint.message).await
        };
        clock::within(LAST_WORDS_WITHIN, both).await.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }
}

async fn converse(mut speaker: Speaker<'_>, mut connection: Connection) -> io::Result<()> {
    let mut extended = Extended::default();
    connection.reply.ready(speaker.block.status());
    connection.send().await?;
    while let Some(said) = connection.hear().await? {
        let reply = &mut connection.reply;
        match said.kind {
            b'X' => break,
            b'Q' => {
                extended.begin_of_query();
                speaker.simple(&said.body, reply).await;
                extended.forget(&mut speaker);
                extended.end_of_query(speaker.block);
                reply.ready(speaker.block.status());
                connection.send().await?;
            }
            b'S' => {
                extended.end_of_query(speaker.block);
                reply.ready(speaker.block.status());
                connection.send().await?;
            }
            b'H' => connection.send().await?,
            _ => {
                extended.hear(&mut speaker, &said, reply).await;
                if reply.bytes.len() > SEND_AT {
                    connection.send().await?;
                }
            }
        }
    }
    Ok(())
}

/// Who speaks on one connection, and where his transaction stands.
struct Speaker<'c> {
    control: &'c Arc<Control>,
    phase: &'c watch::Receiver<Phase>,
    user: &'c str,
    block: Block,
    /// What was prepared is to be forgotten.
    discarded: bool,
}

impl Speaker<'_> {
    /// A simple query: all statements or, if one cannot be done, none; what is shown is what is in force after them.
    async fn simple(&mut self, body: &[u8], reply: &mut Reply) {
        let answers = match query_text(body).and_then(read) {
            Ok(requests) => self.execute(&requests).await,
            Err(complaint) => Err(complaint),
        };
        match answers {
            Ok(answers) if answers.is_empty() => reply.put(b'I', b""),
            Ok(answers) => answers.iter().for_each(|answer| reply.answer(answer)),
            Err(complaint) => {
                self.block.fail();
                reply.error(&complaint);
            }
        }
    }

    async fn execute(&mut self, requests: &[Request]) -> Result<Vec<Answer>, Complaint> {
        self.block.admit(requests.first())?;
        self.block.admit_all(requests.iter().map(|request| (request, change(request).map(tag))))?;
        let changes: Vec<Statement> = requests.iter().filter_map(change).cloned().collect();
        let mut notices = Vec::new();
        if !changes.is_empty() {
            self.may_change()?;
            notices = self.control.change(self.user, &changes).await.map_err(|error| complaint_of(&error))?;
        }
        let mut answers: Vec<Answer> = requests.iter().map(|request| self.answer(request)).collect();
        if let Some(first) = answers.first_mut() {
            first.notices.append(&mut notices);
        }
        Ok(answers)
    }

    /// Whoever comes by these addresses now may reach another already, who would not hear of it. Pools of connections take this
    /// code for a connection that is over, and make another.
    fn may_change(&self) -> Result<(), Complaint> {
        match *self.phase.borrow() {
            Phase::Running => Ok(()),
            _ => Err(Complaint::new("57P01", "this proxy is ending and changes nothing any more: connect anew")),
        }
    }

    fn answer(&mut self, request: &Request) -> Answer {
        match request {
            Request::Session(command) => {
                self.discarded |= *command == SessionCommand::DiscardAll;
                self.block.answer(*command)
            }
            Request::Statement(Statement::Show(what)) => show::show(self.control, *what),
            Request::Statement(done) => {
                self.block.change();
                Answer { tag: tag(done).to_owned(), ..Answer::default() }
            }
        }
    }
}

fn query_text(body: &[u8]) -> Result<&str, Complaint> {
    let text = body.strip_suffix(&[0]).and_then(|text| std::str::from_utf8(text).ok());
    text.ok_or_else(|| Complaint::new("22021", "a statement must be text in UTF-8"))
}

/// What a text says.
fn read(text: &str) -> Result<Vec<Request>, Complaint> {
    parse_requests(text).map_err(|error| Complaint {
        sqlstate: "42601",
        position: error.position,
        message: error.message,
    })
}

/// What changes something.
fn change(request: &Request) -> Option<&Statement> {
    match request {
        Request::Session(_) | Request::Statement(Statement::Show(_)) => None,
        Request::Statement(statement) => Some(statement),
    }
}

fn tag(statement: &Statement) -> &'static str {
    match statement {
        Statement::CreateRule { .. } => "CREATE EXCEPT RULE",
        Statement::AlterRule { .. } => "ALTER EXCEPT RULE",
        Statement::DropRule { .. } => "DROP EXCEPT RULE",
        Statement::CreatePool { .. } => "CREATE RESOURCE POOL",
        Statement::AlterPool { .. } => "ALTER RESOURCE POOL",
        Statement::DropPool { .. } => "DROP RESOURCE POOL",
        // As PostgreSQL says it.
        Statement::CreateUser { .. } => "CREATE ROLE",
        Statement::AlterUser { .. } => "ALTER ROLE",
        Statement::DropUser { .. } => "DROP ROLE",
        Statement::Set(_) => "SET",
        Statement::Show(_) => "SHOW",
    }
}

fn complaint_of(error: &ChangeError) -> Complaint {
    let sqlstate = match error {
        ChangeError::State(StateError::Exists { .. }) => "42710",
        ChangeError::State(StateError::Missing { .. }) => "42704",
        ChangeError::State(StateError::InUse { .. } | StateError::DefaultPool) => "2BP01",
        ChangeError::State(_) => "22023",
        ChangeError::Gate(_) => "0A000",
        ChangeError::Keep { .. } => "58030",
        ChangeError::Role { .. } => "42501",
    };
    Complaint::new(sqlstate, error.to_string())
}

/// Reads bytes as what a client says, before it has shown who it is. For the fuzzer.
#[cfg(fuzzing)]
pub fn exercise(bytes: &[u8], other: &[u8]) {
    message::exercise(bytes);
    extended::exercise(bytes);
    scram::exercise(bytes, other);
}
