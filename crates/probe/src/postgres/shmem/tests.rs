//! A server's memory as it might be, in this process's own.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::postgres::running::Whose;
use crate::postgres::texts::Statements;
use backwater_model::Text;
use proptest::prelude::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;

const SLOTS: usize = 6;
const CLIENT_KIND: u32 = 3;
const WRITER_KIND: u32 = 12;
const LAUNCHER_KIND: u32 = 1;
const ACTIVE: u32 = 2;
const IDLE: u32 = 1;
const SLEEP: u32 = 0x0900_0002;
const CLIENT_READ: u32 = 0x0600_0000;
const MAIN: u32 = 0x0500_0003;

/// One session of the server's.
#[derive(Clone, Copy)]
struct Is {
    pid: i32,
    kind: u32,
    state: u32,
    wait: u32,
    begun: i64,
    application: &'static str,
    text: &'static str,
}

const CLIENT: Is =
    Is { pid: 11, kind: CLIENT_KIND, state: ACTIVE, wait: SLEEP, begun: 5_000, application: "nap", text: "SELECT a" };

/// A file that is mapped as the memory, and what stands in it.
struct Fake {
    file: File,
    bytes: Vec<u8>,
    layout: Layout,
    places: Places,
    own_wait: u32,
}

impl Fake {
    fn new() -> Fake {
        let layout = Layout::of(15).unwrap();
        let bytes = vec![0_u8; SLOTS * (layout.status_bytes + 64 + 1_024 + layout.proc_bytes)];
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        Fake { file, bytes, layout, places: Places::one_by_one(layout, SLOTS), own_wait: CLIENT_READ }
    }

    /// The sessions are these, the first of them the recorder's own. Each has written since.
    fn set(&mut self, sessions: &[Is]) {
        let counts = (0..SLOTS).map(|slot| self.bytes[slot * self.layout.status_bytes]);
        let counts: Vec<u8> = counts.map(|count| count.wrapping_add(2)).collect();
        self.bytes.fill(0);
        let own = Is { pid: own_pid(), state: IDLE, wait: self.own_wait, ..CLIENT };
        for (slot, is) in [own].iter().chain(sessions).enumerate() {
            self.put(slot, is);
        }
        counts.into_iter().enumerate().for_each(|(slot, count)| self.bytes[slot * self.layout.status_bytes] = count);
        self.write();
    }

    fn put(&mut self, slot: usize, is: &Is) {
        let status = slot * self.layout.status_bytes;
        let application = SLOTS * self.layout.status_bytes + slot * 64;
        let text = SLOTS * (self.layout.status_bytes + 64) + slot * 1_024;
        let proc = SLOTS * (self.layout.status_bytes + 64 + 1_024) + slot * self.layout.proc_bytes;
        let mut put = |at: usize, bytes: &[u8]| self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        put(status + 4, &is.pid.to_le_bytes());
        put(status + 8, &is.kind.to_le_bytes());
        put(status + 16, &i64::from(is.pid).to_le_bytes());
        put(status + 32, &is.begun.to_le_bytes());
        put(status + 48, &5_u32.to_le_bytes());
        put(status + 52, &10_u32.to_le_bytes());
        put(status + 56, &[2, 0, 0x1f, 0x90, 127, 0, 0, 1]);
        put(status + 232, &is.state.to_le_bytes());
        put(application, is.application.as_bytes());
        put(text, is.text.as_bytes());
        put(proc + self.layout.proc_pid_at, &is.pid.to_le_bytes());
        put(proc + self.layout.proc_wait_at, &is.wait.to_le_bytes());
    }

    /// A session writes, or has written.
    fn count(&mut self, slot: usize, count: u8) {
        self.bytes[slot * self.layout.status_bytes] = count;
        self.write();
    }

    fn write(&self) {
        self.file.write_all_at(&self.bytes, 0).unwrap();
    }

