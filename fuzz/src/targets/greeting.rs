//! The server's first words on a login: what is passed on instead is never longer, and needs no second pass.

use backwater_gate::wire::{MOST_GREETING_BYTES, without_channel_binding};

pub(crate) fn run(bytes: &[u8]) {
    match without_channel_binding(bytes) {
        Some(told) => {
            assert!(told.len() <= bytes.len());
            assert_eq!(without_channel_binding(&told).as_ref(), Some(&told));
        }
        None => assert!(bytes.len() < MOST_GREETING_BYTES, "too long to wait for more"),
    }
}
