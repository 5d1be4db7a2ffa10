//! Lines of MongoDB 4.4 and later: a JSON object each, slow operations with the id 51803.

use super::SlowOperation;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// "Slow query" (src/mongo/db/curop.cpp), which every kind of operation is logged as.
const SLOW_QUERY: u32 = 51_803;

#[derive(Deserialize)]
struct Line {
    id: u32,
    #[serde(default, deserialize_with = "if_it_fits")]
    ctx: Option<String>,
    attr: Attributes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attributes {
    #[serde(rename = "type", default, deserialize_with = "if_it_fits")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "if_it_fits")]
    ns: Option<String>,
    command: Option<FirstKey>,
    #[serde(default, deserialize_with = "if_it_fits")]
    plan_summary: Option<String>,
    #[serde(default, deserialize_with = "if_it_fits")]
    docs_examined: Option<u64>,
    #[serde(default, deserialize_with = "if_it_fits")]
    write_conflicts: Option<u64>,
    #[serde(default, deserialize_with = "if_it_fits")]
    flow_control: Option<FlowControl>,
    #[serde(default, deserialize_with = "if_it_fits")]
    wait_for_write_concern_duration_millis: Option<u64>,
    #[serde(default, deserialize_with = "if_it_fits")]
    storage: Option<Storage>,
    duration_millis: u64,
}

/// What stands there where it is of this kind, else nothing: a detail in another form does not lose the operation.
fn if_it_fits<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stands<T> {
        Fits(T),
        Other(IgnoredAny),
    }
    Ok(match Stands::deserialize(deserializer)? {
        Stands::Fits(value) => Some(value),
        Stands::Other(_) => None,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FlowControl {
    time_acquiring_micros: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Storage {
    data: Option<Data>,
    time_waiting_micros: Option<Waiting>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    time_reading_micros: Option<u64>,
}

#[derive(Deserialize)]
struct Waiting {
    cache: Option<u64>,
}

/// The first key of an object, which is the name of a command; nothing of what lies in it, which is passed over unread, however
/// deep. A text instead ("unrecognized", where curop.cpp has no command to show) names none.
struct FirstKey(Option<String>);

impl<'de> Deserialize<'de> for FirstKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = FirstKey;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a command")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FirstKey, A::Error> {
                let first = map.next_key::<String>()?;
                if first.is_some() {
                    map.next_value::<IgnoredAny>()?;
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(FirstKey(first))
            }

            fn visit_str<E>(self, _: &str) -> Result<FirstKey, E> {
                Ok(FirstKey(None))
            }
        }
        deserializer.deserialize_any(Keys)
    }
}

/// The slow operation of a line that was cut: since 4.4 some releases hand out no more than 1,023 bytes of each. That it was is
/// known, not how long it took, which stands at the end.
fn cut(line: &str) -> Option<SlowOperation> {
    line.contains(&format!("\"id\":{SLOW_QUERY},")).then(SlowOperation::default)
}

/// The slow operation of a line.
pub(super) fn read(line: &str) -> Option<SlowOperation> {
    // Most lines are others, and looking for a word costs less than taking them apart.
    if !line.contains("51803") {
        return None;
    }
    let Line { id, ctx, attr } = match serde_json::from_str(line) {
        Ok(line) => line,
        Err(error) => return cut(line).filter(|_| error.is_eof()),
    };
    if id != SLOW_QUERY {
        return None;
    }
    let kind = attr.kind.unwrap_or_default();
    let is_command = kind == "command" || kind.is_empty();
    let command = attr.command.and_then(|FirstKey(name)| name).filter(|_| is_command);
    let (data, waiting) = attr.storage.map_or((None, None), |storage| (storage.data, storage.time_waiting_micros));
    Some(SlowOperation {
        context: ctx.unwrap_or_default(),
        is_command,
        kind: command.unwrap_or(kind),
        namespace: attr.ns.unwrap_or_default(),
        duration_ms: attr.duration_millis,
        plan: attr.plan_summary,
        documents_examined: attr.docs_examined,
        write_conflicts: attr.write_conflicts,
        reading_us: data.and_then(|data| data.time_reading_micros),
        cache_wait_us: waiting.and_then(|waiting| waiting.cache),
        flow_control_us: attr.flow_control.and_then(|flow| flow.time_acquiring_micros),
        write_concern_ms: attr.wait_for_write_concern_duration_millis,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// As MongoDB 7.0 writes it.
    const UPDATE: &str = r#"{"t":{"$date":"2026-11-21T20:06:50.123+00:00"},"s":"I","c":"WRITE","id":51803,"ctx":"conn42","msg":"Slow query","attr":{"type":"update","ns":"shop.carts","command":{"q":{"_id":7,"name":"planSummary: x"},"u":{"$set":{"a":"secret"}},"multi":false,"upsert":false},"planSummary":"IXSCAN { _id: 1 }","keysExamined":1,"docsExamined":1,"nMatched":1,"nModified":1,"numYields":0,"writeConflicts":3,"locks":{"Global":{"acquireCount":{"w":1}}},"flowControl":{"acquireCount":1,"timeAcquiringMicros":2500},"storage":{"data":{"bytesRead":4096,"timeReadingMicros":900},"timeWaitingMicros":{"cache":811000}},"remote":"10.0.0.7:5","durationMillis":823}}"#;

    #[test]
    fn an_update_with_its_waits() {
        let operation = read(UPDATE).unwrap();
        assert_eq!(
            (operation.kind.as_str(), operation.namespace.as_str(), operation.duration_ms),
            ("update", "shop.carts", 823)
        );
        assert_eq!((operation.cache_wait_us, operation.reading_us), (Some(811_000), Some(900)));
        assert_eq!((operation.flow_control_us, operation.write_conflicts), (Some(2_500), Some(3)));
        assert_eq!((operation.context.as_str(), operation.is_command), ("conn42", false));
        assert!(!format!("{operation:?}").contains("secret"));
    }

    #[test]
    fn a_line_that_was_cut_is_counted_and_nothing_more() {
        let operation = read(&UPDATE[..400]).unwrap();
        assert!(operation.is_cut() && operation.namespace.is_empty(), "{operation:?}");
        assert!(!read(UPDATE).unwrap().is_cut());
        assert_eq!(read(&UPDATE[..400].replace("\"id\":51803,", "\"id\":22943,")), None);
        assert_eq!(read("{\"id\":51803,\"attr\":7}"), None, "whole, and no slow operation");
        assert!(read(r#"{"id":51803,"attr":{"command":{"insert":"x"}"#).unwrap().is_cut(), "behind a brace");
    }

    #[test]
    fn a_command_goes_by_its_own_name() {
        let line = r#"{"s":"I","c":"COMMAND","id":51803,"msg":"Slow query","attr":{"type":"command","ns":"shop.$cmd","command":{"insert":"carts","ordered":true,"$db":"shop"},"waitForWriteConcernDurationMillis":90,"durationMillis":120}}"#;
        let operation = read(line).unwrap();
        assert_eq!((operation.kind.as_str(), operation.write_concern_ms), ("insert", Some(90)));
        assert!(operation.is_command && operation.context.is_empty(), "{operation:?}");
    }

    #[test]
    fn a_detail_in_another_form_does_not_lose_the_operation() {
        let line = |details: &str| {
            format!(
                r#"{{"s":"I","c":"COMMAND","id":51803,"msg":"Slow query","attr":{{{details},"durationMillis":120}}}}"#
            )
        };
        let operation = read(&line(r#""type":"command","ns":"shop.$cmd","command":"unrecognized""#)).unwrap();
        assert_eq!((operation.kind.as_str(), operation.duration_ms), ("command", 120));
        let others = r#""type":"update","ns":"a.b","planSummary":7,"docsExamined":-1,"storage":"x","flowControl":[]"#;
        let operation = read(&line(others)).unwrap();
        assert_eq!((operation.kind.as_str(), operation.plan, operation.documents_examined), ("update", None, None));
        let deep = format!(r#""command":{{"find":{}1{}}}"#, r#"{"a":"#.repeat(180), "}".repeat(180));
        assert_eq!(read(&line(&deep)).unwrap().kind, "find", "as deep as the server takes commands");
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            r#"{"s":"I","id":22943,"msg":"Connection accepted","attr":{"remote":"a:1","durationMillis":1}}"#,
            r#"{"s":"I","id":51803,"msg":"Slow query","attr":{"ns":"a.b"}}"#,
            r#"{"s":"I","id":51803,"msg":"Slow query","attr":{"ns":"a.b","durationMillis":-4}}"#,
            r#"{"s":"I","id":22943,"attr":{"command":{"insert":"51803"#,
            "{}",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
