//! What holds of every throw of the dice for the engine.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::blind::deed::Stage;
use crate::blind::setup::resolve;
use crate::blind::stage::scenario;
use crate::scenario::ServerKind;
use proptest::prelude::*;

fn setups(harmless: bool) -> impl Strategy<Value = (Deed, Setup, Capacity)> {
    setups_of(Deed::deck(ServerKind::WiredTiger, harmless))
}

fn setups_of(deeds: Vec<Deed>) -> impl Strategy<Value = (Deed, Setup, Capacity)> {
    let (deeds, die) = (prop::sample::select(deeds), || 0.0..1.0_f64);
    let dice = (die(), die(), die(), die(), die());
    let capacities = (2e3..5e4, 1.2e3..4e3, 1e5..1e8, 1e5..1e8);
    (deeds, dice, capacities).prop_map(|(deed, dice, (operations_per_s, operation_bytes, journal, data))| {
        let (load, hold, second, clients, moment) = dice;
        let dice = Dice { load, hold, second, clients, moment, choice: 0.5 };
        let (journal_bytes_per_s, data_bytes_per_s) = (journal, data);
        let measured = Capacity { operations_per_s, operation_bytes, ..Capacity::default() };
        let capacity = Capacity { journal_bytes_per_s, data_bytes_per_s, ..measured };
        let part = scenario(Stage::Engine).unwrap().load;
        (deed, resolve(&Draw { number: 1, deed, dice }, &capacity, &part, 26.0), capacity)
    })
}

/// Whose cap is reached by bursts alone.
const BURSTS: [Deed; 2] = [Deed::EngineCheckpoint, Deed::EngineCacheOversized];

fn need(setup: &Setup, capacity: &Capacity) -> f64 {
    setup.asked_per_s * capacity.operation_bytes
}

proptest! {
    #[test]
    fn between_bursts_the_journal_has_room((deed, setup, capacity) in setups_of(BURSTS.to_vec())) {
        let cap = setup.arm.write_bytes_per_s.unwrap().0 as f64 + 1.0;
        let (journal, data) = (capacity.journal_bytes_per_s, capacity.data_bytes_per_s);
        let most = if deed == Deed::EngineCacheOversized { LONG_JOURNAL_TO } else { JOURNAL_TO };
        prop_assert!(journal <= most * cap && journal + data <= MEAN_TO * cap);
    }

    #[test]
    fn a_limit_that_is_to_bind_lies_below_what_a_burst_needs((deed, setup, capacity) in setups(false)) {
        prop_assume!(!BURSTS.contains(&deed));
        prop_assert!(setup.asked_per_s <= 0.65 * capacity.operations_per_s + 1e-9);
        let cap = setup.arm.write_bytes_per_s.map(|bytes| bytes.0 as f64 / need(&setup, &capacity));
        let most = match deed {
            Deed::EngineCapped => 0.65 * JOURNAL,
            Deed::EngineDirtyLimit => 0.8,
            Deed::EngineExpiry => {
                LOGGED_TO * (f64::from(setup.load.engine.document_bytes) + LOGGED_BYTES) / capacity.operation_bytes
            }
            Deed::EngineSlowMember => {
                let [from, to] = setup.load.engine.majority_stands_s.unwrap();
                prop_assert!(from >= STANDS_FROM * 26.0 && from + 15.0 <= 26.0 && to > 26.0 && setup.load.engine.replicated);
                // Nothing else binds.
                prop_assert!(cap.unwrap() + 0.1 >= FREE_FROM);
                return Ok(());
            }
            Deed::EngineHeldSnapshot => {
                prop_assert!(setup.load.engine.hold_snapshot && setup.load.seconds >= HELD_S);
                prop_assert!(cap.unwrap() + 0.1 >= FREE_FROM);
                return Ok(());
            }
            Deed::EngineThreads => { prop_assert!(cap.is_none() && setup.load.engine.thread_per_operation); return Ok(()); }
            _ => 2.0,
        };
        prop_assert!(cap.unwrap() <= most + 1e-9 || setup.arm.write_bytes_per_s.unwrap().0 == 256 << 10, "{cap:?}");
        prop_assert_eq!(deed == Deed::EngineDirtyLimit, setup.dirty_limit_bytes.is_some());
    }

    #[test]
    fn nothing_binds_in_a_healthy_run((deed, setup, capacity) in setups(true)) {
        let cap = setup.arm.write_bytes_per_s.unwrap().0 as f64;
        prop_assert!(cap + 1.0 >= FREE_FROM * need(&setup, &capacity), "{deed:?}");
        prop_assert!(setup.dirty_limit_bytes.is_none() && setup.asked_per_s <= (0.2 * capacity.operations_per_s).max(60.0));
        prop_assert!(!setup.arm.settings.contains_key("cache_size") && !setup.load.engine.hold_snapshot);
    }

    #[test]
    fn a_held_snapshot_fills_the_cache_before_the_run_and_a_checkpoint_end((_, setup, _) in setups_of(vec![Deed::EngineHeldSnapshot])) {
        let settings = &setup.arm.settings;
        let mib: f64 = settings["cache_size"].trim_end_matches("MB").parse().unwrap();
        let dirtied = setup.asked_per_s * (f64::from(setup.load.engine.document_bytes) + ENTRY_BYTES);
        // The smallest cache fills at once.
        let full_s = 0.2 * mib * f64::from(1 << 20) / dirtied;
        prop_assert!(full_s <= HELD_ROOM_TO * setup.load.seconds || mib == 16.0, "{full_s}");
        prop_assert!(settings["checkpoint"].starts_with("(wait=80,"), "{}", settings["checkpoint"]);
    }

    #[test]
    fn a_short_snapshot_is_let_go_after_seconds((_, setup, _) in setups_of(vec![Deed::EngineShortSnapshot])) {
        let calm = setup.calm.unwrap();
        prop_assert!(calm.engine.hold_snapshot && (SHORT_FROM_S..=SHORT_TO_S).contains(&calm.seconds));
        prop_assert_eq!((calm.seconds + setup.load.seconds).round(), 26.0);
    }

    #[test]
    fn a_run_lasts_as_long_as_any_other_or_as_several_checkpoints((deed, setup, _) in setups(false)) {
        let calm_s = setup.calm.as_ref().map_or(0.0, |calm| calm.seconds);
        let seconds = setup.load.seconds + calm_s;
        let most = match deed {
            Deed::EngineCacheOversized => BURSTS_SEEN * 2.0 * 1.3 * LONG_WAIT_S,
            Deed::EngineHeldSnapshot => HELD_S,
            _ => 26.0,
        };
        prop_assert!((26.0..=most).contains(&seconds), "{seconds}");
        prop_assert_eq!(setup.arm.name.as_str(), "run");
    }
}