    fn memory(&self) -> Memory {
        let segment = Segment::map(&self.file, self.bytes.len(), 4_096).unwrap();
        let own = Own::of(own_pid(), Some(own_pid().into())).unwrap();
        Memory::new(segment, self.places, own, CLIENT_KIND)
    }
}

/// The session that asks is this process.
fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

/// The row that a server would answer of it.
fn row(is: &Is) -> Session<'_> {
    let wait = match is.wait {
        SLEEP => Some(("Timeout", "PgSleep")),
        MAIN => Some(("Activity", "WalWriterMain")),
        _ => None,
    };
    Session {
        pid: is.pid,
        class: wait.map(|wait| wait.0),
        event: wait.map(|wait| wait.1),
        application: Some(is.application),
        state: match is.state {
            0 => Some(""),
            IDLE => Some("idle"),
            _ => None,
        },
        begun: Some(is.begun).filter(|begun| *begun != 0).map(ServerTime::of),
        ..Session::default()
    }
}

/// Has the answer learned that names these sessions, as often as it takes.
fn learn(memory: &mut Memory, running: &mut Running, sessions: &[Is]) {
    for _ in 0..3 {
        memory.before_answer(true);
        memory.after_answer();
        for is in sessions {
            let kind = if is.kind == CLIENT_KIND { super::CLIENT } else { "walwriter" };
            let whose = Whose { backend_type: Some(Text::from(kind)), ..Whose::default() };
            running.whose(is.pid, Some(whose), true);
        }
        let look = Look { sessions: sessions.iter().map(row).collect(), ..Look::default() };
        memory.learn("primary", &look, true, running);
    }
}

fn pids(memory: &mut Memory, running: &mut Running) -> Option<Vec<i32>> {
    let look = memory.look(running, ServerTime::of(9_000))?;
    Some(look.sessions.iter().map(|session| session.pid).collect())
}

const WRITER: Is = Is { pid: 12, kind: WRITER_KIND, state: 0, wait: MAIN, begun: 0, application: "", text: "" };
const LAUNCHER: Is = Is { pid: 13, kind: LAUNCHER_KIND, state: 0, wait: MAIN, begun: 0, application: "", text: "" };

#[test]
fn a_look_has_what_was_learned_and_asks_for_what_was_not() {
    let (mut fake, mut running) = (Fake::new(), Running::default());
    fake.set(&[CLIENT, WRITER, LAUNCHER]);
    let mut memory = fake.memory();
    assert_eq!(pids(&mut memory, &mut running), None, "what the processes are is not known");
    // The launcher waits in its main loop: the server does not tell of it.
    learn(&mut memory, &mut running, &[CLIENT, WRITER]);
    assert_eq!(pids(&mut memory, &mut running), Some(vec![11, 12]));
    let idle = Is { state: IDLE, ..CLIENT };
    fake.set(&[idle, WRITER, LAUNCHER]);
    assert_eq!(pids(&mut memory, &mut running), Some(vec![12]));
    let heartbeat = Is { application: HEARTBEAT, ..CLIENT };
    fake.set(&[heartbeat, WRITER, LAUNCHER]);
    assert_eq!(pids(&mut memory, &mut running), Some(vec![12]));
    let waits = Is { wait: SLEEP + 1, ..CLIENT };
    fake.set(&[waits, WRITER, LAUNCHER]);
    assert_eq!(pids(&mut memory, &mut running), None, "a wait without a name");
    fake.set(&[CLIENT, WRITER, LAUNCHER, Is { pid: 14, ..LAUNCHER }]);
    assert_eq!(pids(&mut memory, &mut running), None, "a process that is new");
    fake.set(&[CLIENT, WRITER, Is { wait: SLEEP, ..LAUNCHER }]);
    assert_eq!(pids(&mut memory, &mut running), None, "what kind of process it is was never told");
    fake.set(&[CLIENT, WRITER, LAUNCHER]);
    assert_eq!(pids(&mut memory, &mut running), Some(vec![11, 12]));
    assert_eq!(memory.take_looks(), 4);
}

