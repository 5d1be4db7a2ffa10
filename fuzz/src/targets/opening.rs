//! A connection's first packet: what is read takes no more than there is, and a whole packet is read the same in pieces.

use backwater_gate::wire::{Opening, read_opening};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(Some((opening, length))) = read_opening(bytes) else { return };
    assert!(length <= bytes.len());
    if opening == Opening::DirectTls {
        return;
    }
    assert_eq!(read_opening(&bytes[..length]), Ok(Some((opening.clone(), length))));
    for cut in 0..length {
        assert_eq!(read_opening(&bytes[..cut]), Ok(None));
    }
    if let Opening::StartUp(start) = opening {
        assert!(!start.user().is_empty());
        let _ = (start.database(), start.is_replication(), start.option("backwater.pool"));
    }
}
