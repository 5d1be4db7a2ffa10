//! Interfaces of this machine, and of a namespace made for the test: it ends with the one process that is in it.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use super::*;
use crate::host::Server;
use crate::host::testing::Look;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Two interfaces joined to each other: what leaves the first is held to 24 Mbit/s and flooded for as long as somebody
/// holds the other end of its standard input; what leaves the second is shaped by HTB.
const SCRIPT: &str = "set -e
ip link add bwv0 type veth peer name bwv1
ip addr add 10.99.0.1/24 dev bwv0
ip link set bwv0 up
ip link set bwv1 up
ip neigh add 10.99.0.2 lladdr 02:00:00:00:00:02 dev bwv0 nud permanent
tc qdisc add dev bwv0 root handle 1: tbf rate 24mbit burst 32kbit latency 400ms
tc qdisc add dev bwv1 root handle 1: htb default 10
tc class add dev bwv1 parent 1: classid 1:1 htb rate 8mbit ceil 16mbit
exec python3 -c '
import select, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, 32, 8 << 20)
flood = lambda: [s.sendto(bytes(1400), (\"10.99.0.2\", 9)) for _ in range(2000)]
flood(); print(\"ready\", flush=True)
while not select.select([sys.stdin], [], [], 0.05)[0]: flood()'";

/// A process in a network namespace of its own, which ends with it.
struct Flooded {
    child: Child,
}

impl Flooded {
    fn begin() -> Flooded {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut flooded = Flooded { child: command.spawn().unwrap() };
        let mut line = String::new();
        BufReader::new(flooded.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        flooded
    }
}

impl Drop for Flooded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_servers_own_namespace_shows_its_counters_backlog_drops_and_shapers() {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "skipped: a_servers_own_namespace_shows_its_counters_backlog_drops_and_shapers: needs root (unshare --net)"
        );
        return;
    }
    let flooded = Flooded::begin();
    let watch = Arc::new(Watch::new());
    watch.add_server(Server { target: "db".into(), postmaster_pid: flooded.child.id() as i32 });
    let mut probe = Interfaces::new(&Roots::default(), &watch);
    let mut look = Look::of(&mut probe);
    let flooded_interface = [("target", "db"), ("if", "bwv0")];
    let value = |look: &Look, name: &str| look.value(name, &flooded_interface);
    let sent = value(&look, "host.net.sent_bytes").unwrap();
    assert_eq!(value(&look, "host.net.shaper_bytes_per_s"), Some(3_000_000.0));
    assert_eq!(look.value("host.net.shaper_bytes_per_s", &[("target", "db"), ("if", "bwv1")]), Some(2_000_000.0));
    assert!(value(&look, "host.net.backlog_bytes").unwrap() > 100_000.0);
    let goes_by = |name: &str| {
        let labels = [("target", "db"), ("if", name), ("address", "10.99.0.1")];
        look.value("host.net.address", &labels)
    };
    assert_eq!((goes_by("bwv0"), goes_by("bwv1")), (Some(1.0), None));
    assert!(value(&look, "host.net.drops").unwrap() > 0.0);
    assert_eq!(value(&look, "host.net.speed_bytes_per_s"), None, "no device stands behind it");
    assert_eq!(look.value("host.net.sent_bytes", &[("target", "host"), ("if", "bwv0")]), None);
    assert_eq!(look.value("host.net.sent_bytes", &[("if", "lo")]), None);
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while value(&look, "host.net.sent_bytes").unwrap() <= sent && std::time::Instant::now() < deadline {
        look.again(&mut probe);
    }
    assert!(value(&look, "host.net.sent_bytes").unwrap() > sent);
    assert!(look.batch.events.is_empty(), "{:?}", look.batch.events);
    drop(flooded);
    look.again(&mut probe);
    assert!(look.batch.events.is_empty(), "{:?}", look.batch.events);
}

#[test]
fn a_server_in_the_hosts_namespace_has_the_hosts_interfaces_under_its_name() {
    let watch = Arc::new(Watch::new());
    watch.add_server(Server { target: "me".into(), postmaster_pid: std::process::id() as i32 });
    let look = Look::of(&mut Interfaces::new(&Roots::default(), &watch));
    let names: Vec<String> = dev::busiest(&file::read("/proc/self/net/dev".as_ref()).unwrap(), 32)
        .into_iter()
        .map(|counters| counters.name)
        .collect();
    for name in names {
        for target in ["me", HOST] {
            let labels = [("target", target), ("if", name.as_str())];
            assert!(look.value("host.net.received_packets", &labels).is_some(), "{target} {name}");
            assert!(look.value("host.net.backlog_bytes", &labels).is_some(), "{target} {name}");
        }
    }
    assert!(look.batch.events.is_empty(), "{:?}", look.batch.events);
}

#[test]
fn captured_counters_need_no_namespace_and_a_device_tells_its_speed() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::under(dir.path());
    let put = |path: std::path::PathBuf, text: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put(roots.proc.join("self/net/dev"), include_str!("../../../tests/fixtures/net/dev"));
    put(roots.sys.join("class/net/eth0/speed"), "25000\n");
    put(roots.sys.join("class/net/eth0/device/vendor"), "0x1af4\n");
    put(roots.sys.join("class/net/veth1/speed"), "10000\n");
    let look = Look::of(&mut Interfaces::new(&roots, &Arc::new(Watch::new())));
    let eth0 = [("target", HOST), ("if", "eth0")];
    assert_eq!(look.value("host.net.sent_packets", &eth0), Some(44_210.0));
    assert_eq!(look.value("host.net.speed_bytes_per_s", &eth0), Some(25e9 / 8.0));
    assert_eq!(look.value("host.net.speed_bytes_per_s", &[("if", "veth1")]), None);
}
