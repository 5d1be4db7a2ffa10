//! Lines of MongoDB up to 4.2: words, with documents in braces between them. What stands in braces or quotes belongs to people's
//! data, but for the storage engine's waits, and is never taken for the server's own words.

use super::SlowOperation;

/// Components that log slow operations.
const COMPONENTS: [&str; 3] = ["COMMAND", "WRITE", "QUERY"];
/// Kinds of operation as these lines begin with.
const KINDS: [&str; 7] = ["command", "query", "insert", "update", "remove", "getmore", "killcursors"];

/// What stands before an operation whose line was longer than the server writes: how that begins, and how it ends
/// (src/mongo/logger/message_event_utf8_encoder.cpp).
const WARNING: (&str, &str) = ("warning: log line attempted (", "printing beginning and end ... ");

/// A word of the line, and the document that stands right behind it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Word<'a> {
    text: &'a str,
    document: Option<&'a str>,
}

/// The slow operation of a line, such as
/// `2021-03-04T05:06:07.890+0000 I  WRITE    [conn7] update shop.carts command: {…} planSummary: IDHACK … 145ms`.
pub(super) fn read(line: &str) -> Option<SlowOperation> {
    let (_time, rest) = line.split_once(' ')?;
    let (_severity, rest) = rest.trim_start().split_once(' ')?;
    let (component, rest) = rest.trim_start().split_once(' ')?;
    if !COMPONENTS.contains(&component) {
        return None;
    }
    let (context, rest) = rest.trim_start().strip_prefix('[')?.split_once("] ")?;
    let rest = without_warning(rest.trim_end());
    // It stands outside of every document even where the line was cut in its middle.
    let duration_ms = rest.rsplit(' ').next()?.strip_suffix("ms")?.parse().ok()?;
    let words = words(rest);
    let kind = words.first()?.text;
    let namespace = words.get(1)?.text;
    if !KINDS.contains(&kind) || namespace.is_empty() {
        return None;
    }
    let storage = words.iter().find(|word| word.text == "storage:").and_then(|word| word.document).unwrap_or_default();
    let flow = words.iter().find(|word| word.text == "flowControl:").and_then(|word| word.document).unwrap_or_default();
    Some(SlowOperation {
        context: context.to_owned(),
        is_command: kind == "command",
        kind: command(&words).filter(|_| kind == "command").unwrap_or(kind).to_owned(),
        namespace: namespace.to_owned(),
        duration_ms,
        plan: plan(&words),
        documents_examined: value(&words, "docsExamined:"),
        write_conflicts: value(&words, "writeConflicts:"),
        reading_us: number_behind(storage, "timeReadingMicros:"),
        cache_wait_us: number_behind(storage, "cache:"),
        flow_control_us: number_behind(flow, "timeAcquiringMicros:"),
        write_concern_ms: None,
    })
}

fn without_warning(rest: &str) -> &str {
    let behind = rest.strip_prefix(WARNING.0).and_then(|rest| rest.split_once(WARNING.1));
    behind.map_or(rest, |(_, operation)| operation)
}

/// The words outside of documents and quotes, up to where a document does not end.
fn words(line: &str) -> Vec<Word<'_>> {
    let mut words: Vec<Word<'_>> = Vec::new();
    let (mut begun, mut depth, mut opened) = (None, 0_usize, 0);
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate() {
        if quoted {
            quoted = byte != b'"' || escaped;
            escaped = byte == b'\\' && !escaped;
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'{' => {
                if depth == 0 {
                    end_word(line, &mut begun, at, &mut words);
                    opened = at;
                }
                depth += 1;
            }
            b'}' if depth > 0 => {
                depth -= 1;
                if depth == 0
                    && let Some(word) = words.last_mut()
                {
                    word.document = Some(&line[opened..=at]);
                }
            }
            b' ' if depth == 0 => end_word(line, &mut begun, at, &mut words),
            _ if depth == 0 && begun.is_none() => begun = Some(at),
            _ => {}
        }
    }
    if depth == 0 && !quoted {
        end_word(line, &mut begun, line.len(), &mut words);
    }
    words
}

fn end_word<'a>(line: &'a str, begun: &mut Option<usize>, end: usize, words: &mut Vec<Word<'a>>) {
    if let Some(begun) = begun.take() {
        words.push(Word { text: &line[begun..end], document: None });
    }
}

/// The name of the command: the word behind `command:`.
fn command<'a>(words: &[Word<'a>]) -> Option<&'a str> {
    let place = words.iter().position(|word| word.text == "command:" && word.document.is_none())?;
    words.get(place + 1).map(|word| word.text)
}

