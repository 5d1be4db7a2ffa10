//! Whether the standbys are there from which commits need an answer: how many of them synchronous_standby_names asks for, and
//! how many that are connected count as synchronous.

use super::unread::{View, unread_seconds};
use super::{known, names, standby_row};
use crate::grid::Lane;
use crate::scene::Scene;
use backwater_model::{Event, EventKind, Moment, Target, catalogue as cat};
use std::ops::Range;

/// The setting that says from whom commits need an answer.
const SETTING: &str = "synchronous_standby_names";
/// Share of the known seconds of a stretch in which too few must be connected.
const MOST: f64 = 0.5;
/// Share of the seconds of a stretch of which it must be known how many are connected.
const KNOWN: f64 = 0.5;

/// Fewer synchronous standbys than commits need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    /// How many are connected.
    pub(crate) connected: usize,
    /// How many must answer.
    pub(crate) wanted: usize,
}

/// How many standbys must answer a commit, by a value of synchronous_standby_names: `2 (a, b)`, `FIRST 2 (a, b)`,
/// `ANY 2 (a, b)`, else one; none where it is empty (PostgreSQL manual, synchronous_standby_names).
fn wanted(names: &str) -> usize {
    let names = names.trim();
    let count = |head: &str| head.split_whitespace().last()?.parse().ok();
    if names.is_empty() { 0 } else { names.split_once('(').and_then(|(head, _)| count(head)).unwrap_or(1) }
}

fn wanted_by(target: Option<&Target>) -> Option<usize> {
    target?.settings.get(SETTING).map(|names| wanted(names))
}

/// Whether commits may wait for standbys at all, by a target's settings.
pub(crate) fn wants(target: &Target) -> bool {
    wanted_by(Some(target)).is_some_and(|count| count > 0)
}

/// How many standbys must answer a commit in each second, by the setting as it was when the second began; one where it is not known.
/// A change is told up to a minute late, when settings are read again: nobody is blamed for that, since nothing waits any more.
fn wanted_then(scene: &Scene<'_>, primary: &str) -> Lane {
    let names_it = |event: &&Event| event.fields.get("name").map(String::as_str) == Some(SETTING);
    let changes = scene.window.events_of(EventKind::Setting).filter(|event| event.source == primary).filter(names_it);
    // Everybody may see this setting: what is told as empty is empty.
    let steps: Vec<(Moment, usize)> =
        changes.filter_map(|event| Some((event.at, wanted(event.fields.get("after")?)))).collect();
    let before = wanted_by(known(scene.window, primary)).unwrap_or(1);
    scene.grid.lane(|second| {
        let at = scene.grid.start(second);
        let last = steps.iter().rfind(|(changed, _)| *changed <= at);
        Some(last.map_or(before, |(_, count)| *count) as f64)
    })
}

/// Whether and by how many synchronous standbys are too few for commits in most of a stretch in which commits wait for them. None
/// where enough are connected, and where that cannot be seen.
pub(crate) fn lack(scene: &Scene<'_>, primary: &str, range: &Range<usize>) -> Option<Lack> {
    // Commits do wait for at least one: a setting that says otherwise is not the one in force.
    let wanted = wanted_then(scene, primary).map(|count| count.max(1.0));
    let connected = connected(scene, primary, |_| true);
    if !mostly(&too_few(&connected, &wanted), range) {
        return None;
    }
    let lack = Lack { connected: connected.median(range)? as usize, wanted: wanted.median(range)? as usize };
    Some(lack).filter(|lack| lack.connected < lack.wanted)
}

/// The seconds in which fewer are connected than must answer (1, else 0).
fn too_few(connected: &Lane, wanted: &Lane) -> Lane {
    connected.with(wanted, |connected, wanted| f64::from(u8::from(connected < wanted)))
}

/// Whether a flag is up in most of a stretch: of one that is hardly known the rest may be otherwise.
fn mostly(flag: &Lane, range: &Range<usize>) -> bool {
    let known = flag.values(range).len() as f64;
    known >= KNOWN * range.len() as f64 && flag.mean(range).is_some_and(|share| share >= MOST)
}

/// The seconds in which those connected are too few without one standby (1, else 0). None where it was not synchronous when it was
/// last seen until a moment.
fn without(scene: &Scene<'_>, primary: &str, standby: &str, until: Moment) -> Option<Lane> {
    let row = standby_row(scene.window, &cat::PG_REPL_SYNC, primary, standby)?;
    row.between(scene.window.from, until).last().filter(|flag| *flag >= 0.5)?;
    let others = connected(scene, primary, |name| name != standby);
    Some(too_few(&others, &wanted_then(scene, primary)))
}

