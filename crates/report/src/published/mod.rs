//! The published tables that the lab's scenarios reproduce, as data: one file a scenario.

mod commit_wait;
mod net_overload;
mod stampede;
mod wal_lag;
mod wt_stall;

/// One row of a published table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedRow {
    /// What was set, one value a column of [`Published::columns`].
    pub set: &'static [&'static str],
    /// What was seen.
    pub seen: &'static str,
    /// The arm of the scenario that reproduces it.
    pub arm: &'static str,
}

/// A published table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The scenario.
    pub scenario: &'static str,
    /// Who measured, on what.
    pub source: &'static str,
    /// Names of the columns that say what was set, and the parameter of an arm that each corresponds to.
    pub columns: &'static [(&'static str, &'static str)],
    /// The rows.
    pub rows: &'static [PublishedRow],
    /// What keeps the two tables from being compared figure by figure.
    pub caution: &'static str,
}

/// The published table of a scenario, where there is one.
pub fn published(scenario: &str) -> Option<&'static Published> {
    [&stampede::TABLE, &commit_wait::TABLE, &wal_lag::TABLE, &wt_stall::TABLE, &net_overload::TABLE]
        .into_iter()
        .find(|table| table.scenario == scenario)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_fills_every_column() {
        let table = published("stampede").expect("it is published");
        assert_eq!(table.rows.len(), 5);
        assert!(table.rows.iter().all(|row| row.set.len() == table.columns.len()));
        let table = published("commit-wait").expect("it is published");
        assert!(table.rows.len() == 6 && table.rows.iter().all(|row| row.set.len() == table.columns.len()));
        let table = published("wal-lag").expect("it is published");
        assert!(table.rows.len() == 2 && table.rows.iter().all(|row| row.set.len() == table.columns.len()));
        let table = published("wt-stall").expect("it is published");
        assert!(table.rows.len() == 5 && table.rows.iter().all(|row| row.set.len() == table.columns.len()));
        let table = published("net-overload").expect("it is published");
        assert!(table.rows.len() == 16 && table.rows.iter().all(|row| row.set.len() == table.columns.len()));
        assert!(published("nothing").is_none());
    }
}
