//! A look without asking: on the server's host, with the right to read its processes' memory, sessions are read where the server
//! keeps them. That costs the server nothing, and the recorder more than an answer does, together less (docs/bench/overhead.md).
//! Once a second the server is asked all the same, and what it says is what is believed: a session that stood there the same before the answer and after it must be what
//! the answer says, or nothing is read here any more. What waits are called is learned from answers, and so is what the processes
//! are that are no clients. Whatever is not known yet, or is being written all the time, makes a look one that asks.

mod layout;
mod learn;
mod names;
mod places;
mod reading;
#[cfg(test)]
mod tests;
mod trust;

use super::link::{Link, QueryError};
use super::look::{Look, Sent, Session};
use super::row::ServerTime;
use super::running::Running;
use layout::{Layout, Status, text_in, word_at};
use learn::Reading;
use names::{Names, class_of};
use places::{Own, Places, Told};
use reading::{Piece, Process};
use std::ops::Range;
use std::path::Path;
use trust::{Rest, Trust};

const CLIENT: &str = "client backend";
const HEARTBEAT: &str = "backwater heartbeat";
/// So many characters of a statement are kept.
const CHARACTERS: usize = 1_024;
/// How often a session is read that is being written.
const TRIES: usize = 16;

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Client,
    /// One that carries WAL or pages.
    Carrier,
    Other,
}

/// What is known of the session that has a slot, for as long as it lives.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    pid: i32,
    began: Option<i64>,
    /// Which PGPROC is its own.
    proc: Option<usize>,
    /// None where the server has not said it.
    what: Option<What>,
    /// Whether it was told whose it is.
    is_told: bool,
}

/// A session that a look may tell of.
#[derive(Debug)]
struct Found {
    slot: usize,
    proc: usize,
    what: What,
    /// Its wait_event_info.
    wait: u32,
    /// Where its statement's text is, where that was read.
    text: Option<Range<usize>>,
    /// Its client's address and port, where it is told whose it is.
    client: Option<(String, i32)>,
    /// Whether it is told whose it is.
    is_new: bool,
}

/// What came of reading a slot alone.
#[derive(Debug)]
enum Alone {
    /// Who is told of it.
    Is(Option<Found>),
    /// It was written meanwhile.
    Again,
}

/// Why a look is left to asking.
#[derive(Debug)]
#[expect(dead_code, reason = "why is told where looks are traced")]
enum Unseen {
    /// A process, a state or a wait that was not learned.
    Unknown,
    /// A session that was being written each time.
    Written,
    Unread(String),
}

impl From<String> for Unseen {
    fn from(why: String) -> Unseen {
        Unseen::Unread(why)
    }
}

/// The server's memory, as far as sessions are in it.
#[derive(Debug)]
pub(super) struct Memory {
    process: Process,
    places: Places,
    own: Own,
    /// st_backendType of clients.
    client_kind: u32,
    /// By their slots.
    known: Vec<Known>,
    names: Names,
    trust: Trust,
    rest: Rest,
    /// What stood there first, and what stood there a moment later.
    before: Reading,
    after: Reading,
    /// Whether the next answer is to be learned from, whatever it has, and whether both were read about one.
    wants_answer: bool,
    is_read: bool,
    is_believed: bool,
    /// How many looks there were since that was told.
    looks: u32,
    /// Waits and texts.
    details: Vec<u8>,
    pieces: Vec<Piece>,
    gathered: Vec<Range<usize>>,
    found: Vec<Found>,
}

impl Memory {
    /// Finds a server's memory by its own words; why not, where it cannot be read.
    pub(super) async fn find(
        link: &Link,
        postmaster_pid: i32,
        proc: &Path,
    ) -> Result<Result<Memory, String>, QueryError> {
        let Some(layout) = Layout::of(link.major()) else {
            return Ok(Err(format!("where PostgreSQL {} keeps its sessions is not known", link.major())));
        };
        Ok(Told::by(link).await?.and_then(|told| Memory::of(&told, layout, postmaster_pid, proc)))
    }

