//! How much at once paced connections of a network namespace send.

use super::Why;
use backwater_socket::{Namespace, SMALL_BURSTS};

/// Gives a namespace its setting back. What is neither gone nor as the run had set it, somebody else has set since.
pub(super) fn restore(namespace: &Namespace, before: u32) -> Result<(), Why> {
    namespace.replace_tso_rtt_log(SMALL_BURSTS, before).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::connected_for_tests::Connected;
    use crate::{Change, Journal, recover};
    use backwater_socket::SMALL_BURSTS;

    #[test]
    fn a_namespace_gets_its_setting_back_by_whoever_comes_next_unless_somebody_else_has_set_it() {
        let Some(there) = Connected::make("a_namespace_gets_its_setting_back_by_whoever_comes_next") else { return };
        let (namespace, before) = (there.namespace, there.before);
        let dir = tempfile::tempdir().unwrap();
        let change = Change::SmallBursts { namespace, before };
        for somebody_else in [None, Some(before + 2)] {
            let journal = Journal::begin(dir.path(), "attach").unwrap();
            journal.note(change.clone()).unwrap();
            let lines = std::fs::read(journal.path()).unwrap();
            journal.finish().unwrap();
            assert_eq!(there.now(), Some(before), "it was noted, and never made");
            // As a kill leaves it.
            std::fs::write(dir.path().join("journal-1-1.jsonl"), lines).unwrap();
            namespace.set_tso_rtt_log(somebody_else.unwrap_or(SMALL_BURSTS)).unwrap();
            let recovered = recover(dir.path()).unwrap();
            assert!(recovered[0].is_complete() && recovered[0].undone == [change.clone()], "{recovered:?}");
            assert_eq!(there.now(), somebody_else.or(Some(before)));
            namespace.set_tso_rtt_log(before).unwrap();
        }
    }
}
