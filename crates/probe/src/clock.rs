//! The clock of all readings, and ticks at absolute deadlines.

use crate::ProbeError;
use backwater_model::{ClockAnchor, Moment};
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
        let fail = |error: rustix::io::Errno| ProbeError::System { call: "poll", source: error.into() };
        let over = {
            let mut watched = [PollFd::new(&self.timer, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
            rustix::io::retry_on_intr(|| poll(&mut watched, None)).map_err(fail)?;
            !watched[1].revents().is_empty()
        };
        if over { Ok(None) } else { self.wait().map(Some) }
    }

    /// How many ticks were slept through so far.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}
