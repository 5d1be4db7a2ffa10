//! Queries in the memory of a process that is made up: found by what is known of one, counted, and not where they are gone.
#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;

const TEXT: &str = "SELECT 1";
const PORTAL_AT: u64 = 0x10_0000;
const SYMBOL: u64 = 0x20_0000;
const PROGRAM: Range<u64> = 0x1000_0000..0x1100_0000;
const RECEIVER: u64 = 0x60_0000;

/// Pieces of memory by their address; whoever reads may be told when.
#[derive(Default)]
struct Pieces {
    pieces: BTreeMap<u64, Vec<u8>>,
    reads: Cell<usize>,
    /// From this read on the portal's address is another.
    moves_at: Option<usize>,
}

impl Pieces {
    fn put(&mut self, address: u64, words: &[u64]) {
        self.pieces.insert(address, words.iter().flat_map(|word| word.to_ne_bytes()).collect());
    }
}

impl Memory for Pieces {
    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        self.reads.set(self.reads.get() + 1);
        let Some((start, piece)) = self.pieces.range(..=address).next_back() else { return 0 };
        let from = usize::try_from(address - start).unwrap().min(piece.len());
        let count = into.len().min(piece.len() - from);
        into[..count].copy_from_slice(&piece[from..from + count]);
        if address == SYMBOL && self.moves_at.is_some_and(|at| self.reads.get() > at) {
            into[..WORD].copy_from_slice(&(PORTAL_AT + 8).to_ne_bytes());
        }
        count
    }
}

/// A process that runs the statement, its structures laid out so, the rest of them filled with these.
fn process(layout: Layout, filling: &[u64], rows: u64) -> Pieces {
    let [text, query, state] = [0x30_0000, 0x40_0000, 0x50_0000];
    let filled = |length: usize| (0..length).map(|place| filling[place % filling.len()]).collect::<Vec<_>>();
    let (mut portal_words, mut query_words, mut state_words) = (filled(PORTAL), filled(QUERY), filled(STATE));
    portal_words[layout.portal_text] = text;
    portal_words[layout.portal_query] = query;
    query_words[layout.query_text] = text;
    query_words[layout.query_state] = state;
    query_words[layout.query_receiver] = RECEIVER;
    state_words[layout.state_text] = text;
    state_words[layout.state_rows] = rows;
    let mut memory = Pieces::default();
    memory.put(SYMBOL, &[PORTAL_AT]);
    memory.put(PORTAL_AT, &portal_words);
    memory.put(query, &query_words);
    memory.put(state, &state_words);
    memory.put(RECEIVER, &[PROGRAM.start + layout.sends, 1, 2]);
    memory.pieces.insert(text, format!("{TEXT}\0").into_bytes());
    memory
}

/// As in PostgreSQL 15 on a little-endian machine.
const FIFTEEN: Layout = Layout {
    portal_text: 7,
    portal_query: 18,
    query_text: 2,
    query_state: 10,
    query_receiver: 5,
    sends: 0x1_2340,
    state_text: 8,
    state_rows: 21,
};

fn layouts() -> impl Strategy<Value = Layout> {
    let two = |from: usize, to: usize| (from..to, from..to).prop_filter("two places", |(a, b)| a != b);
    let three = prop::sample::subsequence((0..QUERY).collect::<Vec<_>>(), 3).prop_shuffle();
    (two(0, PORTAL), three, two(0, STATE), 0..PROGRAM.end - PROGRAM.start).prop_map(|(portal, query, state, sends)| {
        Layout {
            portal_text: portal.0,
            portal_query: portal.1,
            query_text: query[0],
            query_state: query[1],
            query_receiver: query[2],
            sends,
            state_text: state.0,
            state_rows: state.1,
        }
    })
}

