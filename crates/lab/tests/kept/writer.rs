//! A client that makes WAL at a steady rate, until its server ends or it is dropped.

use crate::server::{Server, Session};
use backwater_model::Moment;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// 12 MB a second, in twenty pieces.
const PIECE_BYTES: u32 = 600_000;
const EACH: Duration = Duration::from_millis(50);

pub struct Writer {
    over: Arc<AtomicBool>,
    ended: Arc<OnceLock<Moment>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub fn on(server: &Server) -> Writer {
        let mut session = Session::open(&server.info()).unwrap();
        let (over, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
        let (stop, told) = (Arc::clone(&over), Arc::clone(&ended));
        let piece = format!("SELECT pg_logical_emit_message(false, 'w', repeat('w', {PIECE_BYTES}))");
        let run = move || {
            let begun = Instant::now();
            for number in 0.. {
                let due = begun + EACH * number;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                if session.run(&piece).is_err() {
                    told.set(backwater_probe::now()).unwrap();
                    return;
                }
            }
        };
        Writer { over, ended, thread: Some(std::thread::spawn(run)) }
    }

    /// When the server did not take more.
    pub fn ended(&self) -> Option<Moment> {
        self.ended.get().copied()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}
