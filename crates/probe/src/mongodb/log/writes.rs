//! Slow writes told once. mongod logs each slow statement of an update or delete (WRITE) and right behind them, on the same
//! connection, the command that held them (COMMAND), whose time is theirs over again. The statements are kept: they have the
//! plan and the waits.

use super::time::written_at;
use super::{SlowOperation, slow_operation};
use backwater_model::Moment;
use std::collections::HashMap;

/// Connections whose last statement is remembered. A command follows its statements at once, so few wait for theirs; those of
/// a log where none ever comes (the writes of old drivers, lines that were lost) are forgotten together.
const MOST_REMEMBERED: usize = 4_096;

/// Reads lines in their order, and leaves out the commands whose statements were told.
#[derive(Debug, Default)]
pub(in crate::mongodb) struct Writes {
    /// By the connection or thread, where a statement was the last that it told.
    last: HashMap<String, Statement>,
}

/// One statement of a write.
#[derive(Debug)]
struct Statement {
    /// The command that it is a statement of.
    command: &'static str,
    duration_ms: u64,
    /// When its line was written, where that can be read.
    ended: Option<Moment>,
}

impl Writes {
    /// The slow operation that a line tells of; none where it tells of something else, or only of what the lines before did.
    pub(in crate::mongodb) fn operation(&mut self, line: &str) -> Option<SlowOperation> {
        let operation = slow_operation(line)?;
        (!self.were_told(&operation, line)).then_some(operation)
    }

    /// Whether it is a command whose statements were told; remembers it where it is such a statement.
    fn were_told(&mut self, operation: &SlowOperation, line: &str) -> bool {
        // Only what directly follows belongs together: whatever else the connection does makes an end.
        let before = self.last.remove(&operation.context);
        if operation.is_command {
            return before.is_some_and(|statement| statement.lies_in(operation, written_at(line)));
        }
        if let Some(command) = command_of(&operation.kind).filter(|_| !operation.context.is_empty()) {
            if self.last.len() >= MOST_REMEMBERED {
                self.last.clear();
            }
            let statement = Statement { command, duration_ms: operation.duration_ms, ended: written_at(line) };
            self.last.insert(operation.context.clone(), statement);
        }
        false
    }
}

impl Statement {
    /// Whether it was a part of a command that ended at this moment: it took no longer, and did not end before that began.
    fn lies_in(&self, command: &SlowOperation, ended: Option<Moment>) -> bool {
        let took_us = i64::try_from(command.duration_ms).unwrap_or(i64::MAX).saturating_mul(1_000);
        let meanwhile = self.ended.zip(ended).is_none_or(|(own, all)| own.0 >= all.0.saturating_sub(took_us));
        command.kind == self.command && command.duration_ms >= self.duration_ms && meanwhile
    }
}

