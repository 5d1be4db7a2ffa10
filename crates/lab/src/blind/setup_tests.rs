//! What holds of every throw of the dice.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::blind::deed::Deed;
use crate::scenario::{Scenario, ServerKind};
use proptest::prelude::*;

fn capacities() -> impl Strategy<Value = Capacity> {
    let figures = (1e6..2e7, 0.05..0.6, 100.0..4e3, 4e6..3e8, 100.0..1e4, 2e-6..1e-4, 2e-4..2e-2);
    figures.prop_map(|(call_bytes, call_s, tps, dirtied_bytes_per_s, writes_per_s, row_s, commit_s)| Capacity {
        call_bytes,
        call_s,
        tps,
        dirtied_bytes_per_s,
        writes_per_s,
        row_s,
        commit_s,
        ..Capacity::default()
    })
}

fn dice() -> impl Strategy<Value = Dice> {
    let die = || 0.0..1.0_f64;
    (die(), die(), die(), die(), die(), die()).prop_map(|(load, hold, second, clients, moment, choice)| Dice {
        load,
        hold,
        second,
        clients,
        moment,
        choice,
    })
}

fn deeds(harmless: bool) -> impl Strategy<Value = Deed> {
    prop::sample::select(Deed::deck(ServerKind::Postgres, harmless))
}

fn setup(deed: Deed, dice: Dice, capacity: &Capacity, seconds: f64) -> Setup {
    let part = Scenario::load("wal-lag").unwrap().load;
    resolve(&Draw { number: 1, deed, dice }, capacity, &part, seconds)
}

fn commit_share(setup: &Setup, capacity: &Capacity) -> f64 {
    let commit_s = capacity.commit_s + 2e-3 * setup.arm.standby.delay_ms.unwrap_or(0.0);
    commit_s / (commit_s + capacity.row_s * setup.load.batches.rows_per_commit as f64)
}

/// Every cap on bytes or packets, in bytes a second.
fn byte_limits(arm: &Arm) -> Vec<f64> {
    let own = [arm.write_bytes_per_s, arm.read_bytes_per_s, arm.device_bytes_per_s];
    let limits = [arm.standby.write_bytes_per_s, arm.network.bytes_per_s];
    own.iter().chain(&limits).flatten().map(|limit| limit.0 as f64).collect()
}

proptest! {
    #[test]
    fn an_injected_cause_always_binds(deed in deeds(false), dice in dice(), capacity in capacities(), seconds in 15.0..60.0) {
        let setup = setup(deed, dice, &capacity, seconds);
        let hindered = setup.arm.standby.replay.is_some() || setup.arm.standby.away || setup.slot_left;
        let bytes = byte_limits(&setup.arm);
        match deed {
            Deed::PrimaryCapped
            | Deed::StandbyCapped
            | Deed::BothCapped
            | Deed::NetworkNarrow
            | Deed::PrimarySlow
            | Deed::WalsenderReading => {
                prop_assert_eq!(bytes.len(), if deed == Deed::BothCapped { 2 } else { 1 });
                // The least that a limit can be set to binds at any load that is ever asked for.
                let floor = f64::from(256 << 10);
                prop_assert!(bytes.iter().all(|limit| *limit <= (BINDS_AT * setup.wal_bytes_per_s).max(floor)));
                prop_assert!(bytes.iter().all(|limit| *limit <= 0.7 * setup.wal_bytes_per_s));
                prop_assert!(setup.arm.standby.returns_after.is_none_or(|made| made.0 as f64 <= MOST_STANDING));
            }
            Deed::ReplayStarved => {
                prop_assert!(setup.arm.standby.replay_processor.is_some());
                prop_assert!(setup.wal_bytes_per_s * seconds <= 1.001 * MOST_STANDING);
            }
            Deed::SyncStandbyCapped => prop_assert!(setup.arm.standby.write_iops.unwrap() <= 26),
            Deed::DirtyLimit => {
                let outflow = setup.arm.write_iops.unwrap() as f64 * PAGE_BYTES;
                let inflow = capacity.dirtied_bytes_per_s;
                prop_assert!(outflow <= 0.31 * inflow || setup.arm.write_iops == Some(50));
                let filled_s = setup.dirty_limit_bytes.unwrap() as f64 / (inflow - outflow);
                prop_assert!(filled_s <= seconds / 2.5 || setup.dirty_limit_bytes == Some(32 << 20));
            }
            Deed::WritesCapped => {
                prop_assert!(setup.arm.write_iops.unwrap() as f64 <= 0.36 * capacity.writes_per_s);
            }
            // A row a commit is the smallest batch there is: where even that does not bind, acceptance says so.
            Deed::SmallBatches | Deed::SmallBatchesFar => prop_assert!(
                commit_share(&setup, &capacity) >= COMMITS_BIND_FROM - 1e-9 || setup.load.batches.rows_per_commit == 1
            ),
            _ => prop_assert!(hindered),
        }
    }

    #[test]
    fn nothing_binds_in_a_healthy_run(deed in deeds(true), dice in dice(), capacity in capacities(), seconds in 15.0..60.0) {
        let setup = setup(deed, dice, &capacity, seconds);
        let arm = &setup.arm;
        prop_assert!(arm.write_iops.is_none() && arm.standby.write_iops.is_none());
        prop_assert!(setup.dirty_limit_bytes.is_none() && !setup.slot_left);
        prop_assert!(arm.standby.replay.is_none() && !arm.standby.away);
        // A byte less where a limit is rounded down.
        prop_assert!(byte_limits(arm).iter().all(|limit| *limit + 1.0 >= FREE_FROM * setup.wal_bytes_per_s));
        match setup.load.kind {
            LoadKind::CommitBatches => prop_assert!(commit_share(&setup, &capacity) <= COMMITS_FREE_BELOW + 1e-9),
            LoadKind::WalStorm => prop_assert!(setup.asked_per_s * capacity.call_s <= 0.5 + 1e-9),
            _ => prop_assert!(setup.load.rate_per_s.unwrap() <= (0.2 * capacity.tps).max(0.5)),
        }
        if let Some((_, at_s)) = setup.happening {
            prop_assert!(0.2 * seconds <= at_s && at_s <= 0.65 * seconds);
        }
    }

    #[test]
    fn no_run_says_by_its_name_what_it_is(deed in deeds(false), healthy in deeds(true), dice in dice(), capacity in capacities()) {
        prop_assert_eq!(setup(deed, dice, &capacity, 24.0).arm.name, setup(healthy, dice, &capacity, 24.0).arm.name);
    }
}
