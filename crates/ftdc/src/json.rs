//! BSON as JSON, for people and other programs: relaxed, in the documents' own order, repeated keys repeated. Dates are
//! RFC 3339 in UTC; what JSON has no word for is an object as in MongoDB's Extended JSON.

use crate::bson::{Element, elements, kind};
use crate::{Damage, Limits};
use std::fmt::Write;

/// A BSON document as one line of JSON.
pub fn to_json(document: &[u8]) -> Result<String, Damage> {
    let mut out = String::new();
    write_document(&mut out, document, false, Limits::default().depth)?;
    Ok(out)
}

fn write_document(out: &mut String, document: &[u8], array: bool, depth: usize) -> Result<(), Damage> {
    out.push(if array { '[' } else { '{' });
    for (place, element) in elements(document)?.enumerate() {
        let element = element?;
        if place > 0 {
            out.push(',');
        }
        if !array {
            quoted(out, &String::from_utf8_lossy(element.key));
            out.push(':');
        }
        if element.is_document() {
            let depth = depth.checked_sub(1).ok_or(Damage::Bson("documents lie too deep within one another"))?;
            write_document(out, element.value, element.kind == kind::ARRAY, depth)?;
        } else {
            write_value(out, &element);
        }
    }
    out.push(if array { ']' } else { '}' });
    Ok(())
}

fn write_value(out: &mut String, element: &Element<'_>) {
    // Writing into a string cannot fail.
    let _ = match (element.kind, element.value) {
        (kind::DOUBLE, value) => {
            let number = f64::from_le_bytes(value.first_chunk::<8>().copied().unwrap_or_default());
            match serde_json::Number::from_f64(number) {
                Some(number) => write!(out, "{number}"),
                None => write!(out, "{{\"$numberDouble\":\"{number}\"}}"),
            }
        }
        (kind::INT32 | kind::INT64, _) => write!(out, "{}", element.integer().unwrap_or_default()),
        (kind::BOOL, value) => write!(out, "{}", value != [0]),
        (kind::NULL, _) => write!(out, "null"),
        (kind::DATE, _) => {
            quoted(out, &time_text(element.integer().unwrap_or_default()));
            Ok(())
        }
        (kind::TIMESTAMP, value) => {
            let both = u64::from_le_bytes(value.first_chunk::<8>().copied().unwrap_or_default());
            write!(out, "{{\"$timestamp\":{{\"t\":{},\"i\":{}}}}}", both >> 32, both & u64::from(u32::MAX))
        }
        (kind::STRING, _) => {
            quoted(out, &element.text().unwrap_or_default());
            Ok(())
        }
        (kind::OBJECT_ID, value) => write!(out, "{{\"$oid\":\"{}\"}}", hex(value)),
        (other, value) => write!(out, "{{\"$type\":{other},\"$hex\":\"{}\"}}", hex(value)),
    };
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `text` as a string of JSON.
pub(crate) fn quoted(out: &mut String, text: &str) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// A time as RFC 3339 in UTC with milliseconds; outside the years that has, the number itself.
pub fn time_text(unix_ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(unix_ms) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => unix_ms.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Builder;

    #[test]
    fn json_keeps_order_and_repeats() {
        let document = Builder::new()
            .date("start", 1_000)
            .document("m", |m| m.int32("/", 1).int32("/", 2))
            .array("a", |a| a.bool("0", true).null("1").double("2", f64::NAN))
            .string("s", "a\"b")
            .timestamp("t", 3, 4)
            .finish();
        assert_eq!(
            to_json(&document).unwrap(),
            r#"{"start":"1970-01-01T00:00:01.000Z","m":{"/":1,"/":2},"a":[true,null,{"$numberDouble":"NaN"}],"s":"a\"b","t":{"$timestamp":{"t":3,"i":4}}}"#
        );
        assert_eq!(time_text(i64::MAX), i64::MAX.to_string());
    }

    #[test]
    fn depth_is_bounded() {
        let deep =
            (0..1_000).fold(Builder::new().finish(), |inside, _| Builder::new().raw_document("a", &inside).finish());
        assert!(to_json(&deep).is_err());
    }
}
