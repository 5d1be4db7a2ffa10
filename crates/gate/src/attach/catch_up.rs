//! What a paced socket was kept from sending although it had it, and how much faster it goes until that is made good. The
//! kernel's pacing gives back at most half of a packet's time after a timer that came late (net/ipv4/tcp_output.c,
//! `tcp_update_skb_after_send`); what a busy processor takes beyond that would be lost to the rate.

use backwater_model::Moment;
use backwater_socket::TcpInfo;

/// What is owed is paid back within this time, if it is not lost again. Much longer than a look takes to come again, so that nobody
/// gets ahead of their schedule between two.
const REPAID_WITHIN_S: f64 = 0.4;
/// What is owed is no more than the rate gives in this time, as with the proxy; so nobody goes faster than 5/4 of it.
const MOST_OWED_S: f64 = 0.1;
/// What was sent too much, where a look was late, is taken back as far as the rate gives in this time.
const MOST_AHEAD_S: f64 = 1.0;

/// One socket's account.
#[derive(Clone, Debug, Default)]
pub struct CatchUp {
    last: Option<(Moment, TcpInfo)>,
    /// Bytes; less than nothing where it is ahead.
    owed_bytes: f64,
}

impl CatchUp {
    /// What the kernel counts now, after a time with this rate (in bytes a second). Time in which there was nothing to send, or
    /// in which its client did not read, earns nothing.
    pub fn see(&mut self, now: Moment, info: &TcpInfo, rate_bps: u64) {
        let Some((then, before)) = self.last.replace((now, *info)) else { return };
        let since = |of: fn(&TcpInfo) -> Option<u64>| Some(of(info)?.saturating_sub(of(&before)?) as f64);
        let wanted_s = || Some((since(|info| info.busy_us)? - since(|info| info.rwnd_limited_us)?) / 1e6);
        // A kernel that does not count them (before 4.10) is left to itself.
        let (Some(sent), Some(wanted_s)) = (since(|info| info.acked_bytes), wanted_s()) else { return };
        let (rate, seconds) = (rate_bps as f64, now.seconds_since(then));
        let owed = self.owed_bytes + rate * wanted_s.clamp(0.0, seconds) - sent;
        self.owed_bytes = owed.clamp(-rate * MOST_AHEAD_S, rate * MOST_OWED_S);
    }

    /// What the kernel is to be told, so that in the mean it becomes `rate_bps`.
    pub fn told_bps(&self, rate_bps: u64) -> u64 {
        let rate = rate_bps as f64;
        // Never so slow that it seems dead.
        let most = rate * MOST_OWED_S / REPAID_WITHIN_S;
        (rate + (self.owed_bytes / REPAID_WITHIN_S).clamp(-rate / 2.0, most)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: u64 = 1 << 28;
    const LOOK_US: i64 = 100_000;

    /// A kernel that sends a share of what it is told to, while there is something to send.
    struct Kernel {
        at: Moment,
        info: TcpInfo,
    }

    impl Kernel {
        fn new() -> Kernel {
            let info =
                TcpInfo { acked_bytes: Some(0), busy_us: Some(0), rwnd_limited_us: Some(0), ..TcpInfo::default() };
            Kernel { at: Moment(0), info }
        }

        fn run(&mut self, us: i64, busy: f64, told_bps: u64, share: f64) {
            let busy_us = us as f64 * busy;
            self.at = Moment(self.at.0 + us);
            self.info.busy_us = self.info.busy_us.map(|before| before + busy_us as u64);
            let sent = busy_us / 1e6 * told_bps as f64 * share;
            self.info.acked_bytes = self.info.acked_bytes.map(|before| before + sent as u64);
        }

        fn acked(&self) -> f64 {
            self.info.acked_bytes.unwrap_or_default() as f64
        }
    }

    #[test]
    fn what_late_timers_cost_is_made_good() {
        for share in [1.0, 0.99, 0.93, 0.82] {
            let (mut kernel, mut catch_up) = (Kernel::new(), CatchUp::default());
            catch_up.see(kernel.at, &kernel.info, RATE);
            let mut settled = 0.0;
            for look in 0..120 {
                kernel.run(LOOK_US, 1.0, catch_up.told_bps(RATE), share);
                catch_up.see(kernel.at, &kernel.info, RATE);
                if look == 19 {
                    settled = kernel.acked();
                }
            }
            let mean = (kernel.acked() - settled) / 10.0;
            assert!((mean / RATE as f64 - 1.0).abs() < 0.01, "{share}: {mean}");
        }
    }

    #[test]
    fn who_does_not_want_earns_nothing() {
        let (mut kernel, mut catch_up) = (Kernel::new(), CatchUp::default());
        catch_up.see(kernel.at, &kernel.info, RATE);
        kernel.run(10 * LOOK_US, 0.0, RATE, 1.0);
        catch_up.see(kernel.at, &kernel.info, RATE);
        assert_eq!(catch_up.told_bps(RATE), RATE);
        // A client that does not read: busy, and held back by its window.
        kernel.run(LOOK_US, 1.0, 0, 1.0);
        kernel.info.rwnd_limited_us = Some(LOOK_US as u64);
        catch_up.see(kernel.at, &kernel.info, RATE);
        assert_eq!(catch_up.told_bps(RATE), RATE);
    }

    proptest! {
        /// Whatever the kernel loses, and however long it is idle: with looks in time nobody is ever ahead of the rate.
        #[test]
        fn nobody_gets_ahead(steps in prop::collection::vec((0.0..=1.0f64, 0.3..=1.0f64, 1_000..200_000i64), 1..200)) {
            let (mut kernel, mut catch_up) = (Kernel::new(), CatchUp::default());
            catch_up.see(kernel.at, &kernel.info, RATE);
            let mut scheduled = 0.0;
            for (busy, share, us) in steps {
                let told = catch_up.told_bps(RATE);
                prop_assert!((RATE / 2..=RATE + RATE / 4).contains(&told));
                kernel.run(us, busy, told, share);
                scheduled += RATE as f64 * us as f64 / 1e6;
                prop_assert!(kernel.acked() <= scheduled + 1e3, "{} of {}", kernel.acked(), scheduled);
                catch_up.see(kernel.at, &kernel.info, RATE);
            }
        }
    }
}
