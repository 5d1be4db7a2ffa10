//! Where a server is, as users write it: connection strings and URIs, password and service files, mongodb:// addresses.

pub(crate) fn run(bytes: &[u8]) {
    let Some(text) = crate::taken::<&str>(bytes) else { return };
    backwater_probe::fuzzing::conninfo(text);
    if let Ok(servers) = backwater_probe::mongodb::servers(text, &|_| None) {
        assert!(!servers.is_empty());
    }
}
