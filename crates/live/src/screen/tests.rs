//! The screen of a fixed stretch, as it is drawn at several sizes.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/common/planted.rs"]
mod planted;

use super::*;
use backwater_model::catalogue as cat;
use backwater_model::{Epoch, EventKind, Finding, Meta, Moment, Point, Sample, SeriesId, Window};
use backwater_report::html::Mark;
use backwater_report::text::width;
use planted::MIB;
use ratatui::style::Color;
use std::sync::Arc;

/// Standbys of the server, each with four queues and one of WAL that is kept: more than there is room for.
const STANDBYS: [&str; 3] = ["standby_of_the_second_site", "s2", "s3"];

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
        (Arc::new(def.series(labels)), (0..=60).filter(|at| !(20..25).contains(at)).map(point).collect::<Vec<_>>())
    };
    let mut series = vec![
        track(&cat::BDI_RECLAIMABLE, &dev, &|at| (at * 4.0).min(200.0) * MIB),
        track(&cat::BDI_WRITEBACK, &dev, &|_| 6.0 * MIB),
        track(&cat::BDI_DIRTY_THRESH, &dev, &|_| 256.0 * MIB),
        track(&cat::BDI_GLOBAL_DIRTY_THRESH, &dev, &|_| 4_096.0 * MIB),
        track(&cat::BDI_BACKGROUND_THRESH, &dev, &|_| 2_048.0 * MIB),
        track(&cat::BDI_DIRTIED, &dev, &|at| at * 18.0 * MIB),
        track(&cat::BDI_WRITTEN, &dev, &|at| at * 14.0 * MIB),
        track(&cat::DISK_IN_FLIGHT, &dev, &|at| at % 7.0),
        track(&cat::PG_XACT_COMMIT, &of, &|at| at * 500.0),
        track(&cat::PG_WAL_INSERT, &of[..1], &|at| at * 9.0 * MIB + 64.0 * 1024.0),
        track(&cat::PG_WAL_WRITE, &of[..1], &|at| at * 9.0 * MIB),
        track(&cat::PG_WAL_FLUSH, &of[..1], &|at| at * 9.0 * MIB - 8_192.0),
    ];
    for standby in STANDBYS {
        let labels = [("target", "primary"), ("standby", standby)];
        for (def, behind) in [
            (&cat::PG_REPL_SENT, 1.0),
            (&cat::PG_REPL_WRITE, 2.0),
            (&cat::PG_REPL_FLUSH, 3.0),
            (&cat::PG_REPL_REPLAY, 5.0),
        ] {
            series.push(track(def, &labels, &|at| (at * 9.0 - behind).max(0.0) * MIB));
        }
    }
    let sample = |number: i64| Sample {
        at: Moment(number / 3 * 1_000_000),
        target: "primary".into(),
        pid: number as i32,
        state: Some("active".into()),
        user: Some("app".into()),
        query: Some("INSERT INTO orders (customer, product, amount) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING".into()),
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
        "evidence": [{"name": "level", "value": 216_006_656.0, "unit": "bytes", "label": "dirty, at most"}],
        "ruled_out": [{"cause": "io-capped", "because": "the device was busy for 20 % of the time"}],
        "unseen": [{"what": "the server's log", "why": "it was not read", "remedy": "run it as postgres"}],
        "confidence": "high", "victims": ["pg.commit"],
        "remedies": [{"title": "Lower the limit of the device to 64 MiB", "runtime":
            ["echo 67108864 > /sys/class/bdi/7:0/max_bytes  # of this device alone, which is /srv/data of the server"],
            "persistent": [], "activation": "immediate", "undo": [], "predicted": [], "risk": "none"}],
    }))
    .unwrap();
    let second = Finding { rule: "io-capped".into(), queue: "host.disk@7:0".into(), ..finding.clone() };
    backwater_report::html::document(window, &[finding, second], None, &["a segment of points is lost".to_owned()])
}

/// What is drawn, line by line.
fn text(document: &Document, look: &Look, width: u16, height: u16) -> String {
    drawn(document, look, width, height).0
}