/// The command that has statements of this kind. An insert's are one operation with it, and are logged once.
fn command_of(statement: &str) -> Option<&'static str> {
    match statement {
        "update" => Some("update"),
        "remove" => Some("delete"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of 4.2, a statement or a command by its words.
    fn text(second: &str, context: &str, words: &str, ms: u64) -> String {
        let component = if words.starts_with("command") { "COMMAND" } else { "WRITE  " };
        format!("2021-03-04T05:06:{second}+0000 I  {component}  [{context}] {words} numYields:0 locks:{{}} {ms}ms")
    }

    /// A line of 7.0: the attributes before the duration.
    fn json(second: &str, context: &str, attributes: &str, ms: u64) -> String {
        format!(
            r#"{{"t":{{"$date":"2026-11-21T20:06:{second}+00:00"}},"s":"I","c":"WRITE","id":51803,"ctx":"{context}","msg":"Slow query","attr":{{{attributes},"durationMillis":{ms}}}}}"#
        )
    }

    /// Kind and duration of what is told of these lines.
    fn told(lines: &[String]) -> Vec<(String, u64)> {
        let mut writes = Writes::default();
        let told = lines.iter().filter_map(|line| writes.operation(line));
        told.map(|operation| (operation.kind, operation.duration_ms)).collect()
    }

    fn expected(list: &[(&str, u64)]) -> Vec<(String, u64)> {
        list.iter().map(|(kind, ms)| ((*kind).to_owned(), *ms)).collect()
    }

    const TEXT_UPDATE: &str =
        "update shop.carts command: { q: { a: 1.0 }, u: { $set: { b: 2.0 } } } planSummary: COLLSCAN";
    const TEXT_UPDATES: &str = "command shop.$cmd command: update { update: \"carts\", ordered: true, $db: \"shop\" }";
    const JSON_REMOVE: &str = r#""type":"remove","ns":"shop.carts","command":{"q":{"a":1},"limit":0}"#;
    const JSON_DELETES: &str = r#""type":"command","ns":"shop.$cmd","command":{"delete":"carts","ordered":true}"#;

    #[test]
    fn a_command_behind_its_statements_is_not_told_again() {
        let lines = [
            text("07.100", "conn7", TEXT_UPDATE, 200),
            text("07.300", "conn8", TEXT_UPDATE, 150),
            text("07.310", "conn7", TEXT_UPDATE, 190),
            text("07.320", "conn7", TEXT_UPDATES, 420),
            text("07.330", "conn8", TEXT_UPDATES, 180),
        ];
        assert_eq!(told(&lines), expected(&[("update", 200), ("update", 150), ("update", 190)]));
        let lines = [json("07.100", "conn7", JSON_REMOVE, 200), json("07.100", "conn7", JSON_DELETES, 200)];
        assert_eq!(told(&lines), expected(&[("remove", 200)]));
        // Lines of which it cannot be read when they were written go by their durations.
        let without = |line: &String| line.replacen("\"t\"", "\"time\"", 1);
        assert_eq!(told(&lines.iter().map(without).collect::<Vec<_>>()), expected(&[("remove", 200)]));
    }

    #[test]
    fn a_command_whose_statements_were_not_told_counts() {
        // None is before it, or it is another connection's, another command's, of another time, or longer than the command.
        let update = || text("07.300", "conn7", TEXT_UPDATE, 200);
        let find = || text("07.310", "conn7", "command shop.carts command: find { find: \"carts\" }", 101);
        let updates = |second, context, ms| text(second, context, TEXT_UPDATES, ms);
        assert_eq!(told(&[updates("07.320", "conn7", 420)]), expected(&[("update", 420)]));
        let twice = |second, context, ms| told(&[update(), updates(second, context, ms)]);
        assert_eq!(twice("07.320", "conn8", 420), expected(&[("update", 200), ("update", 420)]));
        assert_eq!(twice("09.320", "conn7", 420), expected(&[("update", 200), ("update", 420)]));
        assert_eq!(twice("07.320", "conn7", 150), expected(&[("update", 200), ("update", 150)]));
        let between = told(&[update(), find(), updates("07.320", "conn7", 420)]);
        assert_eq!(between, expected(&[("update", 200), ("find", 101), ("update", 420)]));
        let other = told(&[json("07.300", "conn7", JSON_REMOVE, 200), updates("07.320", "conn7", 420)]);
        assert_eq!(other, expected(&[("remove", 200), ("update", 420)]));
        // Each command has statements of its own.
        let again = told(&[update(), updates("07.320", "conn7", 420), updates("07.330", "conn7", 130)]);
        assert_eq!(again, expected(&[("update", 200), ("update", 130)]));
    }

    #[test]
    fn statements_without_a_command_are_forgotten_when_they_are_many() {
        let mut writes = Writes::default();
        for number in 0..3 * MOST_REMEMBERED {
            let line = text("07.300", &format!("conn{number}"), TEXT_UPDATE, 200);
            assert!(writes.operation(&line).is_some());
            assert!(writes.last.len() <= MOST_REMEMBERED);
        }
    }
}
