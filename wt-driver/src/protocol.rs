//! What is said on both sides: one JSON object a line. Every command gets one reply, with its `id` where it had one;
//! events come in between.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{BufRead, Read, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Counts changes of these words, and of what a load does: whoever speaks them asks, so that a driver of another day is told by it
/// and not by figures that differ.
pub(crate) const VERSION: u32 = 4;

/// The longest command line that is read.
const LONGEST_LINE: u64 = 1 << 20;

/// A command.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "cmd", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Command {
    /// Says what engine this is.
    Version,
    /// Opens a database.
    Open(Open),
    /// Changes what may be changed of an open database.
    Reconfigure {
        /// The engine's own text.
        config: String,
    },
    /// Puts documents into it before a load.
    Fill(Fill),
    /// Begins a load; the reply comes when it is over.
    Run(Box<Load>),
    /// Writes a checkpoint.
    Checkpoint,
    /// Ends a load or a fill early.
    Stop,
    /// Closes the database.
    Close,
    /// Closes the database and ends the process.
    Quit,
}

/// How a database is opened.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Open {
    /// Its directory: made if it is not there.
    pub(crate) home: PathBuf,
    /// The engine's own text; goes before everything that the driver says itself.
    #[serde(default)]
    pub(crate) config: String,
    /// Whether there is a journal.
    #[serde(default = "yes")]
    pub(crate) journal: bool,
    /// Seconds from the end of a checkpoint to the next; 0 for none but those asked for.
    #[serde(default = "minute")]
    pub(crate) checkpoint_s: u32,
    /// Which files pass by the page cache: `data`, `checkpoint`.
    #[serde(default)]
    pub(crate) direct_io: Vec<DirectIo>,
    /// Sessions there may be at once.
    #[serde(default = "sessions")]
    pub(crate) sessions: u32,
    /// As a member of a replica set has it: operations have timestamps and an oplog, which alone is journalled.
    #[serde(default)]
    pub(crate) replicated: bool,
}

/// Files that can pass by the page cache. The journal cannot: the engine gives up when it is asked to.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DirectIo {
    /// Data files.
    Data,
    /// Checkpoints, when they are read.
    Checkpoint,
}

/// Documents put into a database before a load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fill {
    pub(crate) documents: u64,
    #[serde(default = "kilobyte")]
    pub(crate) document_bytes: u32,
    /// When they expire, in seconds from the beginning of the next load: scattered from the first to the second.
    #[serde(default)]
    pub(crate) expire_s: Option<[f64; 2]>,
}

/// A load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    pub(crate) load: Kind,
    /// Operations a second that are to begin, whatever the engine does.
    pub(crate) rate_per_s: f64,
    pub(crate) seconds: f64,
    /// Threads of the pool, or the most that may live at once.
    #[serde(default = "threads")]
    pub(crate) threads: u32,
    #[serde(default)]
    pub(crate) thread_model: ThreadModel,
    #[serde(default)]
    pub(crate) arrivals: Arrivals,
    #[serde(default = "kilobyte")]
    pub(crate) document_bytes: u32,
    /// When an operation counts as done.
    #[serde(default)]
    pub(crate) done: Done,
    /// A snapshot is taken at the beginning and held until the end.
    #[serde(default)]
    pub(crate) hold_snapshot: bool,
    /// From when to when no majority confirms anything, in seconds from the beginning.
    #[serde(default)]
    pub(crate) majority_stands_s: Option<[f64; 2]>,
    /// Of a `read-mixed` load: the share of reads.
    #[serde(default = "half")]
    pub(crate) read_share: f64,
    /// Of a `ttl-delete` load: seconds between looks for what has expired.
    #[serde(default = "second")]
    pub(crate) ttl_period_s: f64,
    /// For arrivals and documents; others each time where it is left out.
    #[serde(default)]
    pub(crate) seed: Option<u64>,
    /// The load ends when less is free on the volume.
    #[serde(default = "reserve")]
    pub(crate) least_free_bytes: u64,
    /// Milliseconds between readings of the engine's statistics; 0 for none.
    #[serde(default = "tenth")]
    pub(crate) statistics_ms: u32,
    /// Which statistics, by the engine's own description; all where it is empty.
    #[serde(default)]
    pub(crate) statistics: Vec<String>,
}

