//! How many rows the running query of a PostgreSQL server's process has sent. No view tells that, but the process itself
//! counts: its active portal leads to the query, and that to its state (`PortalData.queryDesc`, `QueryDesc.estate`,
//! `EState.es_processed` in PostgreSQL's sources). Where in these structures each of it stands differs from release to
//! release and from fork to fork, so it is not assumed but found out, by an experiment: a query of the master's own, which
//! sleeps after a number of rows that it names ([`layout`]). The memory is read, never written, and the process not stopped.

mod layout;
mod process;

#[cfg(fuzzing)]
pub use layout::exercise;

use layout::Layout;
use process::{Process, Program};

/// What is known of the program that was learnt last.
#[derive(Debug, Default)]
pub(super) struct Rows {
    known: Option<Known>,
}

#[derive(Debug)]
struct Known {
    program: Program,
    /// Where the address of the active portal stands, from where the program is mapped.
    portal: u64,
    layout: Option<Layout>,
}

impl Rows {
    /// Looks at a process that runs this statement and sleeps after so many rows. Whether its program's layout is known
    /// now: not, where the process does not do that now, or more than one layout fits.
    ///
    /// # Errors
    /// Why it cannot be known.
    pub(super) fn learn(&mut self, pid: i32, statement: &str, rows: u64) -> Result<bool, String> {
        let process = Process::find(pid)?;
        let known = match self.known.take().filter(|known| known.program == process.program) {
            Some(known) => self.known.insert(known),
            None => {
                let portal = process.symbol("ActivePortal")?;
                self.known.insert(Known { program: process.program.clone(), portal, layout: None })
            }
        };
        let portal = process.mapped.start.wrapping_add(known.portal);
        process.may_be_read(portal)?;
        match layout::search(&process, &process.mapped, portal, statement, rows)[..] {
            [layout] => {
                known.layout = Some(layout);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The rows that the query of this process has sent; None: it has ended, or runs no query that is counted.
    ///
    /// # Errors
    /// Why they cannot be counted.
    pub(super) fn count(&self, pid: i32) -> Result<Option<u64>, String> {
        let process = match Process::find(pid) {
            Ok(process) => process,
            Err(why) => return unless_gone(pid, why),
        };
        let known = self.known.as_ref().filter(|known| known.program == process.program);
        let Some((known, layout)) = known.and_then(|known| Some((known, known.layout?))) else {
            return Err(format!("process {pid} runs another program than the server that was asked"));
        };
        let portal = process.mapped.start.wrapping_add(known.portal);
        match layout.count(&process, &process.mapped, portal) {
            Some(rows) => Ok(Some(rows)),
            None => process.may_be_read(portal).map_or_else(|why| unless_gone(pid, why), |()| Ok(None)),
        }
    }
}

/// Of a process that has ended meanwhile there is nothing to say.
fn unless_gone(pid: i32, why: String) -> Result<Option<u64>, String> {
    if process::is_gone(pid) { Ok(None) } else { Err(why) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn why_a_process_is_not_counted_is_told_unless_it_has_ended() {
        let own = i32::try_from(std::process::id()).unwrap();
        let why = Rows::default().count(own).unwrap_err();
        assert_eq!(why, format!("process {own} runs another program than the server that was asked"));
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let pid = i32::try_from(ended.id()).unwrap();
        ended.wait().unwrap();
        assert_eq!(Rows::default().count(pid), Ok(None));
    }
}
