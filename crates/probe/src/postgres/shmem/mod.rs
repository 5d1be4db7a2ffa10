//! A look without asking: on the server's host, with the right to its processes' memory, sessions are read where the server keeps
//! them. That costs the server nothing, and the recorder less than an answer does (docs/bench/overhead.md).
//! Once a second the server is asked all the same, and what it says is what is believed: a session that stood there the same before the answer and after it must be what
//! the answer says, or nothing is read here any more. What waits are called is learned from answers, and so is what the processes
//! are that are no clients. Whatever is not known yet, or is being written all the time, makes a look one that asks.

#[cfg(fuzzing)]
mod exercise;
mod layout;
mod learn;
mod mapped;
mod names;
mod own;
mod places;
#[cfg(test)]
mod tests;
mod trust;

#[cfg(fuzzing)]
pub(super) use exercise::exercise;

use super::link::{Link, QueryError};
use super::look::{Look, Sent, Session};
use super::row::ServerTime;
use super::running::Running;
use layout::{Layout, Status, text_in};
use learn::Standing;
use mapped::Segment;
use names::{Names, class_of};
use own::Own;
use places::{Image, Places, TRIES, Told};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use trust::{Rest, Trust};

const CLIENT: &str = "client backend";
const HEARTBEAT: &str = "backwater heartbeat";
/// So many characters of a statement are kept.
const CHARACTERS: usize = 1_024;

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

