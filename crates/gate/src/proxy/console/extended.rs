//! The extended protocol at the console: Parse, Bind, Describe, Execute, Close. Statements have no parameters, and what
//! they do happens at Execute.

use super::answer::{Answer, Column};
use super::block::{self, Block};
use super::message::{Body, Complaint, Reply, Said};
use super::{Speaker, read, show};
use backwater_flow::statement::{Request, Statement};
use std::collections::HashMap;

/// Prepared statements and portals that one connection may have.
const MOST_KEPT: usize = 1_000;

/// What one connection has prepared.
#[derive(Default)]
pub(super) struct Extended {
    /// By name; the unnamed one has an empty one. None is a statement without text.
    statements: HashMap<String, Option<Request>>,
    portals: HashMap<String, Portal>,
    /// Something failed: everything until the next Sync is passed over.
    failed: bool,
}

struct Portal {
    statement: Option<Request>,
    formats: Vec<i16>,
    /// What it is answered with, and how many rows were sent, once it was executed.
    running: Option<(Answer, usize)>,
}

impl Extended {
    /// A simple query begins: the unnamed statement and portal end, and failures are forgiven.
    pub(super) fn begin_of_query(&mut self) {
        self.failed = false;
        self.statements.remove("");
        self.portals.remove("");
    }

    /// A Sync or the end of a simple query: portals end with their transaction, and failures are forgiven.
    pub(super) fn end_of_query(&mut self, block: Block) {
        self.failed = false;
        if !block.is_begun() {
            self.portals.clear();
        }
    }

    /// Hears one message.
    pub(super) async fn hear(&mut self, speaker: &mut Speaker<'_>, said: &Said, reply: &mut Reply) {
        if self.failed {
            return;
        }
        let mut body = Body(&said.body);
        let done = match said.kind {
            b'E' => self.execute(speaker, &mut body, reply).await,
            kind => self.prepare(kind, &mut body, reply),
        };
        if let Err(complaint) = done {
            reply.error(&complaint);
            self.failed = true;
            speaker.block.fail();
        }
        self.forget(speaker);
    }

    /// Forgets what was prepared where that was asked for.
    pub(super) fn forget(&mut self, speaker: &mut Speaker<'_>) {
        if std::mem::take(&mut speaker.discarded) {
            self.statements.clear();
        }
    }

    /// What does nothing yet.
    fn prepare(&mut self, kind: u8, body: &mut Body<'_>, reply: &mut Reply) -> Result<(), Complaint> {
        match kind {
            b'P' => self.parse(body, reply),
            b'B' => self.bind(body, reply),
            b'D' => self.describe(body, reply),
            b'C' => self.close(body, reply),
            _ => Err(Complaint::new("08P01", format!("the console knows no message '{}'", kind.escape_ascii()))),
        }
    }

