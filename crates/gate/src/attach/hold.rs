//! What is paced now, and how fast: a rate for each, or a whole class's divided among them at every look; that may be
//! found from their round trips ([`backwater_flow::auto`]).

use super::catch_up::{CatchUp, PIECES_BYTES};
use super::class::{LEAST_BPS, Usage, divide};
use super::master::{AttachError, Guardian};
use super::message::{Named, Pace, PutBack};
use super::trouble::Trouble;
use crate::silence::{self, Silence};
use backwater_flow::SessionId;
use backwater_flow::auto::{Auto, FIRST_BPS, FLOOR_BPS, Readings, SocketReading, Ways};
use backwater_model::{Moment, Span};
use backwater_socket::{Reading, Socket};
use std::collections::HashSet;

/// A grant is changed when it differs by more than a fiftieth: the kernel need not be told of every wobble.
const WORTH_TELLING: f64 = 0.02;
/// What it is told so that the mean becomes the grant is finer: a hundredth of the mean is asked for.
const WORTH_CORRECTING: f64 = 0.002;

/// How fast they may send together and each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Each, in bytes a second.
    pub each_bps: Option<u64>,
    /// All together.
    pub class: Option<ClassRate>,
}

/// How fast a whole class may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassRate {
    /// So many bytes a second.
    Fixed(u64),
    /// As many as leave almost no queue: found anew at every look, from the sockets' own round trips.
    Auto,
}

/// How often to look where the rate is found: what a queue may grow by in between is what urgent work waits for.
const AUTO_LOOK: Span = Span::from_millis(50);
/// How often where it is fixed: what the kernel's pacing lost is made good from the next look on.
const FIXED_LOOK: Span = Span::from_millis(100);
/// How often a fixed class is divided anew. Over less, whoever sends now and then would seem to want nothing most of the time.
const DIVIDE_EVERY: Span = Span::from_millis(500);

/// A client that acknowledges nothing for so long takes nothing: it sleeps, or vanished without a word. What is lost on the way is sent
/// again after 0.2 s, and after 0.4 s more.
const SILENT_AT_LEAST: Span = Span::from_millis(700);

/// When it is asked again for what could not be put back: that may take a look at every process.
const PUT_BACK_AGAIN: Span = Span::from_millis(1_000);

/// One that is paced.
#[derive(Clone, Debug)]
pub struct Paced {
    /// Which.
    pub named: Named,
    /// What it may send now, in bytes a second.
    pub granted_bps: u64,
    /// Since when it is paced.
    pub since: Moment,
    /// What its client acknowledged since then, in bytes.
    pub sent_bytes: u64,
    /// What the kernel was told last, in bytes a second.
    told_bps: u64,
    /// Whether its round trip was seen.
    told_of_its_way: bool,
    catch_up: CatchUp,
    silence: Silence,
    /// Whether it could not be read at the last look.
    is_unread: bool,
    /// Failures to read it, and to tell it a rate.
    trouble: Trouble,
    /// The least that the kernel was told since its client acknowledged something: what it sent at that rate may still be pending.
    slowest_bps: u64,
    /// It had more to send than it may when it was last looked at.
    backlogged: bool,
    last: Option<(Moment, Reading)>,
    /// As it was when the class was divided last.
    divided: Option<(Moment, Reading)>,
}

/// The paced sockets of one master.
#[derive(Debug)]
pub struct Hold {
    guardian: Guardian,
    rates: Rates,
    /// Finds the class's rate; None where it is fixed.
    auto: Option<Auto>,
    /// Where it is fixed: which of the sockets' bursts meet.
    ways: Ways,
    paced: Vec<Paced>,
    /// Those that are held no longer, and could not be put back yet.
    to_put_back: Vec<Socket>,
    /// When it was asked for last that they are put back.
    asked: Option<Moment>,
    /// Failures to put them back.
    trouble: Trouble,
    /// When the class was divided last; None: it is to be at the next look.
    divided: Option<Moment>,
}

