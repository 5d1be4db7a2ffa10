//! What one look at a live server becomes: answers to commands as points, by the same table as the flight recorder's.

use super::super::life::Belongs;
use super::super::plan::Planner;
use super::super::reader::{hosts, labels};
use super::super::table::rows;
use super::figures;
use crate::Sink;
use std::collections::BTreeMap;

/// Answers of one look, taken apart.
#[derive(Default)]
pub(super) struct Look {
    figures: Vec<(String, f64)>,
    /// Hosts of the members of the replica set, by their number in the answer.
    members: BTreeMap<String, String>,
}

/// Where the flight recorder puts the statistics of the oplog.
pub(super) const OPLOG_STATS: &str = "local.oplog.rs.stats";
const MEMBERS: &str = "members";

impl Look {
    /// Adds the answer to a command, whose name the table begins its paths with.
    pub(super) fn add(&mut self, command: &str, answer: &[u8]) {
        figures::add(command, answer, &mut self.figures);
        self.members.extend(ftdc::find(answer, MEMBERS).iter().flat_map(hosts));
    }

    /// Puts down a point for each row of the table that has a figure.
    pub(super) fn put(&self, planner: &Planner, target: &str, belongs: Belongs, sink: &mut Sink<'_>) {
        for found in planner.plan(self.figures.iter().map(|(name, _)| name.as_str())) {
            let Some(value) = self.figures.get(found.place).and_then(|(_, raw)| found.row.reading.read(*raw)) else {
                continue;
            };
            let part = self.members.get(&found.part).unwrap_or(&found.part);
            sink.put(found.row.def, &labels(found.row, target, part), belongs.epoch, value);
        }
    }
}

/// A planner for everything a live server is asked for.
pub(super) fn planner() -> Planner {
    Planner::new(rows())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::super::life::Life;
    use super::*;
    use backwater_model::{Batch, Moment, Registry};
    use ftdc::Builder;
    use std::collections::HashSet;

    #[test]
    fn members_go_by_their_hosts() {
        let member = |b: Builder, name: &str, seconds| {
            b.string("name", name).int32("state", 2).document("optime", |o| o.timestamp("ts", seconds, 1))
        };
        let answer = Builder::new()
            .array("members", |m| {
                m.document("0", |b| member(b, "a:27017", 1_000)).document("1", |b| member(b, "b:27017", 990))
            })
            .finish();
        let mut look = Look::default();
        look.add("replSetGetStatus", &answer);
        let (registry, mut batch, mut absences) = (Registry::new(), Batch::default(), HashSet::new());
        let belongs = Life::default().of("t", Some(1), Some(5.0), Moment(0));
        look.put(&planner(), "t", belongs, &mut Sink::new(Moment(0), &registry, &mut batch, &mut absences));
        let optimes: Vec<(String, f64)> = batch
            .points
            .iter()
            .filter_map(|point| {
                let series = registry.get(point.series).unwrap();
                (series.name == "mongo.member.optime_s")
                    .then(|| (series.labels.get("member").unwrap_or_default().to_owned(), point.value))
            })
            .collect();
        assert_eq!(optimes, [("a:27017".to_owned(), 1_000.0), ("b:27017".to_owned(), 990.0)]);
    }
}
