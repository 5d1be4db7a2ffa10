//! What a session is said to do, by the heads of messages as they come.

use super::*;
use proptest::prelude::*;

fn pass(tracker: &mut Tracker, side: Side, kinds: &str) {
    for kind in kinds.bytes() {
        tracker.pass(side, &[kind, 0, 0, 0, 4]);
    }
}

fn ready(tracker: &mut Tracker, state: u8) {
    tracker.pass(Side::Down, &[b'Z', 0, 0, 0, 5, state]);
}

#[test]
fn statements_begin_and_end_with_pipelining_and_transactions() {
    let mut tracker = Tracker::new();
    pass(&mut tracker, Side::Up, "p");
    assert!(!tracker.is_quiet() && tracker.statement().is_none());
    tracker.pass(Side::Down, b"K\0\0\0\x0c\0\0\0\x2asecr");
    assert_eq!(tracker.cancel_key(), None);
    ready(&mut tracker, b'I');
    assert!(tracker.is_quiet());
    assert_eq!(tracker.cancel_key(), Some(&b"\0\0\0\x2asecr"[..]));
    pass(&mut tracker, Side::Up, "PBES");
    assert_eq!(tracker.statement(), Some(1));
    pass(&mut tracker, Side::Up, "PBES");
    pass(&mut tracker, Side::Down, "12DDC");
    ready(&mut tracker, b'T');
    assert_eq!((tracker.statement(), tracker.rows()), (Some(1), 2));
    ready(&mut tracker, b'T');
    assert_eq!(tracker.statement(), None);
    assert!(!tracker.is_quiet(), "a transaction is open");
    pass(&mut tracker, Side::Up, "Q");
    assert_eq!((tracker.statement(), tracker.rows()), (Some(2), 0));
    ready(&mut tracker, b'I');
    assert!(tracker.is_quiet());
    pass(&mut tracker, Side::Up, "PH");
    assert_eq!(tracker.statement(), Some(3), "flushed and not synced");
}

#[test]
fn who_closes_and_flushes_without_a_sync_runs_nothing() {
    for said in ["CH", "PBES <12CZ CH", "PBESH <12CZ", "PBESH <12C <Z CH <3"] {
        assert_eq!(after(said).statement(), None, "{said}");
    }
    for said in ["CHP", "PBH <12", "PBES <12CZ PH", "CHS"] {
        assert!(after(said).statement().is_some(), "{said}");
    }
}

#[test]
fn after_a_failure_the_server_passes_everything_over_to_the_next_sync() {
    for said in ["P <E QS <Z", "PQS <E <Z", "P <E QFPS <Z", "PBE <12E QCS <Z QP <TDCZ S <Z"] {
        assert_eq!(after(said).statement(), None, "{said}");
    }
    // A query that failed is answered, and so is what comes after it.
    for said in ["QQ <E <Z", "PSQ <E <Z", "P <E QSQ <Z"] {
        assert!(after(said).statement().is_some(), "{said}");
    }
    assert_eq!(after("QQ <E <Z <CZ").statement(), None);
}

/// A session that is logged in, and what both sides say then: the client's messages as they are, the server's after '<'.
fn after(said: &str) -> Tracker {
    let mut tracker = Tracker::new();
    ready(&mut tracker, b'I');
    for part in said.split(' ') {
        match part.strip_prefix('<') {
            Some("Z") => ready(&mut tracker, b'I'),
            Some(kinds) => pass(&mut tracker, Side::Down, kinds),
            None => pass(&mut tracker, Side::Up, part),
        }
    }
    tracker
}

#[test]
fn a_sync_that_a_copy_ignores_is_not_waited_for() {
    // As tokio-postgres does it; all of it at once; by a flush; without a Sync in between; ended by an error of the client.
    for copied in
        ["PBES <12G dd cS <C", "PBESddcS <12GC", "PBEH <12G SSdd cS <C", "PBE <12G dd cS <C", "PBES <12G d fS <E"]
    {
        let copying = after(copied);
        assert_eq!(copying.statement(), Some(1), "{copied}");
        assert!(after(&format!("{copied} <Z")).is_quiet(), "{copied}");
        assert_eq!(after(&format!("{copied} <Z PBES")).statement(), Some(2), "{copied}");
        assert!(after(&format!("{copied} <Z PBES <12DCZ")).rows() == 1);
    }
    assert!(after("PBES <12G dd").statement().is_some(), "it waits for data");
}

#[test]
fn an_error_while_copying_is_answered_once() {
    // Data that the server refuses: the rest of them is skipped, up to the Sync after their end.
    assert!(after("PBES <12G dd <E dcS <Z").is_quiet());
    assert!(after("PBES <12G dd <E").statement().is_some());
    // The copy never began: both Syncs are answered.
    let begun = after("PBESddcS <E <Z");
    assert!(begun.statement().is_some() && after("PBESddcS <E <Z <Z").is_quiet());
}

#[test]
fn copies_among_others_take_no_others_sync() {
    assert_eq!(after("PBES PBES <12C <Z <12G").statement(), Some(1));
    assert!(after("PBES PBES <12C <Z <12G dcS <C <Z").is_quiet());
    // A copy in the simple protocol, two of them in one query, and a query behind them.
    assert!(after("Q <G ddc <C <Z").is_quiet());
    assert!(after("Q <G c <C <G dc <C <Z").is_quiet());
    assert!(after("Qdc Q <G <C <Z").statement().is_some());
    assert!(after("Qdc Q <G <C <Z <DC <Z").is_quiet());
    // An end of data that nobody asked for, after a copy that failed.
    assert!(after("Q <E <Z dc").is_quiet());
}

