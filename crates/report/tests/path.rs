//! The path of each of the five cases: the queue that binds stands on it with its figures, and so does whoever it holds up.
#![allow(clippy::unwrap_used)]

#[path = "../../backwater/tests/browser/mod.rs"]
mod browser;
#[path = "../../diagnose/tests/common/mod.rs"]
mod common;

use backwater_diagnose::{Options, RULES};
use backwater_model::{CommitWait, Event, EventKind, Finding, Meta, Moment, Target, Window, catalogue as cat};
use backwater_report::html::{Document, QueueView, document, html};
use common::judged::{capped, diagnose};
use common::plant::Limit;
use common::{Readings, meta, recorded, session};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

fn drawn(window: &Window) -> (Vec<Finding>, Document) {
    let findings = diagnose(window, &Options::default());
    let page = document(window, &findings, None, &[]);
    (findings, page)
}

/// The same with the count of sessions that wait for commits, which probes take of the samples that are left here.
fn counted(window: &Window) -> Window {
    let mut readings = Readings::default();
    for sample in window.samples() {
        let of = [("target", &*sample.target), ("queue", "pg.commit")];
        let waits = |one: &&backwater_model::Sample| one.at == sample.at && CommitWait::of(one).is_some();
        let count = window.samples().iter().filter(waits).count();
        readings.put(&cat::PG_SESSIONS_WAITING, &of, sample.at.seconds(), count as f64);
    }
    let kept = window.all_tracks().map(|track| (Arc::new(track.series.clone()), track.points.to_vec()));
    let made = readings.into_series().map(|(series, points)| (Arc::new(series), points));
    let (samples, events) = (window.samples().to_vec(), window.events().to_vec());
    Window::new(window.from, window.to, Arc::clone(&window.meta), kept.chain(made).collect(), samples, events)
}

fn queue<'a>(page: &'a Document, name: &str) -> &'a QueueView {
    let found = page.path.queues.iter().find(|queue| queue.name == name);
    found.unwrap_or_else(|| {
        panic!("{name} is not among {:?}", page.path.queues.iter().map(|q| &q.name).collect::<Vec<_>>())
    })
}

/// The first finding is this one; its queue has a level, or at least something that flows, and all that it holds up is there.
fn binds(window: &Window, rule: &str, cause: &str, name: &str) -> Document {
    let (findings, page) = drawn(window);
    let first = &findings[0];
    assert_eq!((first.rule.as_str(), first.cause.as_str(), first.queue.as_str()), (rule, cause, name));
    for finding in &findings {
        let binding = queue(&page, &finding.queue);
        assert!(binding.level.or(binding.outflow).is_some(), "{}", finding.queue);
        assert!(!binding.docs.is_empty() && !binding.about.is_empty());
        for victim in &finding.victims {
            queue(&page, victim);
        }
    }
    page
}

fn lane(page: &Document, place: Option<usize>) -> Vec<f64> {
    page.series[place.unwrap()].lane.pieces().iter().flatten().map(|(_, most)| *most).collect()
}

fn most(page: &Document, place: Option<usize>) -> f64 {
    lane(page, place).into_iter().reduce(f64::max).unwrap()
}

fn linked(page: &Document, from: &str, to: &str) -> bool {
    let place = |name: &str| page.path.queues.iter().position(|queue| queue.name == name).unwrap();
    page.path.links.contains(&(place(from), place(to)))
}

#[test]
fn a_stampede_of_dirty_pages() {
    let page = binds(&counted(&capped(Limit::Device).window()), "dirty-throttle", "device-limit", "host.dirty@7:0");
    let dirty = queue(&page, "host.dirty@7:0");
    let (level, limit) = (most(&page, dirty.level), most(&page, dirty.hard_limit));
    assert!(level > 0.5 * limit && level < 1.1 * limit, "{level} {limit}");
    assert!(most(&page, dirty.inflow) > 0.0 && most(&page, dirty.outflow) > 0.0 && dirty.soft_limit.is_some());
    assert!(linked(&page, "host.dirty@7:0", "host.disk@7:0"));
    let group = binds(&counted(&capped(Limit::Cgroup).window()), "dirty-throttle", "cgroup-limit", "host.dirty@/lab");
    let dirty = queue(&group, "host.dirty@/lab");
    assert!(most(&group, dirty.level) <= 1.1 * most(&group, dirty.hard_limit));
}

