//! Whose each session is, and which statement it runs. The server sends both once and not at every look: what has begun
//! before the last look was read then, and it is most of what a look would carry. A look that fits into one buffer of the
//! server (8 KiB) also wakes the reader once.

use super::row::ServerTime;
use super::texts::Statements;
use backwater_model::{Span, Text};
use std::collections::HashMap;

/// Texts are sent for a little longer than from look to look: a session takes its statement's begin a moment before it shows
/// the statement. One that sleeps in between for longer is missed, and found by the next look, which asks for all.
const OVERLAP: Span = Span::from_millis(20);
/// A session is shown once it is authenticated, which rarely takes this long. Of one that took longer, a look that finds
/// it unknown asks again.
const AUTHENTICATION: Span = Span::from_millis(5_000);

/// What is the same for as long as a session lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Whose {
    pub(super) backend_type: Option<Text>,
    pub(super) user: Option<Text>,
    pub(super) database: Option<Text>,
    pub(super) client_addr: Option<Text>,
    pub(super) client_port: Option<i32>,
}

/// What is sent only of what began later than these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) statements: ServerTime,
    pub(super) sessions: ServerTime,
}

impl Wanted {
    /// Everything is sent.
    pub(super) const ALL: Wanted = Wanted { statements: ServerTime::EARLIEST, sessions: ServerTime::EARLIEST };
}

/// What is kept of one session.
#[derive(Debug)]
struct Known {
    pid: i32,
    whose: Option<Whose>,
    /// When the statement began, and what is kept of it.
    statement: Option<(ServerTime, Option<Text>)>,
}

/// The sessions that were at work. Rows come in the order of the look before but for sessions that came or went, so that most are
/// found next to the row before, which is dearer by number: at each look their places in memory are long out of the caches.
#[derive(Debug, Default)]
pub(super) struct Running {
    sessions: Vec<Known>,
    /// Where each is, by process id.
    places: HashMap<i32, usize>,
    /// The one that was asked for last.
    last_place: usize,
    /// The server's clock at the last look.
    last: Option<ServerTime>,
    /// Whether a session ran a statement whose text was never sent: the next look asks for all.
    missed: bool,
}

impl Running {
    /// What the next look is to send.
    pub(super) fn wanted(&mut self) -> Wanted {
        let missed = std::mem::take(&mut self.missed);
        let after = |overlap| self.last.filter(|_| !missed).map_or(ServerTime::EARLIEST, |last| last.before(overlap));
        Wanted { statements: after(OVERLAP), sessions: after(AUTHENTICATION) }
    }

    /// Whether a session is known, so that nothing need be sent of whose it is.
    pub(super) fn knows(&mut self, pid: i32) -> bool {
        self.known(pid).is_some_and(|known| known.whose.is_some())
    }

    /// Whether the statement is known that a session began then.
    pub(super) fn knows_statement(&mut self, pid: i32, begun: ServerTime) -> bool {
        self.known(pid).and_then(|known| known.statement.as_ref()).is_some_and(|(known, _)| *known == begun)
    }

    /// What a session's process is, where it is known.
    pub(super) fn kind(&mut self, pid: i32) -> Option<Text> {
        self.known(pid).and_then(|known| known.whose.as_ref()).and_then(|whose| whose.backend_type.clone())
    }

    fn known(&mut self, pid: i32) -> Option<&mut Known> {
        let is_at = |place: &usize| self.sessions.get(*place).is_some_and(|known| known.pid == pid);
        let near = [self.last_place, self.last_place + 1].into_iter().find(is_at);
        self.last_place = near.or_else(|| self.places.get(&pid).copied())?;
        self.sessions.get_mut(self.last_place)
    }

    fn known_or_new(&mut self, pid: i32) -> &mut Known {
        if self.known(pid).is_none() {
            self.last_place = self.sessions.len();
            self.places.insert(pid, self.last_place);
            self.sessions.push(Known { pid, whose: None, statement: None });
        }
        &mut self.sessions[self.last_place]
    }

    /// Whose a session is: as it was sent, or as it is known. What is not `settled` is not kept.
    pub(super) fn whose(&mut self, pid: i32, sent: Option<Whose>, settled: bool) -> Whose {
        match sent {
            Some(sent) => {
                self.known_or_new(pid).whose = settled.then(|| sent.clone());
                sent
            }
            None => self.known(pid).and_then(|known| known.whose.clone()).unwrap_or_default(),
        }
    }

    /// When a look was asked, by the server's clock.
    pub(super) fn looked(&mut self, now: Option<ServerTime>) {
        self.last = now.or(self.last);
    }

    /// The statement of one session: as it was sent, or as it is known since it began.
    pub(super) fn statement(
        &mut self,
        pid: i32,
        begun: Option<ServerTime>,
        sent: Option<&str>,
        statements: &mut Statements,
    ) -> Option<Text> {
        let kept = sent.map(|text| statements.get(text));
        let Some(begun) = begun else { return kept.flatten() };
        if let Some(kept) = kept {
            self.known_or_new(pid).statement = Some((begun, kept.clone()));
            return kept;
        }
        match self.known(pid).and_then(|known| known.statement.as_ref()) {
            Some((known, kept)) if *known == begun => kept.clone(),
            _ => {
                self.missed = true;
                None
            }
        }
    }

