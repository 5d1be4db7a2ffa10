//! The member's state in its replica set: what a live server and its flight recorder tell of it, and the event where it is
//! another than before.

use backwater_model::{Event, EventKind, Moment};

/// The state that was told last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    known: Option<i64>,
}

impl State {
    /// Takes what is told now (`replSetGetStatus.myState`): an event where that is another state than before. The first is no
    /// change, and where nothing is told it is as it was.
    pub(crate) fn take(&mut self, target: &str, state: Option<i64>, at: Moment) -> Option<Event> {
        let after = state?;
        let before = self.known.replace(after).filter(|before| *before != after)?;
        let change = match (before, after) {
            (1, _) => "stepped down",
            (_, 1) => "became primary",
            _ => "another state",
        };
        let (before, after) = (name(before), name(after));
        let fields = [("change", change), ("before", before), ("after", after)];
        let message = format!("{target}: {change} (was {before}, is {after})");
        Some(Event::new(at, target, EventKind::Restart, message, &fields))
    }
}

/// States of a member, as the manual has them.
fn name(state: i64) -> &'static str {
    match state {
        0 => "STARTUP",
        1 => "PRIMARY",
        2 => "SECONDARY",
        3 => "RECOVERING",
        5 => "STARTUP2",
        7 => "ARBITER",
        8 => "DOWN",
        9 => "ROLLBACK",
        10 => "REMOVED",
        _ => "UNKNOWN",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_state_that_is_another_than_before_is_told() {
        let mut state = State::default();
        let mut told = |now| state.take("db1", now, Moment(7)).map(|event| event.message);
        assert_eq!([told(Some(1)), told(Some(1)), told(None)], [None, None, None]);
        assert_eq!(told(Some(2)).as_deref(), Some("db1: stepped down (was PRIMARY, is SECONDARY)"));
        assert_eq!(told(Some(3)).as_deref(), Some("db1: another state (was SECONDARY, is RECOVERING)"));
        assert_eq!(told(Some(1)).as_deref(), Some("db1: became primary (was RECOVERING, is PRIMARY)"));
    }
}
