//! What a paced socket was kept from sending although it had it, and how much faster it goes until that is made good. The
//! kernel's pacing gives back at most half of a packet's time after a timer that came late (net/ipv4/tcp_output.c,
//! `tcp_update_skb_after_send`); what a busy processor takes beyond that would be lost to the rate.

use super::class::LEAST_BPS;
use backwater_model::{Moment, Span};
use backwater_socket::TcpInfo;

/// What is owed is paid back within this time, if it is not lost again. Twice as long as a look takes to come again, so that nobody
/// gets ahead of their schedule between two; and no longer, for as much stays owed as the processors take in it.
const REPAID_WITHIN_S: f64 = 0.2;
/// What is owed is no more than the rate gives in this time, as with the proxy; so nobody goes faster than 3/2 of it.
const MOST_OWED_S: f64 = 0.1;
/// What was sent too much, where a look was late, is taken back as far as the rate gives in this time.
const MOST_AHEAD_S: f64 = 1.0;
/// A server that has something to send for so much of the time between two looks was kept from the rest of it by a busy
/// processor, or by its disk, and not because it wanted nothing.
const WANTS_SHARE: f64 = 0.5;
/// What is acknowledged comes in pieces of up to 64 KiB: so little is owed at one look and too much at the next.
pub(super) const PIECES_BYTES: u64 = 131_072;
/// A round trip longer than twice the shortest and this may meet a queue: there it is the way that holds a socket back, and to go
/// faster would only lengthen what others wait in. But a busy processor answers late too, now and then.
const QUEUE_US: u32 = 1_000;
/// What is met at every look for so long is a queue, which stands: three looks in a row.
const STANDS: Span = Span::from_millis(200);

/// One socket's account.
#[derive(Clone, Debug, Default)]
pub(super) struct CatchUp {
    last: Option<(Moment, TcpInfo)>,
    /// Bytes; less than nothing where it is ahead.
    owed_bytes: f64,
    /// Since when every look has met what may be a queue.
    slow_since: Option<Moment>,
    /// There is no way that could hold it back: what answers late there is the processor.
    within_host: bool,
}

impl CatchUp {
    /// Nothing is owed yet. `within_host`: the client is on its server's host, so that no queue of a link is on its way.
    pub(super) fn new(within_host: bool) -> CatchUp {
        CatchUp { within_host, ..CatchUp::default() }
    }

    /// What the kernel counts now, after a time with this rate (in bytes a second). Time in which there was mostly nothing to send,
    /// or in which its client did not read, earns nothing, but pays for what was sent too much. What had to be sent again counts.
    pub(super) fn see(&mut self, now: Moment, info: &TcpInfo, rate_bps: u64) {
        let Some((then, before)) = self.last.replace((now, *info)) else { return };
        let since = |of: fn(&TcpInfo) -> Option<u64>| Some(of(info)?.saturating_sub(of(&before)?) as f64);
        let seconds = now.seconds_since(then);
        let (busy_us, full_us) = (since(|info| info.busy_us), since(|info| info.rwnd_limited_us));
        // A kernel that does not count them (before 4.10) is left to itself.
        let sent = since(|info| info.sent_bytes.or(info.acked_bytes));
        let (Some(sent), Some(busy_us), Some(full_us)) = (sent, busy_us, full_us) else { return };
        self.slow_since = (!self.within_host && is_slow(info)).then(|| self.slow_since.unwrap_or(now));
        let rate = rate_bps as f64;
        let had_s = if busy_us / 1e6 < WANTS_SHARE * seconds { busy_us / 1e6 } else { seconds };
        let wanted_s = (had_s - full_us / 1e6).clamp(0.0, seconds);
        let owed = self.owed_bytes + rate * wanted_s - sent;
        let owed = match owed {
            ahead if ahead < 0.0 => (ahead + rate * (seconds - wanted_s)).min(0.0),
            _ if self.slow_since.is_some_and(|since| now - since >= STANDS) => 0.0,
            owed => owed,
        };
        self.owed_bytes = owed.clamp(-rate * MOST_AHEAD_S, rate * MOST_OWED_S);
    }

    /// What the kernel is to be told, so that in the mean it becomes `rate_bps`. What is owed waits while there may be a queue.
    pub(super) fn told_bps(&self, rate_bps: u64) -> u64 {
        let rate = rate_bps as f64;
        let due_bytes = if self.slow_since.is_some() { self.owed_bytes.min(0.0) } else { self.owed_bytes };
        // Never so slow that it seems dead.
        let most = rate * MOST_OWED_S / REPAID_WITHIN_S;
        let beyond_pieces = (due_bytes.abs() - PIECES_BYTES as f64).max(0.0).copysign(due_bytes);
        ((rate + (beyond_pieces / REPAID_WITHIN_S).clamp(-rate / 2.0, most)) as u64).max(LEAST_BPS.min(rate_bps))
    }
}

