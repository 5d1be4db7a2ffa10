//! The private memory of a server's process, in which a running query's rows are sought.

pub(crate) fn run(bytes: &[u8]) {
    backwater_gate::attach::exercise_process(bytes);
}
