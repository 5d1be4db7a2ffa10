//! Advice about WiredTiger from planted series: settings that follow from the queue's own figures, and none where the figures
//! do not say.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{EngineAdvice, EngineOptions, advise_engines};
use backwater_model::catalogue as cat;
use backwater_model::{Remedy, Window};
use common::mongo_plant::{GIB, Plant, SECONDS, T, bursting, count, draining, healthy, oversized, standing, trouble};
use std::sync::Arc;

/// Settings that move a level at which threads must evict, or where eviction begins below it.
const MOVES_A_TRIGGER: [&str; 4] =
    ["eviction_dirty_target", "eviction_dirty_trigger", "eviction_updates_trigger", "cache_size"];

/// What is advised to the one server. Whatever a setting does, it says what becomes of the burst and its drain; one that moves a
/// trigger also how long until threads must evict, or that is said not to be known.
fn advised(plant: &Plant) -> EngineAdvice {
    let advice = advise_engines(&plant.window(), &EngineOptions::default()).remove(0);
    for (remedy, change) in advice.remedies.iter().zip(&advice.changes) {
        for name in ["burst_bytes", "burst_now_bytes", "drain_s", "drain_now_s"] {
            assert!(predicted(remedy, name).is_some_and(|value| value > 0.0), "{name} of {change:?}: {remedy:?}");
        }
        let moves = change.settings.keys().any(|name| MOVES_A_TRIGGER.contains(&name.as_str()));
        let told = ["to_trigger_s", "to_trigger_now_s"].map(|name| predicted(remedy, name));
        let why = advice.notes.iter().any(|note| note.contains("must evict") && note.contains("is not told"));
        assert!(!moves || why || told.iter().all(Option::is_some), "{change:?}: {remedy:?} {:?}", advice.notes);
    }
    advice
}

fn predicted(remedy: &Remedy, name: &str) -> Option<f64> {
    remedy.predicted.iter().find(|figure| figure.name == name).map(|figure| figure.value)
}

#[test]
fn advice_makes_the_burst_what_the_disk_takes_in_time() {
    let advice = advised(&oversized());
    let seen = |name: &str| advice.observed.iter().find(|figure| figure.name == name).unwrap().value;
    assert!((seen("drain_bytes_per_s") / 1_048_576.0 - 10.0).abs() < 0.5, "{advice:?}");
    assert!((4.0..6.0).contains(&seen("drain_s")));
    let eviction = &advice.remedies[0];
    // Half a second of 10 MiB/s would be 5 MiB: no less than a percent of the cache.
    assert!(
        eviction.runtime[0].contains("wiredTigerEngineRuntimeConfig: \"eviction_dirty_target=10MB\""),
        "{eviction:?}"
    );
    assert!(eviction.undo[0].contains("eviction_dirty_target=5\""), "{eviction:?}");
    let set = Plant { settings: "eviction_dirty_target=51MB", ..oversized() };
    let back = &advised(&set).remedies[0].undo[0];
    assert!(back.contains("eviction_dirty_target=51MB"), "as it was configured: {back}");
    let after = |name: &str| predicted(eviction, name).unwrap();
    assert!((after("drain_s") - 1.0).abs() < 0.1 && after("drain_now_s") > 4.0, "{eviction:?}");
    let titles: Vec<&str> = advice.remedies.iter().map(|remedy| remedy.title.as_str()).collect();
    assert!(titles.iter().all(|title| title.contains("relieves")), "{titles:?}");
}

#[test]
fn compressed_pages_are_what_the_disk_takes_of_the_cache() {
    let packed = advised(&Plant { packed: 2.0, ..oversized() });
    let seen = |name: &str| packed.observed.iter().find(|figure| figure.name == name).map(|figure| figure.value);
    assert!((seen("packed_ratio").unwrap() - 2.0).abs() < 0.1, "{packed:?}");
    assert!((seen("drain_bytes_per_s").unwrap() / 1_048_576.0 - 10.0).abs() < 0.5, "{packed:?}");
    assert!((2.0..3.0).contains(&seen("drain_s").unwrap()), "{packed:?}");
    assert!(!advised(&oversized()).observed.iter().any(|figure| figure.name == "packed_ratio"));
}

