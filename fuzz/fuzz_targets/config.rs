#![no_main]
//! The proxy's configuration: whatever it says, it is taken or refused with a reason.

use backwater_gate::proxy::ProxyConfig;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(error) = ProxyConfig::parse(text, std::path::Path::new("fuzz.toml")) {
        assert!(!error.to_string().is_empty());
    }
});
