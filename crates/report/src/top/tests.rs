//! Snapshots of the table at several widths, and of one from a recording.
#![allow(clippy::unwrap_used)]
use super::*;
use backwater_model::catalogue::{self, Def};
use backwater_model::{Device, Epoch, Meta, Moment, Point, Sample, SeriesId, SessionUse, Target, Window};
use std::collections::HashMap;
use std::sync::Arc;

fn processes() -> Vec<ProcessUse> {
    let base =
        ProcessUse { uid: Some(104), user: Some("postgres".into()), cpu_share: Some(0.0), ..ProcessUse::default() };
    let session = |user: &str, application: Option<&str>, client: &str| SessionUse {
        user: Some(user.into()),
        database: Some("shop".into()),
        application: application.map(Into::into),
        client: Some(client.into()),
    };
    let io = |read: f64, write: f64| ProcessUse {
        read_bytes_per_s: Some(read * 1024.0),
        read_calls_per_s: Some(read / 8.0),
        write_bytes_per_s: Some(write * 1024.0),
        write_calls_per_s: Some(write / 8.0),
        ..base.clone()
    };
    let net = |process: ProcessUse, sent: f64, received: f64, peer: &str| ProcessUse {
        sent_bytes_per_s: Some(sent * 1024.0),
        sent_segments_per_s: Some(sent / 1.4),
        received_bytes_per_s: Some(received * 1024.0),
        received_segments_per_s: Some(received / 1.4),
        peer: Some(peer.into()),
        connections: Some(1),
        ..process
    };
    vec![
        ProcessUse { pid: 4_002, what: "checkpointer".into(), devices: vec!["sdb".into()], ..io(0.0, 5_321.0) },
        ProcessUse { pid: 4_003, what: "background writer".into(), ..io(0.0, 0.0) },
        ProcessUse {
            pid: 4_005,
            what: "walsender".into(),
            devices: vec!["nvme0n1".into()],
            interfaces: vec!["ens5".into()],
            ..net(io(8_192.0, 0.0), 8_204.5, 12.25, "10.0.0.2:41000")
        },
        ProcessUse {
            pid: 412_345,
            what: "client backend".into(),
            session: Some(session("app", Some("checkout \u{1b}[31m"), "10.0.0.7:53412")),
            devices: vec!["sdb".into(), "sdc".into(), "nvme0n1".into()],
            cpu_share: Some(0.873),
            ..net(io(12.5, 10_240.0), 0.02, 640.0, "10.0.0.7:53412")
        },
        ProcessUse {
            pid: 4_011,
            what: "client backend".into(),
            session: Some(session("batch", None, "local")),
            ..base.clone()
        },
        ProcessUse {
            pid: 77,
            uid: Some(1_000),
            user: None,
            what: "backup agent".into(),
            connections: Some(3),
            ..net(io(400.0, 0.0), 401.0, 3.0, "[2001:db8::7]:443")
        },
    ]
}

fn unseen() -> Vec<Unseen> {
    let text = |text: &str| text.to_owned();
    vec![Unseen {
        what: text("I/O of 1 process and TCP of 1 process"),
        why: text("CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH are not held"),
        remedy: Some(text("run as root (or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH), or as postgres")),
    }]
}

fn shown(sort: TopSort, most: Option<usize>, style: &Style) -> String {
    let (processes, unseen) = (processes(), unseen());
    let title = "main: who read, wrote, sent and received in the last 1.00 s";
    top(&TopView { title, processes: &processes, unseen: &unseen, sort, most }, style)
}

#[test]
fn a_line_stays_a_line_at_every_width() {
    let wide = Style { color: false, width: 140, unicode: true };
    insta::assert_snapshot!("top_140", shown(TopSort::Io, None, &wide));
    insta::assert_snapshot!("top_100", shown(TopSort::Net, None, &Style { width: 100, ..wide }));
    insta::assert_snapshot!("top_80_ascii", shown(TopSort::Cpu, Some(3), &Style::plain(80)));
    insta::assert_snapshot!("top_40", shown(TopSort::Io, Some(2), &Style::plain(40)));
}

#[test]
fn nobody_is_no_error_and_what_nobody_shows_is_a_dash() {
    let view = TopView { title: "nobody", processes: &[], unseen: &[], sort: TopSort::Io, most: None };
    let text = top(&view, &Style::plain(140));
    assert!(text.contains("total of 0") && text.contains(" - "), "{text}");
}