#[test]
fn the_middle_of_a_message_is_not_quiet() {
    let mut tracker = Tracker::new();
    ready(&mut tracker, b'I');
    tracker.pass(Side::Up, b"Q\0\0");
    assert!(!tracker.is_quiet() && !tracker.at_boundary(Side::Up));
}

#[test]
fn an_encrypted_session_is_never_quiet() {
    let mut tracker = Tracker::opaque();
    ready(&mut tracker, b'I');
    assert!(tracker.is_opaque() && !tracker.is_quiet() && tracker.statement().is_none());
}

#[test]
fn a_long_pipeline_is_counted_whole() {
    let mut tracker = after("");
    for _ in 0..10_000 {
        pass(&mut tracker, Side::Up, "PBES");
    }
    for _ in 0..10_000 {
        pass(&mut tracker, Side::Up, "Q");
    }
    assert_eq!((tracker.statement(), tracker.asked.len()), (Some(1), 2));
    let before = tracker.transactions();
    for _ in 1..20_000 {
        ready(&mut tracker, b'I');
        assert_eq!(tracker.statement(), Some(1));
    }
    assert_eq!(tracker.transactions() - before, 19_999, "each has let go what it locked");
    ready(&mut tracker, b'I');
    assert!(tracker.is_quiet());
    pass(&mut tracker, Side::Up, "Q");
    assert_eq!(tracker.statement(), Some(2));
}

#[test]
fn ends_of_copies_without_end_are_remembered_as_one() {
    for said in ["c", "Hc", "cfH"] {
        let mut tracker = after("P");
        for _ in 0..100_000 {
            pass(&mut tracker, Side::Up, said);
        }
        assert_eq!((tracker.asked.len(), tracker.statement()), (2, Some(1)), "{said}");
        ready(&mut tracker, b'I');
        assert!(tracker.is_quiet(), "{said}");
    }
    // As many as there are copies in one query are all its own.
    let copies = |ends: usize| after(&format!("Q{} Q <GCGCGC", "dc".repeat(ends)));
    assert!(!copies(3).copies && copies(2).copies, "of two ends, the third is still to come");
    assert!(after(&format!("Q{} Q <GCGCGC <Z <Z", "dc".repeat(3))).is_quiet());
}

#[test]
fn who_says_too_much_unanswered_is_not_followed_any_longer() {
    let mut tracker = after("Q <T");
    for _ in 0..MOST_RUNS {
        pass(&mut tracker, Side::Up, "cQ");
    }
    assert!(tracker.is_opaque() && tracker.asked.capacity() == 0, "{:?}", tracker.asked.len());
    assert_eq!((tracker.statement(), tracker.statements(), tracker.transaction()), (None, 1, Some(Transaction::Idle)));
    ready(&mut tracker, b'I');
    assert!(!tracker.is_quiet());
}

/// What an honest client sends at once, and what its server answers before it says for the last time that it is ready.
const HONEST: [(&str, &str); 7] = [
    ("Q", "TDC"),
    ("PBES", "12C"),
    ("PBEPBEHS", "1212CC"),
    ("S", ""),
    ("PBESdcS", "12GC"),
    ("Qddc", "GC"),
    ("QdcdcS", "GCGCZ"),
];

proptest! {
    /// However far ahead of the server an honest client is, a statement runs until the last one is answered.
    #[test]
    fn an_honest_pipeline_runs_until_its_last_answer(units in prop::collection::vec(0..HONEST.len(), 1..60), ahead in 1..60usize) {
        let mut tracker = after("");
        let (mut said, mut answered) = (0, 0);
        while answered < units.len() {
            while said < units.len() && said - answered < ahead {
                pass(&mut tracker, Side::Up, HONEST[units[said]].0);
                said += 1;
            }
            for kind in HONEST[units[answered]].1.bytes() {
                prop_assert!(tracker.statement().is_some());
                match kind { b'Z' => ready(&mut tracker, b'I'), kind => tracker.pass(Side::Down, &[kind, 0, 0, 0, 4]) }
            }
            prop_assert!(tracker.statement().is_some());
            ready(&mut tracker, b'I');
            answered += 1;
            prop_assert_eq!(tracker.statement().is_some(), answered < said, "{} of {}", answered, said);
        }
        prop_assert!(tracker.is_quiet());
    }

    #[test]
    fn no_client_has_it_remember_without_end(kinds in prop::collection::vec(prop::sample::select(b"QFSPHcfd".to_vec()), 1..20), copies in any::<bool>()) {
        let mut tracker = after(if copies { "Q <G" } else { "P" });
        for kind in kinds.iter().cycle().take(3 * MOST_RUNS) {
            tracker.pass(Side::Up, &[*kind, 0, 0, 0, 4]);
            prop_assert!(tracker.asked.capacity() <= 2 * MOST_RUNS);
        }
    }

    #[test]
    fn any_bytes_are_survived(pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..100)), 0..30)) {
        let mut tracker = Tracker::new();
        for (up, piece) in pieces {
            tracker.pass(if up { Side::Up } else { Side::Down }, &piece);
            let _ = (tracker.statement(), tracker.is_quiet());
        }
    }
}
