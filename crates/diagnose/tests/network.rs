//! Results on their way to clients, on simulated connections: a link that is full and one that is only well used, one heavy
//! query and many, a client that does not read, and everything that must stay silent.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{all_queues, rule};
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Confidence, Event, EventKind, Finding, SOME_CONNECTIONS, Severity, Window};
use common::judged::{found, names};
use common::{Readings, meta, session};
use std::ops::Range;
use std::sync::Arc;

const FROM_S: f64 = 100.0;
const SECONDS: usize = 40;
const LINK: f64 = 25e6;

/// A connection with a client: what it does from the tenth to the thirtieth second.
#[derive(Clone)]
struct Client {
    pid: i32,
    sends: f64,
    queued: f64,
    window_held: f64,
    waits: bool,
    xact_ms: Option<i64>,
    walsender: bool,
    within_host: bool,
    window: f64,
    min_rtt_us: f64,
    rtt_us: f64,
    held_to: Option<f64>,
    /// The seconds in which it is connected, and the server's address.
    there: Range<usize>,
    local: &'static str,
}

fn client(pid: i32, sends: f64, queued: f64) -> Client {
    let (waits, window, min_rtt_us) = (queued > 0.0, 3e6, 100.0);
    let (walsender, within_host) = (false, false);
    let (rtt_us, there, local) = (min_rtt_us, 0..SECONDS + 1, "10.0.0.99");
    let (window_held, xact_ms, held_to) = (0.0, None, None);
    Client {
        pid,
        sends,
        queued,
        window_held,
        waits,
        xact_ms,
        walsender,
        within_host,
        window,
        min_rtt_us,
        rtt_us,
        held_to,
        there,
        local,
    }
}

fn reader(pid: i32) -> Client {
    Client { window_held: 0.98, waits: true, xact_ms: Some(90_000), window: 0.0, ..client(pid, 40_000.0, 2.5e6) }
}

