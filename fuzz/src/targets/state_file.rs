//! What the console changed, as it was kept: whatever the file says, it is taken whole or refused.

pub(crate) fn run(bytes: &[u8]) {
    let Some(text) = crate::taken::<&str>(bytes) else { return };
    backwater_gate::proxy::exercise_state_file(text);
}
