//! Counters of interfaces: `/proc/PID/net/dev`, which shows the network namespace of that process to everybody.

/// What one interface sent and received since it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) name: String,
    pub(super) received_bytes: u64,
    pub(super) received_packets: u64,
    pub(super) sent_bytes: u64,
    pub(super) sent_packets: u64,
    /// Packets the device or the stack above it gave up on their way out; not those of the queueing discipline.
    pub(super) send_drops: u64,
}

impl Counters {
    /// Bytes both ways.
    pub(super) fn moved_bytes(&self) -> u64 {
        self.sent_bytes.saturating_add(self.received_bytes)
    }
}

/// The interfaces that ever carried anything, without the loopback, in order of bytes moved; at most so many.
pub(super) fn busiest(text: &str, most: usize) -> Vec<Counters> {
    let mut list: Vec<Counters> = text.lines().filter_map(line).filter(|counters| counters.name != "lo").collect();
    list.retain(|counters| counters.sent_packets > 0 || counters.received_packets > 0);
    list.sort_by(|a, b| b.moved_bytes().cmp(&a.moved_bytes()).then_with(|| a.name.cmp(&b.name)));
    list.truncate(most);
    list
}

/// `eth0: bytes packets errs drop fifo frame compressed multicast bytes packets errs drop …`
fn line(line: &str) -> Option<Counters> {
    let (name, rest) = line.split_once(':')?;
    let fields: Vec<u64> = rest.split_ascii_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let field = |place: usize| fields.get(place).copied();
    Some(Counters {
        name: name.trim().to_owned(),
        received_bytes: field(0)?,
        received_packets: field(1)?,
        sent_bytes: field(8)?,
        sent_packets: field(9)?,
        send_drops: field(11)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAPTURED: &str = include_str!("../../../tests/fixtures/net/dev");

    #[test]
    fn captured_interfaces_are_read_without_loopback_and_idle_ones() {
        let list = busiest(CAPTURED, 10);
        let names: Vec<_> = list.iter().map(|counters| counters.name.as_str()).collect();
        assert_eq!(names, ["eth0", "veth1"]);
        assert_eq!((list[0].received_bytes, list[0].received_packets), (204_911_832, 61_338));
        assert_eq!((list[0].sent_bytes, list[0].sent_packets, list[0].send_drops), (7_204_553, 44_210, 3));
    }

    #[test]
    fn of_too_many_the_busiest_are_kept() {
        assert_eq!(busiest(CAPTURED, 1).len(), 1);
        assert_eq!(busiest(CAPTURED, 1)[0].name, "eth0");
        assert_eq!(busiest("eth0: 1 2 3\n", 1), []);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*", fields in proptest::collection::vec(any::<u64>(), 0..17)) {
            busiest(&text, 3);
            let numbers: Vec<String> = fields.iter().map(u64::to_string).collect();
            busiest(&format!("eth0: {}", numbers.join(" ")), 3);
        }
    }
}