#[test]
fn wal_on_its_way_to_a_standby() {
    let read = |text| recorded::window(text, |_| true);
    let narrow = read(include_str!("../../diagnose/tests/runs/wal/network-narrow.txt"));
    let (findings, page) = drawn(&narrow);
    let name = &findings[0].queue;
    assert!(findings[0].rule == "network-narrow" && name.starts_with("pg.wal.send@"), "{name}");
    assert!(most(&page, queue(&page, name).level) > 1e6);
    assert!(linked(&page, "pg.wal.local_flush", name), "from the primary's flush to what is to be sent");
    // While it is away its primary does not know the standby: its own name stands for it. Another server that is watched need not
    // be its primary, so nothing is told of how much of that one's WAL it lacks.
    let gone = read(include_str!("../../diagnose/tests/runs/wal/retention-exceeded.txt"));
    let page = binds(&gone, "wal-removed", "segment-removed", "pg.wal.retained@localhost:5433");
    let kept = queue(&page, "pg.wal.retained@localhost:5433");
    assert!(kept.hard_limit.is_none() && kept.level.is_none(), "{kept:?}");
}

#[test]
fn commits_that_are_too_small() {
    let window = recorded::window(include_str!("../../diagnose/tests/runs/blind/small-batches.txt"), |_| true);
    let (findings, page) = drawn(&counted(&window));
    assert!(findings.iter().any(|finding| finding.queue == "pg.commit"), "{findings:?}");
    for finding in &findings {
        queue(&page, &finding.queue);
    }
}

#[test]
fn an_engine_whose_cache_fills() {
    let read = |text| recorded::window(text, |_| true);
    let stalled = read(include_str!("../../diagnose/tests/runs/wt/direct-last-round.txt"));
    let page = binds(&stalled, "wt-dirty-stall", "dirty-trigger", "wt.dirty@wiredtiger");
    let dirty = queue(&page, "wt.dirty@wiredtiger");
    let cache = most(&page, queue(&page, "wt.cache@wiredtiger").hard_limit) / 0.97;
    assert!((most(&page, dirty.hard_limit) / (0.3 * cache) - 1.0).abs() < 0.01, "eviction_dirty_trigger of the cache");
    assert!((most(&page, dirty.soft_limit) / (0.03 * cache) - 1.0).abs() < 0.01, "eviction_dirty_target of the cache");
    assert!(most(&page, dirty.level) > 0.9 * most(&page, dirty.hard_limit));
    assert!(
        linked(&page, "mongo.writes@wiredtiger", "wt.journal@wiredtiger"),
        "over tickets, which the engine alone has none of"
    );
    assert!(linked(&page, "wt.dirty@wiredtiger", "wt.checkpoint@wiredtiger"));
    assert!(linked(&page, "wt.journal@wiredtiger", "host.disk@7:0"));
    let burst = read(include_str!("../../diagnose/tests/runs/wt/ttl-quiet.txt"));
    binds(&burst, "wt-cache-oversized", "burst-over-drain", "wt.dirty@wiredtiger");
    let burst = read(include_str!("../../diagnose/tests/runs/wt/pinned-history.txt"));
    binds(&burst, "checkpoint-burst", "engine-burst", "wt.checkpoint@wiredtiger");
}

#[test]
fn limits_follow_settings_as_they_change() {
    let mut readings = Readings::default();
    for second in 0..=30 {
        let of = [("target", "wt")];
        readings.put(&cat::WT_CACHE_MAX, &of, f64::from(second), 1e9);
        readings.put(&cat::WT_CACHE_DIRTY, &of, f64::from(second), 1e8);
    }
    for (at_s, percent) in [(0.2, "10"), (20.3, "40")] {
        let fields = [("name", "eviction_dirty_trigger"), ("after", percent)];
        let at = Moment::from_seconds(at_s);
        readings.events.push(Event::new(at, "wt", EventKind::Setting, "set", &fields));
    }
    let target = Target { name: "wt".to_owned(), kind: "wiredtiger".to_owned(), ..Target::default() };
    let (_, page) = drawn(&readings.window(Meta { targets: vec![target], ..Meta::default() }, 0.0, 30.0));
    let limit = lane(&page, queue(&page, "wt.dirty@wt").hard_limit);
    assert_eq!((limit[0], limit[19], limit[20], limit[29]), (1e8, 1e8, 4e8, 4e8));
    assert_eq!(lane(&page, queue(&page, "wt.dirty@wt").soft_limit), [5e7; 30], "what was not set stays");
}

#[test]
fn a_member_that_is_behind_has_its_own_place() {
    let found = common::mongo_plant::stalled().window();
    let (findings, page) = drawn(&found);
    assert!(!findings.is_empty());
    for finding in &findings {
        queue(&page, &finding.queue);
    }
}

