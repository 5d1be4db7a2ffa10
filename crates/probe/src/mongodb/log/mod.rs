//! Slow operations in mongod's log: text up to 4.2, JSON from 4.4. Of a line only what says where the time went is kept: kind,
//! namespace, plan, waits. The command itself holds people's data and is passed over.

mod history;
mod json;
mod lines;
mod ring;
mod tail;
mod text;
mod time;
mod writes;

pub(super) use history::History;
pub(super) use ring::Ring;
pub(super) use tail::Tail;
pub(super) use writes::Writes;

/// An operation that took longer than the server's threshold (slowms).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlowOperation {
    /// The connection or thread that it ran on, as the server names it; empty where the line names none.
    pub(super) context: String,
    /// `insert`, `update`, `find`, `aggregate`, ...
    pub(super) kind: String,
    /// Whether it is a command of that name, not a statement of one.
    pub(super) is_command: bool,
    /// Database and collection.
    pub(super) namespace: String,
    pub(super) duration_ms: u64,
    /// The plan's shape: `COLLSCAN`, `IXSCAN { a: 1 }`.
    pub(super) plan: Option<String>,
    pub(super) documents_examined: Option<u64>,
    pub(super) write_conflicts: Option<u64>,
    /// Reading pages from the disk, in microseconds (4.0+).
    pub(super) reading_us: Option<u64>,
    /// Waiting until the cache had room, in microseconds (4.0+).
    pub(super) cache_wait_us: Option<u64>,
    /// Waiting for a ticket of flow control, in microseconds (4.2+).
    pub(super) flow_control_us: Option<u64>,
    /// Waiting for the write concern, in milliseconds (4.4+).
    pub(super) write_concern_ms: Option<u64>,
}

impl SlowOperation {
    /// Whether its line was cut, so that nothing is known but that there was one.
    pub(super) fn is_cut(&self) -> bool {
        self.kind.is_empty() && self.duration_ms == 0
    }
}

/// The longest kind, namespace and plan that are kept, in characters.
const LONGEST_WORDS: usize = 200;

/// The slow operation that a line tells of; none where it tells of something else, or is no line of mongod's.
fn slow_operation(line: &str) -> Option<SlowOperation> {
    let operation = if line.starts_with('{') { json::read(line) } else { text::read(line) }?;
    let plan = operation.plan.map(|plan| shortened(&plan));
    Some(SlowOperation {
        context: shortened(&operation.context),
        kind: shortened(&operation.kind),
        namespace: shortened(&operation.namespace),
        plan,
        ..operation
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST_WORDS).collect()
}

impl SlowOperation {
    /// One line for people.
    pub(super) fn sentence(&self) -> String {
        let mut parts = vec![format!("slow {} on {}: {} ms", self.kind, self.namespace, self.duration_ms)];
        let waits = [
            ("for room in the cache", self.cache_wait_us.map(|us| us / 1_000)),
            ("for flow control", self.flow_control_us.map(|us| us / 1_000)),
            ("for the disk's reads", self.reading_us.map(|us| us / 1_000)),
            ("for the write concern", self.write_concern_ms),
        ];
        let waits = waits.into_iter().filter_map(|(what, ms)| Some(format!("{} ms {what}", ms.filter(|ms| *ms > 0)?)));
        parts.extend(waits);
        parts.extend(self.plan.as_ref().filter(|plan| *plan == "COLLSCAN").map(|_| "every document read".to_owned()));
        parts.join(", ")
    }

    /// The same as named values.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let number = |name, value: Option<u64>| value.map(|value| (name, value.to_string()));
        let mut fields = vec![
            ("what", "slow operation".to_owned()),
            ("kind", self.kind.clone()),
            ("namespace", self.namespace.clone()),
            ("duration_ms", self.duration_ms.to_string()),
        ];
        fields.extend(self.plan.clone().map(|plan| ("plan", plan)));
        let numbers = [
            number("documents_examined", self.documents_examined),
            number("write_conflicts", self.write_conflicts),
            number("reading_us", self.reading_us),
            number("cache_wait_us", self.cache_wait_us),
            number("flow_control_us", self.flow_control_us),
            number("write_concern_ms", self.write_concern_ms),
        ];
        fields.extend(numbers.into_iter().flatten());
        fields
    }
}

/// Reads bytes as a server's log, in one piece and in several. For the fuzzer.
#[cfg(fuzzing)]
pub fn exercise(bytes: &[u8], piece_bytes: usize) {
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let (mut lines, mut all) = (lines::Lines::default(), Vec::new());
        pieces.for_each(|piece| lines.take(piece, |line| all.push((time::written_at(line), slow_operation(line)))));
        all
    };
    let whole = read(&mut std::iter::once(bytes));
    assert_eq!(whole, read(&mut bytes.chunks(piece_bytes.max(1))));
    for operation in whole.into_iter().filter_map(|(_, operation)| operation) {
        let _ = (operation.sentence(), operation.fields());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sentence_names_what_was_waited_for() {
        let operation = SlowOperation {
            kind: "update".to_owned(),
            namespace: "shop.carts".to_owned(),
            duration_ms: 1_234,
            plan: Some("COLLSCAN".to_owned()),
            cache_wait_us: Some(1_100_000),
            reading_us: Some(10),
            ..SlowOperation::default()
        };
        let expected = "slow update on shop.carts: 1234 ms, 1100 ms for room in the cache, every document read";
        assert_eq!(operation.sentence(), expected);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = slow_operation(&String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn lines_that_are_nearly_right_never_panic(
            words in proptest::collection::vec(
                prop_oneof![
                    Just("{".to_owned()), Just("}".to_owned()), Just("\"".to_owned()), Just("\\".to_owned()),
                    Just("command: insert".to_owned()), Just("storage:{".to_owned()), Just(" 12ms".to_owned()),
                    Just("timeWaitingMicros: {".to_owned()), Just("cache:".to_owned()), "\\PC{0,6}"
                ],
                0..40,
            )
        ) {
            let line = words.join(" ");
            let _ = slow_operation(&format!("2021-01-01T00:00:00.000+0000 I  COMMAND  [conn1] command a.b {line}"));
            let _ = slow_operation(&format!("{{\"id\":51803,\"attr\":{{{line}}}}}"));
        }
    }
}
