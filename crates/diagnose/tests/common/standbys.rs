//! The plant's standby with rows that come, go and change their names, and what is said of its loss.

use super::Readings;
use super::judged::{diagnose, names};
use super::wal_plant::{Keep, MIB, START_S, WalPlant};
use backwater_diagnose::{Options, warn};
use backwater_model::{Epoch, Event, EventKind, Finding, Moment, Series, Window, catalogue as cat};

/// By what the primary knows the plant's standby.
pub const S: &str = "walreceiver@10.0.0.2";
pub const EVER: f64 = 1e9;

pub fn at(second: f64) -> Moment {
    Moment::from_seconds(START_S + second)
}

pub fn whole(plant: &WalPlant, readings: Readings) -> Window {
    readings.window(plant.meta(), START_S, START_S + plant.seconds)
}

pub fn found(window: &Window) -> Vec<Finding> {
    diagnose(window, &Options::default())
}

/// What is said of standbys that are lost, now or soon.
pub fn losses(window: &Window) -> Vec<String> {
    let mut list = found(window);
    list.extend(warn(window, 30.0));
    list.retain(|finding| ["standby-gone", "wal-removed"].contains(&finding.rule.as_str()));
    names(&list)
}

/// WAL is recycled soon; what the log says of that is left out.
pub fn recycled(away: Option<(f64, f64)>) -> WalPlant {
    let keep = Keep::Size(64.0 * MIB);
    WalPlant { seconds: 60.0, keep, max_wal: 96.0 * MIB, see_standby: false, away, ..WalPlant::default() }
}

/// The readings that a test keeps, by their series and second.
pub fn sifted(readings: Readings, keep: impl Fn(&Series, f64) -> bool) -> Readings {
    in_lives(readings, |series, second| keep(series, second).then_some(0))
}

/// The same, each in so many lives of its source after the first.
pub fn in_lives(mut readings: Readings, life: impl Fn(&Series, f64) -> Option<u64>) -> Readings {
    let (samples, events) = (std::mem::take(&mut readings.samples), std::mem::take(&mut readings.events));
    let mut kept = Readings::default();
    for (series, points) in readings.into_series() {
        let def = cat::ALL.iter().find(|def| def.name == series.name).unwrap();
        let labels: Vec<(&'static str, &str)> =
            def.labels.iter().filter_map(|label| Some((*label, series.labels.get(label)?))).collect();
        for mut point in points {
            let Some(later) = life(&series, point.at.seconds() - START_S) else { continue };
            point.epoch = Epoch(point.epoch.0 + later);
            kept.push(def, &labels, point);
        }
    }
    (kept.samples, kept.events) = (samples, events);
    kept
}

/// The plant's readings with rows of these names and walsenders, each from one second to another, instead of its standby's.
pub fn rows(plant: &WalPlant, stretches: &[(f64, f64, &str, i64)]) -> Readings {
    let others =
        |series: &Series, _: f64| !series.name.starts_with("pg.replication.") && !series.name.starts_with("host.tcp.");
    let mut readings = sifted(plant.readings(), others);
    readings.events.retain(|event| !event.message.contains("requested WAL segment"));
    for (from, to, name, pid) in stretches {
        readings.adopt(sifted(plant.readings(), |_, second| (*from..*to).contains(&second)), name, *pid);
    }
    readings
}

pub fn line(second: f64) -> Event {
    let text = "requested WAL segment 000000010000000000000040 has already been removed";
    Event::new(at(second), "primary", EventKind::Log, text, &[("severity", "ERROR")])
}
