//! Rows of the table, matched to the names of figures that a server or a chunk of its flight recorder really has.

use super::table::Row;
use std::collections::HashMap;

/// A row, the figure it is read from, and what stands for `#` in its path.
#[derive(Clone, Debug)]
pub(crate) struct Match {
    pub(crate) row: &'static Row,
    /// Place of the figure among the names.
    pub(crate) place: usize,
    /// The part of the path that is a label; empty where there is none.
    pub(crate) part: String,
}

/// A path of a row, cut at `#`.
struct Pattern {
    row: usize,
    rank: usize,
    front: &'static str,
    back: &'static str,
}

/// Rows ready to be matched.
pub(crate) struct Planner {
    rows: Vec<&'static Row>,
    exact: HashMap<&'static str, (usize, usize)>,
    patterns: Vec<Pattern>,
}

impl Planner {
    /// A planner for these rows.
    pub(crate) fn new(rows: impl Iterator<Item = &'static Row>) -> Self {
        let rows: Vec<&'static Row> = rows.collect();
        let (mut exact, mut patterns) = (HashMap::new(), Vec::new());
        for (row, known) in rows.iter().enumerate() {
            for (rank, path) in known.paths.iter().enumerate() {
                match path.split_once('#') {
                    Some((front, back)) => patterns.push(Pattern { row, rank, front, back }),
                    None => drop(exact.insert(*path, (row, rank))),
                }
            }
        }
        Planner { rows, exact, patterns }
    }

    /// The best place of each row among these names. Names may stand below a role (`shard.serverStatus...`, as since
    /// MongoDB 8.0); a name of which a part is a label gives a match for each such part.
    pub(crate) fn plan<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<Match> {
        let mut best: HashMap<(usize, &str), (usize, usize)> = HashMap::new();
        let mut note = |row: usize, rank: usize, part: &'n str, place: usize| {
            let known = best.entry((row, part)).or_insert((rank, place));
            if rank < known.0 {
                *known = (rank, place);
            }
        };
        for (place, name) in names.enumerate() {
            let name = without_role(name);
            if let Some((row, rank)) = self.exact.get(name) {
                note(*row, *rank, "", place);
                continue;
            }
            for pattern in &self.patterns {
                let part = name.strip_prefix(pattern.front).and_then(|rest| rest.strip_suffix(pattern.back));
                if let Some(part) = part.filter(|part| !part.is_empty() && !part.contains('.')) {
                    note(pattern.row, pattern.rank, part, place);
                }
            }
        }
        let mut found: Vec<Match> = best
            .into_iter()
            .map(|((row, part), (_, place))| Match { row: self.rows[row], place, part: part.to_owned() })
            .collect();
        found.sort_by_key(|found| found.place);
        found
    }

    /// Every path, with `*` for what is not known beforehand and for a role in front.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = String> {
        self.rows.iter().flat_map(|row| row.paths).map(|path| format!("*{}", path.replace('#', "*")))
    }
}

/// A name without the role of the server in front of it.
pub(crate) fn without_role(name: &str) -> &str {
    ftdc::ROLES.iter().find_map(|role| name.strip_prefix(role)?.strip_prefix('.')).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::table::rows;
    use super::*;

    fn told(names: &[&str]) -> Vec<(String, usize, String)> {
        let plan = Planner::new(rows()).plan(names.iter().copied());
        plan.into_iter().map(|found| (found.row.def.name.to_owned(), found.place, found.part)).collect()
    }

    #[test]
    fn the_newest_place_wins_whatever_the_order() {
        let old = "serverStatus.wiredTiger.concurrentTransactions.write.out";
        let new = "serverStatus.queues.execution.write.out";
        let name = "mongo.tickets.out".to_owned();
        assert_eq!(told(&[old]), [(name.clone(), 0, String::new())]);
        assert_eq!(told(&[old, new]), [(name.clone(), 1, String::new())]);
        assert_eq!(told(&[new, old]), [(name, 0, String::new())]);
    }

    #[test]
    fn disks_and_members_become_labels() {
        let found = told(&[
            "systemMetrics.disks.nvme0n1.write_sectors",
            "systemMetrics.disks.sda.write_sectors",
            "replSetGetStatus.members.2.optime.ts",
            "replSetGetStatus.members.2.optime.t",
            "systemMetrics.disks.sda.x.write_sectors",
        ]);
        let expected = [
            ("host.disk.written_bytes", 0, "nvme0n1"),
            ("host.disk.written_bytes", 1, "sda"),
            ("mongo.member.optime_s", 2, "2"),
        ];
        assert_eq!(found, expected.map(|(name, place, part)| (name.to_owned(), place, part.to_owned())));
    }

    #[test]
    fn a_role_in_front_is_passed_over() {
        assert_eq!(told(&["shard.serverStatus.uptimeMillis"])[0].0, "mongo.uptime_ms");
        assert_eq!(told(&["somebody.serverStatus.uptimeMillis"]), []);
    }

    #[test]
    fn figures_of_every_release_have_a_place() {
        // Sections and names as serverStatus of that release spells them.
        let v36 = ["thread-yield.application thread time evicting (usecs)", "cache.cache overflow table insert calls"];
        let v44 = ["cache.bytes allocated for updates", "cache.history store table insert calls"];
        let v80 = ["cache.application thread time evicting (usecs)", "checkpoint.most recent time (msecs)"];
        for names in [v36, v44, v80] {
            let names = names.map(|name| format!("serverStatus.wiredTiger.{name}"));
            assert_eq!(told(&names.each_ref().map(String::as_str)).len(), 2, "{names:?}");
        }
    }
}
