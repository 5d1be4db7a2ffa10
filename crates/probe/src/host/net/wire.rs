//! The messages of rtnetlink about interfaces and their queueing disciplines: linux/rtnetlink.h, linux/pkt_sched.h.

use crate::host::netlink::{attribute, attributes, text, u32_at, u64_at};
use std::net::IpAddr;

pub(super) const GET_LINK: u16 = 18;
pub(super) const GET_ADDRESS: u16 = 22;
pub(super) const GET_QDISC: u16 = 38;
pub(super) const GET_CLASS: u16 = 42;
/// What the kernel answers to these questions.
pub(super) const LINK: u16 = 16;
pub(super) const ADDRESS: u16 = 20;
pub(super) const QDISC: u16 = 36;
pub(super) const CLASS: u16 = 40;

/// `struct ifinfomsg` and `struct tcmsg`, which precede the attributes.
const LINK_BYTES: usize = 16;
/// `struct ifaddrmsg` (linux/if_addr.h).
const ADDRESS_BYTES: usize = 8;
const IFA_ADDRESS: u16 = 1;
/// Of two ends of a cable: this host's own.
const IFA_LOCAL: u16 = 2;
const TRAFFIC_BYTES: usize = 20;
const IFLA_IFNAME: u16 = 3;
const IFLA_EXT_MASK: u16 = 29;
/// RTEXT_FILTER_SKIP_STATS: the counters are read elsewhere.
const SKIP_STATS: u32 = 1 << 3;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
/// TC_H_ROOT: hangs directly at the interface.
pub(super) const ROOT: u32 = 0xffff_ffff;

/// `struct tc_netem_qopt`, which precedes netem's attributes.
const NETEM_BYTES: usize = 24;

/// A queueing discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Discipline {
    /// Of which interface, by number.
    pub(super) interface: i32,
    /// `tbf`, `htb`, `fq_codel`…
    pub(super) kind: String,
    /// Its own number.
    pub(super) handle: u32,
    /// Where it hangs: [`ROOT`], or a class of another discipline.
    pub(super) parent: u32,
    /// What stands in it and in those below it.
    pub(super) backlog_bytes: Option<u32>,
    /// Packets dropped by it.
    pub(super) drops: Option<u32>,
    /// The rate it shapes to, where it is one that has a single rate.
    pub(super) rate_bytes_per_s: Option<u64>,
}

/// A class of a queueing discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Class {
    /// Its own number.
    pub(super) handle: u32,
    /// Where it hangs: [`ROOT`] for one that borrows from nobody.
    pub(super) parent: u32,
    /// The most it may send, borrowed bandwidth included: HTB's ceil.
    pub(super) ceiling_bytes_per_s: Option<u64>,
}

/// The body of a request for all interfaces.
pub(super) fn links_request() -> Vec<u8> {
    let mut out = vec![0; LINK_BYTES];
    out.extend(8u16.to_ne_bytes());
    out.extend(IFLA_EXT_MASK.to_ne_bytes());
    out.extend(SKIP_STATS.to_ne_bytes());
    out
}

/// The body of a request for all addresses.
pub(super) fn addresses_request() -> Vec<u8> {
    vec![0; ADDRESS_BYTES]
}

/// Number of an interface, and an address of its own.
pub(super) fn address(body: &[u8]) -> Option<(i32, IpAddr)> {
    let attributes = body.get(ADDRESS_BYTES..)?;
    let bytes = attribute(attributes, IFA_LOCAL).or_else(|| attribute(attributes, IFA_ADDRESS))?;
    let address = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    Some((u32_at(body, 4)? as i32, address))
}

/// The body of a request for all disciplines, or for all classes of one interface.
pub(super) fn traffic_request(interface: i32) -> Vec<u8> {
    let mut out = vec![0; TRAFFIC_BYTES];
    out[4..8].copy_from_slice(&interface.to_ne_bytes());
    out
}

/// Number and name of an interface.
pub(super) fn link(body: &[u8]) -> Option<(i32, String)> {
    let name = attribute(body.get(LINK_BYTES..)?, IFLA_IFNAME)?;
    Some((u32_at(body, 4)? as i32, text(name)))
}

pub(super) fn discipline(body: &[u8]) -> Option<Discipline> {
    let attributes = body.get(TRAFFIC_BYTES..)?;
    let kind = text(attribute(attributes, TCA_KIND)?);
    let queue = attribute(attributes, TCA_STATS2).and_then(|stats| attribute(stats, TCA_STATS_QUEUE));
    let options = attribute(attributes, TCA_OPTIONS).unwrap_or_default();
    Some(Discipline {
        interface: u32_at(body, 4)? as i32,
        handle: u32_at(body, 8)?,
        parent: u32_at(body, 12)?,
        backlog_bytes: queue.and_then(|queue| u32_at(queue, 4)),
        drops: queue.and_then(|queue| u32_at(queue, 8)),
        rate_bytes_per_s: shaped(&kind, options),
        kind,
    })
}

pub(super) fn class(body: &[u8]) -> Option<Class> {
    let attributes = body.get(TRAFFIC_BYTES..)?;
    let htb = attribute(attributes, TCA_KIND).is_some_and(|kind| text(kind) == "htb");
    let options = attribute(attributes, TCA_OPTIONS).filter(|_| htb).unwrap_or_default();
    Some(Class { handle: u32_at(body, 8)?, parent: u32_at(body, 12)?, ceiling_bytes_per_s: htb_ceiling(options) })
}

/// The one rate of a discipline; none for those without, and for netem without a rate.
fn shaped(kind: &str, options: &[u8]) -> Option<u64> {
    match kind {
        // TCA_TBF_PARMS and TCA_TBF_RATE64; `struct tc_ratespec` has its rate at 8.
        "tbf" => rate(options, (1, 8), 4),
        // TCA_NETEM_RATE and TCA_NETEM_RATE64.
        "netem" => rate(options.get(NETEM_BYTES..)?, (6, 0), 8),
        _ => None,
    }
}

/// TCA_HTB_PARMS, whose second `struct tc_ratespec` is the ceiling, and TCA_HTB_CEIL64.
fn htb_ceiling(options: &[u8]) -> Option<u64> {
    rate(options, (1, 12 + 8), 7)
}

/// A rate of 32 bits at a place of one attribute, or the attribute of 64 bits that is there where that is too small.
fn rate(options: &[u8], narrow: (u16, usize), wide: u16) -> Option<u64> {
    let mut found = None;
    for (kind, value) in attributes(options) {
        if kind == wide {
            return u64_at(value, 0).filter(|rate| *rate > 0);
        }
        if kind == narrow.0 {
            found = u32_at(value, narrow.1).map(u64::from);
        }
    }
    found.filter(|rate| *rate > 0)
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
