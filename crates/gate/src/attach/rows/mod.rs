//! How many rows the running query of a PostgreSQL server's process has sent. No view tells that, but the process itself
//! counts: its active portal leads to the query, and that to its state (`PortalData.queryDesc`, `QueryDesc.estate`,
//! `EState.es_processed` in PostgreSQL's sources). Where in these structures each of it stands differs from release to
//! release and from fork to fork, so it is not assumed but found out, by an experiment: a query of the master's own, which
//! sleeps after a number of rows that it names ([`layout`]). The memory is read, never written, and the process not stopped.

mod layout;
mod process;

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

    /// The rows that the query of this process has sent; None: it has none that is counted, or its program is not known.
    pub(super) fn count(&self, pid: i32) -> Option<u64> {
        let process = Process::find(pid).ok()?;
        let known = self.known.as_ref().filter(|known| known.program == process.program)?;
        known.layout?.count(&process, &process.mapped, process.mapped.start.wrapping_add(known.portal))
    }
}
