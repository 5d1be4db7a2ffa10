//! Follows the server's log from look to look.

use super::link::{Link, QueryError};
use super::local::LocalServer;
use super::log::{self, Tail};
use crate::Sink;
use crate::host::Roots;
use backwater_model::{Event, EventKind};

/// The log being followed, if it can be read.
#[derive(Debug, Default)]
pub(super) struct Logs {
    tail: Option<Tail>,
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
        let opened = if self.tail.is_some() { Tail::at_start(&path) } else { Tail::at_end(&path) };
        Ok(match opened {
            Ok(tail) => {
                self.tail = Some(tail);
                self.told_skipped = 0;
                Ok(())
            }
            Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
        })
    }

    /// Puts down what was added since the last look.
    pub(super) fn read(&mut self, target: &str, sink: &mut Sink<'_>) {
        let Some(tail) = &mut self.tail else { return };
        match tail.read() {
            Ok(messages) => {
                for message in messages {
                    let fields: Vec<_> = message.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
                    sink.event(Event::new(sink.at, target, EventKind::Log, message.text, &fields));
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
