//! Both directions of a session: however the bytes are cut, the same heads are told.

use backwater_gate::wire::{Heads, Side, Tracker};

pub(crate) fn run(bytes: &[u8]) {
    let Some(input) = crate::taken::<(Vec<u8>, u8, bool)>(bytes) else { return };
    let (bytes, cut, up) = input;
    let (mut whole, mut pieces) = (Vec::new(), Vec::new());
    let mut heads = Heads::new();
    heads.keep(Some(b'K'));
    heads.feed(&bytes, |head| whole.push(head));
    let mut heads = Heads::new();
    let mut tracker = Tracker::new();
    for piece in bytes.chunks(usize::from(cut).max(1)) {
        heads.feed(piece, |head| pieces.push(head));
        tracker.pass(if up { Side::Up } else { Side::Down }, piece);
        let _ = (tracker.statement(), tracker.is_quiet(), tracker.cancel_key());
    }
    assert_eq!(whole, pieces);
}