/// Two clients of one server through a link that is full.
fn overloaded() -> Window {
    let mut readings = Readings::default();
    let link = [("target", "host"), ("if", "eth0")];
    for second in 0..=40 {
        let (at, sent) = (100.0 + f64::from(second), f64::from(second));
        readings.put(&cat::NET_SHAPER, &link, at, 25e6);
        readings.put(&cat::NET_SENT_BYTES, &link, at, sent * 24e6);
        readings.put(&cat::NET_BACKLOG, &link, at, 1e5);
        for (pid, share) in [("11", 21e6), ("12", 2e6)] {
            let peer = format!("10.0.0.{pid}:5000");
            let own = [("target", "lab"), ("pid", pid), ("local", "10.0.0.99:5432"), ("peer", peer.as_str())];
            readings.put(&cat::TCP_ACKED, &own, at, sent * share);
            readings.put(&cat::TCP_SENDQ, &own, at, share / 8.0);
        }
        readings.samples.push(session(at + 0.5, 11, "active", Some(("Client", "ClientWrite")), None));
    }
    readings.window(meta(), 100.0, 140.0)
}

#[test]
fn results_that_fill_a_link() {
    let page = binds(&overloaded(), "net-overload", "heavy-query", "host.net@eth0");
    let clients = queue(&page, "host.tcp@lab");
    assert!((most(&page, clients.level) - 23e6 / 8.0).abs() < 1e4, "both clients' queues together");
    assert!((most(&page, clients.outflow) - 23e6).abs() < 1e5);
    let link = queue(&page, "host.net@eth0");
    assert!((most(&page, link.outflow) - 24e6).abs() < 1e5 && link.inflow.is_none());
    assert!(linked(&page, "host.tcp@lab", "host.net@eth0"));
}

#[test]
fn a_standby_that_is_watched_alone_has_its_own_queues() {
    let alone = |word: &str| !word.contains("localhost:5432") && !word.contains("dev=7:0");
    let text = include_str!("../../diagnose/tests/runs/wal/replay-conflicting.txt");
    let (findings, page) = drawn(&recorded::window(text, alone));
    for finding in &findings {
        queue(&page, &finding.queue);
    }
    assert!(page.path.queues.iter().any(|queue| queue.name.starts_with("pg.wal.standby_replay@")));
}

#[test]
fn no_two_queues_stand_in_the_same_place() {
    let pages = [overloaded(), capped(Limit::Cgroup).window(), common::mongo_plant::stalled().window()];
    for window in pages {
        let (_, page) = drawn(&window);
        let mut places: Vec<(usize, usize)> = page.path.queues.iter().map(|queue| (queue.row, queue.step)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), page.path.queues.len());
    }
}

#[test]
fn every_queue_that_a_rule_may_name_has_words() {
    for rule in RULES {
        assert!(!rule.queues.is_empty(), "{}", rule.name);
        for kind in rule.queues {
            assert!(backwater_report::html::told_of(kind), "{} names {kind}", rule.name);
        }
    }
}

/// One page of each case, in an installed Chromium: web/test/path.test.mjs looks at the path there.
#[test]
fn the_path_of_each_case_is_drawn_in_a_browser() {
    const NAME: &str = "the_path_of_each_case_is_drawn_in_a_browser";
    let Some(web) = browser::web(NAME) else { return };
    let read = |text| recorded::window(text, |_| true);
    let pages = [
        ("stampede", counted(&capped(Limit::Device).window())),
        ("wal", read(include_str!("../../diagnose/tests/runs/wal/network-narrow.txt"))),
        ("commits", counted(&read(include_str!("../../diagnose/tests/runs/blind/small-batches.txt")))),
        ("engine", read(include_str!("../../diagnose/tests/runs/wt/direct-last-round.txt"))),
        ("replica-set", common::mongo_plant::stalled().window()),
        ("results", overloaded()),
    ];
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("paths");
    std::fs::create_dir_all(&dir).unwrap();
    let write = |(name, window): (&str, Window)| {
        let file = dir.join(format!("{name}.html"));
        std::fs::write(&file, html(&drawn(&window).1).unwrap()).unwrap();
        file.display().to_string()
    };
    let files = pages.map(write).join(":");
    let mut node = Command::new("node");
    node.args(["--test", "test/path.test.mjs"]).current_dir(web).env("BACKWATER_PATHS", files);
    let output = node.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