/// Whether what it sends may meet a queue.
fn is_slow(info: &TcpInfo) -> bool {
    let (Some(now), Some(least)) = (info.rtt_us, info.min_rtt_us) else { return false };
    now > least.saturating_mul(2).saturating_add(QUEUE_US)
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

    /// A server that stands in line for a processor now and then has nothing to send meanwhile, and goes faster afterwards.
    #[test]
    fn what_a_server_that_waits_for_a_processor_could_not_send_is_made_good() {
        for busy in [0.95, 0.85, 0.6] {
            let (mut kernel, mut catch_up) = (Kernel::new(), CatchUp::default());
            catch_up.see(kernel.at, &kernel.info, RATE);
            // Told more it sends more, as far as it has the time.
            for _ in 0..120 {
                kernel.run(LOOK_US, busy, catch_up.told_bps(RATE), 1.0);
                catch_up.see(kernel.at, &kernel.info, RATE);
            }
            let (mean, most) = (kernel.acked() / kernel.at.seconds(), busy * 1.5);
            assert!((mean / RATE as f64 - most.min(1.0)).abs() < 0.02, "{busy}: {mean}");
        }
    }

    #[test]
    fn who_answers_late_within_the_host_is_no_queue() {
        let (mut kernel, mut catch_up) = (Kernel::new(), CatchUp::new(true));
        (kernel.info.rtt_us, kernel.info.min_rtt_us) = (Some(7_000), Some(40));
        catch_up.see(kernel.at, &kernel.info, RATE);
        for _ in 0..120 {
            kernel.run(LOOK_US, 0.95, catch_up.told_bps(RATE), 1.0);
            catch_up.see(kernel.at, &kernel.info, RATE);
        }
        let mean = kernel.acked() / kernel.at.seconds();
        assert!((mean / RATE as f64 - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn what_the_way_holds_back_is_not_made_good() {
        let (mut kernel, mut catch_up) = (Kernel::new(), CatchUp::default());
        (kernel.info.rtt_us, kernel.info.min_rtt_us) = (Some(7_000), Some(400));
        catch_up.see(kernel.at, &kernel.info, RATE);
        for _ in 0..20 {
            kernel.run(LOOK_US, 1.0, RATE, 0.5);
            catch_up.see(kernel.at, &kernel.info, RATE);
            assert_eq!(catch_up.told_bps(RATE), RATE);
        }
    }

    /// A busy processor: it answers late at most looks, and never at three in a row.
    #[test]
    fn what_a_busy_processor_costs_is_made_good_though_it_answers_late() {
        let (mut kernel, mut catch_up) = (Kernel::new(), CatchUp::default());
        kernel.info.min_rtt_us = Some(400);
        catch_up.see(kernel.at, &kernel.info, RATE);
        for look in 0..120 {
            let is_late = look % 3 != 2;
            kernel.info.rtt_us = Some(if is_late { 7_000 } else { 500 });
            kernel.run(LOOK_US, 1.0, catch_up.told_bps(RATE), 0.96);
            catch_up.see(kernel.at, &kernel.info, RATE);
            assert!(!is_late || catch_up.told_bps(RATE) == RATE, "while it may be a queue nothing goes faster");
        }
        let mean = kernel.acked() / kernel.at.seconds();
        assert!((mean / RATE as f64 - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn what_a_queue_held_back_is_forgotten_when_it_is_gone() {
        let (mut kernel, mut catch_up) = (Kernel::new(), CatchUp::default());
        (kernel.info.rtt_us, kernel.info.min_rtt_us) = (Some(7_000), Some(400));
        catch_up.see(kernel.at, &kernel.info, RATE);
        for _ in 0..3 {
            kernel.run(LOOK_US, 1.0, RATE, 0.5);
            catch_up.see(kernel.at, &kernel.info, RATE);
        }
        kernel.info.rtt_us = Some(500);
        kernel.run(LOOK_US, 1.0, RATE, 1.0);
        catch_up.see(kernel.at, &kernel.info, RATE);
        assert_eq!(catch_up.told_bps(RATE), RATE);
    }

    #[test]
    fn what_comes_in_pieces_is_right_in_the_mean() {
        let slow = 2 << 20;
        let (mut kernel, mut catch_up) = (Kernel::new(), CatchUp::default());
        catch_up.see(kernel.at, &kernel.info, slow);
        for look in 0..100 {
            // A piece more at one look, a piece less at the next.
            let share = if look % 2 == 0 { 1.3 } else { 0.7 };
            kernel.run(LOOK_US, 1.0, slow, share);
            catch_up.see(kernel.at, &kernel.info, slow);
            assert_eq!(catch_up.told_bps(slow), slow);
        }
    }

    #[test]
    fn who_trickles_at_the_least_rate_is_never_told_less() {
        let (mut kernel, mut catch_up) = (Kernel::new(), CatchUp::default());
        catch_up.see(kernel.at, &kernel.info, LEAST_BPS);
        for _ in 0..50 {
            // 300 bytes in no time.
            kernel.run(LOOK_US, 0.0, LEAST_BPS, 1.0);
            kernel.info.acked_bytes = kernel.info.acked_bytes.map(|acked| acked + 300);
            catch_up.see(kernel.at, &kernel.info, LEAST_BPS);
            assert_eq!(catch_up.told_bps(LEAST_BPS), LEAST_BPS);
        }
        kernel.run(20 * LOOK_US, 0.0, LEAST_BPS, 1.0);
        catch_up.see(kernel.at, &kernel.info, LEAST_BPS);
        assert_eq!(catch_up.told_bps(RATE), RATE, "two seconds of rest pay for it");
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
                prop_assert!((RATE / 2..=RATE + RATE / 2).contains(&told));
                kernel.run(us, busy, told, share);
                scheduled += RATE as f64 * us as f64 / 1e6;
                prop_assert!(kernel.acked() <= scheduled + 1e3, "{} of {}", kernel.acked(), scheduled);
                catch_up.see(kernel.at, &kernel.info, RATE);
            }
        }
    }
}
