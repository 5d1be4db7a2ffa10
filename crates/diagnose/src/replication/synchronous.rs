//! Whether the standbys are there from which commits need an answer: how many of them synchronous_standby_names asks for, and
//! how many that are connected count as synchronous.

use super::{names, standby_row, target, target_at};
use crate::grid::Lane;
use crate::scene::Scene;
use backwater_model::{Target, catalogue as cat};
use std::ops::Range;

/// Share of the seconds of a stretch in which too few must be connected.
const MOST: f64 = 0.5;

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
    target?.settings.get("synchronous_standby_names").map(|names| wanted(names))
}

/// Whether commits may wait for standbys at all, by a target's settings.
pub(crate) fn wants(target: &Target) -> bool {
    wanted_by(Some(target)).is_some_and(|count| count > 0)
}

/// Whether and by how many synchronous standbys are too few for commits in most of a stretch in which commits wait for them. None
/// where enough are connected, and where that cannot be seen.
pub(crate) fn lack(scene: &Scene<'_>, primary: &str, range: &Range<usize>) -> Option<Lack> {
    let (from, _) = scene.grid.span(range);
    // Commits do wait for at least one: a setting that says otherwise is not the one in force.
    let wanted = wanted_by(target_at(scene.window, primary, from).as_ref()).unwrap_or(1).max(1);
    let connected = connected(scene, primary, |_| true);
    let too_few = connected.map(|count| f64::from(u8::from((count as usize) < wanted)));
    too_few.mean(range).filter(|share| *share >= MOST)?;
    Some(Lack { connected: connected.median(range)? as usize, wanted }).filter(|lack| lack.connected < lack.wanted)
}

/// Whether commits need the answer of one standby at the end of the window: it was synchronous when it was last seen, and without
/// it those connected are too few.
pub(crate) fn needed(scene: &Scene<'_>, primary: &str, standby: &str) -> bool {
    let flag = standby_row(scene.window, &cat::PG_REPL_SYNC, primary, standby).and_then(|track| track.last());
    let wanted = wanted_by(target(scene.window, primary).as_ref()).unwrap_or(1);
    let others = connected(scene, primary, |name| name != standby).0.into_iter().flatten().next_back();
    flag.is_some_and(|flag| flag >= 0.5) && others.is_some_and(|count| (count as usize) < wanted)
}

/// The seconds in which commits need the answer of one standby (1, else 0): it counts as synchronous, and without it those connected
/// are too few. One of a quorum (ANY) that the others make is not waited for, however slow it is.
pub(crate) fn needed_during(scene: &Scene<'_>, primary: &str, standby: &str) -> Lane {
    let own = scene.grid.gauge(standby_row(scene.window, &cat::PG_REPL_SYNC, primary, standby));
    if own.max(&(0..scene.grid.count)).is_none_or(|flag| flag < 0.5) {
        return scene.grid.unknown();
    }
    let wanted = wanted_by(target(scene.window, primary).as_ref()).unwrap_or(1).max(1);
    let others = connected(scene, primary, |name| name != standby);
    own.with(&others, |flag, others| f64::from(u8::from(flag >= 0.5 && (others as usize) < wanted)))
}

/// Whether the rows of standbys can be read: some were, or else the server's other processes are seen, which takes the same right.
pub(crate) fn readable(scene: &Scene<'_>, primary: &str) -> bool {
    let own = [("target", primary)];
    let mut rows = scene.window.tracks(cat::PG_REPL_SYNC.name, &own);
    let carriers = || scene.window.samples().iter().any(|sample| *sample.target == *primary && sample.is_carrier());
    rows.any(|track| !track.points.is_empty()) || carriers()
}

/// Connected standbys that count as synchronous, of those that a test names, in each second in which the server's own position
/// is read: a hole in the readings is no absence.
fn connected(scene: &Scene<'_>, primary: &str, test: impl Fn(&str) -> bool) -> Lane {
    if !readable(scene, primary) {
        return scene.grid.unknown();
    }
    let gauge = |name| scene.grid.gauge(scene.window.track(name, &[("target", primary)]));
    let read = gauge(cat::PG_WAL_FLUSH.name).or(&gauge(cat::PG_WAL_INSERT.name));
    let named = names(scene.window, primary).into_iter().filter(|name| test(name));
    let row = |name: String| scene.grid.gauge(standby_row(scene.window, &cat::PG_REPL_SYNC, primary, &name));
    let flags: Vec<Lane> = named.map(row).collect();
    scene.grid.lane(|second| {
        read.get(second)?;
        Some(flags.iter().filter(|flag| flag.get(second).is_some_and(|flag| flag >= 0.5)).count() as f64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
