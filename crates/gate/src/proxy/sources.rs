//! Who may come: addresses and networks, as `127.0.0.0/8` or `::1`. Who comes by a Unix socket is on this host, and the
//! socket's own permissions have let him in.

use crate::GateError;
use serde::Deserialize;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network: an address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Network {
    bits: u128,
    prefix: u8,
    is_v4: bool,
}

impl Network {
    /// This host, by either protocol.
    pub fn loopback() -> Vec<Network> {
        vec![Network { bits: 127 << 24, prefix: 8, is_v4: true }, Network { bits: 1, prefix: 128, is_v4: false }]
    }

    /// Whether an address lies in it.
    pub fn holds(&self, address: IpAddr) -> bool {
        let (bits, is_v4) = number(address);
        if is_v4 != self.is_v4 {
            return false;
        }
        let width = if is_v4 { 32 } else { 128 };
        let shift = width - u32::from(self.prefix);
        (bits ^ self.bits).checked_shr(shift).unwrap_or(0) == 0
    }
}

/// Whether a peer may come. None is a Unix socket's.
pub(super) fn admits(sources: &[Network], peer: Option<IpAddr>) -> bool {
    peer.is_none_or(|peer| sources.iter().any(|network| network.holds(peer)))
}

/// An IPv4 address that came by a socket of both protocols is an IPv4 address.
fn number(address: IpAddr) -> (u128, bool) {
    match address.to_canonical() {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), true),
        IpAddr::V6(v6) => (v6.to_bits(), false),
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = match self.is_v4 {
            true => IpAddr::V4((self.bits as u32).into()),
            false => IpAddr::V6(self.bits.into()),
        };
        write!(f, "{address}/{}", self.prefix)
    }
}

impl FromStr for Network {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let (bits, is_v4) = number(address.parse().map_err(|_| GateError::Network)?);
        let most = if is_v4 { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(most), str::parse).ok().filter(|prefix| *prefix <= most);
        Ok(Network { bits, prefix: prefix.ok_or(GateError::Network)?, is_v4 })
    }
}

impl TryFrom<String> for Network {
    type Error = GateError;
    fn try_from(text: String) -> Result<Self, GateError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn networks_hold_their_addresses() {
        let holds = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().holds(address.parse::<IpAddr>().unwrap())
        };
        assert!(holds("10.1.0.0/16", "10.1.255.1") && !holds("10.1.0.0/16", "10.2.0.0"));
        assert!(holds("10.1.0.0/16", "::ffff:10.1.0.1"));
        assert!(holds("::1", "::1") && !holds("::1", "::2") && !holds("::/0", "1.2.3.4"));
        assert!(holds("0.0.0.0/0", "9.9.9.9") && holds("fd00::/8", "fd12::1") && !holds("fd00::/8", "fe80::1"));
        for wrong in ["", "10.0.0.0/33", "::/129", "host", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
        let admits_v4 = |address: &str| admits(&Network::loopback(), Some(address.parse().unwrap()));
        assert!(admits_v4("127.0.0.1") && admits_v4("::1") && !admits_v4("10.0.0.1") && admits(&[], None));
    }
}
