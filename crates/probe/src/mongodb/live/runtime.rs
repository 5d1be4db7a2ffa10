//! A runtime with a thread of its own: the driver watches its connection in the background, between looks too.

use crate::ProbeError;
use std::thread::JoinHandle;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// Runs until it is dropped.
#[derive(Debug)]
pub(super) struct Background {
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts the thread.
    pub(super) fn start() -> Result<Self, ProbeError> {
        let runtime = current_thread()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || {
            // Ends as well where the sender is gone.
            let _ended = runtime.block_on(ended);
        };
        let spawned = std::thread::Builder::new().name("mongodb.driver".to_owned()).spawn(run);
        let thread = spawned.map_err(|source| ProbeError::System { call: "clone", source })?;
        Ok(Background { handle, end: Some(end), thread: Some(thread) })
    }

    /// Waits for a future on the calling thread, which must not be one of a runtime.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _gone = end.send(());
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the MongoDB driver panicked");
        }
    }
}

/// A runtime that runs only while something is waited for.
pub(super) fn current_thread() -> Result<Runtime, ProbeError> {
    let built = Builder::new_current_thread().enable_io().enable_time().build();
    built.map_err(|source| ProbeError::System { call: "epoll_create1", source })
}
