//! A network of the lab's own: two network namespaces, each for one server, joined by a virtual cable that can be made
//! narrow each way (TBF). The host's own network is not touched; the cable and its queueing disciplines go with the
//! namespaces.

use super::{LimitError, tool};
use backwater_undo::{Change, Journal};
use std::net::Ipv4Addr;

/// The cable's end in either namespace.
const INTERFACE: &str = "link0";
/// What may pass at once; larger packets are split by the kernel. A tenth of a second at 5 Mbit/s.
const BURST_BYTES: u64 = 64 << 10;
/// How long a packet may stand in the queue before it is dropped: what a switch would do.
const QUEUE_MS: u64 = 50;
/// The slowest rate that a burst of that size still makes sense for.
const LEAST_BYTES_PER_S: u64 = 64 << 10;

/// One end: where a server lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkEnd {
    /// The namespace, as `ip netns` names it.
    pub namespace: String,
    /// The address of the cable's end in it.
    pub address: Ipv4Addr,
}

/// Two ends and the cable. It goes when the journal is finished; dropping it does nothing.
#[derive(Debug)]
pub struct Network {
    ends: [NetworkEnd; 2],
}

/// Length of the network's part of an address.
pub(crate) const PREFIX: u8 = 30;

impl Network {
    /// Makes both namespaces and the cable, at full speed.
    pub fn create(journal: &Journal) -> Result<Network, LimitError> {
        possible()?;
        let end = |name: &str, host: u8| NetworkEnd {
            namespace: format!("backwater-{}-{name}", journal.run()),
            // Nobody else is in these namespaces, so no other address can be in the way.
            address: Ipv4Addr::new(10, 200, 0, host),
        };
        let ends = [end("primary", 1), end("standby", 2)];
        for NetworkEnd { namespace, .. } in &ends {
            journal.note(Change::Netns { name: namespace.clone() })?;
            tool::run("ip", &["netns", "add", namespace])?;
        }
        let [one, other] = &ends;
        let cable = ["-n", &one.namespace, "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE];
        tool::run("ip", &[&cable[..], &["netns", &other.namespace]].concat())?;
        for end in &ends {
            let address = format!("{}/{PREFIX}", end.address);
            tool::run("ip", &["-n", &end.namespace, "address", "add", &address, "dev", INTERFACE])?;
            for interface in ["lo", INTERFACE] {
                tool::run("ip", &["-n", &end.namespace, "link", "set", interface, "up"])?;
            }
        }
        Ok(Network { ends })
    }

    /// Where the loaded server lives.
    pub fn primary(&self) -> &NetworkEnd {
        &self.ends[0]
    }

    /// Where its standby lives.
    pub fn standby(&self) -> &NetworkEnd {
        &self.ends[1]
    }

    /// Lets at most so many bytes a second pass, each way.
    pub fn narrow(&self, bytes_per_s: u64) -> Result<(), LimitError> {
        if bytes_per_s < LEAST_BYTES_PER_S {
            let why = format!("give at least {LEAST_BYTES_PER_S} bytes a second");
            return Err(LimitError::Value {
                what: "the rate of a network".to_owned(),
                value: bytes_per_s.to_string(),
                why,
            });
        }
        // In tc's words bps are bytes a second.
        let (rate, burst, queue) = (format!("{bytes_per_s}bps"), format!("{BURST_BYTES}b"), format!("{QUEUE_MS}ms"));
        for end in &self.ends {
            let on = ["-n", &end.namespace, "qdisc", "replace", "dev", INTERFACE, "root"];
            tool::run("tc", &[&on[..], &["tbf", "rate", &rate, "burst", &burst, "latency", &queue]].concat())?;
        }
        Ok(())
    }

    /// Gives the cable its full speed back. Harmless where it has it.
    pub fn widen(&self) -> Result<(), LimitError> {
        for end in &self.ends {
            let on = ["-n", &end.namespace, "qdisc"];
            let shown = tool::run("tc", &[&on[..], &["show", "dev", INTERFACE]].concat())?;
            if shown.contains("tbf") {
                tool::run("tc", &[&on[..], &["del", "dev", INTERFACE, "root"]].concat())?;
            }
        }
        Ok(())
    }
}

/// Whether this host lets a network of the lab's own be made.
pub fn possible() -> Result<(), LimitError> {
    let unsupported = |why: &str, next: &str| LimitError::Unsupported {
        what: "a network of its own".to_owned(),
        why: why.to_owned(),
        next: next.to_owned(),
    };
    if !rustix::process::geteuid().is_root() {
        return Err(unsupported("network namespaces need root", "Run the same command as root, with sudo"));
    }
    for program in ["ip", "tc"] {
        if tool::find(program).is_none() {
            let package = tool::package(program);
            return Err(unsupported(
                &format!("{program} is not installed"),
                &format!("Install it: `apt-get install {package}`"),
            ));
        }
    }
    Ok(())
}
