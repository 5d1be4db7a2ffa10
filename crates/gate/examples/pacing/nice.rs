//! Nice values: by them threads that wait for a processor share it. Linux has one for each thread, and what a thread starts
//! inherits it.

use crate::Result;

/// The thread that calls this has that nice value from now on; None: it keeps the one that it has.
///
/// # Errors
/// It is below the one that it has, and this program may not do that.
pub(crate) fn take(value: Option<i32>) -> Result<()> {
    let Some(value) = value else { return Ok(()) };
    let taken = rustix::process::setpriority_process(None, value);
    taken.map_err(|error| format!("no nice value of {value}: {error} (a lower one needs CAP_SYS_NICE)").into())
}

/// Starts something in a thread of its own with that nice value: what is started there has it too, and nothing else.
pub(crate) fn within<T: Send>(value: Option<i32>, start: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let starter = scope.spawn(move || {
            take(value)?;
            start()
        });
        starter.join().unwrap_or_else(|_| Err("the thread that starts what holds panicked".into()))
    })
}
