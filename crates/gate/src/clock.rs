//! Time, and waiting for it. Waits go through a timerfd: the runtime's own timer counts whole milliseconds, and a
//! millisecond is all that a class may be ahead.

use backwater_model::Moment;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The time now, CLOCK_BOOTTIME.
pub(crate) fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    Moment(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000)
}

/// A timer with the kernel's own precision. One waiter.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: AsyncFd<OwnedFd>,
}

impl Timer {
    /// A timer of the runtime that this is called in.
    pub(crate) fn new() -> io::Result<Timer> {
        let fd = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // The other way in is unsafe because of types that may close or exchange their descriptor; an OwnedFd does neither.
        #[expect(deprecated, reason = "safe for an OwnedFd, and needs no unsafe block")]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
        Ok(Timer { fd })
    }

    /// Waits until a moment; one that has passed is waited for no longer than it takes to ask.
    pub(crate) async fn until(&self, moment: Moment) -> io::Result<()> {
        // A zero time would switch the timer off.
        let us = moment.0.max(1);
        let it_value = Timespec { tv_sec: us / 1_000_000, tv_nsec: us % 1_000_000 * 1_000 };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
        loop {
            let mut ready = self.fd.readable().await?;
            let mut count = [0; 8];
            match ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut count)?)) {
                Ok(read) => return read.map(|_| ()),
                // It was ready for an earlier wait that was given up.
                Err(_) => continue,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::Span;

    #[test]
    fn a_timer_is_never_early_and_can_be_used_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let timer = Timer::new().unwrap();
            for us in [-5_000, 0, 300, 2_000] {
                let until = now() + Span(us);
                timer.until(until).await.unwrap();
                assert!(now() >= until);
            }
        });
    }
}