    /// Forgets sessions that are not among these, which are in the order in which rows come.
    pub(super) fn forget_others(&mut self, pids: &[i32]) {
        if self.sessions.iter().map(|known| known.pid).eq(pids.iter().copied()) {
            return;
        }
        let order: HashMap<i32, usize> = pids.iter().enumerate().map(|(place, pid)| (*pid, place)).collect();
        self.sessions.retain(|known| order.contains_key(&known.pid));
        self.sessions.sort_by_cached_key(|known| order.get(&known.pid).copied());
        self.places = self.sessions.iter().enumerate().map(|(place, known)| (known.pid, place)).collect();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000;

    fn at(seconds: i64) -> Option<ServerTime> {
        Some(ServerTime::of(seconds * SECOND))
    }

    fn shortly_before(seconds: i64) -> ServerTime {
        at(seconds).unwrap().before(OVERLAP)
    }

    #[test]
    fn a_text_is_sent_once_for_a_statement() {
        let (mut running, mut statements) = (Running::default(), Statements::default());
        let mut look = |now, begun, sent: Option<&str>| {
            let wanted_after = running.wanted().statements;
            running.looked(at(now));
            let text = running.statement(7, at(begun), sent, &mut statements);
            (wanted_after, text.map(|text| text.to_string()))
        };
        assert_eq!(look(10, 1, Some("SELECT a")), (ServerTime::EARLIEST, Some("SELECT a".to_owned())));
        assert_eq!(look(12, 1, None), (shortly_before(10), Some("SELECT a".to_owned())));
        assert_eq!(look(13, 12, Some("SELECT b")).1.unwrap(), "SELECT b");
        assert_eq!(look(14, 12, None).1.unwrap(), "SELECT b");
        assert_eq!(look(15, 12, Some("")).1, None, "a text that is empty is known to be");
        assert_eq!(look(16, 12, None).1, None);
    }

    #[test]
    fn a_text_that_was_missed_is_asked_for_at_the_next_look() {
        let (mut running, mut statements) = (Running::default(), Statements::default());
        running.looked(at(10));
        running.statement(7, at(1), Some("SELECT a"), &mut statements);
        assert_eq!(running.wanted().statements, shortly_before(10));
        // A parallel worker begins with its leader's moment; a clock that was set back does the same.
        running.looked(at(11));
        assert_eq!(running.statement(8, at(1), None, &mut statements), None);
        assert_eq!(running.statement(7, at(2), None, &mut statements), None, "not that of the one before");
        assert_eq!(running.wanted().statements, ServerTime::EARLIEST);
        running.looked(at(12));
        running.statement(8, at(1), Some("SELECT a"), &mut statements);
        assert_eq!(running.wanted().statements, shortly_before(12));
        running.forget_others(&[7]);
        assert_eq!(running.sessions.len(), 1);
    }

    #[test]
    fn a_look_that_finds_nobody_is_one_too() {
        let mut running = Running::default();
        running.looked(at(10));
        assert_eq!(running.wanted().statements, shortly_before(10));
        running.looked(None);
        assert_eq!(running.wanted().statements, shortly_before(10));
    }

    #[test]
    fn whose_a_session_is_is_sent_until_it_can_no_longer_be_new() {
        let mut running = Running::default();
        assert_eq!(running.wanted().sessions, ServerTime::EARLIEST);
        let alice = Whose { user: Some(Text::from("alice")), client_port: Some(9), ..Whose::default() };
        assert!(!running.knows(7));
        assert_eq!(running.whose(7, Some(alice.clone()), true), alice);
        running.looked(at(100));
        assert_eq!(running.wanted().sessions, at(95).unwrap());
        assert!(running.knows(7) && running.whose(7, None, true) == alice);
        let other = Whose { user: Some(Text::from("bob")), ..Whose::default() };
        assert_eq!(
            running.whose(7, Some(other.clone()), true),
            other,
            "another session with the number of one that ended"
        );
        assert_eq!(running.whose(7, None, true), other);
        assert_eq!(running.whose(7, Some(alice.clone()), false), alice, "told, and asked for again");
        assert!(!running.knows(7));
        running.whose(7, Some(alice), true);
        running.forget_others(&[8]);
        assert!(!running.knows(7));
    }

    proptest! {
        /// As by a map from process ids, whatever the order in which rows come.
        #[test]
        fn sessions_are_found_in_any_order(looks in vec((vec((0..6_i32, 0..3_i64, any::<bool>()), 0..8), any::<bool>()), 0..12)) {
            let (mut running, mut statements) = (Running::default(), Statements::default());
            let mut model: HashMap<i32, i64> = HashMap::new();
            for (rows, forgets) in looks {
                for (pid, begun, sent) in &rows {
                    let statement = format!("SELECT s{pid}_{begun}");
                    let whose = Whose { client_port: Some(*pid), ..Whose::default() };
                    let known = running.whose(*pid, sent.then_some(whose), true);
                    prop_assert_eq!(known.client_port, (*sent || model.contains_key(pid)).then_some(*pid));
                    let found = running.statement(*pid, at(*begun), sent.then_some(statement.as_str()), &mut statements);
                    let expected = *sent || model.get(pid) == Some(begun);
                    prop_assert_eq!(found.as_deref(), expected.then_some(statement.as_str()));
                    if *sent {
                        model.insert(*pid, *begun);
                    }
                }
                if forgets {
                    let pids: Vec<i32> = rows.iter().map(|row| row.0).collect();
                    running.forget_others(&pids);
                    model.retain(|pid, _| pids.contains(pid));
                    prop_assert_eq!(running.sessions.len(), model.len());
                }
            }
        }
    }

    #[test]
    fn what_this_role_may_not_see_has_no_begin_and_is_sent_each_time() {
        let (mut running, mut statements) = (Running::default(), Statements::default());
        let text = running.statement(9, None, Some("<insufficient privilege>"), &mut statements);
        assert!(text.is_some() && running.sessions.is_empty() && !running.missed);
    }
}
