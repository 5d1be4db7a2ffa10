//! What holds work back: the newest state of it, and what rules did over the recording.

use super::axis::Axis;
use super::document::{Document, FlowView, HoldView};
use backwater_model::{Event, FlowState, Moment};
use std::collections::HashMap;

/// Deeds of rules that are told; of more, the newest.
const MOST_HOLDS: usize = 2_000;
/// Characters of a message.
const LONGEST: usize = 400;

impl Document {
    /// The same with the newest state of whoever holds work back, where somebody does.
    #[must_use]
    pub fn with_flow(mut self, state: Option<FlowState>) -> Document {
        if let Some(state) = state {
            let at_s = self.axis.seconds(state.at);
            let flow = self.flow.get_or_insert_default();
            (flow.at_s, flow.state) = (Some(at_s), Some(state));
        }
        self
    }
}

/// What rules did, by their decisions in order of time; none where nothing was decided.
pub(super) fn flow(decisions: &[Event], axis: &Axis) -> Option<FlowView> {
    let mut holds: Vec<HoldView> = Vec::new();
    let mut open: HashMap<(String, String, String), usize> = HashMap::new();
    // A session that is let go or held again for its pool's sake is no rule's doing.
    for event in decisions.iter().filter(|event| event.fields.contains_key("rule")) {
        let field = |name: &str| event.fields.get(name).cloned().unwrap_or_default();
        let key = (event.source.clone(), field("rule"), field("session"));
        let at_s = axis.seconds(event.at);
        let step = field("step");
        // What begins is another one, also where of the one before no end was told: it lasted until now at most.
        let known = match step.as_str() {
            "began" => open.remove(&key).and_then(|before| {
                holds[before].to_s.get_or_insert(at_s);
                None
            }),
            _ => open.get(&key).copied(),
        };
        let place = known.unwrap_or_else(|| {
            // Of one that began before the recording only its end is known, which says when it began.
            let began = field("began").parse().ok().map(Moment);
            holds.push(HoldView {
                from_s: began.filter(|_| step == "lifted").map_or(at_s, |began| axis.seconds(began)),
                to_s: None,
                rule: field("rule"),
                action: field("action"),
                session: field("session"),
                user: field("user"),
                pool: field("pool"),
                message: event.message.chars().take(LONGEST).collect(),
                end: None,
            });
            holds.len() - 1
        });
        let hold = &mut holds[place];
        match step.as_str() {
            // What is cancelled or only told of is over at once, unless more is told of it.
            "began" if hold.action != "penalty" => hold.to_s = Some(at_s),
            "escalated" => (hold.to_s, hold.end) = (Some(at_s), Some("the session was ended".to_owned())),
            "lifted" => {
                hold.to_s = Some(at_s);
                hold.end.get_or_insert_with(|| field("why"));
            }
            _ => {}
        }
        if step == "lifted" {
            open.remove(&key);
        } else {
            open.insert(key, place);
        }
    }
    let left_out = holds.len().saturating_sub(MOST_HOLDS);
    holds.drain(..left_out);
    (!holds.is_empty()).then_some(FlowView { at_s: None, state: None, holds, left_out })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{EventKind, Meta};
    use std::sync::Arc;

    fn decision(second: i64, step: &str, session: &str, more: &[(&str, &str)]) -> Event {
        let mut fields =
            vec![("rule", "heavy"), ("step", step), ("session", session), ("user", "etl"), ("pool", "default")];
        fields.extend(more);
        Event::new(Moment(second * 1_000_000), "proxy", EventKind::Decision, "", &fields)
    }

    fn told(decisions: &[Event]) -> Vec<(f64, Option<f64>, String)> {
        let axis = Axis::between(Moment(0), Moment(100_000_000), &Arc::new(Meta::default()));
        let view = flow(decisions, &axis).unwrap();
        view.holds.into_iter().map(|hold| (hold.from_s, hold.to_s, hold.end.unwrap_or_default())).collect()
    }

    #[test]
    fn a_penalty_holds_until_it_is_lifted() {
        let penalty = ("action", "penalty");
        let list = told(&[
            decision(10, "began", "1", &[penalty]),
            decision(12, "began", "2", &[penalty]),
            decision(20, "lifted", "1", &[penalty, ("began", "10000000"), ("why", "the statement ended")]),
            decision(30, "began", "1", &[penalty]),
            // Whoever held it fell, and another one has begun since.
            decision(40, "began", "1", &[penalty]),
        ]);
        let (ended, unknown) = ("the statement ended".to_owned(), String::new);
        let again = [(12.0, None, unknown()), (30.0, Some(40.0), unknown()), (40.0, None, unknown())];
        assert_eq!(list[0], (10.0, Some(20.0), ended));
        assert_eq!(list[1..], again);
    }

    #[test]
    fn one_that_began_before_is_known_by_its_end_and_an_abort_is_over_at_once() {
        let list = told(&[
            decision(5, "lifted", "9", &[("action", "penalty"), ("began", "2000000"), ("why", "gone")]),
            decision(10, "began", "1", &[("action", "abort")]),
            decision(15, "escalated", "1", &[("action", "abort")]),
            decision(16, "lifted", "1", &[("action", "abort"), ("began", "10000000"), ("why", "the session ended")]),
            decision(20, "began", "3", &[("action", "dryrun")]),
            decision(30, "began", "3", &[("action", "dryrun")]),
            decision(32, "lifted", "3", &[("action", "dryrun"), ("began", "30000000"), ("why", "the statement ended")]),
        ]);
        assert_eq!(list[0], (2.0, Some(5.0), "gone".to_owned()));
        assert_eq!(list[1], (10.0, Some(16.0), "the session was ended".to_owned()));
        assert_eq!(list[2], (20.0, Some(20.0), String::new()), "of this one no end was told");
        assert_eq!(list[3], (30.0, Some(32.0), "the statement ended".to_owned()));
        assert_eq!(list.len(), 4);
    }

    #[test]
    fn where_no_rule_holds_anybody_nothing_is_told() {
        let axis = Axis::between(Moment(0), Moment(1), &Arc::new(Meta::default()));
        let mut freed = decision(0, "freed", "1", &[("why", "it blocked urgent work")]);
        freed.fields.remove("rule");
        assert!(flow(&[], &axis).is_none() && flow(&[freed], &axis).is_none());
    }
}
