#![no_main]
//! Where a server is, as users write it: connection strings and URIs, password and service files, mongodb:// addresses.

libfuzzer_sys::fuzz_target!(|text: &str| {
    backwater_probe::fuzzing::conninfo(text);
    if let Ok(servers) = backwater_probe::mongodb::servers(text, &|_| None) {
        assert!(!servers.is_empty());
    }
});
