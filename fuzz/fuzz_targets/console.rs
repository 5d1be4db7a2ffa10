#![no_main]
//! What a client says to the console before it has shown who it is: message heads, bodies, and both messages of SCRAM.

libfuzzer_sys::fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    backwater_gate::proxy::exercise_console(&input.0, &input.1);
});