struct Net {
    clients: Vec<Client>,
    /// What else goes through the interface.
    other: f64,
    ceiling: Option<(&'static Def, f64)>,
    backlog: f64,
    backlog_seen: bool,
    /// Addresses of interfaces of the host.
    addresses: Vec<(&'static str, &'static str)>,
    tcp_seen: bool,
    samples_seen: bool,
}

impl Default for Net {
    fn default() -> Self {
        Net {
            clients: Vec::new(),
            other: 0.0,
            ceiling: Some((&cat::NET_SHAPER, LINK)),
            backlog: 100_000.0,
            backlog_seen: true,
            addresses: Vec::new(),
            tcp_seen: true,
            samples_seen: true,
        }
    }
}

impl Net {
    fn window(&self) -> Window {
        let mut readings = Readings::default();
        let link = [("target", "host"), ("if", "eth0")];
        let mut sent = vec![0.0; self.clients.len() + 1];
        let mut held = vec![0.0; self.clients.len()];
        for second in 0..=SECONDS {
            let at = FROM_S + second as f64;
            let on = (10..30).contains(&second);
            let part = if on { 1.0 } else { 0.01 };
            if let Some((def, ceiling)) = self.ceiling {
                readings.put(def, &link, at, ceiling);
            }
            let stays = |number: usize| self.clients.get(number).is_some_and(|client| client.within_host);
            let through = sent.iter().enumerate().filter(|(number, _)| !stays(*number)).map(|(_, bytes)| bytes);
            readings.put(&cat::NET_SENT_BYTES, &link, at, through.sum());
            if self.backlog_seen {
                // Also those that wait for nobody meet now and then.
                let met = if second % 5 == 0 { 60_000.0 } else { 0.0 };
                readings.put(&cat::NET_BACKLOG, &link, at, self.backlog * part + met);
            }
            sent[self.clients.len()] += self.other * part;
            for (address, name) in &self.addresses {
                let named = [("target", "host"), ("if", *name)];
                readings.put(&cat::NET_SPEED, &named, at, self.ceiling.map_or(0.0, |(_, ceiling)| ceiling));
                readings.put(&cat::NET_ADDRESS, &[&named[..], &[("address", address)]].concat(), at, 1.0);
            }
            for (number, client) in self.clients.iter().enumerate() {
                if !client.there.contains(&second) {
                    continue;
                }
                let ip = if client.within_host { client.local.to_owned() } else { format!("10.0.0.{number}") };
                let (pid, peer) = (client.pid.to_string(), format!("{ip}:5000"));
                let local = format!("{}:5432", client.local);
                let own =
                    [("target", "lab"), ("pid", pid.as_str()), ("local", local.as_str()), ("peer", peer.as_str())];
                if self.tcp_seen {
                    readings.put(&cat::TCP_ACKED, &own, at, sent[number]);
                    readings.put(&cat::TCP_SENDQ, &own, at, client.queued * part);
                    readings.put(&cat::TCP_BUSY, &own, at, held[number] * 1e6);
                    readings.put(&cat::TCP_RWND_LIMITED, &own, at, held[number] * client.window_held * 1e6);
                    readings.put(&cat::TCP_PEER_WINDOW, &own, at, client.window);
                    readings.put(&cat::TCP_MIN_RTT, &own, at, client.min_rtt_us);
                    readings.put(&cat::TCP_RTT, &own, at, client.rtt_us);
                    client.held_to.iter().for_each(|rate| readings.put(&cat::TCP_MAX_PACING, &own, at, *rate));
                }
                sent[number] += client.sends * part;
                held[number] += part;
                if self.samples_seen && on {
                    let wait = client.waits.then_some(("Client", "ClientWrite"));
                    let mut sample = session(at + 0.5, client.pid, "active", wait, None);
                    sample.user = Some("etl".into());
                    sample.xact_age_ms = client.xact_ms;
                    if client.walsender {
                        sample.backend_type = Some("walsender".into());
                    }
                    readings.samples.push(sample);
                }
            }
        }
        readings.window(meta(), FROM_S, FROM_S + SECONDS as f64)
    }

