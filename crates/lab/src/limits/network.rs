//! A network of the lab's own: two network namespaces, each for one server, joined by a virtual cable that can be made
//! narrow each way (TBF); on request with a switch between them, in a third, so that the cable may be narrow beyond the
//! server's own host. The host's own network is not touched; cables and their queueing disciplines go with the namespaces.

use super::{LimitError, tool};
use backwater_undo::{Change, Journal};
use std::net::Ipv4Addr;

/// The cable's end in either namespace.
const INTERFACE: &str = "link0";
/// The switch's ends of the two cables, towards the server and away from it, and the switch itself.
const PORTS: [&str; 2] = ["port0", "port1"];
const SWITCH: &str = "switch0";
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

/// Where the cable is narrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Narrow {
    /// On the way out of each end: what is sent stands in the sender's own queue.
    #[default]
    Ends,
    /// At the switch: what is sent has left its host, where no queue of the host's shows it.
    Switch,
}

/// Two ends and the cable. It goes when the journal is finished; dropping it does nothing.
#[derive(Debug)]
pub struct Network {
    ends: [NetworkEnd; 2],
    /// The namespace of the switch between them.
    switch: Option<String>,
    queue_ms: u64,
}

/// Length of the network's part of an address.
pub(crate) const PREFIX: u8 = 30;

impl Network {
    /// Makes both namespaces and the cable, at full speed.
    pub fn create(journal: &Journal) -> Result<Network, LimitError> {
        Self::make(journal, false)
    }

    /// The same with a switch between two cables.
    pub fn create_switched(journal: &Journal) -> Result<Network, LimitError> {
        Self::make(journal, true)
    }

    fn make(journal: &Journal, switched: bool) -> Result<Network, LimitError> {
        possible()?;
        let name = |name: &str| format!("backwater-{}-{name}", journal.run());
        // Nobody else is in these namespaces, so no other address can be in the way.
        let end = |of: &str, host: u8| NetworkEnd { namespace: name(of), address: Ipv4Addr::new(10, 200, 0, host) };
        let ends = [end("primary", 1), end("standby", 2)];
        let switch = switched.then(|| name("switch"));
        for namespace in ends.iter().map(|end| &end.namespace).chain(&switch) {
            journal.note(Change::Netns { name: namespace.clone() })?;
            tool::run_journalled(journal, "ip", &["netns", "add", namespace])?;
        }
        match &switch {
            None => cable((&ends[0].namespace, INTERFACE), (&ends[1].namespace, INTERFACE))?,
            Some(switch) => {
                tool::run("ip", &["-n", switch, "link", "add", SWITCH, "type", "bridge"])?;
                for (end, port) in ends.iter().zip(PORTS) {
                    cable((&end.namespace, INTERFACE), (switch, port))?;
                    tool::run("ip", &["-n", switch, "link", "set", port, "master", SWITCH, "up"])?;
                }
                tool::run("ip", &["-n", switch, "link", "set", SWITCH, "up"])?;
            }
        }
        for end in &ends {
            let address = format!("{}/{PREFIX}", end.address);
            tool::run("ip", &["-n", &end.namespace, "address", "add", &address, "dev", INTERFACE])?;
            for interface in ["lo", INTERFACE] {
                tool::run("ip", &["-n", &end.namespace, "link", "set", interface, "up"])?;
            }
        }
        Ok(Network { ends, switch, queue_ms: QUEUE_MS })
    }

    /// Lets packets stand in its queue for so long, in milliseconds, where it is made narrow from now on.
    pub fn queue_for(&mut self, queue_ms: u64) {
        self.queue_ms = queue_ms;
    }

    /// Where the loaded server lives.
    pub fn primary(&self) -> &NetworkEnd {
        &self.ends[0]
    }

    /// Where its standby lives, or its clients.
    pub fn standby(&self) -> &NetworkEnd {
        &self.ends[1]
    }

    /// Lets at most so many bytes a second pass, each way, here and nowhere else.
    pub fn narrow(&self, bytes_per_s: u64, place: Narrow) -> Result<(), LimitError> {
        if bytes_per_s < LEAST_BYTES_PER_S {
            let why = format!("give at least {LEAST_BYTES_PER_S} bytes a second");
            return Err(LimitError::Value {
                what: "the rate of a network".to_owned(),
                value: bytes_per_s.to_string(),
                why,
            });
        }
        self.widen()?;
        // In tc's words bps are bytes a second.
        let (rate, burst, queue) =
            (format!("{bytes_per_s}bps"), format!("{BURST_BYTES}b"), format!("{}ms", self.queue_ms));
        for (namespace, interface) in self.interfaces(place) {
            let on = ["-n", namespace, "qdisc", "replace", "dev", interface, "root"];
            tool::run("tc", &[&on[..], &["tbf", "rate", &rate, "burst", &burst, "latency", &queue]].concat())?;
        }
        Ok(())
    }

    /// Where the way is narrow then: first the one that the server's packets leave by.
    fn interfaces(&self, place: Narrow) -> Vec<(&str, &str)> {
        let [one, other] = &self.ends;
        match (place, &self.switch) {
            (Narrow::Ends, _) => vec![(&one.namespace, INTERFACE), (&other.namespace, INTERFACE)],
            (Narrow::Switch, Some(switch)) => vec![(switch, PORTS[1]), (switch, PORTS[0])],
            (Narrow::Switch, None) => Vec::new(),
        }
    }

    /// Bytes that have passed the narrow place on their way from the server, with the heads of all packets as they stand on
    /// the wire; none where nothing is narrow.
    pub fn wire_bytes(&self) -> Result<Option<u64>, LimitError> {
        for place in [Narrow::Switch, Narrow::Ends] {
            let Some((namespace, interface)) = self.interfaces(place).into_iter().next() else { continue };
            let shown = tool::run("tc", &["-n", namespace, "-s", "qdisc", "show", "dev", interface])?;
            if shown.contains("tbf") {
                return Ok(sent_bytes(&shown));
            }
        }
        Ok(None)
    }

    /// Gives the cable its full speed back. Harmless where it has it.
    pub fn widen(&self) -> Result<(), LimitError> {
        for (namespace, interface) in [Narrow::Ends, Narrow::Switch].iter().flat_map(|place| self.interfaces(*place)) {
            let on = ["-n", namespace, "qdisc"];
            let shown = tool::run("tc", &[&on[..], &["show", "dev", interface]].concat())?;
            if shown.contains("tbf") {
                tool::run("tc", &[&on[..], &["del", "dev", interface, "root"]].concat())?;
            }
        }
        Ok(())
    }
}

/// A virtual cable between two namespaces, with the name of its end in each.
fn cable((one, name): (&str, &str), (other, other_name): (&str, &str)) -> Result<(), LimitError> {
    let ends = ["-n", one, "link", "add", name, "type", "veth", "peer", "name", other_name, "netns", other];
    tool::run("ip", &ends).map(drop)
}

/// What `tc -s` says was sent: ` Sent 123 bytes 4 pkt`.
fn sent_bytes(shown: &str) -> Option<u64> {
    shown.split_once("Sent ")?.1.split_whitespace().next()?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::sent_bytes;

    #[test]
    fn what_was_sent_is_read_from_the_statistics() {
        let shown =
            "qdisc tbf 8001: root refcnt 2 rate 200Mbit burst 64Kb lat 300ms\n Sent 71266 bytes 66 pkt (dropped 0)\n";
        assert_eq!(sent_bytes(shown), Some(71_266));
        assert_eq!(sent_bytes("qdisc noqueue 0: root refcnt 2"), None);
    }
}
