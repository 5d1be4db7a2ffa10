//! Where the structures of a running query lead, found by looking for what is known of one.
//!
//! Three structures point at the text of the statement: the portal, the query and its state. Whatever is read is believed only
//! where all three point at the same text, and where portal, text and query are the same afterwards: a query that ended
//! meanwhile, whose memory may be anybody's by then, is not counted. Nor is one whose rows go elsewhere than to the client, such
//! as into a cursor that is held, or to a function: the query names who receives them.

use std::ops::Range;

/// Memory of a process.
pub(super) trait Memory {
    /// Reads from this address on; how many bytes could be.
    fn read(&self, address: u64, into: &mut [u8]) -> usize;

    fn words<const N: usize>(&self, address: u64) -> Words<N> {
        let mut bytes = vec![0; N * WORD];
        let read = self.read(address, &mut bytes);
        bytes.truncate(read / WORD * WORD);
        Words { bytes }
    }

    fn word(&self, address: u64) -> Option<u64> {
        self.words::<1>(address).at(0)
    }
}

const WORD: usize = size_of::<u64>();
/// How many words of each structure are looked through: `PortalData` has some 30, `QueryDesc` 16, and of `EState`, some 50, it
/// is in the first half.
const PORTAL: usize = 64;
const QUERY: usize = 16;
const STATE: usize = 48;
/// No structure lies below.
const LOWEST_ADDRESS: u64 = 1 << 16;
/// A query leads to what is known of it in some ways; memory in which more do tells nothing, and is not searched on.
const MOST_WAYS: usize = 4_096;

/// Words that could be read, of `N` that were asked for.
pub(super) struct Words<const N: usize> {
    bytes: Vec<u8>,
}

impl<const N: usize> Words<N> {
    fn at(&self, place: usize) -> Option<u64> {
        let bytes = self.bytes.get(place * WORD..(place + 1) * WORD)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }

    fn all(&self) -> impl Iterator<Item = (usize, u64)> {
        (0..N).map_while(|place| Some((place, self.at(place)?)))
    }

    fn pointers(&self) -> impl Iterator<Item = (usize, u64)> {
        self.all().filter(|(_, word)| *word >= LOWEST_ADDRESS)
    }

    fn places_of(&self, wanted: u64) -> impl Iterator<Item = usize> {
        self.all().filter(move |(_, word)| *word == wanted).map(|(place, _)| place)
    }
}

/// Places of words in the structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// `PortalData.sourceText` and `.queryDesc`.
    portal_text: usize,
    portal_query: usize,
    /// `QueryDesc.sourceText`, `.estate` and `.dest`, of which the first word is a function, `.receiveSlot`: where that which sends
    /// rows to the client stands, from where the program is mapped.
    query_text: usize,
    query_state: usize,
    query_receiver: usize,
    sends: u64,
    /// `EState.es_sourceText` and `.es_processed`.
    state_text: usize,
    state_rows: usize,
}

/// All layouts by which a process, whose active portal's address stands there, runs this statement, a SELECT that has brought
/// so many rows; none in memory of more than [`MOST_WAYS`].
pub(super) fn search(
    memory: &impl Memory,
    program: &Range<u64>,
    portal: u64,
    statement: &str,
    rows: u64,
) -> Vec<Layout> {
    let mut found = Vec::new();
    let Some(portal) = memory.word(portal).filter(|portal| *portal >= LOWEST_ADDRESS) else { return found };
    let portal = memory.words::<PORTAL>(portal);
    for (portal_text, text) in portal.pointers().filter(|(_, text)| is_text(memory, *text, statement)) {
        for (portal_query, query) in portal.pointers() {
            let query = memory.words::<QUERY>(query);
            for query_text in query.places_of(text) {
                let functions = receivers(memory, program, &query);
                for (query_state, state) in query.pointers() {
                    let state = memory.words::<STATE>(state);
                    let at = |(query_receiver, sends), state_text, state_rows| Layout {
                        portal_text,
                        portal_query,
                        query_text,
                        query_state,
                        query_receiver,
                        sends,
                        state_text,
                        state_rows,
                    };
                    for state_text in state.places_of(text) {
                        let counts = || state.places_of(rows);
                        found.extend(functions.iter().flat_map(|by| counts().map(|place| at(*by, state_text, place))));
                    }
                    if found.len() > MOST_WAYS {
                        return Vec::new();
                    }
                }
            }
        }
    }
    let nearest = found.iter().map(Layout::distance).min();
    found.retain(|layout| Some(layout.distance()) == nearest);
    found
}