/// `planSummary: IXSCAN { a: 1 }`.
fn plan(words: &[Word<'_>]) -> Option<String> {
    let place = words.iter().position(|word| word.text == "planSummary:")?;
    let stage = words.get(place + 1)?;
    Some(match stage.document {
        Some(document) => format!("{} {document}", stage.text),
        None => stage.text.to_owned(),
    })
}

fn value(words: &[Word<'_>], name: &str) -> Option<u64> {
    words.iter().find_map(|word| word.text.strip_prefix(name)?.parse().ok())
}

/// The number that stands behind a name.
fn number_behind(text: &str, name: &str) -> Option<u64> {
    let rest = text.split_once(name)?.1.trim_start();
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_command_of_4_2() {
        let line = r#"2021-03-04T05:06:07.890+0000 I  COMMAND  [conn12] command shop.carts appName: "a { b" command: insert { insert: "carts", note: "docsExamined:99 } 5ms", $db: "shop" } ninserted:1 keysInserted:1 numYields:0 reslen:45 locks:{ Global: { acquireCount: { r: 1 } } } flowControl:{ acquireCount: 1, timeAcquiringMicros: 7 } storage:{ data: { bytesRead: 10, timeReadingMicros: 20 }, timeWaitingMicros: { cache: 130000 } } protocol:op_msg 145ms"#;
        let operation = read(line).unwrap();
        assert_eq!(
            (operation.kind.as_str(), operation.namespace.as_str(), operation.duration_ms),
            ("insert", "shop.carts", 145)
        );
        assert_eq!(
            (operation.cache_wait_us, operation.reading_us, operation.flow_control_us),
            (Some(130_000), Some(20), Some(7))
        );
        assert_eq!(operation.documents_examined, None, "what a client wrote is not the server's word");
    }

    #[test]
    fn a_write_of_3_6() {
        let line = r"2018-03-04T05:06:07.890+0000 I WRITE    [conn7] update shop.carts command: { q: { a: 1.0 }, u: { $set: { b: 2.0 } }, multi: false, upsert: false } planSummary: IXSCAN { a: 1 } keysExamined:3 docsExamined:1 nMatched:1 nModified:1 writeConflicts:4 numYields:0 locks:{ } 231ms";
        let operation = read(line).unwrap();
        assert_eq!((operation.kind.as_str(), operation.plan.as_deref()), ("update", Some("IXSCAN { a: 1 }")));
        assert_eq!((operation.documents_examined, operation.write_conflicts), (Some(1), Some(4)));
    }

    #[test]
    fn a_line_cut_in_its_middle_keeps_what_is_certain() {
        let line = r#"2021-03-04T05:06:07.890+0000 I  COMMAND  [conn1] command a.b command: insert { insert: "b", documents: [ { x: "lo .......... ol" } ] protocol:op_msg 900ms"#;
        let operation = read(line).unwrap();
        assert_eq!((operation.namespace.as_str(), operation.duration_ms), ("a.b", 900));
    }

    #[test]
    fn a_line_that_is_too_long_tells_its_operation_behind_a_warning() {
        let line = r#"2021-03-04T05:06:07.890+0000 I  COMMAND  [conn1] warning: log line attempted (25kB) over max size (10kB), printing beginning and end ... command a.b command: aggregate { aggregate: "b", pipeline: [ { $match: { x: "lo .......... ol" } } ] } protocol:op_msg 900ms"#;
        let operation = read(line).unwrap();
        assert_eq!(
            (operation.kind.as_str(), operation.namespace.as_str(), operation.duration_ms),
            ("aggregate", "a.b", 900)
        );
        assert_eq!((operation.context.as_str(), operation.is_command), ("conn1", true));
        let other = line.replace("command a.b command: aggregate", "the rest of something else");
        assert_eq!(read(&other), None);
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "2021-03-04T05:06:07.890+0000 I  NETWORK  [listener] connection accepted from 10.0.0.1:5 #12 (3 connections now open)",
            "2021-03-04T05:06:07.890+0000 I  COMMAND  [conn1] CMD: drop shop.carts",
            "2021-03-04T05:06:07.890+0000 I  COMMAND  [conn1] command shop.carts command: insert { } 12xs",
            "2021-03-04T05:06:07.890+0000 I  COMMAND  [ftdc] serverStatus was very slow: { after basic: 0, at end: 1020ms",
            "\tat somewhere 12ms",
            "",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
