//! Which runs are made, in which order, and how the dice fell for each: pure, and the same for the same seed.

use super::deed::{Deed, Stage};
use crate::scenario::ServerKind;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

/// How the dice fell for one run, each from 0 to 1. What they mean in figures follows from what the servers can do: see
/// `setup`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dice {
    /// How much load.
    pub load: f64,
    /// How hard it is hindered.
    pub hold: f64,
    /// The same, of a second limit.
    pub second: f64,
    /// How many clients.
    pub clients: f64,
    /// When, within the load, something happens.
    pub moment: f64,
    /// Between two ways of doing the same.
    pub choice: f64,
}

/// One run, as it was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Draw {
    /// Its place in the order of runs, from 1.
    pub number: usize,
    /// What is done.
    pub deed: Deed,
    /// How the dice fell.
    pub dice: Dice,
}

/// So many runs with a cause injected and so many healthy ones. Servers are made once for each stage, so stages come one
/// after the other in random order; within a stage causes and healthy runs are mixed at random.
pub fn draws(seed: u64, server: ServerKind, injected: usize, healthy: usize) -> Vec<Draw> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut deeds = deal(injected, Deed::deck(server, false), &mut rng);
    deeds.extend(deal(healthy, Deed::deck(server, true), &mut rng));
    deeds.shuffle(&mut rng);
    let mut stages = Stage::ALL;
    stages.shuffle(&mut rng);
    let place = |deed: &Deed| stages.iter().position(|stage| *stage == deed.stage());
    // A stable sort: within a stage the order stays random.
    deeds.sort_by_key(place);
    let draw = |(place, deed)| Draw { number: place + 1, deed, dice: throw(&mut rng) };
    deeds.into_iter().enumerate().map(draw).collect()
}

/// From a shuffled deck, and from another one when it is used up, so that every deed comes nearly as often as it should.
fn deal(count: usize, mut deck: Vec<Deed>, rng: &mut StdRng) -> Vec<Deed> {
    let mut dealt = Vec::new();
    while dealt.len() < count {
        deck.shuffle(rng);
        dealt.extend(&deck);
    }
    dealt.truncate(count);
    dealt
}

fn throw(rng: &mut StdRng) -> Dice {
    // Few enough digits to be the same when they are read back from the plan.
    let mut die = || f64::from(rng.random_range(0..1_000_000_u32)) / 1e6;
    Dice { load: die(), hold: die(), second: die(), clients: die(), moment: die(), choice: die() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forty_runs_try_every_cause_and_twenty_every_harmless_deed() {
        for server in [ServerKind::Postgres, ServerKind::WiredTiger] {
            let drawn = draws(7, server, 40, 20);
            assert!(drawn.iter().all(|draw| draw.deed.stage().server() == server));
            for deed in [false, true].into_iter().flat_map(|harmless| Deed::deck(server, harmless)) {
                assert!(drawn.iter().any(|draw| draw.deed == deed), "{deed:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_same_seed_draws_the_same_runs(seed: u64, injected in 0_usize..60, healthy in 0_usize..40) {
            let drawn = draws(seed, ServerKind::Postgres, injected, healthy);
            prop_assert_eq!(&drawn, &draws(seed, ServerKind::Postgres, injected, healthy));
            prop_assert_eq!(drawn.iter().filter(|draw| draw.deed.is_harmless()).count(), healthy);
            prop_assert_eq!(drawn.len(), injected + healthy);
            prop_assert!(drawn.iter().enumerate().all(|(place, draw)| draw.number == place + 1));
            // Each stage's servers are made once.
            let mut stages: Vec<Stage> = drawn.iter().map(|draw| draw.deed.stage()).collect();
            stages.dedup();
            let made = stages.len();
            stages.sort();
            stages.dedup();
            prop_assert_eq!(made, stages.len());
        }

        #[test]
        fn another_seed_draws_others(seed: u64) {
            prop_assert_ne!(draws(seed, ServerKind::Postgres, 40, 20), draws(seed.wrapping_add(1), ServerKind::Postgres, 40, 20));
        }
    }
}