#[test]
fn of_a_client_that_is_new_all_is_read_and_of_one_that_is_known_what_changed() {
    let (mut fake, mut running, mut statements) = (Fake::new(), Running::default(), Statements::default());
    fake.set(&[CLIENT]);
    let mut memory = fake.memory();
    learn(&mut memory, &mut running, &[CLIENT]);
    let look = memory.look(&mut running, ServerTime::of(9_000)).unwrap();
    let session = look.sessions[0];
    let sent = session.sent.unwrap();
    assert_eq!((sent.role, sent.database), (Some(10), Some(5)));
    assert_eq!((sent.client_addr, sent.client_port), (Some("127.0.0.1"), Some(8_080)));
    assert_eq!((session.class, session.event), (Some("Timeout"), Some("PgSleep")));
    assert_eq!((session.query, session.state, session.application), (Some("SELECT a"), None, Some("nap")));
    assert_eq!((session.begun, session.transaction_begun), (Some(ServerTime::of(5_000)), None));
    running.statement(11, session.begun, session.query, &mut statements);
    let look = memory.look(&mut running, ServerTime::of(9_000)).unwrap();
    assert!(look.sessions[0].sent.is_none() && look.sessions[0].query.is_none());
    let next = Is { begun: 6_000, text: "SELECT b", ..CLIENT };
    fake.set(&[next]);
    let look = memory.look(&mut running, ServerTime::of(9_000)).unwrap();
    assert_eq!((look.sessions[0].query, look.sessions[0].sent.is_none()), (Some("SELECT b"), true));
}

#[test]
fn a_session_that_is_being_written_is_asked_for_and_one_that_was_is_read() {
    let (mut fake, mut running) = (Fake::new(), Running::default());
    fake.set(&[CLIENT]);
    let mut memory = fake.memory();
    learn(&mut memory, &mut running, &[CLIENT]);
    fake.count(1, 3);
    assert_eq!(pids(&mut memory, &mut running), None);
    fake.count(1, 4);
    assert_eq!(pids(&mut memory, &mut running), Some(vec![11]));
}

#[test]
fn what_the_server_contradicts_is_not_believed_any_more() {
    let (mut fake, mut running) = (Fake::new(), Running::default());
    fake.set(&[CLIENT]);
    let contradicted = |fake: &Fake, running: &mut Running, told: Is| {
        let mut memory = fake.memory();
        learn(&mut memory, running, &[told]);
        !memory.is_believed()
    };
    assert!(!contradicted(&fake, &mut running, CLIENT));
    assert!(contradicted(&fake, &mut running, Is { state: IDLE, ..CLIENT }));
    assert!(contradicted(&fake, &mut running, Is { begun: 5_001, ..CLIENT }));
    assert!(contradicted(&fake, &mut running, Is { application: "other", ..CLIENT }));
    fake.count(1, 1);
    assert!(!contradicted(&fake, &mut running, Is { state: IDLE, ..CLIENT }), "it may be changing just now");
    fake.own_wait = 0;
    fake.set(&[CLIENT]);
    assert!(contradicted(&fake, &mut running, CLIENT), "waits stand elsewhere");
}

#[test]
fn where_the_session_that_asks_is_no_more_nothing_is_read() {
    let (mut fake, mut running) = (Fake::new(), Running::default());
    fake.set(&[CLIENT]);
    let mut memory = fake.memory();
    learn(&mut memory, &mut running, &[CLIENT]);
    assert_eq!(pids(&mut memory, &mut running), Some(vec![11]));
    fake.bytes[4..8].copy_from_slice(&0_i32.to_le_bytes());
    fake.count(0, 6);
    assert_eq!(pids(&mut memory, &mut running), None);
    assert!(!memory.has_ended());
    let mut child = std::process::Command::new("true").spawn().unwrap();
    memory.own = Own::of(child.id().cast_signed(), Some(1)).unwrap();
    child.wait().unwrap();
    assert!(memory.has_ended());
}