#[test]
fn checkpoints_too_short_to_be_seen_are_counted() {
    // A minute apart, each of milliseconds; readings a second apart saw two of them.
    let short = Plant { checkpoint: |s| s == 60 || s == 180, ..oversized() };
    let advised = |counted: bool| {
        let mut readings = short.readings();
        if counted {
            count(&mut readings, &cat::WT_CHECKPOINTS, &[T], |s| if s % 60 == 59 { 1.0 } else { 0.0 });
        }
        let window = readings.window(short.meta(), 1_000.0, 1_000.0 + SECONDS as f64);
        advise_engines(&window, &EngineOptions::default()).remove(0)
    };
    let of = |advice: &EngineAdvice, name: &str| advice.observed.iter().find(|f| f.name == name).map(|f| f.value);
    let advice = advised(true);
    assert!((of(&advice, "checkpoint_interval_s").unwrap() - 60.0).abs() < 2.0, "{advice:?}");
    // The third was not seen to run, and what stood before it counts all the same.
    assert!((of(&advice, "burst_bytes").unwrap() / 1_048_576.0 - 50.0).abs() < 3.0, "{advice:?}");
    assert_eq!(of(&advised(false), "checkpoint_interval_s"), None, "who knows how many were missed");
}

#[test]
fn the_burst_follows_the_time_that_the_disk_may_take() {
    let options = EngineOptions { burst_target_s: 2.0, ..EngineOptions::default() };
    let advice = advise_engines(&oversized().window(), &options).remove(0);
    let eviction = &advice.remedies[0];
    // Two seconds of 10 MiB/s.
    assert!(eviction.runtime[0].contains("eviction_dirty_target=20MB"), "{eviction:?}");
    assert!((predicted(eviction, "drain_s").unwrap() - 2.0).abs() < 0.2, "{eviction:?}");
}

#[test]
fn a_cache_that_starves_the_page_cache_is_to_be_smaller() {
    let starved = Plant { memory_left: |_| 0.05, faults: |_| 900.0, ..bursting() };
    let smaller = |plant: &Plant| {
        let advice = advise_engines(&plant.window(), &EngineOptions::default()).remove(0);
        advice.remedies.into_iter().find(|remedy| remedy.title.starts_with("Let the cache take"))
    };
    let remedy = smaller(&starved).unwrap();
    // Half of the memory less a GiB: of 1.5 GiB a quarter.
    assert!(remedy.runtime[0].contains("cache_size=256MB"), "{remedy:?}");
    assert!(remedy.persistent[0].contains("cacheSizeGB: 0.25"), "{remedy:?}");
    assert!(remedy.undo[0].contains("cache_size=1024MB"), "{remedy:?}");
    let of = |name: &str| predicted(&remedy, name).unwrap();
    assert_eq!((of("cache_max_bytes"), of("dirty_trigger_bytes")), (GIB / 4.0, GIB / 20.0));
    // Eviction begins at a quarter of what it did: less stands when a checkpoint begins, and is written sooner.
    assert!(of("burst_bytes") < of("burst_now_bytes") && of("drain_s") < of("drain_now_s"), "{remedy:?}");
    assert!(smaller(&Plant { faults: |_| 1.0, ..starved }).is_none(), "memory in use that nobody misses");
}

#[test]
fn without_the_release_nothing_is_advised_that_an_old_one_refuses() {
    let mut window = oversized().window();
    let targets = &mut Arc::make_mut(&mut window.meta).targets;
    targets.iter_mut().for_each(|target| target.version_num = None);
    let advice = advise_engines(&window, &EngineOptions::default()).remove(0);
    let line = &advice.remedies[0].runtime[0];
    assert!(line.contains("wiredTigerEngineRuntimeConfig: \"eviction_dirty_target=1\""), "percents, not bytes: {line}");
    assert!(advice.notes.iter().any(|note| note.starts_with("Which release this is, is not known")), "{advice:?}");
    assert!(!advised(&oversized()).notes.iter().any(|note| note.contains("is not known")));
}

#[test]
fn advice_gives_stalled_threads_room_unless_the_disk_cannot_keep_up() {
    // Dirty pages come to the trigger of 205 MiB while the disk, always busy then, writes 80 MiB a second.
    let stalled = draining();
    let advice = advised(&stalled);
    // Were nobody held, 210 MiB and a quarter of a GiB more would stand: more than the bound of two fifths of the cache.
    let trigger =
        advice.remedies.iter().find(|remedy| remedy.runtime[0].contains("eviction_dirty_trigger=40")).unwrap();
    let change = advice.changes.iter().find(|change| change.settings.contains_key("eviction_dirty_trigger")).unwrap();
    assert_eq!((change.relieves.as_str(), change.dirty_limit_bytes), ("wt.dirty@m", None));
    assert_eq!(change.settings["eviction_dirty_trigger"], "40");
    assert_eq!(change.settings["eviction_dirty_target"], "40MB");
    assert!(trigger.undo[0].contains("eviction_dirty_trigger=20"), "{trigger:?}");
    // A stall of five seconds asks for less than the bound.
    fn briefly(s: usize) -> bool {
        (100..105).contains(&s)
    }
    let short = Plant {
        dirty: |s| if briefly(s) { 0.205 } else { 0.04 },
        waiting: |s| if briefly(s) { 12.0 } else { 0.0 },
        ..stalled
    };
    let raised =
        advised(&short).changes.into_iter().find_map(|mut change| change.settings.remove("eviction_dirty_trigger"));
    let percent: f64 = raised.unwrap().parse().unwrap();
    assert!((25.0..40.0).contains(&percent), "{percent}");
    let behind = Plant {
        dirty: |s| 0.001 * s as f64,
        busy: |_| 1.0,
        disk_mib: |_| 10.0,
        waiting: |s| if s > 195 { 9.0 } else { 0.0 },
        ..short
    };
    let advice = advised(&behind);
    assert!(advice.notes.iter().any(|note| note.contains("faster disk")), "{advice:?}");
    assert!(!advice.remedies.iter().any(|remedy| remedy.runtime[0].contains("dirty_trigger=")), "{advice:?}");
}

