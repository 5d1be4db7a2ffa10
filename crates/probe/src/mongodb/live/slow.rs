//! Slow operations of a live server, from its log file where it runs on this host and the file can be read, else from the last
//! lines that the server hands out itself (getLog).

use super::link::{AskError, Link};
use super::server::{self, Facts, Unseen};
use crate::host::Roots;
use crate::mongodb::facts::Told;
use crate::mongodb::log::{Ring, SlowOperation, Tail, Writes};
use crate::{Sink, rights};
use backwater_model::{Epoch, Event, EventKind, Moment, catalogue};
use mongodb::bson::doc;
use std::path::{Path, PathBuf};

const WHAT: &str = "slow operations";
/// How often the server is asked for its last lines: each time it hands out hundreds of kilobytes.
const RING_PERIOD_US: i64 = 10_000_000;
/// The most operations of one look that are kept one by one, the longest; all are counted.
const MOST_KEPT: usize = 5;

/// Where the lines come from.
#[derive(Debug)]
enum Lines {
    File(Tail),
    Server { ring: Ring, next: Moment },
}

/// Counts slow operations and keeps the longest.
#[derive(Debug)]
pub(super) struct SlowLog {
    from: Lines,
    writes: Writes,
    epoch: Epoch,
    count: u64,
    total_ms: u64,
    told_skipped: u64,
    told_cut: bool,
    told_unread: bool,
}

impl SlowLog {
    /// Finds the log. The server's own lines are taken where its file is not on this host or cannot be read; then it is said
    /// why.
    pub(super) fn find(facts: &Facts, roots: &Roots, at: Moment) -> (Self, Option<Unseen>) {
        let (from, unseen) = match opened(facts, roots) {
            Ok(Some(tail)) => (Lines::File(tail), None),
            Ok(None) => (Lines::Server { ring: Ring::default(), next: at }, None),
            Err((path, error)) => {
                let why = format!(
                    "{} cannot be read: {error}; the server's last 1,024 lines are read instead",
                    path.display()
                );
                let remedy = rights::remedy("run as root or as the server's own user").to_owned();
                let unseen = Unseen { what: "the server's log file", why, remedy: Some(remedy) };
                (Lines::Server { ring: Ring::default(), next: at }, Some(unseen))
            }
        };
        let epoch = Epoch::of(&["mongodb.log", &facts.target.name, &at.0.to_string()]);
        let log = SlowLog {
            from,
            writes: Writes::default(),
            epoch,
            count: 0,
            total_ms: 0,
            told_skipped: 0,
            told_cut: false,
            told_unread: false,
        };
        (log, unseen)
    }

    /// Puts down what was logged since the last look; an error only where the connection is lost. What is refused for good is
    /// handed back, and then there is no use in asking again.
    pub(super) async fn look(
        &mut self,
        target: &str,
        link: &Link,
        sink: &mut Sink<'_>,
    ) -> Result<Option<Unseen>, AskError> {
        let mut found = Vec::new();
        let mut lost = None;
        match &mut self.from {
            Lines::File(tail) => {
                if let Err(error) = tail.read(|line| found.extend(self.writes.operation(line))) {
                    return Ok(Some(Unseen { what: WHAT, why: error.to_string(), remedy: None }));
                }
                let skipped = tail.skipped_bytes();
                if skipped > self.told_skipped {
                    lost = Some(format!("{} bytes", skipped - self.told_skipped));
                    self.told_skipped = skipped;
                }
            }
            Lines::Server { next, .. } if sink.at < *next => return Ok(None),
            Lines::Server { ring, next } => {
                *next = Moment(sink.at.0 + RING_PERIOD_US);
                let answer = match link.ask("getLog", "admin", doc! {"getLog": "global"}).await {
                    Ok(answer) => answer,
                    Err(AskError::Lost(error)) => return Err(AskError::Lost(error)),
                    Err(AskError::Failed(error)) => {
                        if !std::mem::replace(&mut self.told_unread, true) {
                            tell_unread(target, &error.to_string(), sink);
                        }
                        return Ok(None);
                    }
                    Err(refusal) => return Ok(Some(server::refused(WHAT, refusal, link))),
                };
                let lines = lines(&answer);
                let (new, some_lost) = ring.new_lines(&lines.iter().map(String::as_str).collect::<Vec<_>>());
                lost = some_lost.then(|| "lines".to_owned());
                found.extend(new.into_iter().filter_map(|line| self.writes.operation(line)));
            }
        }
        self.put(target, found, sink);
        if let Some(lost) = lost {
            tell_lost(target, &lost, sink);
        }
        Ok(None)
    }