fn drawn(document: &Document, look: &Look, width: u16, height: u16) -> (String, Reach) {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    let reach = draw(document, look, area, &mut buffer);
    let line = |y: u16| -> String {
        let cells: String = (0..width).filter_map(|x| buffer.cell((x, y))).map(|cell| cell.symbol()).collect();
        cells.trim_end().to_owned()
    };
    let coloured = |cell: &ratatui::buffer::Cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset);
    assert!(look.color || !buffer.content.iter().any(coloured), "a colour where there is to be none");
    let lines: Vec<String> = (0..height).map(line).collect();
    (lines.join("\n") + "\n", reach)
}

#[test]
fn each_screen_of_a_fixed_stretch() {
    let document = document();
    for (size, width, height) in [("80x24", 80, 24), ("120x40", 120, 40)] {
        for part in Part::EACH {
            let mut look = Look::new(true, false, true);
            look.act(Act::Show(part), &document);
            insta::assert_snapshot!(format!("{size}_{part:?}").to_lowercase(), text(&document, &look, width, height));
        }
        let mut look = Look::new(true, false, true);
        look.act(Act::Help, &document);
        insta::assert_snapshot!(format!("{size}_help"), text(&document, &look, width, height));
    }
}

#[test]
fn the_screen_where_there_is_less() {
    let document = document();
    for (name, width, height, unicode) in
        [("80x24_ascii", 80, 24, false), ("60x30", 60, 30, true), ("60x18", 60, 18, true), ("20x5", 20, 5, true)]
    {
        let shown = text(&document, &Look::new(unicode, false, true), width, height);
        assert!(unicode || shown.is_ascii(), "{name}: {shown}");
        insta::assert_snapshot!(name, shown);
    }
}

#[test]
fn everything_as_plain_text() {
    let document = document();
    let shown = plain(&document, &Look::new(true, true, false), 80);
    insta::assert_snapshot!("plain_80", shown);
    let event = Mark { at_s: 1.0, kind: EventKind::Log, source: "primary".into(), message: "m".into() };
    let failing = vec!["postgres.primary cannot read: connection closed".to_owned()];
    let more = Document { events: vec![event], failing, ..document.clone() };
    for part in [Part::All, Part::Findings] {
        let mut look = Look::new(true, false, true);
        look.act(Act::Show(part), &more);
        assert!(text(&more, &look, 80, 24).contains("! postgres.primary cannot read"), "{part:?}");
    }
    assert!(plain(&more, &Look::new(true, true, false), 80).ends_with("1 event: `backwater report` or `serve`.\n"));
    for queue in &document.path.queues {
        assert!(shown.contains(&queue.name), "{}: {shown}", queue.name);
    }
    for columns in [1, 40, 60, 80, 100, 160] {
        let shown = plain(&document, &Look::new(columns % 3 > 0, true, false), columns);
        assert!(!shown.contains('\u{1b}') && (columns % 3 > 0 || shown.is_ascii()), "{shown}");
        // Commands to copy are the one exception.
        let long: Vec<&str> = shown.lines().filter(|line| width(line) > columns.max(40)).collect();
        assert!(long.iter().all(|line| line.contains("max_bytes")), "{columns}: {long:?}");
        assert!(!shown.contains('…'), "nothing is cut: {shown}");
    }
}