/// What each operation does.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// A document and an index entry at a random place, in one transaction.
    WriteHeavy,
    /// A document and an index entry by its expiry, which lies far ahead; and one thread that deletes what has expired,
    /// one transaction each.
    TtlDelete,
    /// Reads and rewrites of random documents.
    ReadMixed,
}

/// Who does operations.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ThreadModel {
    /// So many threads, each with its session, from beginning to end.
    #[default]
    Pool,
    /// A thread and a session made for each operation, and ended after it.
    PerConnection,
}

/// How starts follow one another.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Arrivals {
    /// At random, as many clients make them.
    #[default]
    Poisson,
    /// At equal distances.
    Even,
}

/// When an operation counts as done.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Done {
    /// When the journal's write that covers it is synced (MongoDB: `j: true`).
    #[default]
    Journal,
    /// When its commit has returned (MongoDB: `w: 1`); the journal is synced every 100 ms.
    Commit,
}

fn yes() -> bool {
    true
}

fn minute() -> u32 {
    60
}

fn sessions() -> u32 {
    1_200
}

fn kilobyte() -> u32 {
    1_024
}

fn threads() -> u32 {
    32
}

fn half() -> f64 {
    0.5
}

fn second() -> f64 {
    1.0
}

fn reserve() -> u64 {
    64 << 20
}

fn tenth() -> u32 {
    100
}

impl Load {
    /// The first thing that is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: f64, least: f64, most: f64| {
            if value >= least && value <= most {
                Ok(())
            } else {
                Err(format!("{name} = {value}: give {least} to {most}"))
            }
        };
        within("rate_per_s", self.rate_per_s, 0.1, 1e6)?;
        within("seconds", self.seconds, 0.1, 86_400.0)?;
        within("threads", f64::from(self.threads), 1.0, 10_000.0)?;
        within("document_bytes", f64::from(self.document_bytes), 1.0, f64::from(1 << 20))?;
        within("read_share", self.read_share, 0.0, 1.0)?;
        within("ttl_period_s", self.ttl_period_s, 0.01, 3_600.0)?;
        if let Some([from, to]) =
            self.majority_stands_s.filter(|[from, to]| !(0.0 <= *from && from <= to && *to <= 1e9))
        {
            return Err(format!("majority_stands_s = [{from}, {to}]: give two moments in order, at least 0"));
        }
        if self.statistics_ms > 0 {
            within("statistics_ms", f64::from(self.statistics_ms), 10.0, 60_000.0)?;
        }
        Ok(())
    }
}

impl Fill {
    /// The first thing that is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !(1..=1_000_000_000).contains(&self.documents) {
            return Err(format!("documents = {}: give 1 to 1000000000", self.documents));
        }
        if !(1..=1 << 20).contains(&self.document_bytes) {
            return Err(format!("document_bytes = {}: give 1 to 1048576", self.document_bytes));
        }
        match self.expire_s {
            Some([from, to]) if !(0.0 <= from && from <= to && to <= 1e9) => {
                Err(format!("expire_s = [{from}, {to}]: give two moments in order, at least 0"))
            }
            _ => Ok(()),
        }
    }
}

/// A command with the `id` that its reply is to carry.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: Value,
    pub(crate) command: Command,
}

/// What one line asks for; where it cannot be understood, its `id` if that much could be read, and why not.
pub(crate) fn parse(line: &[u8]) -> Result<Request, (Value, String)> {
    let not = |error: serde_json::Error| (Value::Null, format!("this is no JSON object: {error}"));
    let mut object: serde_json::Map<String, Value> = serde_json::from_slice(line).map_err(not)?;
    let id = object.remove("id").unwrap_or(Value::Null);
    match serde_json::from_value(Value::Object(object)) {
        Ok(command) => Ok(Request { id, command }),
        Err(error) => Err((id, error.to_string())),
    }
}

