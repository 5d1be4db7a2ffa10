//! The clock of all readings, and ticks at absolute deadlines.

use crate::ProbeError;
use backwater_model::{ClockAnchor, Moment, Span};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use std::os::fd::OwnedFd;
use std::time::Duration;

fn microseconds(time: Timespec) -> i64 {
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

/// The present moment.
pub fn now() -> Moment {
    Moment(microseconds(clock_gettime(ClockId::Boottime)))
}

/// The present moment and wall-clock time, read one after the other.
pub fn anchor() -> ClockAnchor {
    ClockAnchor { boot: now(), unix_us: microseconds(clock_gettime(ClockId::Realtime)) }
}

/// Sleeps until the timer rings or `ended` can be read; whether it was the timer alone.
fn rings_first(timer: &OwnedFd, ended: &OwnedFd) -> Result<bool, ProbeError> {
    let fail = |error: rustix::io::Errno| ProbeError::System { call: "poll", source: error.into() };
    let mut watched = [PollFd::new(timer, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut watched, None)).map_err(fail)?;
    Ok(watched[1].revents().is_empty())
}

/// A timer that rings once, until it is set again, by whichever thread.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: OwnedFd,
}

impl Alarm {
    /// One that rings at once.
    pub(crate) fn new() -> Result<Self, ProbeError> {
        let fail = |error: rustix::io::Errno| ProbeError::System { call: "timerfd_create", source: error.into() };
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let alarm = Alarm { timer: timerfd_create(TimerfdClockId::Boottime, flags).map_err(fail)? };
        alarm.set(Span(0))?;
        Ok(alarm)
    }

    /// Lets it ring after so long, and not before.
    pub(crate) fn set(&self, after: Span) -> Result<(), ProbeError> {
        let fail = |error: rustix::io::Errno| ProbeError::System { call: "timerfd_settime", source: error.into() };
        // A zero time would switch it off.
        let us = after.0.max(1);
        let it_value = Timespec { tv_sec: us / 1_000_000, tv_nsec: us % 1_000_000 * 1_000 };
        let setting = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting).map_err(fail)?;
        Ok(())
    }

    /// Sleeps until it rings; false as soon as `ended` can be read.
    pub(crate) fn wait_unless(&self, ended: &OwnedFd) -> Result<bool, ProbeError> {
        if !rings_first(&self.timer, ended)? {
            return Ok(false);
        }
        let mut expirations = [0; 8];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.timer, &mut expirations)) {
            // Somebody has set it meanwhile: then it did not ring, and the caller finds that it is not yet time.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(true),
            Err(error) => Err(ProbeError::System { call: "read(timerfd)", source: error.into() }),
        }
    }
}

/// Ticks at whole multiples of a period from its start. A tick that was slept through is counted and skipped, so
/// that a stall leaves a gap and never a burst.
#[derive(Debug)]
pub struct Ticker {
    timer: OwnedFd,
    missed: u64,
}

impl Ticker {
    /// A ticker whose first tick comes at once.
    pub fn new(period: Duration) -> Result<Self, ProbeError> {
        let fail = |call| move |error: rustix::io::Errno| ProbeError::System { call, source: error.into() };
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC).map_err(fail("timerfd_create"))?;
        let interval = Timespec { tv_sec: period.as_secs() as i64, tv_nsec: i64::from(period.subsec_nanos()) };
        let soon = Timespec { tv_sec: 0, tv_nsec: 1 };
        let setting = Itimerspec { it_interval: interval, it_value: soon };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &setting).map_err(fail("timerfd_settime"))?;
        Ok(Ticker { timer, missed: 0 })
    }

    /// Sleeps until the next tick.
    pub fn wait(&mut self) -> Result<Moment, ProbeError> {
        let mut expirations = [0; 8];
        let fail = |error: rustix::io::Errno| ProbeError::System { call: "read(timerfd)", source: error.into() };
        rustix::io::retry_on_intr(|| rustix::io::read(&self.timer, &mut expirations)).map_err(fail)?;
        self.missed += u64::from_ne_bytes(expirations).saturating_sub(1);
        Ok(now())
    }

    /// Sleeps until the next tick; none as soon as `ended` can be read, however long the period.
    pub fn wait_unless(&mut self, ended: &OwnedFd) -> Result<Option<Moment>, ProbeError> {
        if rings_first(&self.timer, ended)? { self.wait().map(Some) } else { Ok(None) }
    }

    /// How many ticks were slept through so far.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}