#[test]
fn a_process_number_that_stands_twice_is_nobodys() {
    let (mut fake, mut running) = (Fake::new(), Running::default());
    fake.set(&[CLIENT, WRITER]);
    let mut memory = fake.memory();
    let last = SLOTS * (fake.layout.status_bytes + 64 + 1_024) + (SLOTS - 1) * fake.layout.proc_bytes;
    let at = last + fake.layout.proc_pid_at;
    fake.bytes[at..at + 4].copy_from_slice(&CLIENT.pid.to_le_bytes());
    fake.write();
    learn(&mut memory, &mut running, &[CLIENT, WRITER]);
    assert_eq!(pids(&mut memory, &mut running), None, "which of them is its own is not known");
}

/// One that writes all the while, as a server's session does: odd while it writes, each statement with its begin and its name.
#[test]
fn what_is_read_while_it_is_written_belongs_together() {
    let (mut fake, mut running) = (Fake::new(), Running::default());
    fake.set(&[CLIENT]);
    let mut memory = fake.memory();
    learn(&mut memory, &mut running, &[CLIENT]);
    let (file, status_bytes) = (fake.file.try_clone().unwrap(), fake.layout.status_bytes as u64);
    let stop = AtomicBool::new(false);
    // A test that fails ends the writer too.
    struct Stop<'s>(&'s AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            let text_at = (SLOTS * (fake.layout.status_bytes + 64) + 1_024) as u64;
            let put = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).unwrap();
            let mut count = 2_u32;
            while !stop.load(Ordering::Relaxed) {
                put(status_bytes, &(count + 1).to_le_bytes());
                put(status_bytes + 32, &i64::from(count).to_le_bytes());
                put(text_at, format!("SELECT {count}\0").as_bytes());
                count += 2;
                put(status_bytes, &count.to_le_bytes());
                (0..10_000).for_each(|_| std::hint::spin_loop());
            }
        });
        let mut told = 0;
        for _ in 0..3_000 {
            memory.rest = Rest::default();
            let Some(look) = memory.look(&mut running, ServerTime::of(9_000)) else { continue };
            for session in look.sessions.iter().filter(|session| session.query != Some(CLIENT.text)) {
                let begun = session.query.unwrap().strip_prefix("SELECT ").unwrap().parse().unwrap();
                assert_eq!(session.begun, Some(ServerTime::of(begun)));
                told += 1;
            }
        }
        assert!(told > 0, "it was never read");
    });
}

#[test]
fn places_outside_of_the_memory_are_not_read() {
    let (mut fake, mut running) = (Fake::new(), Running::default());
    fake.set(&[CLIENT]);
    fake.places = Places::one_by_one(fake.layout, 2 * SLOTS);
    let mut memory = fake.memory();
    memory.before_answer(true);
    memory.after_answer();
    memory.learn("primary", &Look::default(), true, &mut running);
    assert_eq!(pids(&mut memory, &mut running), None);
}

proptest! {
    /// Whatever stands there: no panic, and nothing that is not text.
    #[test]
    fn any_bytes_may_stand_there(bytes in proptest::collection::vec(any::<u8>(), 0..500), major in 13..=18) {
        let layout = Layout::of(major).unwrap();
        let status = Status::of(&bytes, layout);
        let _ = (status.client(), status.state(), status.query_id(), status.began(), status.count());
        let _ = (layout.procs(&bytes), layout::segment_bytes(&bytes), text_in(&bytes));
        let cut = format!("größe{}", "é".repeat(bytes.len() % 7));
        for end in 0..cut.len() {
            let read = text_in(&cut.as_bytes()[..end]).unwrap();
            prop_assert!(cut.starts_with(read) && end - read.len() < 2);
        }
    }
}