    fn put(&mut self, target: &str, mut found: Vec<SlowOperation>, sink: &mut Sink<'_>) {
        self.count += found.len() as u64;
        self.total_ms = found.iter().fold(self.total_ms, |sum, one| sum.saturating_add(one.duration_ms));
        let labels = [("target", target)];
        sink.put(&catalogue::MONGO_SLOW_OPS, &labels, self.epoch, self.count as f64);
        sink.put(&catalogue::MONGO_SLOW_MS, &labels, self.epoch, self.total_ms as f64);
        let cut = found.iter().filter(|operation| operation.is_cut()).count();
        if cut > 0 && !std::mem::replace(&mut self.told_cut, true) {
            tell_cut(target, sink);
        }
        found.retain(|operation| !operation.is_cut());
        found.sort_by_key(|operation| std::cmp::Reverse(operation.duration_ms));
        for operation in found.iter().take(MOST_KEPT) {
            let fields = operation.fields();
            let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            sink.event(Event::new(sink.at, target, EventKind::Log, operation.sentence(), &fields));
        }
    }
}

fn tell_cut(target: &str, sink: &mut Sink<'_>) {
    let message = format!(
        "{target} cuts the long lines of its log that it hands out: slow operations are counted, but of some it is not known how long \
         they took"
    );
    // Of these it is not told when they are over.
    let fields = [("probe", "mongodb.log"), ("reason", "the server cuts long lines"), ("lost", "ends of lines")];
    sink.event(Event::new(sink.at, target, EventKind::Gap, message, &fields));
}

fn tell_unread(target: &str, why: &str, sink: &mut Sink<'_>) {
    let message =
        format!("the last lines of the log of {target} cannot be read for now, and are asked for again: {why}");
    let fields = [("probe", "mongodb.log"), ("reason", why), ("lost", "lines")];
    sink.event(Event::new(sink.at, target, EventKind::Gap, message, &fields));
}

fn tell_lost(target: &str, lost: &str, sink: &mut Sink<'_>) {
    let message =
        format!("the log of {target} grows too fast: {lost} were skipped, slow operations are more than counted");
    let fields = [("probe", "mongodb.log"), ("reason", "the log grows too fast"), ("skipped", lost)];
    sink.event(Event::new(sink.at, target, EventKind::Gap, message, &fields));
}

/// The log file of a server on this host, followed from its end; none where it has none or runs elsewhere.
fn opened(facts: &Facts, roots: &Roots) -> Result<Option<Tail>, (PathBuf, std::io::Error)> {
    let text = |key| facts.told.text(&["getCmdLineOpts", "parsed", "systemLog", key]);
    let to_file = text("destination").is_none_or(|destination| destination == "file");
    let Some(path) = text("path").filter(|_| to_file) else { return Ok(None) };
    let Some(pid) = facts.pid else { return Ok(None) };
    // As the server itself sees it, which may run in a container.
    let seen = roots.proc.join(pid.to_string()).join("root").join(path.trim_start_matches('/'));
    let tail = Tail::at_end(&seen).or_else(|_| Tail::at_end(Path::new(&path)));
    tail.map(Some).map_err(|error| (PathBuf::from(path), error))
}

/// The lines of an answer to getLog.
fn lines(answer: &[u8]) -> Vec<String> {
    let list = ftdc::find(answer, "log");
    let elements = list.iter().filter_map(ftdc::Element::elements).flatten().map_while(Result::ok);
    elements.filter_map(|line| line.text().map(|text| text.into_owned())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_of_an_answer_are_in_order() {
        let answer = ftdc::Builder::new()
            .int32("totalLinesWritten", 2)
            .array("log", |log| log.string("0", "one").string("1", "two"))
            .finish();
        assert_eq!(lines(&answer), ["one", "two"]);
        assert!(lines(&ftdc::Builder::new().finish()).is_empty());
    }
}