impl Hold {
    /// Paces nothing yet.
    pub fn new(guardian: Guardian, rates: Rates) -> Hold {
        Hold {
            guardian,
            rates,
            auto: None,
            ways: Ways::default(),
            paced: Vec::new(),
            to_put_back: Vec::new(),
            asked: None,
            trouble: Trouble::default(),
            divided: None,
        }
    }

    /// What the class may send now, in bytes a second; None where only each has a rate.
    pub fn class_bps(&self) -> Option<u64> {
        match self.rates.class? {
            ClassRate::Fixed(rate) => Some(rate),
            ClassRate::Auto => Some(self.auto.as_ref().map_or(FLOOR_BPS, Auto::rate_bps)),
        }
    }

    /// Another rate for the whole class, from the next look on.
    pub fn set_class(&mut self, class: ClassRate) {
        self.rates.class = Some(class);
        self.divided = None;
    }

    /// How often it wants to be looked at; None while nothing is paced.
    pub fn look_every(&self) -> Option<Span> {
        let every = if self.rates.class == Some(ClassRate::Auto) { AUTO_LOOK } else { FIXED_LOOK };
        (!self.paced.is_empty()).then_some(every)
    }

    /// The helper, to find and to read.
    pub fn guardian(&mut self) -> &mut Guardian {
        &mut self.guardian
    }

    /// What is paced now.
    pub fn paced(&self) -> &[Paced] {
        &self.paced
    }

    /// The cookies of the sockets that are paced now.
    pub fn cookies(&self) -> HashSet<u64> {
        self.paced.iter().map(|paced| paced.named.socket.cookie).collect()
    }

    /// Paces one more; the class's rate is divided anew at once.
    ///
    /// # Errors
    /// It is gone, or may not be paced.
    pub fn add(&mut self, now: Moment, named: Named) -> Result<(), AttachError> {
        if self.paced.iter().any(|paced| paced.named.socket.cookie == named.socket.cookie) {
            return Ok(());
        }
        // The others make room before it begins.
        let mut usages: Vec<Usage> = self.paced.iter().map(|paced| paced.usage(now, None)).collect();
        usages.push(Usage { used_bps: 0.0, backlogged: true });
        let mut grants = self.grants(&usages);
        let granted_bps = grants.pop().unwrap_or_default();
        let told_bps = granted_bps.max(self.first_bps());
        self.tell(now, &grants)?;
        let order = Pace { socket: named.socket.clone(), rate_bps: told_bps, lasting_bps: told_bps };
        self.guardian.pace(vec![order])?.into_iter().collect::<Result<(), _>>()?;
        // It is held again: what it had before it is given back when it is let go again.
        self.to_put_back.retain(|socket| socket.cookie != named.socket.cookie);
        let catch_up = CatchUp::new(named.socket.is_within_host());
        self.paced.push(Paced {
            named,
            granted_bps,
            since: now,
            sent_bytes: 0,
            told_bps,
            told_of_its_way: false,
            catch_up,
            silence: Silence::default(),
            is_unread: false,
            trouble: Trouble::default(),
            slowest_bps: told_bps,
            backlogged: true,
            last: None,
            divided: None,
        });
        Ok(())
    }

    /// Lets one go, by its socket's cookie. Where it cannot be put back now, that is tried again at later looks.
    ///
    /// # Errors
    /// The guardian is gone.
    pub fn release(&mut self, now: Moment, cookie: u64) -> Result<Option<Paced>, AttachError> {
        let Some(at) = self.paced.iter().position(|paced| paced.named.socket.cookie == cookie) else { return Ok(None) };
        let paced = self.paced.remove(at);
        self.put_back(now, std::slice::from_ref(&paced))?;
        Ok(Some(paced))
    }

    /// Lets all go, in the same way.
    ///
    /// # Errors
    /// The guardian is gone.
    pub fn release_all(&mut self, now: Moment) -> Result<Vec<Paced>, AttachError> {
        let paced = std::mem::take(&mut self.paced);
        self.put_back(now, &paced)?;
        Ok(paced)
    }