#[test]
fn a_cache_that_reads_back_what_it_evicts_is_to_be_larger() {
    let thrashing = || Plant {
        read_mib: |s| if trouble(s) { 20.0 } else { 0.0 },
        memory_gib: 8.0,
        memory_left: |_| 0.8,
        ..draining()
    };
    let no_larger =
        |plant: Plant| advised(&plant).changes.iter().all(|change| !change.settings.contains_key("cache_size"));
    // A stall of five seconds would leave less standing than a trigger gives room for.
    fn brief(s: usize) -> bool {
        (100..105).contains(&s)
    }
    let short = || Plant {
        dirty: |s| if brief(s) { 0.205 } else { 0.04 },
        waiting: |s| if brief(s) { 12.0 } else { 0.0 },
        ..thrashing()
    };
    let megabytes = |plant: &Plant| -> f64 {
        advised(plant).changes[0].settings["cache_size"].trim_end_matches("MB").parse().unwrap()
    };
    // 0.8 GiB in use and 40 times 20 MiB read, and a fifth of the cache free, as eviction leaves it.
    assert!((megabytes(&short()) - (0.8 * 1_024.0 + 800.0) / 0.8).abs() < 30.0);
    // 436 MiB would stand in the long stall: a fifth more, under a trigger of a fifth of the cache.
    assert!((megabytes(&thrashing()) - 436.0 * 1.2 / 0.2).abs() < 30.0);
    let remedy = &advised(&thrashing()).remedies[0];
    let of = |name: &str| predicted(remedy, name).unwrap();
    // 436 MiB, and as much more as eviction begins later in two and a half times the cache; and it takes longer to the trigger.
    assert!(
        (of("burst_bytes") / 1_048_576.0 - 515.0).abs() < 1.0 && of("burst_now_bytes") < of("burst_bytes"),
        "{remedy:?}"
    );
    assert!(of("to_trigger_s") > 2.0 * of("to_trigger_now_s"), "{remedy:?}");
    assert!(no_larger(Plant { read_mib: |_| 0.0, ..short() }), "nothing is read back");
    assert!(no_larger(Plant { used: |_| 0.5, ..short() }), "the cache has room");
    assert!(!no_larger(Plant { read_mib: |_| 0.0, ..thrashing() }), "more would stand than a trigger leaves room for");
    assert!(no_larger(Plant { memory_gib: 1.5, ..short() }), "no memory for it");
    let well = Plant { waiting: |_| 0.0, ..thrashing() };
    assert!(no_larger(well), "nobody waits");
}

#[test]
fn a_disk_that_was_never_full_gives_no_figures_to_advise_from() {
    let advice = advised(&healthy());
    assert!(advice.remedies.is_empty() && advice.notes[0].contains("record while it falls behind"), "{advice:?}");
    assert!(advise_engines(&Window::default(), &EngineOptions::default()).is_empty());
}

