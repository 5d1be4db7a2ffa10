//! The screen of a fixed stretch, as it is drawn at several sizes.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/common/planted.rs"]
mod planted;

use super::*;
use backwater_model::catalogue as cat;
use backwater_model::{Epoch, Finding, Meta, Moment, Point, Sample, SeriesId, Window};
use planted::MIB;
use std::sync::Arc;

/// A minute in which a device's dirty pages climb to their limit, with sessions that wait for it and hostile names.
fn document() -> Document {
    let meta = planted::meta("loop0\u{1b}[2J");
    let dev = [("dev", "7:0")];
    let of = [("target", "primary"), ("database", "app")];
    let track = |def: &cat::Def, labels: &[(&'static str, &str)], value: &dyn Fn(f64) -> f64| {
        let point = |second: i64| Point {
            at: Moment(second * 1_000_000),
            series: SeriesId(0),
            epoch: Epoch(1),
            value: value(second as f64),
            as_of: None,
        };
        (Arc::new(def.series(labels)), (0..=60).map(point).collect::<Vec<_>>())
    };
    let series = vec![
        track(&cat::BDI_RECLAIMABLE, &dev, &|at| (at * 4.0).min(200.0) * MIB),
        track(&cat::BDI_WRITEBACK, &dev, &|_| 6.0 * MIB),
        track(&cat::BDI_DIRTY_THRESH, &dev, &|_| 256.0 * MIB),
        track(&cat::BDI_GLOBAL_DIRTY_THRESH, &dev, &|_| 4_096.0 * MIB),
        track(&cat::BDI_BACKGROUND_THRESH, &dev, &|_| 2_048.0 * MIB),
        track(&cat::BDI_DIRTIED, &dev, &|at| at * 18.0 * MIB),
        track(&cat::BDI_WRITTEN, &dev, &|at| at * 14.0 * MIB),
        track(&cat::DISK_IN_FLIGHT, &dev, &|at| at % 7.0),
        track(&cat::PG_XACT_COMMIT, &of, &|at| at * 500.0),
    ];
    let sample = |number: i64| Sample {
        at: Moment(number / 3 * 1_000_000),
        target: "primary".into(),
        pid: number as i32,
        state: Some("active".into()),
        wait_event_type: (number % 3 > 0).then(|| "IO".into()),
        wait_event: (number % 3 > 0).then(|| "DataFileWrite".into()),
        ..Sample::default()
    };
    let samples = (0..180).map(sample).collect();
    let window = Window::new(Moment(0), Moment::from_seconds(60.0), Arc::new(meta), series, samples, vec![]);
    html(&window)
}

fn html(window: &Window) -> Document {
    let finding: Finding = serde_json::from_value(serde_json::json!({
        "rule": "dirty-throttle", "cause": "device-limit", "severity": "critical", "queue": "host.dirty@7:0",
        "from": 40_000_000, "to": 60_000_000, "foreground_lost": 0.6,
        "summary": "206 MiB of 256 MiB are dirty on \u{1b}[31mloop0, so the kernel pauses whoever writes.",
        "evidence": [], "ruled_out": [], "unseen": [], "confidence": "high", "victims": ["pg.commit"],
        "remedies": [{"title": "Lower the limit of the device to 64 MiB", "runtime": [], "persistent": [], "activation": "immediate",
            "undo": [], "predicted": [], "risk": ""}],
    }))
    .unwrap();
    backwater_report::html::document(window, &[finding], None, &[])
}

#[test]
fn the_screen_of_a_fixed_stretch() {
    let document = document();
    for (name, width, height, unicode) in [
        ("80x24", 80, 24, true),
        ("80x24_ascii", 80, 24, false),
        ("120x40", 120, 40, true),
        ("60x30", 60, 30, true),
        ("20x5", 20, 5, true),
    ] {
        let drawn = text(&document, &Look::new(unicode, false, true), width, height);
        assert!(drawn.lines().all(|line| words::width(line) <= width.into()), "{name}");
        assert!(!drawn.contains('\u{1b}'), "{name}: no control character of somebody else");
        assert!(unicode || drawn.is_ascii(), "{name}: {drawn}");
        insta::assert_snapshot!(name, drawn);
    }
}

#[test]
fn keys_move_through_queues_and_time() {
    let document = document();
    let mut look = Look::new(true, false, true);
    let queue = |look: &Look| document.path.queues[look.chosen(&document).unwrap()].name.clone();
    assert_eq!(queue(&look), "host.dirty@7:0", "the one that a finding names");
    let all = look.pieces(&document);
    assert_eq!((all, look.follows()), ((0, 60), true));
    (0..9).for_each(|_| look.act(Act::Down, &document));
    assert_eq!(queue(&look), document.path.queues.last().unwrap().name);
    (0..9).for_each(|_| look.act(Act::Up, &document));
    assert_eq!(queue(&look), document.path.queues[0].name);
    (0..3).for_each(|_| look.act(Act::Closer, &document));
    assert_eq!(look.pieces(&document), (45, 60));
    look.act(Act::Earlier, &document);
    assert_eq!((look.pieces(&document), look.follows()), ((42, 57), false));
    look.act(Act::First, &document);
    assert_eq!(look.pieces(&document), (0, 15));
    look.act(Act::Newest, &document);
    assert!(look.follows());
    look.act(Act::Help, &document);
    assert!(text(&document, &look, 80, 24).contains("q, Esc, Ctrl-C"));
}

#[test]
fn nothing_is_known_yet() {
    let window = Window::new(Moment(0), Moment(1), Arc::new(Meta::default()), vec![], vec![], vec![]);
    let empty = backwater_report::html::document(&window, &[], None, &[]);
    let mut look = Look::new(true, true, true);
    for act in [Act::Down, Act::Up, Act::Earlier, Act::Later, Act::Closer, Act::Wider, Act::First, Act::Pause] {
        look.act(act, &empty);
        assert!(text(&empty, &look, 80, 24).contains("Nothing is known"));
    }
}
