//! Bytes that are wrong: nothing panics, nothing is allocated because a file says so, and what is whole is read.
#![allow(clippy::unwrap_used)]

mod common;

use common::{file, read, read_with};
use ftdc::{Builder, Damage, Limits, encode};
use proptest::prelude::*;

#[test]
fn a_file_cut_anywhere_gives_every_whole_chunk() {
    let whole = file(0, 30, 6);
    let all = read(&whole);
    assert_eq!((all.times.len(), all.faults.len()), (30, 0));
    for cut in 0..whole.len() {
        let part = read(&whole[..cut]);
        assert!(part.faults.len() <= 1, "cut at {cut}: {:?}", part.faults);
        assert_eq!(part.rows, all.rows[..part.rows.len()], "cut at {cut}");
        let lost: u64 = part.faults.iter().map(|fault| fault.lost_bytes).sum();
        assert!(part.documents > 0 || lost == cut as u64, "cut at {cut}");
    }
}

#[test]
fn a_chunk_that_does_not_inflate_costs_only_itself() {
    let whole = file(0, 30, 4);
    let all = read(&whole);
    // Somewhere in the compressed data of the third document (metadata, chunk, chunk).
    let starts: Vec<usize> = memchr::memmem::find_iter(&whole, b"\x09_id\0").map(|at| at - 4).collect();
    let mut bytes = whole;
    bytes[starts[2] + 200] ^= 0x55;
    let part = read(&bytes);
    assert_eq!((part.rows.len(), part.faults.len()), (all.rows.len() - 5, 1));
    assert_eq!(part.faults[0].offset, starts[2] as u64);
    assert!(matches!(part.faults[0].damage, Damage::Inflate(_)), "{}", part.faults[0]);
    assert_eq!(part.rows[..5], all.rows[..5]);
    assert_eq!(part.rows[5..], all.rows[10..]);
}

#[test]
fn counts_that_lie_are_refused_before_anything_is_allocated() {
    let reference = Builder::new().date("start", 0).int32("a", 1).finish();
    let of = |metrics, samples, deltas: &[u8]| read(&encode::chunk(0, &reference, metrics, samples, deltas));
    let damage = |read: common::Read| read.faults.into_iter().next().map(|fault| fault.damage);
    assert!(matches!(damage(of(3, 0, &[])), Some(Damage::MetricCount { claimed: 3, found: 2 })));
    assert!(matches!(damage(of(2, u32::MAX, &[0, 0])), Some(Damage::TooLarge { .. })));
    assert!(matches!(damage(of(2, 5, &[0, 3])), Some(Damage::Deltas { metric: 0, of: 2 })));
    assert!(matches!(damage(of(2, 5, &[0, 4, 1])), Some(Damage::Deltas { metric: 1, of: 2 })));
    let run = of(2, 5, &[0, 9]);
    assert_eq!((run.rows.len(), run.faults.len()), (6, 0));
    // A run of zeros longer than there is room for is what a recorder would never write, but harmless.
    assert_eq!(of(2, 5, &[0, 0xff, 0xff, 0x7f]).rows.len(), 6);
}

#[test]
fn an_inflated_length_that_lies_is_no_reason_to_allocate() {
    let reference = Builder::new().date("start", 0).finish();
    let whole = encode::chunk(0, &reference, 1, 0, &[]);
    let at = memchr::memmem::find(&whole, b"\x05data\0").unwrap() + 11;
    for (claimed, fine) in [(0u32, false), (5, false), (9_000_000, true), (u32::MAX, false)] {
        let mut bytes = whole.clone();
        bytes[at..at + 4].copy_from_slice(&claimed.to_le_bytes());
        assert_eq!(read(&bytes).faults.is_empty(), fine, "{claimed}");
    }
}

#[test]
fn limits_are_kept() {
    let whole = file(0, 30, 6);
    let default = Limits::default();
    for limits in [
        Limits { inflated_bytes: 100, ..default },
        Limits { metrics: 3, ..default },
        Limits { name_bytes: 10, ..default },
        Limits { values: 10, ..default },
        Limits { depth: 1, ..default },
    ] {
        let part = read_with(&whole, limits);
        assert!(part.rows.is_empty() && !part.faults.is_empty(), "{limits:?}");
    }
    let small = read_with(&whole, Limits { document_bytes: 100, ..default });
    assert_eq!(small.documents, 0);
}

#[test]
fn other_files_are_named_as_such() {
    for bytes in [&b"PK\x03\x04 this is a zip file"[..], b"{\"t\": 1}", &[0x7f; 5_000], b"\x05\0\0\0\0", b"abc"] {
        let part = read(bytes);
        assert_eq!((part.documents, part.faults.len()), (0, 1), "{bytes:?}");
        assert_eq!(part.faults[0].lost_bytes, bytes.len() as u64);
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let part = read(&bytes);
        let lost: u64 = part.faults.iter().map(|fault| fault.lost_bytes).sum();
        prop_assert!(lost <= bytes.len() as u64);
    }

    #[test]
    fn flipped_bits_lose_little(flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..6)) {
        let mut bytes = file(0, 60, 4);
        let all = read(&bytes);
        for (place, bit) in &flips {
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
        }
        let part = read(&bytes);
        // Each flip can cost its own chunk of five samples and, where it turned a length into that of two, the next.
        prop_assert!(part.rows.len() + 10 * flips.len() >= all.rows.len(), "{} of {}", part.rows.len(), all.rows.len());
    }

    #[test]
    fn pieces_cut_out_and_put_elsewhere_never_panic(
        from in any::<prop::sample::Index>(), length in 0..4_000usize, to in any::<prop::sample::Index>()
    ) {
        let mut bytes = file(0, 30, 4);
        let start = from.index(bytes.len());
        let end = (start + length).min(bytes.len());
        let piece: Vec<u8> = bytes.drain(start..end).collect();
        let place = to.index(bytes.len() + 1);
        bytes.splice(place..place, piece);
        read(&bytes);
    }
}
