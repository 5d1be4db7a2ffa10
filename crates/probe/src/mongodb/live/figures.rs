//! The numbers of an answer by the same names that the flight recorder gives them: keys joined by dots, of a timestamp its
//! seconds, of a truth value 0 or 1. Unlike there, a double keeps its fraction.

use ftdc::Element;

const DOUBLE: u8 = 0x01;
const TIMESTAMP: u8 = 0x11;
/// Nothing that a server sends is nested as deep as this.
const DEEPEST: usize = 16;
/// Bytes of names that are made of one answer, at most; mongod's come to a few hundred thousand.
const NAME_BYTES: usize = 8 << 20;

/// Adds every number of a document, each name behind `prefix`. Damage ends the document; what came before it stays.
pub(super) fn add(prefix: &str, document: &[u8], into: &mut Vec<(String, f64)>) {
    if let Ok(elements) = ftdc::elements(document) {
        walk(prefix, elements, DEEPEST, &mut NAME_BYTES.clone(), into);
    }
}

fn walk(
    prefix: &str,
    elements: ftdc::Elements<'_>,
    depth: usize,
    left_bytes: &mut usize,
    into: &mut Vec<(String, f64)>,
) {
    for element in elements.map_while(Result::ok) {
        let Some(left) = left_bytes.checked_sub(prefix.len() + 1 + element.key.len()) else { return };
        *left_bytes = left;
        let name = || format!("{prefix}.{}", String::from_utf8_lossy(element.key));
        match element.elements() {
            Some(inside) if depth > 0 => walk(&name(), inside, depth - 1, left_bytes, into),
            Some(_) => {}
            None => into.extend(number(&element).map(|value| (name(), value))),
        }
    }
}

/// The value of an element that is a number.
pub(super) fn number(element: &Element<'_>) -> Option<f64> {
    match element.kind {
        DOUBLE => Some(f64::from_le_bytes(element.value.try_into().ok()?)),
        TIMESTAMP => Some((u64::from_le_bytes(element.value.try_into().ok()?) >> 32) as f64),
        _ => element.integer().map(|value| value as f64),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftdc::Builder;
    use proptest::prelude::*;

    #[test]
    fn names_and_values_are_those_of_the_flight_recorder() {
        let document = Builder::new()
            .double("max", 1.5)
            .string("host", "db1")
            .document("optime", |o| o.timestamp("ts", 1_700_000_000, 7).int64("t", 3))
            .array("members", |m| m.document("0", |b| b.bool("self", true)))
            .finish();
        let mut found = Vec::new();
        add("s", &document, &mut found);
        let expected = [("s.max", 1.5), ("s.optime.ts", 1.7e9), ("s.optime.t", 3.0), ("s.members.0.self", 1.0)];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn what_is_nested_without_end_is_cut() {
        let mut document = Builder::new().int32("x", 1).finish();
        for _ in 0..200 {
            document = Builder::new().raw_document("d", &document).int32("y", 1).finish();
        }
        let mut found = Vec::new();
        add("s", &document, &mut found);
        assert_eq!(found.len(), DEEPEST + 1);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            add("s", &bytes, &mut Vec::new());
        }
    }
}
