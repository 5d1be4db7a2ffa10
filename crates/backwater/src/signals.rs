//! Ctrl-C and SIGTERM raise a flag that every long call looks at; a second one ends the program at once (what it
//! leaves is put right by the next command; what no command could find again is ended first).

use anyhow::Context;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often a future looks whether a signal has come.
const LOOK: Duration = Duration::from_millis(100);

/// What is done before a second signal ends the program.
static AT_ONCE: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());

/// Has this done where a second signal ends the program at once. It may not wait for longer than a second.
pub(crate) fn at_once(act: impl FnOnce() + Send + 'static) {
    AT_ONCE.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(act));
}

/// A flag that is raised when somebody wants the program to end. The thread that asks for it is then unparked as well.
pub(crate) fn cancel_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let (raised, waiting) = (Arc::clone(&flag), std::thread::current());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.context("cannot watch for signals")?;
    // Before this returns, so that no signal ends the program uncleaned from here on.
    let watching: std::io::Result<_> =
        runtime.block_on(async { Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)) });
    let both = watching.context("cannot watch for signals")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || runtime.block_on(wait(both, &raised, &waiting)))
        .context("cannot watch for signals")?;
    Ok(flag)
}

/// A flag that is raised by SIGHUP.
pub(crate) fn hangup_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.context("cannot watch for SIGHUP")?;
    // Before this returns, so that no SIGHUP ends the program from here on.
    let watching = runtime.block_on(async { signal(SignalKind::hangup()) });
    let mut hangup = watching.context("cannot watch for SIGHUP")?;
    let watch = move || {
        runtime.block_on(async {
            while hangup.recv().await.is_some() {
                raised.store(true, Ordering::SeqCst);
            }
        });
    };
    std::thread::Builder::new().name("hangup".into()).spawn(watch).context("cannot watch for SIGHUP")?;
    Ok(flag)
}

/// A future that is ready once somebody wants the program to end; a second signal then ends it at once.
pub(crate) fn ended() -> anyhow::Result<impl Future<Output = ()>> {
    let flag = cancel_flag()?;
    Ok(async move {
        let mut looks = tokio::time::interval(LOOK);
        while !flag.load(Ordering::SeqCst) {
            looks.tick().await;
        }
    })
}

async fn wait((mut interrupt, mut terminate): (Signal, Signal), raised: &AtomicBool, waiting: &Thread) {
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if raised.swap(true, Ordering::SeqCst) {
            crate::terminal::leave();
            AT_ONCE.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|act| act());
            std::process::exit(130);
        }
        waiting.unpark();
        tracing::warn!("stopping; once more to end at once (what is left then is cleaned up by the next command)");
    }
}