/// A session that a look tells of.
#[derive(Debug)]
struct Found {
    slot: usize,
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
    segment: Segment,
    places: Places,
    own: Own,
    /// st_backendType of clients.
    client_kind: u32,
    image: Image,
    /// By their slots.
    known: Vec<Known>,
    names: Names,
    trust: Trust,
    rest: Rest,
    /// What stood there before an answer and after it, where there is something to be learned from it.
    before: Option<Standing>,
    after: Option<Standing>,
    /// Whether the next answer is to be learned from, whatever it has.
    wants_answer: bool,
    is_believed: bool,
    /// How many looks there were since that was told.
    looks: u32,
    texts: Vec<u8>,
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
        let own = Own::child(told.pid, told.began, postmaster_pid, proc)?;
        if may_not_overcommit(proc) {
            return Err(
                "vm.overcommit_memory is 2, and memory that a server let go of would count against the next one"
                    .to_owned(),
            );
        }
        let segment = Segment::of(postmaster_pid, proc)?;
        let places = Places::find(told, layout, &segment)?;
        let mut memory = Memory::new(segment, places, own, 0);
        for slot in 0..places.slots {
            memory.image.refresh(&memory.segment, &places, slot)?;
        }
        memory.client_kind = places.check(&memory.segment, &memory.image, &memory.own)?;
        if !memory.by_pid()?.contains_key(&memory.own.pid) {
            return Err("the process of the session that asked is not there".to_owned());
        }
        Ok(memory)
    }

    fn new(segment: Segment, places: Places, own: Own, client_kind: u32) -> Memory {
        Memory {
            segment,
            places,
            own,
            client_kind,
            image: Image::of(&places),
            known: vec![Known::default(); places.slots],
            names: Names::default(),
            trust: Trust::default(),
            rest: Rest::default(),
            before: None,
            after: None,
            wants_answer: false,
            is_believed: true,
            looks: 0,
            texts: Vec::new(),
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

    /// How many looks there were since this was asked last.
    pub(super) fn take_looks(&mut self) -> u32 {
        std::mem::take(&mut self.looks)
    }

    /// Whether the session that asks has ended, after which nothing here need be the server's any more.
    pub(super) fn has_ended(&self) -> bool {
        self.own.has_ended()
    }

    /// Whether what is read may be told.
    pub(super) fn is_believed(&self) -> bool {
        self.is_believed
    }

    /// Reads the sessions that are to be told, each as it stood there at one time.
    fn read(&mut self, running: &mut Running) -> Result<(), Unseen> {
        self.found.clear();
        self.texts.clear();
        let mut is_there = false;
        for slot in 0..self.places.slots {
            if let Some(one) = self.at_one_time(slot, running)? {
                self.found.push(one);
            }
            is_there |= self.own.is_idle(self.status(slot));
        }
        // Where the session that asks is not, the memory may be that of a server which is no more.
        if !is_there {
            return Err(Unseen::Unknown);
        }
        for one in self.found.iter().filter(|one| one.is_new) {
            self.known[one.slot].is_told = true;
        }
        Ok(())
    }

    fn status(&self, slot: usize) -> Status<'_> {
        self.image.status(&self.places, slot)
    }

    /// What is in a slot, where it is to be told, with all that belongs to it.
    fn at_one_time(&mut self, slot: usize, running: &mut Running) -> Result<Option<Found>, Unseen> {
        for _ in 0..TRIES {
            let count = self.image.refresh(&self.segment, &self.places, slot)?.ok_or(Unseen::Written)?;
            let begin = self.texts.len();
            let one = self.one(slot, running);
            fence(Ordering::Acquire);
            if self.places.count(&self.segment, slot)? == count {
                return one;
            }
            self.texts.truncate(begin);
        }
        Err(Unseen::Written)
    }

    /// What is in a slot as it was read last, where it is to be told, with its wait and its text as they are now.
    fn one(&mut self, slot: usize, running: &mut Running) -> Result<Option<Found>, Unseen> {
        let status = self.image.status(&self.places, slot);
        let pid = status.pid();
        if pid <= 0 || pid == self.own.pid {
            return Ok(None);
        }
        let state = status.state().ok_or(Unseen::Unknown)?;
        let is_client = status.kind() == self.client_kind;
        if is_client && !is_active(state) {
            return Ok(None);
        }
        let begun = status.statement_begun().map(ServerTime::of);
        let known = *self.known_at(slot);
        let what = if is_client { What::Client } else { known.what.ok_or(Unseen::Unknown)? };
        let proc = match known.proc {
            Some(proc) => proc,
            None => self.proc_of(slot)?.ok_or(Unseen::Unknown)?,
        };
        let wait = self.places.wait(&self.segment, proc)?;
        let class = class_of(wait);
        let is_told = match what {
            What::Carrier => true,
            _ if is_active(state) => class != Some("Activity") && !self.is_ours(slot),
            What::Client => false,
            What::Other => {
                let is_between = wait == 0 || matches!(class, Some("Activity" | "Extension"));
                state.is_empty() && !is_between && !self.is_ours(slot)
            }
        };
        if !is_told {
            return Ok(None);
        }
        let is_known = running.knows(pid);
        // What a process is that is no client, the server alone can say.
        if (wait != 0 && self.names.of(wait).is_none()) || !(is_client || is_known) {
            return Err(Unseen::Unknown);
        }
        let text = match begun {
            Some(begun) if !running.knows_statement(pid, begun) => {
                Some(self.places.text(&self.segment, slot, &mut self.texts)?)
            }
            _ => None,
        };
        let is_new = is_client && !(is_known && known.is_told);
        let client = if is_new { self.status(slot).client() } else { None };
        let client = client.map(|(address, port)| (address.to_string(), i32::from(port)));
        Ok(Some(Found { slot, what, wait, text, client, is_new }))
    }

    /// Whether it is one that the probe itself makes.
    fn is_ours(&self, slot: usize) -> bool {
        let application = self.image.application(&self.places, slot);
        application.strip_prefix(HEARTBEAT.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The PGPROC of the session that has this slot.
    fn proc_of(&mut self, slot: usize) -> Result<Option<usize>, String> {
        let procs = self.by_pid()?;
        let proc = procs.get(&self.status(slot).pid()).map(|(proc, _)| *proc);
        self.known_at(slot).proc = proc;
        Ok(proc)
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
            let text = one.text.clone().and_then(|text| text_in(&self.texts[text]));
            Session {
                pid: status.pid(),
                class,
                event,
                application: text_in(self.image.application(&self.places, one.slot)),
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

/// Whether all memory is counted as if it were used (proc_sys_vm(5), overcommit_memory): what is mapped here counts as long as it is, and
/// a server that has crashed may not get as much again.
fn may_not_overcommit(proc: &Path) -> bool {
    std::fs::read_to_string(proc.join("sys/vm/overcommit_memory")).is_ok_and(|mode| mode.trim() == "2")
}

fn is_active(state: &str) -> bool {
    matches!(state, "active" | "fastpath function call")
}

/// As much of a statement as is kept.
fn beginning(text: &str) -> &str {
    // Most are short: their characters need not be counted.
    let end = if text.len() > CHARACTERS { text.char_indices().nth(CHARACTERS) } else { None };
    end.map_or(text, |(end, _)| &text[..end])
}