    fn parse(&mut self, body: &mut Body<'_>, reply: &mut Reply) -> Result<(), Complaint> {
        let name = body.text().ok_or_else(malformed)?;
        let text = body.text().ok_or_else(malformed)?;
        let mut statements = read(text)?;
        if statements.len() > 1 {
            return Err(Complaint::new("42601", "cannot insert multiple commands into a prepared statement"));
        }
        if self.statements.len() >= MOST_KEPT {
            return Err(Complaint::new(
                "53400",
                format!("a console connection prepares at most {MOST_KEPT} statements"),
            ));
        }
        if !name.is_empty() && self.statements.contains_key(name) {
            return Err(Complaint::new("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        self.statements.insert(name.to_owned(), statements.pop());
        reply.put(b'1', &[]);
        Ok(())
    }

    fn bind(&mut self, body: &mut Body<'_>, reply: &mut Reply) -> Result<(), Complaint> {
        let portal = body.text().ok_or_else(malformed)?.to_owned();
        let statement = self.statement(body.text().ok_or_else(malformed)?)?.clone();
        let parameter_formats = body.i16().ok_or_else(malformed)?;
        for _ in 0..parameter_formats {
            body.i16().ok_or_else(malformed)?;
        }
        if body.i16().ok_or_else(malformed)? != 0 {
            return Err(Complaint::new("08P01", "statements of the console have no parameters"));
        }
        let count = body.i16().ok_or_else(malformed)?;
        let formats = (0..count).map(|_| body.i16()).collect::<Option<Vec<_>>>().ok_or_else(malformed)?;
        if formats.iter().any(|format| !(0..=1).contains(format)) {
            return Err(Complaint::new("22023", "a format is 0 (text) or 1 (binary)"));
        }
        if self.portals.len() >= MOST_KEPT {
            return Err(Complaint::new("53400", format!("a console connection has at most {MOST_KEPT} portals")));
        }
        self.portals.insert(portal, Portal { statement, formats, running: None });
        reply.put(b'2', &[]);
        Ok(())
    }

    fn describe(&mut self, body: &mut Body<'_>, reply: &mut Reply) -> Result<(), Complaint> {
        let (kind, name) = (body.byte().ok_or_else(malformed)?, body.text().ok_or_else(malformed)?);
        let (columns, formats) = if kind == b'S' {
            let columns = columns(self.statement(name)?.as_ref());
            reply.put(b't', &[0, 0]);
            (columns, Vec::new())
        } else {
            let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
            (columns(portal.statement.as_ref()), portal.formats.clone())
        };
        if columns.is_empty() {
            reply.put(b'n', &[]);
        } else {
            reply.columns(columns, &formats);
        }
        Ok(())
    }

    fn close(&mut self, body: &mut Body<'_>, reply: &mut Reply) -> Result<(), Complaint> {
        let (kind, name) = (body.byte().ok_or_else(malformed)?, body.text().ok_or_else(malformed)?);
        if kind == b'S' {
            self.statements.remove(name);
        } else {
            self.portals.remove(name);
        }
        reply.put(b'3', &[]);
        Ok(())
    }

    async fn execute(
        &mut self,
        speaker: &mut Speaker<'_>,
        body: &mut Body<'_>,
        reply: &mut Reply,
    ) -> Result<(), Complaint> {
        let name = body.text().ok_or_else(malformed)?;
        let most = body.i32().ok_or_else(malformed)?;
        let portal = self.portals.get_mut(name).ok_or_else(|| no_portal(name))?;
        let Some(statement) = &portal.statement else {
            reply.put(b'I', &[]);
            return Ok(());
        };
        speaker.block.admit(Some(statement))?;
        let (answer, sent) = match &mut portal.running {
            Some(running) => running,
            None => {
                let done = speaker.execute(std::slice::from_ref(statement)).await?.pop().unwrap_or_default();
                done.notices.iter().for_each(|notice| reply.notice(notice));
                portal.running.insert((done, 0))
            }
        };
        let left = answer.rows.len() - *sent;
        let now = usize::try_from(most).ok().filter(|most| *most > 0).map_or(left, |most| most.min(left));
        answer.rows[*sent..*sent + now].iter().for_each(|row| reply.row(row, &portal.formats));
        *sent += now;
        if *sent < answer.rows.len() {
            reply.put(b's', &[]);
        } else {
            reply.complete(&answer.tag);
        }
        Ok(())
    }

    fn statement(&self, name: &str) -> Result<&Option<Request>, Complaint> {
        let missing = || Complaint::new("26000", format!("prepared statement \"{name}\" does not exist"));
        self.statements.get(name).ok_or_else(missing)
    }
}

fn columns(statement: Option<&Request>) -> &'static [Column] {
    match statement {
        Some(Request::Statement(Statement::Show(what))) => show::columns(*what),
        Some(Request::Session(command)) => block::columns(*command),
        _ => &[],
    }
}

fn malformed() -> Complaint {
    Complaint::new("08P01", "a message is malformed")
}

fn no_portal(name: &str) -> Complaint {
    Complaint::new("34000", format!("portal \"{name}\" does not exist"))
}

/// Reads bytes as messages of one connection, up to where they would do something. For the fuzzer.
#[cfg(fuzzing)]
pub(super) fn exercise(bytes: &[u8]) {
    let (mut left, mut extended) = (bytes.to_vec(), Extended::default());
    while let Ok(Some(said)) = super::message::take(&mut left) {
        let mut reply = Reply::default();
        if let Err(complaint) = extended.prepare(said.kind, &mut Body(&said.body), &mut reply) {
            reply.error(&complaint);
        }
        assert!(extended.statements.len() <= MOST_KEPT && extended.portals.len() <= MOST_KEPT);
    }
}
