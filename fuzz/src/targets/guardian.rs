//! What the process with the rights hears from its master, and what it answers.

pub(crate) fn run(bytes: &[u8]) {
    backwater_gate::attach::exercise_message(bytes);
}