    fn of(told: &Told, layout: Layout, postmaster_pid: i32, proc: &Path) -> Result<Memory, String> {
        let mut process = Process::of(postmaster_pid);
        let places = Places::find(told, layout, &mut process, proc)?;
        let mut reading = Reading::default();
        reading.read(&mut process, &places)?;
        let client_kind = places.check(&reading.image, told.own)?;
        if reading.waits(&places).all(|(pid, ..)| pid != told.own.pid) {
            return Err("the process of the session that asked is not there".to_owned());
        }
        Ok(Memory::new(process, places, told.own, client_kind))
    }

    fn new(process: Process, places: Places, own: Own, client_kind: u32) -> Memory {
        Memory {
            process,
            places,
            own,
            client_kind,
            known: vec![Known::default(); places.slots],
            names: Names::default(),
            trust: Trust::default(),
            rest: Rest::default(),
            before: Reading::default(),
            after: Reading::default(),
            wants_answer: false,
            is_read: false,
            is_believed: true,
            looks: 0,
            details: Vec::new(),
            pieces: Vec::new(),
            gathered: Vec::new(),
            found: Vec::new(),
        }
    }

    /// A look; none where the server is to be asked.
    pub(super) fn look(&mut self, running: &mut Running, server: ServerTime) -> Option<Look<'_>> {
        if !self.trust.is_whole() || self.rest.goes_on() {
            return None;
        }
        let read = self.read(running);
        self.rest.after(read.is_ok());
        self.wants_answer = matches!(read, Err(Unseen::Unknown));
        match read {
            Ok(()) => {
                self.looks += 1;
                Some(Look { sessions: self.sessions().collect(), server: Some(server), seen: None })
            }
            Err(why) => {
                tracing::trace!(?why, "a look that asks instead");
                None
            }
        }
    }

    /// How many looks there were since it was asked last.
    pub(super) fn take_looks(&mut self) -> u32 {
        std::mem::take(&mut self.looks)
    }

    /// Whether what is read may be told.
    pub(super) fn is_believed(&self) -> bool {
        self.is_believed
    }

    /// Reads the sessions that are to be told, each as it stood there at one time.
    fn read(&mut self, running: &mut Running) -> Result<(), Unseen> {
        self.before.image.read(&mut self.process, &self.places)?;
        self.choose()?;
        self.read_details(running)?;
        self.after.image.read_again(&mut self.process, &self.places)?;
        let mut found = std::mem::take(&mut self.found);
        let told = self.tell(&mut found, running);
        self.found = found;
        told
    }

    fn status(&self, slot: usize) -> Status<'_> {
        self.before.image.status(&self.places, slot)
    }

    /// Clients that are active, and all other processes.
    fn choose(&mut self) -> Result<(), Unseen> {
        self.found.clear();
        let mut is_there = false;
        for slot in 0..self.places.slots {
            let status = self.status(slot);
            is_there |= self.is_own(status);
            if let Some(one) = self.one(slot)? {
                self.found.push(one);
            }
        }
        // Where it is not, the memory may be that of a server which is no more.
        if is_there { Ok(()) } else { Err(Unseen::Unknown) }
    }

    /// Whether it is that of the session that asks, which has nothing to do now.
    fn is_own(&self, status: Status<'_>) -> bool {
        (status.pid(), status.began(), status.state()) == (self.own.pid, self.own.began, Some("idle"))
    }

    /// What is in a slot, where it may be told.
    fn one(&mut self, slot: usize) -> Result<Option<Found>, Unseen> {
        let status = self.before.image.status(&self.places, slot);
        let (pid, began) = (status.pid(), status.began());
        if pid <= 0 || pid == self.own.pid {
            return Ok(None);
        }
        let is_client = status.kind() == self.client_kind;
        if is_client && !is_active(status.state().ok_or(Unseen::Unknown)?) {
            return Ok(None);
        }
        let known = &mut self.known[slot];
        if (known.pid, known.began) != (pid, began) {
            *known = Known { pid, began, ..Known::default() };
        }
        let what = if is_client { Some(What::Client) } else { known.what };
        if known.proc.is_none() {
            self.place()?;
        }
        let (proc, what) = (self.known[slot].proc.ok_or(Unseen::Unknown)?, what.ok_or(Unseen::Unknown)?);
        Ok(Some(Found { slot, proc, what, wait: 0, text: None, client: None, is_new: false }))
    }

    /// Finds the PGPROC of each session that has none yet.
    fn place(&mut self) -> Result<(), String> {
        self.before.read_procs(&mut self.process, &self.places)?;
        let procs = self.before.by_pid(&self.places);
        for (slot, known) in self.known.iter_mut().enumerate() {
            let status = self.before.image.status(&self.places, slot);
            if known.proc.is_none() && status.pid() > 0 {
                if (known.pid, known.began) != (status.pid(), status.began()) {
                    *known = Known { pid: status.pid(), began: status.began(), ..Known::default() };
                }
                known.proc = procs.get(&known.pid).map(|(proc, _)| *proc);
            }
        }
        Ok(())
    }

    /// Waits, and how the texts begin of statements that began since they were last told.
    fn read_details(&mut self, running: &mut Running) -> Result<(), Unseen> {
        let (places, image) = (&self.places, &self.before.image);
        self.pieces.clear();
        self.pieces.extend(self.found.iter().map(|one| places.wait_piece(one.proc)));
        let mut is_new = |one: &Found| {
            let status = image.status(places, one.slot);
            let begun = status.statement_begun().map(ServerTime::of);
            begun.is_some_and(|begun| !running.knows_statement(status.pid(), begun))
        };
        let with_text: Vec<usize> = (0..self.found.len()).filter(|place| is_new(&self.found[*place])).collect();
        self.pieces.extend(with_text.iter().map(|place| places.text_begin_piece(self.found[*place].slot)));
        self.process.gather(&self.pieces, &mut self.details, &mut self.gathered)?;
        let (waits, texts) = self.gathered.split_at(self.found.len());
        for (one, wait) in self.found.iter_mut().zip(waits) {
            one.wait = word_at(&self.details[wait.clone()], 0).unwrap_or_default();
        }
        for (place, text) in with_text.into_iter().zip(texts) {
            self.found[place].text = Some(text.clone());
        }
        Ok(())
    }

    /// Of what was found leaves what is told. Whoever changed while all were read is read alone, and judged by that, also who had
    /// nothing to do: or short statements would be seen less often than they run.
    fn tell(&mut self, found: &mut Vec<Found>, running: &mut Running) -> Result<(), Unseen> {
        let mut chosen = std::mem::take(found).into_iter().peekable();
        for slot in 0..self.places.slots {
            let one = chosen.next_if(|one| one.slot == slot);
            if let Some(mut one) = self.settle(slot, one)?
                && self.is_told(&one).ok_or(Unseen::Unknown)?
            {
                self.tell_whose(&mut one, running)?;
                found.push(one);
            }
        }
        for one in found.iter().filter(|one| one.is_new) {
            self.known[one.slot].is_told = true;
        }
        Ok(())
    }

    /// What is in a slot, as it stood there at one time.
    fn settle(&mut self, slot: usize, one: Option<Found>) -> Result<Option<Found>, Unseen> {
        let (before, after) = (self.status(slot), self.after.image.status(&self.places, slot));
        let text = one.as_ref().and_then(|one| one.text.clone());
        let is_whole = text.is_none_or(|text| self.details[text].contains(&0));
        if (before.lasted(after) || (before.pid(), after.pid()) == (0, 0)) && is_whole {
            return Ok(one);
        }
        for _ in 0..TRIES {
            if let Alone::Is(one) = self.read_alone(slot)? {
                return Ok(one);
            }
        }
        Err(Unseen::Written)
    }

    /// Reads one slot, and all that belongs to it.
    fn read_alone(&mut self, slot: usize) -> Result<Alone, Unseen> {
        let (places, proc) = (&self.places, self.known[slot].proc.unwrap_or_default());
        let (status, application) = (places.status_piece(slot), places.application_piece(slot));
        let (wait, text) = (places.wait_piece(proc), places.text_piece(slot));
        let pieces = [status, application, wait, text, status];
        let from = self.details.len();
        self.details.resize(from + pieces.iter().map(|piece| piece.bytes).sum::<usize>(), 0);
        let bytes = &mut self.details[from..];
        self.process.read(&pieces, bytes)?;
        let (first, rest) = bytes.split_at(status.bytes);
        let (name, rest) = rest.split_at(application.bytes);
        let last = &rest[wait.bytes + text.bytes..];
        if !Status::of(first, places.layout).lasted(Status::of(last, places.layout)) {
            self.details.truncate(from);
            return Ok(Alone::Again);
        }
        let number = word_at(rest, 0).unwrap_or_default();
        self.before.image.set(places, slot, first, name);
        let text_from = from + status.bytes + application.bytes + wait.bytes;
        match self.one(slot)? {
            // Another session's wait was read.
            Some(one) if one.proc != proc => Ok(Alone::Again),
            Some(one) => {
                let text = Some(text_from..text_from + text.bytes);
                Ok(Alone::Is(Some(Found { wait: number, text, ..one })))
            }
            None => Ok(Alone::Is(None)),
        }
    }

    /// Whether a look tells of it, as the server's answer would; none where that is not known.
    fn is_told(&self, one: &Found) -> Option<bool> {
        let status = self.status(one.slot);
        let state = status.state()?;
        let class = class_of(one.wait);
        let is_ours = || text_in(self.before.image.application(&self.places, one.slot)) == Some(HEARTBEAT);
        let is_told = match one.what {
            What::Carrier => true,
            _ if is_active(state) => class != Some("Activity") && !is_ours(),
            What::Client => false,
            What::Other => {
                state.is_empty() && one.wait != 0 && !matches!(class, Some("Activity" | "Extension")) && !is_ours()
            }
        };
        let is_named = one.wait == 0 || self.names.of(one.wait).is_some();
        if is_told && !is_named { None } else { Some(is_told) }
    }

    /// Of a client that is new it is told whose it is; what another process is, the server alone can say.
    fn tell_whose(&mut self, one: &mut Found, running: &mut Running) -> Result<(), Unseen> {
        let status = self.before.image.status(&self.places, one.slot);
        let known = &self.known[one.slot];
        let is_client = status.kind() == self.client_kind;
        let is_known = running.knows(status.pid());
        // Another may have come to its place while all were read.
        let is_another = (known.pid, known.began) != (status.pid(), status.began());
        if is_another || is_client != (one.what == What::Client) || (!is_client && !is_known) {
            return Err(Unseen::Unknown);
        }
        one.is_new = is_client && !(is_known && known.is_told);
        if one.is_new {
            one.client = status.client().map(|(address, port)| (address.to_string(), i32::from(port)));
        }
        Ok(())
    }

    /// What was found, as the server's answer would have it.
    fn sessions(&self) -> impl Iterator<Item = Session<'_>> {
        self.found.iter().map(|one| {
            let status = self.status(one.slot);
            let (class, event) = self.names.of(one.wait).unzip();
            let client = one.client.as_ref();
            let sent = one.is_new.then(|| Sent {
                backend_type: Some(CLIENT),
                role: status.role(),
                database: status.database(),
                client_addr: client.map(|(address, _)| address.as_str()),
                client_port: client.map(|(_, port)| *port),
            });
            let text = one.text.clone().and_then(|text| text_in(&self.details[text]));
            Session {
                pid: status.pid(),
                class,
                event,
                application: text_in(self.before.image.application(&self.places, one.slot)),
                state: status.state().filter(|state| *state != "active"),
                query: text.map(beginning),
                begun: status.statement_begun().map(ServerTime::of),
                // A walsender's is not told.
                transaction_begun: status.transaction_begun().filter(|_| one.what != What::Carrier).map(ServerTime::of),
                query_id: status.query_id(),
                sent,
            }
        })
    }
}

fn is_active(state: &str) -> bool {
    matches!(state, "active" | "fastpath function call")
}

/// As much of a statement as is kept.
fn beginning(text: &str) -> &str {
    text.char_indices().nth(CHARACTERS).map_or(text, |(end, _)| &text[..end])
}

/// So much of a buffer, which keeps its memory: what is read over need not be cleared before.
fn at_least(buffer: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
    &mut buffer[..bytes]
}