#[test]
fn what_is_hidden_is_counted_and_reached() {
    let document = document();
    let count = document.path.queues.len();
    assert!(count > 9, "{count}");
    let mut look = Look::new(true, false, true);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..count {
        let shown = text(&document, &look, 80, 24);
        assert!(shown.contains(&format!("Path: {count} queues")) && shown.contains(" below ─"), "{shown}");
        let queues = document.path.queues.iter().filter(|queue| shown.lines().any(|line| line.contains(&queue.name)));
        seen.extend(queues.map(|queue| queue.name.clone()));
        look.act(Act::Down, &document);
    }
    let shorter = document.path.queues.iter().filter(|queue| queue.name.len() < 27).count();
    assert!(seen.len() >= shorter, "each is seen on the way: {seen:?}");
    // To the end of the findings, and not beyond: one step back is seen.
    look.act(Act::Show(Part::Findings), &document);
    let mut steps = 0;
    loop {
        let (shown, reach) = drawn(&document, &look, 80, 24);
        look.settle(reach);
        if !shown.contains(" below ─") {
            assert!(steps > 0 && shown.contains(&format!("{steps} above")), "{shown}");
            break;
        }
        look.act(Act::Down, &document);
        steps += 1;
    }
    (0..50).for_each(|_| look.act(Act::PageDown, &document));
    look.act(Act::Up, &document);
    assert!(text(&document, &look, 80, 24).contains(&format!("{} above, 1 below", steps - 1)));
}

#[test]
fn keys_move_through_queues_time_and_parts() {
    let document = document();
    let mut look = Look::new(true, false, true);
    let queue = |look: &Look| document.path.queues[look.chosen(&document).unwrap()].name.clone();
    assert_eq!(queue(&look), "host.dirty@7:0", "the one that a finding names");
    let all = look.pieces(&document);
    assert_eq!((all, look.follows()), ((0, 60), true));
    (0..99).for_each(|_| look.act(Act::Down, &document));
    assert_eq!(queue(&look), document.path.queues.last().unwrap().name);
    (0..99).for_each(|_| look.act(Act::Up, &document));
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
    assert!(text(&document, &look, 80, 24).contains("q, Ctrl-C"));
    assert!(look.back() && !look.help && !look.back(), "out of the explanation, and then out of the view");
    look.act(Act::Previous, &document);
    assert_eq!(look.part, Part::Findings);
    look.act(Act::Next, &document);
    assert_eq!(look.part, Part::All);
}

fn empty() -> Document {
    let window = Window::new(Moment(0), Moment(1), Arc::new(Meta::default()), vec![], vec![], vec![]);
    backwater_report::html::document(&window, &[], None, &[])
}

const ACTS: [Act; 16] = [
    Act::Down,
    Act::Up,
    Act::PageDown,
    Act::PageUp,
    Act::Earlier,
    Act::Later,
    Act::Closer,
    Act::Wider,
    Act::First,
    Act::Newest,
    Act::Pause,
    Act::Help,
    Act::Next,
    Act::Previous,
    Act::Show(Part::Path),
    Act::Show(Part::Curves),
];

#[test]
fn nothing_is_known_yet() {
    let empty = empty();
    let look = Look::new(true, true, true);
    assert!(text(&empty, &look, 80, 24).contains("Nothing is known"));
    assert!(plain(&empty, &look, 80).contains("no queue was recorded, so there was nothing to judge"));
}

proptest::proptest! {
    #[test]
    fn every_size_after_any_keys(
        keys in proptest::collection::vec(0..ACTS.len(), 0..12), width in 1u16..=300, height in 1u16..=100, unicode: bool,
    ) {
        // Made once: it takes longer than to draw it.
        static DOCUMENTS: std::sync::OnceLock<[Document; 2]> = std::sync::OnceLock::new();
        for document in DOCUMENTS.get_or_init(|| [document(), empty()]) {
            let mut look = Look::new(unicode, true, true);
            for key in &keys {
                look.act(ACTS[*key], document);
                let (shown, reach) = drawn(document, &look, width, height);
                look.settle(reach);
                proptest::prop_assert!(shown.lines().all(|line| super::text::width(line) <= width.into()));
                proptest::prop_assert!(!shown.contains('\u{1b}') && (unicode || shown.is_ascii()), "{shown}");
                let room = width >= LEAST.0 && height >= LEAST.1;
                proptest::prop_assert!(!room || shown.lines().last().is_some_and(|keys| keys.starts_with("q quit")));
                proptest::prop_assert!(room || width < 10 || height < 2 || shown.starts_with("Too small"), "{shown}");
            }
        }
    }
}
