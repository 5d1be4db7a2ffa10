//! Whatever the readings, nothing panics and no figure is infinite: recordings come from broken hosts too.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{AdviseOptions, Options, advise, compare, drain, drain_time, throughput, time_to_cliff, warn};
use backwater_model::catalogue::{self, Def};
use backwater_model::{Meta, Moment, Window};
use common::judged::diagnose;
use common::{Readings, meta, session};
use proptest::collection::vec;
use proptest::prelude::*;

/// Readings of any series at any time, with values that are often the same few.
fn readings() -> impl Strategy<Value = Vec<(usize, f64, f64)>> {
    let value = prop_oneof![Just(0.0), Just(1.0), Just(1500.0), -1e3..1e12_f64, Just(u64::MAX as f64), Just(f64::MAX)];
    vec((0..catalogue::ALL.len(), 0.0..30.0_f64, value), 0..400)
}

/// A few series that are read every second: what a rule needs, without what usually comes with it.
fn few() -> impl Strategy<Value = Vec<(usize, f64, f64)>> {
    let slope = prop_oneof![Just(0.0), Just(1.0), 0.0..1e9_f64];
    let base = prop_oneof![Just(0.0), Just(1.0), 0.0..1e12_f64];
    vec((0..catalogue::ALL.len(), base, slope), 1..12).prop_map(|series| {
        let of_one = |(series, base, slope): (usize, f64, f64)| {
            (0..30).map(move |second| (series, f64::from(second), base + slope * f64::from(second)))
        };
        series.into_iter().flat_map(of_one).collect()
    })
}

fn label(def: &Def) -> Vec<(&'static str, &'static str)> {
    let value = |name: &str| match name {
        "dev" => "7:0",
        "cgroup" => "host",
        "op" => "write",
        "target" => "lab",
        _ => "x",
    };
    def.labels.iter().map(|name| (*name, value(name))).collect()
}

fn window(list: &[(usize, f64, f64)], waits: &[(f64, usize)], meta: Meta) -> Window {
    let mut readings = Readings::default();
    for (series, at, value) in list {
        let def = &catalogue::ALL[*series];
        readings.put(def, &label(def), *at, *value);
    }
    let functions = ["balance_dirty_pages", "ext4_buffered_write_iter", "folio_wait_bit_common", "do_epoll_wait"];
    for (at, function) in waits {
        readings.samples.push(session(
            *at,
            1,
            "active",
            Some(("IO", "DataFileWrite")),
            Some((functions[*function], 'D')),
        ));
    }
    readings.window(meta, 0.0, 30.0)
}

proptest! {
    #[test]
    fn nothing_panics_and_every_figure_is_a_number(
        list in prop_oneof![readings(), few()],
        waits in vec((0.0..30.0_f64, 0_usize..4), 0..60), known in any::<bool>(), at in -5.0..40.0_f64,
    ) {
        let window = window(&list, &waits, if known { meta() } else { Meta::default() });
        for finding in diagnose(&window, &Options::default()).iter().chain(&warn(&window, 30.0)) {
            prop_assert!(finding.evidence.iter().all(|figure| figure.value.is_finite()), "{finding:?}");
            prop_assert!(finding.foreground_lost.is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
        let at = Moment::from_seconds(at);
        let _ = (time_to_cliff(&window, "7:0", at, 3.0), drain_time(&window, "7:0", at), drain::measure(&window, "7:0", at));
        let _ = (advise(&window, &AdviseOptions::default()), throughput(&window));
        let _ = compare(&window, &window.slice(Moment(0), at));
    }
}