#[test]
fn updates_get_room_up_to_the_limit_of_all_that_is_dirty() {
    let held = || Plant {
        dirty: |s| if trouble(s) { 0.16 } else { 0.04 },
        updates: |s| if trouble(s) { 0.102 } else { 0.02 },
        ..draining()
    };
    let change = |plant: &Plant| {
        advised(plant).changes.into_iter().find_map(|mut change| change.settings.remove("eviction_updates_trigger"))
    };
    // A tenth of 1 GiB was the limit, which holds updates there, and a fifth of it is that of all that is dirty.
    assert_eq!(change(&held()).as_deref(), Some("204MB"));
    let undo = |plant: &Plant| {
        let list = advised(plant).remedies;
        list.into_iter()
            .find_map(|remedy| remedy.undo.into_iter().find(|line| line.contains("updates_trigger")))
            .unwrap()
    };
    assert!(undo(&held()).contains("eviction_updates_trigger=0\""), "unset it follows the other: {}", undo(&held()));
    let set = |settings: &'static str| Plant { settings, updates: |s| if trouble(s) { 0.128 } else { 0.02 }, ..held() };
    assert!(undo(&set("eviction_updates_trigger=128MB")).contains("eviction_updates_trigger=128MB"));
    // They came from 0.02 to 0.102 GiB in a second, which is told as a mean over five; eviction of updates begins at 0.025 GiB.
    let time = |plant: &Plant| {
        let list = advised(plant).remedies;
        let of =
            |name| list.iter().find(|one| one.title.contains("updates later")).and_then(|one| predicted(one, name));
        (of("to_trigger_now_s"), of("to_trigger_s"))
    };
    let (now, then) = time(&held());
    let seconds = |limit: f64| (limit - 0.02) / (0.082 / 5.0);
    assert!((now.unwrap() - seconds(0.1)).abs() < 0.1 && (then.unwrap() - seconds(204.0 / 1_024.0)).abs() < 0.1);
    let always = Plant { updates: |_| 0.102, ..held() };
    assert_eq!((change(&always).as_deref(), time(&always)), (Some("204MB"), (None, None)), "nobody saw them rise");
    let high = Plant { updates: |s| if trouble(s) { 0.18 } else { 0.02 }, ..set("eviction_updates_trigger=18") };
    assert_eq!(change(&high), None, "there is hardly any room left");
}

#[test]
fn nothing_is_reckoned_for_the_cache_from_a_device_that_stood_still() {
    let advice = advised(&standing());
    assert!(advice.changes.is_empty() && !advice.at_ease, "{advice:?}");
    assert!(advice.notes[0].contains("never seen to write all it can"), "{advice:?}");
    assert_eq!(advice.remedies.len(), 1, "{advice:?}");
    assert!(advice.remedies[0].runtime[0].contains("dmesg"), "{advice:?}");
}

#[test]
fn a_short_oplog_is_advised_the_size_for_the_time_away() {
    let short = Plant { oplog_s: |_| 2_000.0, ..healthy() };
    let advice = advised(&short);
    // 10 GiB cover 2,000 s; an hour and a fifth takes 2.16 times that.
    assert!(advice.remedies[0].runtime[0].contains("replSetResizeOplog: 1, size: Double(22119)"), "{advice:?}");
}

#[test]
fn an_oplog_that_is_no_finding_is_advised_the_size_for_a_longer_time_away() {
    let of = |plant: &Plant, survive_s: f64| {
        let advice = advise_engines(&plant.window(), &EngineOptions { survive_s, ..EngineOptions::default() });
        let lines = advice[0].remedies.iter().flat_map(|remedy| remedy.runtime.clone());
        lines.filter(|line| line.contains("replSetResizeOplog")).collect::<Vec<_>>()
    };
    let covers = Plant { oplog_s: |_| 7_200.0, ..healthy() };
    assert_eq!(of(&covers, 3_600.0), [""; 0], "two hours are enough for one");
    // 10 GiB cover two hours; four take 2.4 times that with some room.
    let four = of(&covers, 14_400.0);
    assert!(four.len() == 1 && four[0].contains("size: Double(24576)"), "{four:?}");
    assert_eq!(of(&Plant { oplog_full: 0.5, ..covers }, 14_400.0), [""; 0], "it covers more each second");
}

/// As recorded of a disk that serves many requests at once: it is as busy with the journal's few as with a checkpoint.
#[test]
fn what_a_disk_does_while_it_is_busy_with_little_is_not_all_that_it_can_do() {
    let little = Plant { busy: |_| 1.0, disk_mib: |s| if s % 60 < 8 { 40.0 } else { 0.05 }, ..bursting() };
    let advice = advised(&little);
    let drain = advice.observed.iter().find(|figure| figure.name == "drain_bytes_per_s").unwrap();
    assert!((drain.value / 1_048_576.0 - 40.0).abs() < 2.0, "{drain:?}");
}

/// As recorded every ten seconds: the count steps once a minute.
#[test]
fn the_interval_of_checkpoints_is_the_servers_own_however_seldom_it_is_read() {
    let mut readings = bursting().readings();
    readings.forget(cat::WT_CHECKPOINT_RUNNING.name);
    for second in (0..=SECONDS).step_by(10) {
        readings.put(&cat::WT_CHECKPOINTS, &[T], 1_000.0 + second as f64, (second / 60) as f64);
    }
    let window = readings.window(bursting().meta(), 1_000.0, 1_000.0 + SECONDS as f64);
    let advice = advise_engines(&window, &EngineOptions::default()).remove(0);
    let interval = advice.observed.iter().find(|figure| figure.name == "checkpoint_interval_s").unwrap();
    assert_eq!(interval.value, 60.0, "{advice:?}");
}
