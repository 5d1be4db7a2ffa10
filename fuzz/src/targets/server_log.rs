//! Lines of a server's log: PostgreSQL's three formats, and both of mongod's, however the bytes are cut.

use backwater_probe::fuzzing;

pub(crate) fn run(bytes: &[u8]) {
    let cut = bytes.first().copied().unwrap_or_default();
    fuzzing::mongodb_log(bytes, usize::from(cut));
    fuzzing::postgres_log(&String::from_utf8_lossy(bytes));
}