/// A recording of ten seconds, read at its begin and end.
fn window() -> Window {
    let mut list = Vec::new();
    let mut put = |def: &Def, labels: &[(&'static str, &str)], values: [f64; 2]| {
        let series = SeriesId(list.len() as u32);
        let point =
            |at: f64, value| Point { at: Moment::from_seconds(at), series, epoch: Epoch(7), value, as_of: None };
        list.push((Arc::new(def.series(labels)), vec![point(100.0, values[0]), point(110.0, values[1])]));
    };
    let checkpointer = [("target", "main"), ("pid", "4002"), ("what", "checkpointer")];
    let session = [("target", "main"), ("pid", "4010"), ("what", "client backend")];
    put(&catalogue::PROC_CPU, &checkpointer, [5.0, 6.0]);
    put(&catalogue::PROC_WRITE_BYTES, &checkpointer, [0.0, 10_485_760.0]);
    put(&catalogue::PROC_WRITE_CALLS, &checkpointer, [0.0, 1_280.0]);
    put(&catalogue::PROC_UID, &checkpointer, [104.0, 104.0]);
    put(&catalogue::PROC_CPU, &session, [1.0, 6.0]);
    put(&catalogue::PROC_WRITE_BYTES, &session, [0.0, 1_024.0]);
    for (peer, sent) in [("10.0.0.7:1", 10_240.0), ("10.0.0.8:2", 20_480.0)] {
        let connection = [("target", "main"), ("pid", "4010"), ("local", "10.0.0.1:5432"), ("peer", peer)];
        put(&catalogue::TCP_SENT, &connection, [0.0, sent]);
        put(&catalogue::TCP_ACKED, &connection, [0.0, sent]);
        put(&catalogue::TCP_SEGMENTS_OUT, &connection, [0.0, 10.0]);
    }
    let target = Target {
        name: "main".into(),
        data_device: Some("8:16".into()),
        wal_device: Some("8:32".into()),
        ..Target::default()
    };
    let device = Device { dev: "8:16".into(), name: "sdb".into(), ..Device::default() };
    let meta = Meta { targets: vec![target], devices: vec![device], ..Meta::default() };
    let sample = Sample {
        at: Moment::from_seconds(105.0),
        target: "main".into(),
        pid: 4_010,
        backend_type: Some("client backend".into()),
        user: Some("app".into()),
        database: Some("shop".into()),
        application: Some("psql".into()),
        ..Sample::default()
    };
    Window::new(Moment::from_seconds(95.0), Moment::from_seconds(115.0), Arc::new(meta), list, vec![sample], vec![])
}

#[test]
fn a_recording_gives_the_same_figures() {
    let users = HashMap::from([(104, "postgres".to_owned())]);
    let (list, seconds) = top_of(&window(), (window().from, window().to), &users);
    assert_eq!(seconds, 10.0, "of twenty");
    let checkpointer = list.iter().find(|process| process.pid == 4_002);
    let figures = checkpointer.map(|process| (process.write_bytes_per_s, process.write_calls_per_s, process.cpu_share));
    assert_eq!(figures, Some((Some(1_048_576.0), Some(128.0), Some(0.1))));
    assert_eq!(checkpointer.and_then(|process| process.sent_bytes_per_s), None, "no connection was recorded");
    let session = list.iter().find(|process| process.pid == 4_010);
    assert_eq!(session.and_then(|process| process.sent_bytes_per_s), Some(3_072.0), "both connections together");
    assert_eq!(session.and_then(|process| process.peer.as_deref()), Some("10.0.0.8:2"));
    let view = TopView { title: "recorded", processes: &list, unseen: &[], sort: TopSort::Io, most: None };
    insta::assert_snapshot!("top_recorded", top(&view, &Style::plain(140)));
}

/// Second, life, value.
type Reading = (u32, u64, f64);

/// What is told of one session whose bytes written and processor time were read so.
fn told_of(bytes: &[Reading], cpu_s: &[Reading]) -> (Option<f64>, Option<f64>) {
    let session = [("target", "main"), ("pid", "4010"), ("what", "client backend")];
    let read = [(&catalogue::PROC_WRITE_BYTES, bytes), (&catalogue::PROC_CPU, cpu_s)].into_iter().enumerate();
    let series = |(id, (def, points)): (usize, (&Def, &[Reading]))| {
        let point = |(second, life, value): &Reading| {
            let at = Moment::from_seconds(f64::from(*second));
            Point { at, series: SeriesId(id as u32), epoch: Epoch(*life), value: *value, as_of: None }
        };
        (Arc::new(def.series(&session)), points.iter().map(point).collect())
    };
    let (from, to) = (Moment::from_seconds(100.0), Moment::from_seconds(200.0));
    let window = Window::new(from, to, Arc::new(Meta::default()), read.map(series).collect(), vec![], vec![]);
    let (found, _) = top_of(&window, (from, to), &HashMap::new());
    (found[0].write_bytes_per_s, found[0].cpu_share)
}

#[test]
fn processor_time_that_is_read_rarely_is_no_less() {
    let bytes: Vec<_> = (100..=110).map(|second| (second, 7, f64::from(second))).collect();
    assert_eq!(told_of(&bytes, &[(103, 7, 103.0), (108, 7, 108.0)]), (Some(1.0), Some(1.0)));
}

#[test]
fn a_stretch_too_short_for_processor_time_says_so() {
    let told = |cpu_s: &[Reading]| {
        let session = [("target", "main"), ("pid", "4010"), ("what", "client backend")];
        let point = |at: u32, value: f64| Point {
            at: Moment::from_seconds(f64::from(at)),
            series: SeriesId(0),
            epoch: Epoch(7),
            value,
            as_of: None,
        };
        let read = |def: &Def, points| (Arc::new(def.series(&session)), points);
        let bytes = read(&catalogue::PROC_WRITE_BYTES, (100..=104).map(|at| point(at, f64::from(at))).collect());
        let cpu = read(&catalogue::PROC_CPU, cpu_s.iter().map(|(at, _, value)| point(*at, *value)).collect());
        let (from, to) = (Moment::from_seconds(100.0), Moment::from_seconds(104.0));
        let window = Window::new(from, to, Arc::new(Meta::default()), vec![bytes, cpu], vec![], vec![]);
        let (list, read_s) = top_of(&window, (from, to), &HashMap::new());
        let unseen = top_unseen(&list, 4.0, read_s);
        top(
            &TopView { title: "t", processes: &list, unseen: &unseen, sort: TopSort::Cpu, most: None },
            &Style::plain(100),
        )
    };
    let once = told(&[(103, 7, 103.0)]);
    assert!(once.contains("Not seen: processor time of 1 of 1 processes, which the total lacks"), "{once}");
    let twice = told(&[(100, 7, 100.0), (104, 7, 102.0)]);
    assert!(!twice.contains("Not seen") && twice.contains("    50  client backend"), "{twice}");
}

#[test]
fn a_stretch_as_short_as_the_pause_between_two_readings_has_its_rates_and_one_in_a_gap_none() {
    let labels = [("target", "main"), ("pid", "4002"), ("what", "checkpointer")];
    // Read every second but for twenty.
    let read = |def: &Def, per_s: f64| {
        let point = |second: u32| Point {
            at: Moment::from_seconds(f64::from(second)),
            series: SeriesId(0),
            epoch: Epoch(7),
            value: per_s * f64::from(second),
            as_of: None,
        };
        (Arc::new(def.series(&labels)), (90..=100).chain(120..=130).map(point).collect())
    };
    let series = vec![read(&catalogue::PROC_WRITE_BYTES, 8.0), read(&catalogue::PROC_CPU, 0.5)];
    let (from, to) = (Moment::from_seconds(90.0), Moment::from_seconds(130.0));
    let window = Window::new(from, to, Arc::new(Meta::default()), series, vec![], vec![]);
    let of = |from: f64, to: f64| {
        let (list, _) = top_of(&window, (Moment::from_seconds(from), Moment::from_seconds(to)), &HashMap::new());
        list.first().map(|process| (process.write_bytes_per_s.unwrap().round(), process.cpu_share.unwrap()))
    };
    let whole = Some((8.0, 0.5));
    assert_eq!((of(94.3, 95.3), of(98.5, 101.0), of(119.0, 121.5)), (whole, whole, whole));
    assert_eq!(of(95.0, 125.0), whole, "what was done over the gap is known");
    assert_eq!([of(102.0, 103.0), of(109.0, 110.0), of(117.0, 118.0)], [None; 3]);
    assert_eq!(of(99.9, 104.0), None, "a tenth of a second of it was read");
    assert_eq!(of(131.0, 140.0), None, "after the last reading");
    let (list, read_s) = top_of(&window, (Moment::from_seconds(98.0), Moment::from_seconds(110.0)), &HashMap::new());
    assert_eq!((list.len(), read_s), (1, 2.0));
    assert_eq!(top_unseen(&list, 12.0, read_s)[0].what, "10.0 s of this stretch");
    assert_eq!(top_unseen(&[], 1.0, 0.0)[0].what, "1.00 s of this stretch");
}

#[test]
fn a_number_used_again_is_another_process() {
    let points = [(100, 1, 0.0), (110, 1, 10.0), (190, 2, 0.0), (200, 2, 0.0)];
    assert_eq!(told_of(&points, &points), (Some(0.1), Some(0.1)));
}

#[test]
fn a_window_without_processes_has_none() {
    assert_eq!(top_of(&Window::default(), (Moment(0), Moment(9)), &HashMap::new()), (vec![], 0.0));
}

proptest::proptest! {
    #[test]
    fn no_line_is_wider_than_the_style(
        what in ".{0,80}", user in ".{0,20}", rate in proptest::option::of(0.0..1e14f64), width in 20usize..200,
    ) {
        let process = ProcessUse {
            pid: 4_194_304,
            what,
            user: Some(user),
            read_bytes_per_s: rate,
            sent_segments_per_s: rate,
            ..ProcessUse::default()
        };
        let list = [process];
        let view = TopView { title: "t", processes: &list, unseen: &[], sort: TopSort::Io, most: None };
        for line in top(&view, &Style { color: false, width, unicode: true }).lines() {
            proptest::prop_assert!(crate::text::width(line) <= width, "{line:?}");
        }
    }
}