/// Words of a query that point at a structure which begins with a function of the program, and where that stands there.
fn receivers(memory: &impl Memory, program: &Range<u64>, query: &Words<QUERY>) -> Vec<(usize, u64)> {
    let begins = |(place, address)| Some((place, memory.word(address)?));
    let functions = query.pointers().filter_map(begins).filter(|(_, function)| program.contains(function));
    functions.map(|(place, function)| (place, function - program.start)).collect()
}

/// Whether this text, and no longer one, is there.
fn is_text(memory: &impl Memory, address: u64, text: &str) -> bool {
    let mut bytes = vec![0; text.len() + 1];
    memory.read(address, &mut bytes) == bytes.len() && bytes.strip_suffix(&[0]) == Some(text.as_bytes())
}

impl Layout {
    /// What lies before a structure by chance, and is pointed at, leads there too, over a longer distance. Into the midst of one,
    /// which would be nearer, nothing points.
    fn distance(&self) -> (usize, usize) {
        (self.query_text, self.state_text)
    }

    /// The rows that the query of a process has sent to its client whose active portal's address stands there; None where it
    /// runs none.
    pub(super) fn count(&self, memory: &impl Memory, program: &Range<u64>, portal: u64) -> Option<u64> {
        let before = self.portal(memory, portal)?;
        let (_, text, query) = before;
        let query = memory.words::<QUERY>(query);
        let sends = memory.word(query.at(self.query_receiver)?)? == program.start.wrapping_add(self.sends);
        let state = query.at(self.query_state).filter(|_| sends && query.at(self.query_text) == Some(text))?;
        let state = memory.words::<STATE>(state);
        let rows = state.at(self.state_rows).filter(|_| state.at(self.state_text) == Some(text))?;
        (self.portal(memory, portal)? == before).then_some(rows)
    }

    /// The active portal, its text and its query.
    fn portal(&self, memory: &impl Memory, portal: u64) -> Option<(u64, u64, u64)> {
        let address = memory.word(portal).filter(|portal| *portal >= LOWEST_ADDRESS)?;
        let portal = memory.words::<PORTAL>(address);
        let text = portal.at(self.portal_text).filter(|text| *text >= LOWEST_ADDRESS)?;
        let query = portal.at(self.portal_query).filter(|query| *query >= LOWEST_ADDRESS)?;
        Some((address, text, query))
    }
}

/// For the fuzzer: whatever is found in memory of any bytes counts there what was sought.
#[cfg(fuzzing)]
pub fn exercise(bytes: &[u8]) {
    struct Anything<'m>(&'m [u8]);
    impl Memory for Anything<'_> {
        fn read(&self, address: u64, into: &mut [u8]) -> usize {
            let from = address.checked_sub(LOWEST_ADDRESS).and_then(|from| usize::try_from(from).ok());
            let there = from.and_then(|from| self.0.get(from..)).unwrap_or_default();
            let count = into.len().min(there.len());
            into[..count].copy_from_slice(&there[..count]);
            count
        }
    }
    let (memory, program) = (Anything(bytes), LOWEST_ADDRESS..LOWEST_ADDRESS + 4_096);
    for layout in search(&memory, &program, LOWEST_ADDRESS, "SELECT", 10_001) {
        assert_eq!(layout.count(&memory, &program, LOWEST_ADDRESS), Some(10_001));
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
