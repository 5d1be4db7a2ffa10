//! Follows the server's log from look to look.

use super::link::{Link, QueryError};
use super::local::LocalServer;
use super::log::{self, Tail};
use crate::Sink;
use crate::host::Roots;
use backwater_model::{Event, EventKind, Moment};

/// The log being followed, if it can be read.
#[derive(Debug, Default)]
pub(super) struct Logs {
    tail: Option<Tail>,
    /// When it was read last: what is new was written since.
    read_at: Moment,
    told_skipped: u64,
}

/// Names the file of the collector in the one format that is followed.
const CURRENT: &str = "SELECT pg_current_logfile()";

impl Logs {
    /// Finds out which file the server writes to now, and follows that. An error says why none can be read.
    pub(super) async fn find(
        &mut self,
        link: &mut Link,
        local: Option<&LocalServer>,
        data_directory: Option<&str>,
        roots: &Roots,
    ) -> Result<Result<(), String>, QueryError> {
        let Some(local) = local else { return Ok(Err("the server runs on another host".to_owned())) };
        let current: Option<String> = match link.one("current log file", CURRENT).await {
            Ok(row) => row.get(0),
            Err(QueryError::Denied(error)) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error),
        };
        let located = log::locate(&roots.proc, local.postmaster_pid, data_directory, current.as_deref());
        let path = match located {
            Ok(path) => path,
            Err(why) => return Ok(Err(why)),
        };
        if self.tail.as_ref().is_some_and(|tail| tail.path() == path) {
            return Ok(Ok(()));
        }
        // The first file is followed from its end, its successors from their beginning.
        let opened = if self.tail.is_some() {
            Tail::at_start(&path)
        } else {
            self.read_at = crate::now();
            Tail::at_end(&path)
        };
        Ok(match opened {
            Ok(tail) => {
                self.tail = Some(tail);
                self.told_skipped = 0;
                Ok(())
            }
            Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
        })
    }

    /// Puts down what was added since the last look, each line at the time it tells, or else at that of the look. `prefix` is
    /// log_line_prefix.
    pub(super) fn read(&mut self, target: &str, prefix: &str, sink: &mut Sink<'_>) {
        let Some(tail) = &mut self.tail else { return };
        match tail.read(prefix) {
            Ok(messages) => {
                let read = crate::anchor();
                let since = std::mem::replace(&mut self.read_at, read.boot);
                for message in messages {
                    let written = message.stamp.and_then(|stamp| stamp.moment(since, read));
                    let at = written.map_or(sink.at, |written| written.min(sink.at));
                    let fields: Vec<_> = message.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
                    sink.event(Event::new(at, target, EventKind::Log, message.text, &fields));
                }
            }
            Err(error) => {
                let why = error.to_string();
                sink.absent(target, "log", &why, None);
                self.tail = None;
                return;
            }
        }
        let skipped = tail.skipped_bytes();
        if skipped > self.told_skipped {
            let bytes = (skipped - self.told_skipped).to_string();
            self.told_skipped = skipped;
            let message = format!("the log of {target} grows too fast: {bytes} bytes were skipped");
            let fields = [("probe", "postgres.log"), ("reason", "the log grows too fast"), ("skipped_bytes", &bytes)];
            sink.event(Event::new(sink.at, target, EventKind::Gap, message, &fields));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{Batch, Registry, Span};
    use std::collections::HashSet;
    use std::io::Write;

    #[test]
    fn a_line_stands_at_its_own_time_and_one_that_tells_none_at_that_of_the_look() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut file = std::fs::File::create(&path).unwrap();
        // The server went down half a minute before this look, and was not read meanwhile.
        let now = crate::anchor();
        let read_at = now.boot - Span::from_seconds(30.0);
        let mut logs = Logs { tail: Some(Tail::at_end(&path).unwrap()), read_at, told_skipped: 0 };
        let ms = now.unix_us / 1_000 - 26_000;
        writeln!(file, "{}.{:03} LOG:  received fast shutdown request", ms / 1_000, ms % 1_000).unwrap();
        writeln!(file, "LOG:  database system is ready to accept connections").unwrap();
        let (registry, mut batch, mut absences) = (Registry::default(), Batch::default(), HashSet::new());
        logs.read("main", "%n ", &mut Sink::new(now.boot, &registry, &mut batch, &mut absences));
        let [down, up] = batch.events.as_slice() else { panic!("{:?}", batch.events) };
        assert!((down.at.seconds_since(now.boot) + 26.0).abs() < 0.1, "{down:?}");
        assert_eq!(up.at, now.boot);
        logs.read("main", "%n ", &mut Sink::new(crate::now(), &registry, &mut batch, &mut absences));
        assert!(logs.read_at >= now.boot);
    }
}