/// Whether commits need the answer of one standby at the end of the window: it was synchronous when it was last seen, and without
/// it those connected are too few.
pub(crate) fn needed(scene: &Scene<'_>, primary: &str, standby: &str) -> bool {
    let lane = without(scene, primary, standby, scene.window.to);
    lane.and_then(|lane| lane.0.into_iter().flatten().next_back()) == Some(1.0)
}

/// The same for most of the time from one moment to another.
pub(crate) fn needed_between(scene: &Scene<'_>, primary: &str, standby: &str, from: Moment, to: Moment) -> bool {
    let second = |at: Moment| at.seconds_since(scene.grid.from).max(0.0) as usize;
    let range = second(from)..(second(to) + 1).min(scene.grid.count);
    without(scene, primary, standby, to).is_some_and(|lane| mostly(&lane, &range))
}

/// The seconds in which commits need the answer of one standby (1, else 0): it counts as synchronous, and without it those connected
/// are too few. One of a quorum (ANY) that the others make is not waited for, however slow it is.
pub(crate) fn needed_during(scene: &Scene<'_>, primary: &str, standby: &str) -> Lane {
    let own = scene.grid.gauge(standby_row(scene.window, &cat::PG_REPL_SYNC, primary, standby));
    if own.max(&(0..scene.grid.count)).is_none_or(|flag| flag < 0.5) {
        return scene.grid.unknown();
    }
    // While it counts as synchronous at least one is waited for.
    let wanted = wanted_then(scene, primary).map(|count| count.max(1.0));
    let others = connected(scene, primary, |name| name != standby);
    own.with(&too_few(&others, &wanted), |flag, too_few| f64::from(u8::from(flag >= 0.5 && too_few > 0.0)))
}

/// Whether the rows of standbys can be read: some were, or else the server's other processes are seen, which takes the same right.
pub(crate) fn readable(scene: &Scene<'_>, primary: &str) -> bool {
    let own = [("target", primary)];
    let mut rows = scene.window.tracks(cat::PG_REPL_SYNC.name, &own);
    let carriers = || scene.window.samples().iter().any(|sample| *sample.target == *primary && sample.is_carrier());
    rows.any(|track| !track.points.is_empty()) || carriers()
}

/// Connected standbys that count as synchronous, of those that a test names, in each second in which the server's own position
/// is read, and their rows as far as is told: a hole in the readings is no absence, nor is a view that fails.
fn connected(scene: &Scene<'_>, primary: &str, test: impl Fn(&str) -> bool) -> Lane {
    if !readable(scene, primary) {
        return scene.grid.unknown();
    }
    let gauge = |name| scene.grid.gauge(scene.window.track(name, &[("target", primary)]));
    let read = gauge(cat::PG_WAL_FLUSH.name).or(&gauge(cat::PG_WAL_INSERT.name));
    let named = names(scene.window, primary).into_iter().filter(|name| test(name));
    let row = |name: String| scene.grid.gauge(standby_row(scene.window, &cat::PG_REPL_SYNC, primary, &name));
    let flags: Vec<Lane> = named.map(row).collect();
    let unread = unread_seconds(scene.window, &scene.grid, primary, View::Standbys);
    scene.grid.lane(|second| {
        read.get(second).filter(|_| !unread[second])?;
        Some(flags.iter().filter(|flag| flag.get(second).is_some_and(|flag| flag >= 0.5)).count() as f64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_known_seconds_are_not_most_of_a_stretch() {
        let lane = |known: usize| Lane((0..10).map(|second| (second < known).then_some(1.0)).collect());
        let told = |known: usize| mostly(&lane(known), &(0..10));
        assert_eq!([0, 1, 4, 5, 10].map(told), [false, false, false, true, true]);
        assert!(!mostly(&lane(10).map(|_| 0.0), &(0..10)));
    }

    #[test]
    fn how_many_must_answer_follows_from_the_setting() {
        let cases = [
            ("", 0),
            ("  ", 0),
            ("*", 1),
            ("standby", 1),
            ("a, b", 1),
            ("2 (a, b, c)", 2),
            ("FIRST 3 (a, b, c)", 3),
            ("any 2(a, b)", 2),
            ("\"odd (name\"", 1),
        ];
        for (names, count) in cases {
            assert_eq!(wanted(names), count, "{names}");
        }
    }
}
