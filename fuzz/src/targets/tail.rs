//! The live end of a recording, as a crash may leave it. The foreign decoder may panic over it, which its reader turns into the
//! end of what can be read; so a panic counts here when it comes out.

use std::sync::Once;

/// The fuzzer's own hook ends the process before anybody can catch a panic.
static WITHOUT_HOOK: Once = Once::new();

pub(crate) fn run(bytes: &[u8]) {
    WITHOUT_HOOK.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    backwater_record::fuzzing::tail(bytes);
}
