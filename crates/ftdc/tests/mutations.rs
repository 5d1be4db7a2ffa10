//! Seeds changed at random, read in every way there is, for as long as is asked for: the fuzz target's work without a
//! fuzzer. `FTDC_FUZZ_SECONDS=600 cargo test --release -p ftdc --test mutations`; a second by default.
#![allow(clippy::unwrap_used)]

mod common;

use ftdc::{Builder, encode};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rand_like::Random;
use std::time::{Duration, Instant};

/// Numbers from proptest's own generator, so that no other is needed.
mod rand_like {
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    pub(crate) struct Random(pub(crate) TestRunner);

    impl Random {
        pub(crate) fn below(&mut self, most: usize) -> usize {
            (0..most.max(1)).new_tree(&mut self.0).map(|tree| tree.current()).unwrap_or(0)
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let lone = Builder::new().date("start", 0).int32("a", 1).finish();
    vec![
        common::file(0, 20, 4),
        encode::chunk(0, &lone, 2, 3, &[0, 5]),
        [encode::metadata_delta(0, 0, &lone), encode::metadata_delta(0, 1, &lone)].concat(),
        // Not compressed by much, so that flips reach the reference document and the deltas.
        stored(&lone),
        Vec::new(),
    ]
}

/// A chunk of two metrics and nine deltas.
fn stored(reference: &[u8]) -> Vec<u8> {
    let mut inside = reference.to_vec();
    inside.extend([2, 0, 0, 0, 9, 0, 0, 0]);
    inside.extend([1, 2, 0, 3, 0x80, 1, 0, 200, 1]);
    wrapped(&inside)
}

fn wrapped(inside: &[u8]) -> Vec<u8> {
    common::stored(inside, inside.len() as u16)
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let place = random.below(bytes.len() + 1);
        match random.below(5) {
            0 if place < bytes.len() => bytes[place] ^= 1 << random.below(8),
            1 if place < bytes.len() => bytes[place] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            2 => bytes.truncate(place),
            3 => bytes.insert(place, random.below(256) as u8),
            _ => {
                let end = (place + random.below(64)).min(bytes.len());
                let piece = bytes[place.min(end)..end].to_vec();
                bytes.extend(piece);
            }
        }
    }
}

#[test]
fn changed_seeds_never_panic() {
    let seconds = std::env::var("FTDC_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(seconds);
    // Another run takes other ways: the seed is the time, and is shown by the panic's message if there is one.
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let bytes: Vec<u8> = seed.to_le_bytes().into_iter().cycle().take(32).collect();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut random = Random(TestRunner::new_with_rng(Config::default(), rng));
    let seeds = seeds();
    let mut tried = 0u64;
    while Instant::now() < end {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        if random.below(2) == 0 && bytes == seeds[3] {
            let mut inside = bytes[bytes.len() - 60..].to_vec();
            mutate(&mut inside, &mut random);
            bytes = wrapped(&inside);
        } else {
            mutate(&mut bytes, &mut random);
        }
        let copy = bytes.clone();
        let outcome = std::panic::catch_unwind(|| common::exercise(&copy));
        assert!(outcome.is_ok(), "seed {seed}, bytes {bytes:?}");
        tried += 1;
    }
    assert!(tried > 0);
}
