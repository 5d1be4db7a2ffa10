//! Relay buffers, reused. A session holds one only while it has bytes that its peer has not taken, so ten thousand idle
//! sessions hold none; each worker's thread keeps a few for the next who needs one.

use std::cell::RefCell;

/// Bytes of a buffer: what is relayed at once, at most.
pub(super) const QUANTUM: usize = backwater_flow::MOST_QUANTUM_BYTES as usize;
/// Buffers that a thread keeps.
const KEPT: usize = 32;

/// One buffer, of [`QUANTUM`] bytes.
pub(super) type Buffer = Box<[u8]>;

thread_local! {
    static FREE: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
}

/// A buffer, with whatever was in it last.
pub(super) fn take() -> Buffer {
    FREE.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; QUANTUM].into())
}

/// Gives one back.
pub(super) fn give_back(buffer: Buffer) {
    FREE.with_borrow_mut(|free| {
        if free.len() < KEPT {
            free.push(buffer);
        }
    });
}
