//! What a client says to the console before it has shown who it is: message heads, bodies, and both messages of SCRAM.

pub(crate) fn run(bytes: &[u8]) {
    let Some(input) = crate::taken::<(Vec<u8>, Vec<u8>)>(bytes) else { return };
    backwater_gate::proxy::exercise_console(&input.0, &input.1);
}
