//! Whether what is read is what the server says.

use super::layout::{Status, text_in};
use crate::postgres::look::Session;
use crate::postgres::row::ServerTime;

/// So many answers in a row that say otherwise, and nothing is read any more.
const MOST_CONTRARY: u32 = 3;
/// So many looks in a row may come to nothing while names are learned; after each further one twice as many are not tried,
const WHILE_LEARNING: u32 = 8;
/// so often at most.
const MOST_DOUBLINGS: u32 = 6;

/// In what a session that did not change differs from the server's answer; none where it is the same.
pub(super) fn difference(
    row: &Session<'_>,
    status: Status<'_>,
    application: &[u8],
    is_carrier: bool,
) -> Option<&'static str> {
    let time = |time: Option<i64>| time.map(ServerTime::of);
    // A walsender's transaction is not told (pg_stat_get_activity in pgstatfuncs.c), and the other carriers have none.
    let transaction = status.transaction_begun().filter(|_| !is_carrier);
    let differences = [
        ("state", status.state() != Some(row.state.unwrap_or("active"))),
        ("statement's begin", row.begun != time(status.statement_begun())),
        ("transaction's begin", row.transaction_begun != time(transaction)),
        ("query_id", row.query_id.filter(|id| *id != 0) != status.query_id()),
        ("application_name", row.application.unwrap_or_default() != text_in(application).unwrap_or_default()),
    ];
    differences.into_iter().find(|(_, differs)| *differs).map(|(what, _)| what)
}

/// How often the answers spoke against what was read.
#[derive(Debug, Default)]
pub(super) struct Trust {
    contrary: u32,
}

impl Trust {
    /// Takes whether an answer did; whether it may be believed again after more answers.
    pub(super) fn outlasts(&mut self, is_contrary: bool) -> bool {
        self.contrary = if is_contrary { self.contrary + 1 } else { 0 };
        self.contrary < MOST_CONTRARY
    }

    /// Whether the last answer bore it out.
    pub(super) fn is_whole(&self) -> bool {
        self.contrary == 0
    }
}

/// A look that came to nothing was work for nothing: after each the next is tried later, and as before once one came to something.
#[derive(Debug, Default)]
pub(super) struct Rest {
    failed: u32,
    left: u32,
}

impl Rest {
    /// Whether the next look is not tried.
    pub(super) fn goes_on(&mut self) -> bool {
        let goes_on = self.left > 0;
        self.left = self.left.saturating_sub(1);
        goes_on
    }

    /// Takes how a look went.
    pub(super) fn after(&mut self, did_well: bool) {
        self.failed = if did_well { 0 } else { self.failed.saturating_add(1) };
        let doublings = self.failed.saturating_sub(WHILE_LEARNING);
        self.left = if doublings == 0 { 0 } else { 1 << doublings.min(MOST_DOUBLINGS) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_contradicted_again_and_again_is_believed_no_more() {
        let mut trust = Trust::default();
        assert!(trust.outlasts(true) && !trust.is_whole());
        assert!(trust.outlasts(true) && trust.outlasts(false) && trust.is_whole());
        assert!(trust.outlasts(true) && trust.outlasts(true) && !trust.outlasts(true));
    }

    #[test]
    fn a_look_that_fails_again_and_again_is_tried_ever_more_rarely() {
        let mut rest = Rest::default();
        let mut tried = Vec::new();
        for look in 0..2_000 {
            if !rest.goes_on() {
                tried.push(look);
                rest.after(false);
            }
        }
        let steps: Vec<u32> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(steps[..11], [1, 1, 1, 1, 1, 1, 1, 1, 3, 5, 9]);
        assert_eq!(steps.last(), Some(&65));
        rest.after(true);
        assert!(!rest.goes_on());
    }
}