proptest! {
    /// Whatever the layout is, and whatever else there is: numbers, and pointers to nothing.
    #[test]
    fn a_layout_is_found_by_one_query_and_counts_the_next(
        layout in layouts(),
        filling in prop::collection::vec(prop_oneof![0..9_999_u64, 0x61_0000..0x70_0000_u64, any::<u64>()], 1..40),
        rows in any::<u64>(),
    ) {
        let learnt = search(&process(layout, &filling, 12_345), &PROGRAM, SYMBOL, TEXT, 12_345);
        prop_assert_eq!(&learnt, &[layout]);
        prop_assert_eq!(learnt[0].count(&process(layout, &filling, rows), &PROGRAM, SYMBOL), Some(rows));
        let other = search(&process(layout, &filling, 12_345), &PROGRAM, SYMBOL, "SELECT 2", 12_345);
        prop_assert!(other.is_empty());
    }

    #[test]
    fn memory_that_is_anybodys_is_not_counted(words in prop::collection::vec(any::<u64>(), 1..200), layout in layouts()) {
        let mut memory = Pieces::default();
        memory.put(SYMBOL, &[PORTAL_AT]);
        memory.put(PORTAL_AT, &words);
        prop_assert_eq!(layout.count(&memory, &PROGRAM, SYMBOL), None);
        prop_assert!(search(&memory, &PROGRAM, SYMBOL, TEXT, 12_345).is_empty());
    }
}

#[test]
fn what_lies_before_a_structure_and_is_pointed_at_is_not_taken_for_it() {
    let mut memory = process(FIFTEEN, &[0], 12_345);
    let portal = memory.pieces.get_mut(&PORTAL_AT).unwrap();
    // The name of a prepared statement, three words before the query.
    portal[WORD..2 * WORD].copy_from_slice(&(0x40_0000_u64 - 3 * WORD as u64).to_ne_bytes());
    let query = memory.pieces.remove(&0x40_0000).unwrap();
    memory.pieces.insert(0x40_0000 - 3 * WORD as u64, [vec![0; 3 * WORD], query].concat());
    assert_eq!(search(&memory, &PROGRAM, SYMBOL, TEXT, 12_345), [FIFTEEN]);
    assert_eq!(FIFTEEN.count(&memory, &PROGRAM, SYMBOL), Some(12_345));
}

#[test]
fn memory_that_leads_there_in_thousands_of_ways_tells_nothing() {
    const TEXT_AT: u64 = 0x30_0000;
    let mut memory = process(FIFTEEN, &[0], 12_345);
    let mut portal = [0x40_0000; PORTAL];
    portal[FIFTEEN.portal_text] = TEXT_AT;
    memory.put(PORTAL_AT, &portal);
    let state: Vec<u64> = (0..STATE).map(|place| if place % 2 == 0 { TEXT_AT } else { 12_345 }).collect();
    memory.put(0x50_0000, &state);
    assert!(search(&memory, &PROGRAM, SYMBOL, TEXT, 12_345).is_empty());
}

#[test]
fn where_two_places_hold_the_number_both_are_told() {
    let mut memory = process(FIFTEEN, &[0], 12_345);
    let state = memory.pieces.get_mut(&0x50_0000).unwrap();
    state[WORD * 22..WORD * 23].copy_from_slice(&12_345_u64.to_ne_bytes());
    assert_eq!(search(&memory, &PROGRAM, SYMBOL, TEXT, 12_345), [FIFTEEN, Layout { state_rows: 22, ..FIFTEEN }]);
}

#[test]
fn a_query_that_is_none_or_sends_elsewhere_or_ended_meanwhile_is_not_counted() {
    let counted = |change: &dyn Fn(&mut Pieces)| {
        let mut memory = process(FIFTEEN, &[0], 7);
        change(&mut memory);
        FIFTEEN.count(&memory, &PROGRAM, SYMBOL)
    };
    assert_eq!(counted(&|_| {}), Some(7));
    let put = |address: u64, place: usize, word: u64| {
        move |memory: &mut Pieces| {
            let piece = memory.pieces.get_mut(&address).unwrap();
            piece[place * WORD..(place + 1) * WORD].copy_from_slice(&word.to_ne_bytes());
        }
    };
    assert_eq!(counted(&put(SYMBOL, 0, 0)), None, "no portal");
    assert_eq!(counted(&put(PORTAL_AT, 18, 0)), None, "a statement that is no query, such as COPY");
    assert_eq!(counted(&put(RECEIVER, 0, PROGRAM.start + 8)), None, "rows that go elsewhere");
    assert_eq!(counted(&put(0x40_0000, 2, 0x30_0008)), None, "another text");
    assert_eq!(counted(&put(0x50_0000, 8, 0)), None, "a state that was given back");
    assert_eq!(counted(&|memory| drop(memory.pieces.remove(&0x50_0000))), None);
    // Symbol, portal, query, receiver, state, symbol again.
    assert_eq!(counted(&|memory| memory.moves_at = Some(5)), None, "another portal");
    assert_eq!(counted(&|memory| memory.moves_at = Some(6)), Some(7));
}
