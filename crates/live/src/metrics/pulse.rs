//! Whether a source, and each server of it, is read now. Who is told of findings must also be told that nobody looks for them.

use backwater_model::{Moment, Track, Window};

/// What was read within so many seconds is read now. Several looks of the slowest probe that matters, and the ten seconds after
/// which MongoDB's flight recorder writes its file.
pub const FRESH_S: f64 = 15.0;

/// Series of who reads, which go on though nothing is read any more.
const OF_THE_READER: &str = "recorder.";
/// Where what a server answers is told; what the host knows of a server goes on when it does not answer.
const ANSWERS: [&str; 3] = ["pg.", "mongo.", "wt."];
/// Except for these: that a beat was missed is told all the while.
const BEATS: &str = "pg.heartbeat.";

/// How fresh a source's readings are.
#[derive(Clone, Debug, PartialEq)]
pub struct Pulse {
    /// Seconds since the newest reading; none where there is none.
    pub age_s: Option<f64>,
    /// Whether it is read now.
    pub up: bool,
    /// Each server, and whether it answers now.
    pub targets: Vec<(String, bool)>,
}

impl Pulse {
    /// By a source's last readings. `now` is of their clock; what no longer `grows` is not read, whatever its clock says.
    pub fn of(window: &Window, now: Moment, grows: bool) -> Pulse {
        let last = |track: Track<'_>| track.points.last().map(|point| point.at);
        let told = |track: &Track<'_>| !track.series.name.starts_with(OF_THE_READER);
        let points = window.all_tracks().filter(told).filter_map(last);
        let newest = points.chain(window.samples().last().map(|sample| sample.at)).max();
        // A wall clock that was set may make a reading come from the future: that is no age.
        let age_s = newest.map(|at| now.seconds_since(at).max(0.0));
        let up = grows && age_s.is_some_and(|age| age <= FRESH_S);
        let answers = |name: &str| up && answered(window, name).is_some_and(|at| now.seconds_since(at) <= FRESH_S);
        let targets = window.meta.targets.iter().map(|target| (target.name.clone(), answers(&target.name))).collect();
        Pulse { age_s, up, targets }
    }
}

/// When a server last answered.
fn answered(window: &Window, target: &str) -> Option<Moment> {
    let its = |track: &Track<'_>| {
        let name = &track.series.name;
        let answer = ANSWERS.iter().any(|prefix| name.starts_with(prefix)) && !name.starts_with(BEATS);
        answer && track.series.labels.get("target") == Some(target)
    };
    let points = window.all_tracks().filter(its).filter_map(|track| track.points.last().map(|point| point.at));
    let samples = window.samples().iter().rev().find(|sample| *sample.target == *target).map(|sample| sample.at);
    points.chain(samples).max()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::catalogue::{BDI_WRITTEN, Def, PG_HEARTBEATS_MISSED, PG_PROBE_RESPONSE, PROC_CPU, SELF_CPU};
    use backwater_model::{Epoch, Meta, Point, SeriesId, Target};
    use std::sync::Arc;

    /// A series, its labels, and the second until which it was read.
    type Until<'a> = (Def, &'a [(&'static str, &'a str)], i64);

    /// Two servers, and these series.
    fn window(until: &[Until<'_>]) -> Window {
        let target = |name: &str| Target { name: name.to_owned(), ..Target::default() };
        let meta = Meta { targets: vec![target("one"), target("two")], ..Meta::default() };
        let point = |at: i64| Point {
            at: Moment(at * 1_000_000),
            series: SeriesId(0),
            epoch: Epoch(1),
            value: 1.0,
            as_of: None,
        };
        let series =
            until.iter().map(|(def, labels, last)| (Arc::new(def.series(labels)), (0..=*last).map(point).collect()));
        Window::new(Moment(0), Moment(60_000_000), Arc::new(meta), series.collect(), Vec::new(), Vec::new())
    }

    fn pulse(window: &Window, now_s: f64, grows: bool) -> (Option<f64>, bool, Vec<bool>) {
        let pulse = Pulse::of(window, Moment::from_seconds(now_s), grows);
        (pulse.age_s, pulse.up, pulse.targets.iter().map(|(_, up)| *up).collect())
    }

    #[test]
    fn a_server_that_answers_no_more_is_told_though_the_host_is_still_read() {
        let read = window(&[
            (BDI_WRITTEN, &[("dev", "7:0")], 60),
            (PG_PROBE_RESPONSE, &[("target", "one")], 59),
            (PG_PROBE_RESPONSE, &[("target", "two")], 40),
            (PROC_CPU, &[("target", "two"), ("pid", "7"), ("what", "postmaster")], 60),
            (PG_HEARTBEATS_MISSED, &[("target", "two")], 60),
        ]);
        assert_eq!(pulse(&read, 60.5, true), (Some(0.5), true, vec![true, false]));
        assert_eq!(pulse(&read, 54.0, true), (Some(0.0), true, vec![true, true]), "a clock that was set back");
        assert_eq!(pulse(&read, 80.0, true), (Some(20.0), false, vec![false, false]));
        assert_eq!(pulse(&read, 60.5, false), (Some(0.5), false, vec![false, false]), "whoever wrote has ended");
    }

    #[test]
    fn what_the_reader_tells_of_itself_is_no_reading() {
        let read = window(&[(BDI_WRITTEN, &[("dev", "7:0")], 30), (SELF_CPU, &[], 60)]);
        assert_eq!(pulse(&read, 60.0, true).0, Some(30.0));
        assert_eq!(pulse(&window(&[(SELF_CPU, &[], 60)]), 60.0, true), (None, false, vec![false, false]));
    }
}
