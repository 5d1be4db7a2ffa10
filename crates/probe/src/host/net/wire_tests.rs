//! Captured answers of a kernel (tests/fixtures/net), and made-up ones of another.

#![allow(clippy::unwrap_used)]

use super::super::shaper;
use super::*;
use crate::host::netlink::{Message, messages};
use proptest::prelude::*;

const LINKS: &[u8] = include_bytes!("../../../tests/fixtures/net/links.bin");
const QDISCS: &[u8] = include_bytes!("../../../tests/fixtures/net/qdiscs.bin");
const CLASSES: &[u8] = include_bytes!("../../../tests/fixtures/net/classes.bin");

fn bodies(datagrams: &[u8], wanted: u16) -> Vec<&[u8]> {
    let body = |message| match message {
        Message::Body(kind, body) if kind == wanted => Some(body),
        _ => None,
    };
    messages(datagrams, 7).filter_map(body).collect()
}

#[test]
fn captured_disciplines_have_their_backlog_drops_and_rate() {
    let links: Vec<_> = bodies(LINKS, LINK).into_iter().filter_map(link).collect();
    assert!(links.contains(&(3, "veth0".to_owned())) && links.contains(&(1, "lo".to_owned())), "{links:?}");
    let all: Vec<Discipline> = bodies(QDISCS, QDISC).into_iter().filter_map(discipline).collect();
    assert_eq!(all.len(), 5);
    let flooded = shaper::root(&all, 3).unwrap();
    assert_eq!((flooded.kind.as_str(), flooded.handle), ("tbf", 0x10000));
    assert_eq!((flooded.backlog_bytes, flooded.drops), (Some(1_204_070), Some(3_131)));
    let rate = |interface| shaper::rate_bytes_per_s(&all, &[], interface);
    assert_eq!(rate(3), Some(24_000_000 / 8));
    assert_eq!(rate(2), Some(80_000_000_000 / 8), "a rate of more than 32 bits");
    assert_eq!((rate(4), rate(5)), (None, None));
}

#[test]
fn captured_classes_give_the_root_classs_ceiling() {
    let disciplines: Vec<Discipline> = bodies(QDISCS, QDISC).into_iter().filter_map(discipline).collect();
    let classes: Vec<Class> = bodies(CLASSES, CLASS).into_iter().filter_map(class).collect();
    assert_eq!(classes.len(), 2);
    let leaf = classes.iter().find(|class| class.parent != ROOT).unwrap();
    assert_eq!(leaf.ceiling_bytes_per_s, Some(2_000_000 / 8));
    assert_eq!(shaper::rate_bytes_per_s(&disciplines, &classes, 5), Some(16_000_000 / 8));
}

#[test]
fn netem_has_a_rate_only_where_one_was_given() {
    let mut options = vec![0; NETEM_BYTES];
    assert_eq!(shaped("netem", &options), None);
    options.extend([20, 0, 6, 0]);
    options.extend(1_000_000u32.to_ne_bytes());
    options.extend([0; 12]);
    assert_eq!(shaped("netem", &options), Some(1_000_000));
    options.extend([12, 0, 8, 0]);
    options.extend(9_000_000_000u64.to_ne_bytes());
    assert_eq!(shaped("netem", &options), Some(9_000_000_000));
    assert_eq!((shaped("netem", &[]), shaped("tbf", &[]), shaped("fq", &options)), (None, None, None));
}

#[test]
fn requests_name_the_interface_and_want_no_counters() {
    assert_eq!(traffic_request(5)[4..8], 5i32.to_ne_bytes());
    assert_eq!((traffic_request(0).len(), links_request().len()), (TRAFFIC_BYTES, LINK_BYTES + 8));
}

fn read_all(body: &[u8]) {
    link(body);
    discipline(body);
    class(body);
    for kind in ["tbf", "netem"] {
        shaped(kind, body);
    }
    htb_ceiling(body);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        read_all(&bytes);
    }

    #[test]
    fn captured_bytes_cut_or_changed_anywhere_do_not_make_it_panic(
        which in 0usize..3, place in any::<prop::sample::Index>(), value: u8, end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = [LINKS, QDISCS, CLASSES][which].to_vec();
        let changed = place.index(bytes.len());
        bytes[changed] = value;
        bytes.truncate(end.index(bytes.len()) + 1);
        for kind in [LINK, QDISC, CLASS] {
            bodies(&bytes, kind).into_iter().for_each(read_all);
        }
    }
}
