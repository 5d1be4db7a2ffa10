//! The proxy's configuration: whatever it says, it is taken or refused with a reason.

use backwater_gate::proxy::ProxyConfig;

pub(crate) fn run(bytes: &[u8]) {
    let Some(text) = crate::taken::<&str>(bytes) else { return };
    if let Err(error) = ProxyConfig::parse(text, std::path::Path::new("fuzz.toml")) {
        assert!(!error.to_string().is_empty());
    }
}