    /// Reads what they sent, lets go of those that are gone and returns them, and divides the class's rate anew. One that cannot be
    /// read is held on as it was.
    ///
    /// # Errors
    /// The guardian is gone.
    pub fn look(&mut self, now: Moment) -> Result<Vec<Paced>, AttachError> {
        let sockets = self.paced.iter().map(|paced| paced.named.socket.clone()).collect();
        let looks = self.guardian.read(sockets)?;
        let (mut gone, mut usages, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        let (mut round_trips, mut unread, mut begins) = (Vec::new(), Vec::new(), false);
        for (mut paced, look) in self.paced.drain(..).zip(looks) {
            match look.open() {
                Some(Ok(reading)) => {
                    paced.is_unread = false;
                    paced.listen(now, &reading);
                    let usage = paced.usage(now, Some(&reading));
                    begins |= usage.backlogged && !paced.backlogged;
                    paced.backlogged = usage.backlogged;
                    usages.push(usage);
                    let round_trip = paced.round_trip(&reading);
                    paced.told_of_its_way |= round_trip.is_some();
                    round_trips.extend(round_trip);
                    paced.take(now, reading);
                    kept.push(paced);
                }
                Some(Err(why)) => {
                    paced.is_unread = true;
                    usages.push(paced.usage(now, None));
                    if paced.trouble.meet(now) {
                        unread.push((paced.words(), why));
                    }
                    kept.push(paced);
                }
                None => gone.push(paced),
            }
        }
        self.paced = kept;
        tell_unread(&unread);
        self.find(now, &round_trips);
        self.put_back(now, &gone)?;
        let is_found = self.rates.class == Some(ClassRate::Auto);
        let is_due = self.divided.is_none_or(|then| now - then >= DIVIDE_EVERY);
        let grants = if is_found || is_due || begins || !gone.is_empty() {
            self.divided = Some(now);
            self.paced.iter_mut().for_each(|paced| paced.divided = paced.last);
            self.grants(&usages)
        } else {
            self.paced.iter().map(|paced| paced.granted_bps).collect()
        };
        self.tell(now, &grants)?;
        Ok(gone)
    }

    /// Puts everything back.
    ///
    /// # Errors
    /// The guardian is gone.
    pub fn finish(self) -> Result<PutBack, AttachError> {
        self.guardian.finish()
    }

    /// Gives those that are held no longer what they had, and those that could not be given it before.
    fn put_back(&mut self, now: Moment, paced: &[Paced]) -> Result<(), AttachError> {
        let is_due = self.asked.is_none_or(|then| now - then >= PUT_BACK_AGAIN);
        self.to_put_back.extend(paced.iter().map(|paced| paced.named.socket.clone()));
        if self.to_put_back.is_empty() || (paced.is_empty() && !is_due) {
            return Ok(());
        }
        self.asked = Some(now);
        match self.guardian.release(self.to_put_back.clone()) {
            Ok(()) => self.to_put_back.clear(),
            Err(error) if error.is_end() => return Err(error),
            // Some of them may be put back by now. Whoever is held is held on.
            Err(why) => {
                if self.trouble.meet(now) {
                    tracing::warn!("what was let go could not all be put back, and will be tried again: {why}");
                }
            }
        }
        Ok(())
    }

    /// Finds the class's rate, where it is to be found. Without anybody in it there is nothing to find it from, and what
    /// was found before is of another time.
    fn find(&mut self, now: Moment, round_trips: &[SocketReading]) {
        if self.rates.class != Some(ClassRate::Auto) || self.paced.is_empty() {
            self.auto = None;
            self.ways.add(now, round_trips);
            return;
        }
        let auto = self.auto.get_or_insert_with(|| Auto::unbounded(now, FLOOR_BPS));
        let rate_bps = auto.tick(now, &Readings { sockets: round_trips, ..Readings::default() });
        tracing::trace!(rate_bps, queueing = ?auto.queueing(), "the class's rate");
    }

    /// What a socket may be told at least until it was looked at twice; nothing where the class's rate is fixed.
    fn first_bps(&self) -> u64 {
        match self.rates {
            Rates { class: Some(ClassRate::Auto), each_bps } => FIRST_BPS.min(each_bps.unwrap_or(u64::MAX)),
            _ => 0,
        }
    }

    fn grants(&self, usages: &[Usage]) -> Vec<u64> {
        match (self.class_bps(), self.rates.each_bps) {
            (Some(class), each) => {
                let ready = FIRST_BPS.min(class).min(each.unwrap_or(u64::MAX));
                let grants = divide(class, each, usages).into_iter().zip(usages);
                grants.map(|(grant, usage)| if usage.is_idle() { grant.max(ready) } else { grant }).collect()
            }
            (None, each) => vec![each.unwrap_or(u64::MAX - 1); usages.len()],
        }
    }

    /// Less first, then more: together they never have more than the class, but for what is made good.
    fn tell(&mut self, now: Moment, grants: &[u64]) -> Result<(), AttachError> {
        let (is_found, first_bps) = (self.rates.class == Some(ClassRate::Auto), self.first_bps());
        let mut changes: Vec<(usize, u64)> = Vec::new();
        for (at, (paced, grant)) in self.paced.iter_mut().zip(grants).enumerate() {
            let change = paced.granted_bps.abs_diff(*grant) as f64;
            // A growth that is held back leaves room; a cut that is held back would be too much.
            if *grant < paced.granted_bps || change > WORTH_TELLING * paced.granted_bps as f64 {
                paced.granted_bps = *grant;
            }
            // A rate that is found from round trips needs no correction: it is as much as leaves no queue.
            let told_bps = match &self.auto {
                _ if is_found && !paced.told_of_its_way => paced.granted_bps.max(first_bps),
                Some(auto) if is_found => auto.spread_bps(paced.session(), paced.granted_bps),
                _ => {
                    // What it has had since it was read last nobody knows: meanwhile nothing is made good.
                    let most_bps = if paced.is_unread { paced.granted_bps } else { u64::MAX };
                    let wanted_bps = paced.catch_up.told_bps(paced.granted_bps).min(most_bps);
                    self.ways.spread_bps(paced.session(), wanted_bps, FIXED_LOOK)
                }
            };
            // Never so slow that it seems dead.
            let told_bps = told_bps.max(LEAST_BPS.min(paced.granted_bps));
            if told_bps.abs_diff(paced.told_bps) as f64 > WORTH_CORRECTING * paced.told_bps as f64 {
                changes.push((at, told_bps));
            }
        }
        changes.sort_by_key(|(at, told)| (*told > self.paced[*at].told_bps, *at));
        if changes.is_empty() {
            return Ok(());
        }
        let order = |(at, rate_bps): &(usize, u64)| {
            let Paced { named, granted_bps, .. } = &self.paced[*at];
            Pace { socket: named.socket.clone(), rate_bps: *rate_bps, lasting_bps: *granted_bps }
        };
        let answers = self.guardian.pace(changes.iter().map(order).collect())?;
        for ((at, told_bps), answer) in changes.into_iter().zip(answers) {
            let paced = &mut self.paced[at];
            match answer {
                Ok(()) => {
                    (paced.told_bps, paced.slowest_bps) = (told_bps, paced.slowest_bps.min(told_bps));
                }
                // The next look finds it gone.
                Err(AttachError::Gone) => {}
                // One that cannot be told keeps what it has until it can be; the others are held on.
                Err(AttachError::Refused(why)) => {
                    if paced.trouble.meet(now) {
                        tracing::warn!("the rate of {} stays as it is for now: {why}", paced.words());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Paced {
    /// What it did since the class was divided; without a reading, as if nothing had changed.
    fn usage(&self, now: Moment, reading: Option<&Reading>) -> Usage {
        let seen = reading.or(self.last.as_ref().map(|(_, last)| last));
        let queued = seen.map_or(0, |seen| seen.queued_bytes);
        let acked = |reading: &Reading| reading.info.acked_bytes;
        let used = self.divided.as_ref().zip(reading).and_then(|((then, last), reading)| {
            let seconds = now.seconds_since(*then);
            let bytes = acked(reading)?.saturating_sub(acked(last)?);
            (seconds > 0.0).then(|| bytes as f64 / seconds)
        });
        // One segment under way is no backlog. One that was never looked at may have anything to send.
        let segment = seen.and_then(|seen| seen.info.segment_bytes).unwrap_or_default();
        let queues = queued > u64::from(segment) && !self.silence.takes_nothing();
        Usage { used_bps: used.unwrap_or(self.granted_bps as f64), backlogged: self.last.is_none() || queues }
    }

    /// Hears whether its client takes what is queued for it.
    fn listen(&mut self, now: Moment, reading: &Reading) {
        let segment = u64::from(reading.info.segment_bytes.unwrap_or_default());
        let Some(acked) = reading.info.acked_bytes.filter(|_| reading.queued_bytes > segment) else {
            return self.silence.ends();
        };
        // Until the first of two pieces is acknowledged nothing is heard of a slow socket.
        let pause_us = PIECES_BYTES.saturating_mul(1_000_000) / self.slowest_bps.max(1);
        let pause = Span(i64::try_from(pause_us).unwrap_or(i64::MAX));
        self.silence.hear(now, acked, silence::long(reading.info.rtt_us, pause.max(SILENT_AT_LEAST)));
    }

    fn session(&self) -> SessionId {
        SessionId(self.named.socket.cookie)
    }

    /// What its round trip is now, and what it delivered since the look before; None where that is not known.
    fn round_trip(&self, reading: &Reading) -> Option<SocketReading> {
        let (_, last) = self.last.as_ref()?;
        let delivered_bytes = reading.info.acked_bytes?.saturating_sub(last.info.acked_bytes?);
        let span = |us: u32| Span(i64::from(us));
        Some(SocketReading {
            session: self.session(),
            peer: Some(self.named.socket.peer.ip()),
            rtt: span(reading.info.rtt_us?),
            least: reading.info.min_rtt_us.map(span),
            delivered_bytes,
            segment_bytes: u64::from(reading.info.segment_bytes?),
            segments_in: reading.info.segments_in,
            usual_bps: reading.info.busy_bytes_per_s(),
        })
    }

    fn take(&mut self, now: Moment, reading: Reading) {
        if let Some((_, last)) = &self.last
            && let (Some(before), Some(acked)) = (last.info.acked_bytes, reading.info.acked_bytes)
        {
            self.sent_bytes += acked.saturating_sub(before);
            if acked != before {
                self.slowest_bps = self.told_bps;
            }
        }
        self.catch_up.see(now, &reading.info, self.granted_bps);
        self.last = Some((now, reading));
    }

    /// Which one, for people.
    fn words(&self) -> String {
        let Named { socket, title } = &self.named;
        format!("the connection with {} of process {} ({title})", socket.peer, socket.pid)
    }

    /// How often it could not be read, or not be told a rate, since it is paced.
    pub fn failures(&self) -> u64 {
        self.trouble.count()
    }

    /// Bytes a second since it is paced; None while that is not known.
    pub fn mean_bps(&self) -> Option<f64> {
        let (last, _) = self.last.as_ref()?;
        let seconds = last.seconds_since(self.since);
        (seconds > 0.0 && self.sent_bytes > 0).then(|| self.sent_bytes as f64 / seconds)
    }
}

/// Says of whom nothing is known now: of many at once, as where the helper has no descriptor left, in one line.
fn tell_unread(unread: &[(String, String)]) {
    let Some((first, why)) = unread.first() else { return };
    match unread.len() - 1 {
        0 => tracing::warn!("{first} is held on as it was, but cannot be read: {why}"),
        others => tracing::warn!("{first} and {others} more are held on as they were, but cannot be read: {why}"),
    }
}

#[cfg(test)]
#[path = "hold_tests.rs"]
mod tests;
