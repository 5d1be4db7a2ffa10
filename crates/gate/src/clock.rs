//! Time, and waiting for it. A session's waits go through a timerfd: the runtime's own timer counts whole milliseconds, and a
//! millisecond is all that a class may be ahead.

use backwater_model::{Moment, Span};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::Poll;
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

/// What this comes to, if it comes to an end in time; None also where there is no timer to be had. Needs no timer of the
/// runtime: one that has it looks at its wheel and twice at the clock each time that it waits. In a profile of small
/// transactions by one client these were some 7 % of a relay's samples; what they cost was not measured.
pub(crate) async fn within<T>(most: Span, what: impl Future<Output = T>) -> Option<T> {
    let mut what = pin!(what);
    // Nearly all are done at once, and need none of the process's descriptors.
    let at_once = poll_fn(|cx| Poll::Ready(what.as_mut().poll(cx))).await;
    if let Poll::Ready(done) = at_once {
        return Some(done);
    }
    let timer = Timer::new().ok()?;
    tokio::select! {
        biased;
        done = what => Some(done),
        _ = timer.until(now() + most) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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

    #[test]
    fn what_does_not_end_in_time_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let began = now();
            assert_eq!(within(Span(20_000), std::future::pending::<()>()).await, None);
            assert!(now() - began >= Span(20_000));
            assert_eq!(within(Span(0), std::future::ready(7)).await, Some(7));
            let later = async { Timer::new().unwrap().until(now() + Span(1_000)).await.is_ok() };
            assert_eq!(within(Span(10_000_000), later).await, Some(true));
        });
    }
}