/// The next line, without its end; none at the end of the input. One that is too long is an error, and passed over.
pub(crate) fn next_line(input: &mut impl BufRead) -> std::io::Result<Option<Result<Vec<u8>, String>>> {
    let mut line = Vec::new();
    let read = input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Some(Ok(line)));
    }
    if (read as u64) < LONGEST_LINE {
        return Ok(Some(Ok(line)));
    }
    loop {
        let buffer = input.fill_buf()?;
        let (used, ended) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(used);
        if ended {
            return Ok(Some(Err(format!("the line is longer than {LONGEST_LINE} bytes"))));
        }
    }
}

/// Where lines go. Whoever drives the driver must read them: a full pipe stops it.
pub(crate) struct Output(Mutex<Box<dyn Write + Send>>);

impl Output {
    pub(crate) fn new(to: Box<dyn Write + Send>) -> Output {
        Output(Mutex::new(to))
    }

    /// One line. That nobody listens any more is noticed at the other end: the input ends too.
    pub(crate) fn line(&self, value: &Value) {
        let mut text = value.to_string();
        text.push('\n');
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
    }

    pub(crate) fn reply(&self, id: &Value, outcome: Result<Value, String>) {
        let mut reply = json!({ "ok": outcome.is_ok() });
        if !id.is_null() {
            reply["id"] = id.clone();
        }
        match outcome {
            Ok(Value::Object(fields)) => fields.into_iter().for_each(|(name, value)| reply[name] = value),
            Ok(_) => {}
            Err(error) => reply["error"] = Value::String(error),
        }
        self.line(&reply);
    }
}

/// Microseconds of CLOCK_BOOTTIME, the clock of Backwater's readings.
pub(crate) fn boot_us() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Cursor;

    #[test]
    fn a_command_is_told_from_its_id() {
        let request = parse(br#"{"id":7,"cmd":"checkpoint"}"#).unwrap();
        assert!(matches!(request.command, Command::Checkpoint) && request.id == 7);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases: [(&[u8], &str); 5] = [
            (b"{", "no JSON object"),
            (b"[1]", "no JSON object"),
            (br#"{"id":1,"cmd":"dance"}"#, "dance"),
            (br#"{"cmd":"run","load":"write-heavy","rate_per_s":1,"seconds":1,"thread":3}"#, "thread"),
            (br#"{"cmd":"open","home":"/x","direct_io":["log"]}"#, "log"),
        ];
        for (line, word) in cases {
            let (_, error) = parse(line).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(parse(br#"{"id":1,"cmd":"dance"}"#).unwrap_err().0, 1);
        assert!(parse(&[0xff, 0xfe]).is_err());
    }

    #[test]
    fn figures_out_of_range_are_refused() {
        let load = |rate: f64, read_share: f64| {
            let line = json!({"cmd":"run","load":"read-mixed","rate_per_s":rate,"seconds":1,"read_share":read_share});
            match parse(line.to_string().as_bytes()).unwrap().command {
                Command::Run(load) => load.check(),
                other => panic!("{other:?}"),
            }
        };
        assert!(load(10.0, 0.5).is_ok());
        assert!(load(0.0, 0.5).unwrap_err().contains("rate_per_s"));
        assert!(load(10.0, 1.5).unwrap_err().contains("read_share"));
    }

    #[test]
    fn lines_end_and_long_ones_are_passed_over() {
        let mut text = vec![b'x'; LONGEST_LINE as usize + 10];
        text.extend(b"\nnext\nlast");
        let mut input = Cursor::new(text);
        assert!(next_line(&mut input).unwrap().unwrap().unwrap_err().contains("longer"));
        assert_eq!(next_line(&mut input).unwrap().unwrap().unwrap(), b"next");
        assert_eq!(next_line(&mut input).unwrap().unwrap().unwrap(), b"last");
        assert!(next_line(&mut input).unwrap().is_none());
    }
}
