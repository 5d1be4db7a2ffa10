//! Attach mode as this program has it: a hold in a thread of its own, and a helper process that is this program again.

use crate::{Result, nice};
use backwater_gate::attach::{Bursts, Guardian, Hold, Named, Rates};
use backwater_model::Moment;
use backwater_socket::Socket;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The one argument with which this program starts itself, as attach mode's helper.
pub(crate) const GUARDIAN: &str = "guardian";

/// The server's end of a client's connection, held by attach mode: looked at as often as that does, until it is dropped.
pub(crate) struct Held {
    stop: Arc<AtomicBool>,
    looks: Option<JoinHandle<Result<()>>>,
}

/// Has attach mode hold it at that rate from now on, with a helper of its own.
pub(crate) fn hold(socket: Socket, rate_bps: u64, own_nice: Option<i32>) -> Result<Hold> {
    nice::within(own_nice, move || {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(GUARDIAN);
        let mut hold = Hold::new(Guardian::start(command)?, Rates { each_bps: Some(rate_bps), class: None });
        hold.add(Moment(0), Named { title: socket.title(), socket })?;
        Ok(hold)
    })
}

impl Held {
    /// The thread that looks takes that nice value itself: whoever waited for it here would read late what comes meanwhile.
    pub(crate) fn begin(mut hold: Hold, own_nice: Option<i32>) -> Held {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let looks = std::thread::spawn(move || {
            nice::take(own_nice)?;
            let begun = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                let now = Moment(i64::try_from(begun.elapsed().as_micros()).unwrap_or(i64::MAX));
                hold.look(now)?;
                let every = hold.look_every().ok_or("the session that was held is gone")?;
                std::thread::sleep(Duration::from_micros(every.0.unsigned_abs()));
            }
            hold.finish()?;
            Ok(())
        });
        Held { stop, looks: Some(looks) }
    }

    /// Its helper is gone before anything else is measured.
    pub(crate) fn end(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let looks = self.looks.take().map(JoinHandle::join);
        looks.unwrap_or(Ok(Ok(()))).unwrap_or_else(|_| Err("what looks at the held session panicked".into()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What this program is as attach mode's helper.
pub(crate) fn guard() -> Result<()> {
    let journals = tempfile::tempdir()?;
    let master = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    Ok(backwater_gate::attach::guard(master, journals.path(), Bursts::AsTheyAre)?)
}