    fn findings(&self) -> Vec<Finding> {
        found(&self.window())
    }
}

fn silent(net: &Net, what: &str) {
    assert_eq!(names(&net.findings()), Vec::<String>::new(), "{what}");
}

/// A window in which the probe says that something is absent.
fn saying(window: &Window, what: &str) -> Window {
    let fields = [("what", what), ("why", "only so many are read at once and in a run")];
    let said = Event::new(window.from, "host", EventKind::Absent, "", &fields);
    let series = window.all_tracks().map(|track| (Arc::new(track.series.clone()), track.points.to_vec())).collect();
    Window::new(window.from, window.to, Arc::new(meta()), series, window.samples().to_vec(), vec![said])
}

#[test]
fn the_heaviest_of_some_connections_is_not_the_heaviest_of_all() {
    // Of the link's bytes 13 of 24 MB/s belong to connections that are not read.
    let clients = vec![client(12, 9e6, 3e6), client(13, 4e6, 100_000.0)];
    let net = Net { clients, other: 11e6, ..Net::default() };
    let found = |window: &Window| common::judged::found(window).remove(0);
    assert_eq!(found(&net.window()).cause, "heavy-query");
    let finding = found(&saying(&net.window(), SOME_CONNECTIONS));
    assert_eq!((finding.cause.as_str(), finding.confidence), ("many-queries", Confidence::Medium));
    assert!(finding.unseen.iter().any(|unseen| unseen.what == SOME_CONNECTIONS), "{:?}", finding.unseen);
    assert!((finding.figure("heaviest_ratio").unwrap() - 9.0 / 24.0).abs() < 0.02);
}

#[test]
fn a_total_of_some_connections_is_a_lower_bound() {
    let net = Net { clients: vec![client(11, 1e6, 10_000.0)], ..Net::default() };
    let bound = |said: Option<&str>| {
        let window = said.map_or_else(|| net.window(), |what| saying(&net.window(), what));
        all_queues(&window).into_iter().find(|queue| queue.name == "host.tcp@lab").unwrap().at_least
    };
    assert!(!bound(None) && !bound(Some("TCP connections of another")) && bound(Some(SOME_CONNECTIONS)));
}

#[test]
fn one_heavy_query_is_named_and_can_be_demoted() {
    let clients = vec![client(11, 1e6, 10_000.0), client(12, 21e6, 3e6), client(13, 2e6, 10_000.0)];
    let findings = Net { clients, ..Net::default() }.findings();
    assert_eq!(names(&findings), ["net-overload heavy-query host.net@eth0"]);
    let finding = &findings[0];
    assert_eq!((finding.severity, finding.confidence), (Severity::Warning, Confidence::High));
    assert!(finding.summary.contains("process 12 (user etl)"), "{}", finding.summary);
    assert!((finding.figure("heaviest_ratio").unwrap() - 0.875).abs() < 0.01);
    assert!((finding.figure("link_sent_bytes_per_s").unwrap() - 24e6).abs() < 1e6);
    assert!(finding.figure("client_queued_bytes").unwrap() > 2.9e6);
    assert_eq!(finding.remedies[0].runtime, ["backwater attach --socket 10.0.0.1:5000 --rate 10254KB"]);
    let rule = "bandwidth=10.014, action='penalty', and for all that it holds low_priority_bandwidth='10254kB'";
    assert!(finding.remedies[0].persistent[0].contains(rule), "{:?}", finding.remedies[0].persistent);
    assert!(finding.from.seconds() >= FROM_S + 8.0 && finding.to.seconds() <= FROM_S + 32.0);
}

#[test]
fn many_ordinary_queries_are_not_blamed_on_one() {
    let clients: Vec<_> = (0..10).map(|number| client(20 + number, 2.4e6, 400_000.0)).collect();
    let findings = Net { clients: clients.clone(), ..Net::default() }.findings();
    assert_eq!(names(&findings), ["net-overload many-queries host.net@eth0"]);
    assert_eq!(findings[0].figure("busy_connections"), Some(10.0));
    let summary = &findings[0].summary;
    let named = (20..30).filter(|pid| summary.contains(&format!("process {pid}"))).count();
    assert_eq!(named, 5, "{summary}");
    assert!(summary.contains(", and 5 more 11.4 MiB/s together"), "{summary}");
    assert!(findings[0].remedies[0].persistent[0].contains("max_active"));
    // A link known by its speed alone, and sessions that nobody sampled.
    let bare = Net { clients, ceiling: Some((&cat::NET_SPEED, LINK)), samples_seen: false, ..Net::default() };
    let findings = bare.findings();
    assert_eq!(names(&findings), ["net-overload many-queries host.net@eth0"]);
    assert_eq!(findings[0].confidence, Confidence::Medium);
    assert!(!findings[0].unseen.is_empty());
}

#[test]
fn who_comes_and_goes_counts_for_the_time_in_which_it_was_there() {
    // One that sends all the time, beside one short one after the other.
    let short = |number: usize| {
        let there = 10 + 2 * number..12 + 2 * number + 1;
        Client { there, ..client(40 + number as i32, 8e6, 100_000.0) }
    };
    let clients: Vec<_> = (0..10).map(short).chain([client(12, 16e6, 3e6)]).collect();
    let findings = Net { clients, ..Net::default() }.findings();
    assert_eq!(names(&findings), ["net-overload heavy-query host.net@eth0"]);
    let sent = |name: &str| findings[0].figure(name).unwrap();
    assert!(sent("client_sent_bytes_per_s") <= sent("link_sent_bytes_per_s") * 1.02, "{:?}", findings[0].evidence);
    assert!((0.6..0.8).contains(&sent("heaviest_ratio")), "{:?}", findings[0].evidence);
}

#[test]
fn what_waits_for_something_else_than_the_link_is_no_line_for_it() {
    let well_used = || client(12, 24e6, 60_000.0);
    let findings = Net { clients: vec![well_used(), reader(31)], ..Net::default() }.findings();
    assert_eq!(names(&findings), ["slow-reader client-window host.tcp@lab"]);
    // Held at a rate on its way out: the link is nearly full, and nobody waits for it.
    let paced = || vec![Client { rtt_us: 5_300.0, ..client(12, 22.5e6, 3e6) }];
    silent(&Net { clients: paced(), backlog: 1_500.0, ..Net::default() }, "paced");
    // Paced flows meet there for longer, too; the kernel says of each that it comes to its rate. Where the link keeps it from that, it
    // waits for the link.
    let held = |held_to| vec![Client { held_to: Some(held_to), ..client(12, 22.5e6, 3e6) }];
    silent(&Net { clients: held(23e6), backlog: 30_000.0, ..Net::default() }, "at its rate");
    for kept_from in [40e6, 28e6] {
        let findings = Net { clients: held(kept_from), backlog: 30_000.0, ..Net::default() }.findings();
        assert_eq!(names(&findings), ["net-overload heavy-query host.net@eth0"], "{kept_from}");
    }
}

#[test]
fn who_is_held_already_is_not_to_be_demoted() {
    let held = |pid| Client { held_to: Some(6e6), ..client(pid, 6e6, 2e6) };
    let slow = Client { held_to: Some(1_000.0), ..client(15, 900.0, 2e6) };
    let heavy = Net { clients: vec![held(11), client(12, 17e6, 3e6), slow], ..Net::default() }.findings();
    assert_eq!(names(&heavy), ["net-overload heavy-query host.net@eth0"]);
    assert!(heavy[0].summary.contains("process 12"), "{}", heavy[0].summary);
    assert!((5e6..7e6).contains(&heavy[0].figure("held_bytes_per_s").unwrap()), "{:?}", heavy[0].evidence);
    let queued = heavy[0].figure("client_queued_bytes").unwrap();
    assert!((2.5e6..3.5e6).contains(&queued), "what a rate holds back is no line: {queued}");
    let most = Client { held_to: Some(14e6), ..client(11, 14e6, 2e6) };
    let many = Net { clients: vec![most, client(12, 5e6, 3e6), client(13, 4e6, 3e6)], ..Net::default() }.findings();
    assert_eq!(names(&many), ["net-overload many-queries host.net@eth0"]);
    assert!(!many[0].summary.contains("process 11"), "{}", many[0].summary);
    // Where nobody counts what stands in line there, round trips do not tell it: it is not sure.
    let late = vec![Client { rtt_us: 90_000.0, ..client(12, 22.5e6, 3e6) }];
    let findings = Net { clients: late, backlog_seen: false, ..Net::default() }.findings();
    assert_eq!(names(&findings), ["net-overload heavy-query host.net@eth0"]);
    assert_eq!(findings[0].confidence, Confidence::Medium);
}

#[test]
fn a_connection_by_another_interface_fills_this_one_not() {
    let addresses = || vec![("10.0.0.99", "eth0"), ("10.0.1.99", "eth1")];
    let elsewhere = Client { local: "10.0.1.99", ..client(12, 24e6, 3e6) };
    let net = |client: Client| Net { clients: vec![client], addresses: addresses(), ..Net::default() };
    assert_eq!(names(&net(client(12, 24e6, 3e6)).findings()), ["net-overload heavy-query host.net@eth0"]);
    silent(&net(elsewhere.clone()), "its own address is eth1's");
    // A bond's address is not that of the device which it sends by.
    let bond = vec![("10.0.0.99", "bond0")];
    let bonded = Net { clients: vec![client(12, 24e6, 3e6)], addresses: bond, ..Net::default() };
    assert_eq!(names(&bonded.findings()), ["net-overload heavy-query host.net@eth0"]);
    // One that is no interface's of this host, as a container's behind a bridge, may go by any.
    let behind = Client { local: "172.17.0.2", ..elsewhere };
    assert_eq!(names(&net(behind).findings()), ["net-overload heavy-query host.net@eth0"]);
}

#[test]
fn a_slow_link_has_a_rate_that_a_rule_takes() {
    let slow =
        Net { clients: vec![client(12, 1.2e6, 3e6)], ceiling: Some((&cat::NET_SHAPER, 1.25e6)), ..Net::default() };
    let findings = slow.findings();
    let remedy = &findings[0].remedies[0];
    assert_eq!(remedy.runtime, ["backwater attach --socket 10.0.0.0:5000 --rate 586KB"]);
    assert!(remedy.persistent[0].contains("bandwidth=0.572, action"), "{:?}", remedy.persistent);
}

#[test]
fn a_link_that_is_used_or_filled_by_others_is_silent() {
    let heavy = || vec![client(12, 24e6, 3e6)];
    silent(&Net { clients: vec![client(12, 24e6, 60_000.0)], ..Net::default() }, "full, and nothing stands in line");
    silent(&Net { clients: vec![client(12, 15e6, 3e6)], ..Net::default() }, "room in the link");
    silent(&Net { clients: heavy(), ceiling: None, ..Net::default() }, "no ceiling known");
    silent(&Net { clients: heavy(), tcp_seen: false, ..Net::default() }, "connections unseen");
    silent(&Net { clients: vec![client(12, 1e6, 3e6)], other: 23e6, ..Net::default() }, "somebody else's traffic");
    let here = vec![Client { within_host: true, ..client(12, 24e6, 3e6) }];
    silent(&Net { clients: here, other: 23e6, ..Net::default() }, "a client on the same host, beside somebody else's");
    let walsender = Client { walsender: true, ..client(12, 24e6, 3e6) };
    silent(&Net { clients: vec![walsender], ..Net::default() }, "WAL for a standby");
}

#[test]
fn a_client_that_does_not_read_is_told_from_a_long_way_and_from_a_busy_one() {
    let findings = Net { clients: vec![reader(31), client(32, 1e6, 0.0)], ..Net::default() }.findings();
    assert_eq!(names(&findings), ["slow-reader client-window host.tcp@lab"]);
    let finding = &findings[0];
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.figure("rwnd_limited_ratio").unwrap() > 0.9, "{:?}", finding.evidence);
    assert_eq!(finding.figure("transaction_open_s"), Some(90.0));
    assert!(finding.summary.contains("process 31") && finding.summary.contains("vacuum"), "{}", finding.summary);

    let short = Client { xact_ms: Some(20_000), ..reader(31) };
    let findings = Net { clients: vec![short], ..Net::default() }.findings();
    assert_eq!(findings[0].severity, Severity::Info);

    let far = Client { window: 64_000.0, min_rtt_us: 100_000.0, sends: 600_000.0, ..reader(31) };
    silent(&Net { clients: vec![far], ..Net::default() }, "a long way and a small window");
    let half = Client { window_held: 0.5, ..reader(31) };
    silent(&Net { clients: vec![half], ..Net::default() }, "held half of the time");
    silent(
        &Net { clients: vec![Client { waits: false, ..reader(31) }], ..Net::default() },
        "the session does not wait",
    );
    silent(&Net { clients: vec![reader(31)], samples_seen: false, ..Net::default() }, "sessions unseen");
    silent(&Net { clients: vec![reader(31)], tcp_seen: false, ..Net::default() }, "connections unseen");
}

#[test]
fn both_have_a_page() {
    for (name, causes) in [("net-overload", 2), ("slow-reader", 1)] {
        let rule = rule(name).unwrap();
        assert_eq!(rule.causes.len(), causes);
        assert!(rule.causes.iter().all(|cause| rule.page.contains(&format!("`{cause}`"))));
    }
}
