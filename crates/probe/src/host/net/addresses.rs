//! Which interface of a network namespace has which address, and so by which one a connection goes: that of its own address,
//! or the loopback where the other end's address is one of the namespace's own too. A route that leaves by another interface
//! than its source address belongs to is not seen.

use super::wire::{ADDRESS, GET_ADDRESS, GET_LINK, LINK, address, addresses_request, link, links_request};
use crate::ProbeError;
use crate::host::Roots;
use crate::host::netlink::{Netlink, ROUTE};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// The kernel's name of the loopback interface.
const LOOPBACK: &str = "lo";

/// The addresses of one namespace, as of the last survey.
#[derive(Debug)]
pub(in crate::host) struct Addresses {
    netlink: Netlink,
    names: HashMap<IpAddr, String>,
}

impl Addresses {
    /// A way to ask the namespace of a process; nothing is known before the first [`survey`](Self::survey).
    pub(in crate::host) fn open(roots: &Roots, pid: i32, namespace: u64) -> Result<Self, ProbeError> {
        Ok(Addresses { netlink: Netlink::open(roots, pid, namespace, ROUTE)?, names: HashMap::new() })
    }

    /// Asks for all interfaces and their addresses.
    pub(in crate::host) fn survey(&mut self) -> Result<(), ProbeError> {
        let mut links = HashMap::new();
        self.netlink.dump(GET_LINK, &links_request(), &mut |kind, body| {
            links.extend((kind == LINK).then(|| link(body)).flatten());
        })?;
        let mut names = HashMap::new();
        self.netlink.dump(GET_ADDRESS, &addresses_request(), &mut |kind, body| {
            let found = (kind == ADDRESS).then(|| address(body)).flatten();
            if let Some((number, address)) = found
                && let Some(name) = links.get(&number)
            {
                names.insert(address, name.clone());
            }
        })?;
        self.names = names;
        Ok(())
    }

    /// Whether an address was the namespace's own at the last survey.
    fn has(&self, address: IpAddr) -> bool {
        self.names.contains_key(&address.to_canonical()) || address.to_canonical().is_loopback()
    }

    /// The interface by which a connection between these two goes; none where its own address is not known.
    pub(in crate::host) fn of(&self, local: SocketAddr, peer: SocketAddr) -> Option<&str> {
        if self.has(peer.ip()) {
            return Some(LOOPBACK);
        }
        self.names.get(&local.ip().to_canonical()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_connection_goes_by_the_interface_of_its_own_address_and_within_the_host_by_the_loopback() {
        let names = [("10.0.0.1", "eth0"), ("10.0.1.1", "eth1"), ("fd00::1", "eth1"), ("127.0.0.1", "lo")];
        let names = names.map(|(address, name)| (address.parse().unwrap(), name.to_owned())).into_iter().collect();
        let all = Addresses { netlink: Netlink::here(ROUTE).unwrap(), names };
        let of = |local: &str, peer: &str| all.of(at(local), at(peer));
        assert_eq!(of("10.0.1.1:5432", "10.0.1.9:40000"), Some("eth1"));
        assert_eq!(
            of("[::ffff:10.0.0.1]:5432", "[::ffff:10.9.0.1]:1"),
            Some("eth0"),
            "an IPv4 client of an IPv6 socket"
        );
        assert_eq!(of("[fd00::1]:5432", "[fd00::2]:1"), Some("eth1"));
        assert_eq!(of("10.0.0.1:5432", "10.0.1.1:1"), Some("lo"), "both ends are this host's");
        assert_eq!(of("127.0.0.1:5432", "127.0.0.9:1"), Some("lo"));
        assert_eq!(of("10.0.7.1:5432", "10.0.7.2:1"), None);
    }

    #[test]
    fn this_hosts_loopback_is_found() {
        let roots = Roots::default();
        let own = crate::host::netlink::own_namespace().unwrap();
        let mut all = Addresses::open(&roots, std::process::id() as i32, own).unwrap();
        all.survey().unwrap();
        assert_eq!(all.names.get(&"127.0.0.1".parse::<IpAddr>().unwrap()).map(String::as_str), Some("lo"));
    }
}
