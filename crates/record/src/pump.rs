//! A thread that takes batches from the probes' channel and writes them down.

use crate::{RecordError, Summary, Writer};
use backwater_model::{Batch, Meta, Moment};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often tails are written and bounds are looked at.
const TICK_S: f64 = 1.0;
/// How often the channel of batches is emptied. Waking for each of them would cost more than what is done with it; a
/// command is obeyed at once.
const LOOK: Duration = Duration::from_millis(500);
/// So much free memory is kept (where a thread's memory ends), and what is beyond goes back to the kernel. A segment takes some ten
/// MiB to close.
const KEPT_BYTES: usize = 32 << 20;

/// Called about each second, for readings of the recorder itself; may add to the recording.
pub type EachSecond = Box<dyn FnMut(Moment) -> Batch + Send>;

enum Command {
    Flush(SyncSender<()>),
    UpdateMeta(Box<Meta>),
    Stop,
}

/// Writes what arrives until it is stopped or dropped, the channel closes, or writing fails.
#[derive(Debug)]
pub struct Pump {
    commands: Sender<Command>,
    thread: Option<JoinHandle<Result<Summary, RecordError>>>,
}

impl Pump {
    /// Starts the thread. `clock` gives the present moment of the probes' clock.
    pub fn start(
        writer: Writer,
        batches: Receiver<Batch>,
        clock: fn() -> Moment,
        each_second: EachSecond,
    ) -> Result<Pump, std::io::Error> {
        let (commands, inbox) = channel();
        let run = move || {
            keep_free_memory();
            Running { writer, batches, inbox, clock, each_second }.run()
        };
        let thread = std::thread::Builder::new().name("recorder".into()).spawn(run)?;
        Ok(Pump { commands, thread: Some(thread) })
    }

    /// Waits until everything that arrived so far can be read from the recording. At once where the thread has ended.
    pub fn flush(&self) {
        let (sender, done) = sync_channel(1);
        if self.commands.send(Command::Flush(sender)).is_ok() {
            // An error means that the thread has ended, and with it everything is on disk or lost for good.
            let _ended = done.recv();
        }
    }

    /// Replaces what the recording says of itself.
    pub fn update_meta(&self, meta: Meta) {
        let _ended = self.commands.send(Command::UpdateMeta(Box::new(meta)));
    }

    /// Whether the thread has ended by itself: because writing failed, or a bound was reached.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Writes what is left, closes the recording and says what it holds, or why writing failed.
    pub fn stop(mut self) -> Result<Summary, RecordError> {
        let _ended = self.commands.send(Command::Stop);
        let gone = |why: &str| RecordError::Stopped { why: why.to_owned() };
        let thread = self.thread.take().ok_or_else(|| gone("it was ended before"))?;
        thread.join().map_err(|_| gone("its thread panicked; please report this"))?
    }
}

/// Has what closing a segment took kept for the next one: to have it given anew by the kernel was a third of this thread's time
/// (docs/bench/overhead.md). glibc gives back what is free at the end of a thread's memory beyond twice the largest block that was
/// mapped by itself and freed (mallopt(3), `M_MMAP_THRESHOLD`), for all threads of the process. One that nothing is written into takes
/// no memory. Other C libraries do as they do.
fn keep_free_memory() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(KEPT_BYTES / 2)));
}

struct Running {
    writer: Writer,
    batches: Receiver<Batch>,
    inbox: Receiver<Command>,
    clock: fn() -> Moment,
    each_second: EachSecond,
}

impl Running {
    fn run(mut self) -> Result<Summary, RecordError> {
        let mut last_tick = (self.clock)();
        loop {
            let asked = self.inbox.recv_timeout(LOOK);
            let open = self.take_waiting()?;
            let now = (self.clock)();
            if now.seconds_since(last_tick) >= TICK_S - LOOK.as_secs_f64() / 2.0 {
                last_tick = now;
                let own = (self.each_second)(now);
                self.writer.write(&own)?;
                self.writer.tick(now)?;
            }
            let go_on = match asked {
                Ok(command) => self.obey(command, now)?,
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => false,
            };
            if !go_on || !open {
                return self.close();
            }
        }
    }

    /// Carries out what was asked; false when that was to stop.
    fn obey(&mut self, command: Command, now: Moment) -> Result<bool, RecordError> {
        match command {
            Command::Flush(done) => {
                self.take_waiting()?;
                self.writer.tick(now)?;
                let _nobody_waits = done.send(());
            }
            Command::UpdateMeta(meta) => self.writer.update_meta(*meta)?,
            Command::Stop => return Ok(false),
        }
        Ok(true)
    }

    /// Takes what waits; false where nobody is left who could send more.
    fn take_waiting(&mut self) -> Result<bool, RecordError> {
        loop {
            match self.batches.try_recv() {
                Ok(batch) => self.writer.write(&batch)?,
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            }
        }
    }

    fn close(mut self) -> Result<Summary, RecordError> {
        self.take_waiting()?;
        self.writer.close()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Options;
    use backwater_model::Registry;
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn a_pump_that_is_dropped_ends_though_batches_may_still_come() {
        let dir = tempfile::tempdir().unwrap();
        let create = || Writer::create(dir.path(), Meta::default(), Arc::new(Registry::new()), Options::default());
        let (_still_open, batches) = sync_channel(1);
        let writer = create().unwrap();
        drop(Pump::start(writer, batches, Moment::default, Box::new(|_| Batch::default())).unwrap());
        // The recording is free again once the thread has closed it.
        let begun = Instant::now();
        while create().is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
    }
}
