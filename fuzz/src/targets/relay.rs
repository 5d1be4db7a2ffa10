//! Both directions of a session: however its bytes are cut, the same heads are told, and the same is known of it. The first
//! byte is how long pieces are where they are cut; then come pieces, each behind a byte that holds its length and, in the
//! highest bit, its side.

use backwater_gate::wire::{Head, Heads, Side, Tracker, Transaction};

const FROM_SERVER: u8 = 0x80;

pub(crate) fn run(bytes: &[u8]) {
    let Some((cut, mut rest)) = bytes.split_first() else { return };
    let (mut whole, mut pieces) = (Session::new(), Session::new());
    while let Some((side, piece)) = next_piece(&mut rest) {
        whole.pass(side, piece);
        piece.chunks(usize::from(*cut).max(1)).for_each(|part| pieces.pass(side, part));
        assert_eq!(whole.known(), pieces.known());
    }
    assert_eq!(whole.told, pieces.told);
}

/// Takes the next piece; None at the end.
fn next_piece<'a>(rest: &mut &'a [u8]) -> Option<(Side, &'a [u8])> {
    let (first, after) = rest.split_first()?;
    let (piece, after) = after.split_at(usize::from(first & !FROM_SERVER).min(after.len()));
    *rest = after;
    Some((if first & FROM_SERVER == 0 { Side::Up } else { Side::Down }, piece))
}

struct Session {
    up: Heads,
    down: Heads,
    told: Vec<(Side, Head)>,
    tracker: Tracker,
}

impl Session {
    fn new() -> Self {
        let mut down = Heads::new();
        down.keep(Some(b'K'));
        Session { up: Heads::new(), down, told: Vec::new(), tracker: Tracker::new() }
    }

    fn pass(&mut self, side: Side, bytes: &[u8]) {
        let heads = if side == Side::Up { &mut self.up } else { &mut self.down };
        heads.feed(bytes, |head| self.told.push((side, head)));
        self.tracker.pass(side, bytes);
        let _ = (heads.take_kept(), self.tracker.cancel_key());
    }

    fn known(&self) -> (Option<u64>, u64, u64, Option<Transaction>, bool) {
        let tracker = &self.tracker;
        (tracker.statement(), tracker.statements(), tracker.rows(), tracker.transaction(), tracker.is_quiet())
    }
}
