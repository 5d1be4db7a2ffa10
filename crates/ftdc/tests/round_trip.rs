//! What the encoder writes, the decoder reads: every value of every sample, whatever the documents are.
#![allow(clippy::unwrap_used)]

mod common;

use ftdc::encode::Encoder;
use ftdc::{Builder, Decoder, DocumentKind, Documents, Limits, Matrix, find_path};
use proptest::prelude::*;
use std::path::Path;

/// A leaf or a document, without its key.
#[derive(Clone, Debug)]
enum Node {
    Double(f64),
    Int32(i32),
    Int64(i64),
    Bool(bool),
    Date(i64),
    Timestamp(u32, u32),
    Text(String),
    Null,
    Inside(Vec<(String, Node)>, bool),
}

fn leaf() -> impl Strategy<Value = Node> {
    prop_oneof![
        any::<f64>().prop_map(Node::Double),
        any::<i32>().prop_map(Node::Int32),
        prop_oneof![any::<i64>(), -2..2i64].prop_map(Node::Int64),
        any::<bool>().prop_map(Node::Bool),
        any::<i64>().prop_map(Node::Date),
        any::<(u32, u32)>().prop_map(|(seconds, increment)| Node::Timestamp(seconds, increment)),
        "[a-z]{0,4}".prop_map(Node::Text),
        Just(Node::Null),
    ]
}

/// Few keys, so that many are repeated.
fn fields() -> impl Strategy<Value = Vec<(String, Node)>> {
    let node = leaf().prop_recursive(4, 40, 6, |inner| {
        (prop::collection::vec(("[abc]{0,2}", inner), 0..6), any::<bool>())
            .prop_map(|(fields, array)| Node::Inside(fields, array))
    });
    prop::collection::vec(("[abc]{0,2}", node), 0..8)
}

fn build(fields: &[(String, Node)]) -> Builder {
    fields.iter().fold(Builder::new(), |built, (key, node)| match node {
        Node::Double(value) => built.double(key, *value),
        Node::Int32(value) => built.int32(key, *value),
        Node::Int64(value) => built.int64(key, *value),
        Node::Bool(value) => built.bool(key, *value),
        Node::Date(value) => built.date(key, *value),
        Node::Timestamp(seconds, increment) => built.timestamp(key, *seconds, *increment),
        Node::Text(text) => built.string(key, text),
        Node::Null => built.null(key),
        Node::Inside(fields, false) => built.document(key, |_| build(fields)),
        Node::Inside(fields, true) => built.array(key, |_| build(fields)),
    })
}

/// The values that a document's metrics have, found without the crate's own walk.
fn values(fields: &[(String, Node)], into: &mut Vec<i64>) {
    for (_, node) in fields {
        match node {
            Node::Double(value) => into.push(*value as i64),
            Node::Int32(value) => into.push(i64::from(*value)),
            Node::Int64(value) | Node::Date(value) => into.push(*value),
            Node::Bool(value) => into.push(i64::from(*value)),
            Node::Timestamp(seconds, increment) => into.extend([i64::from(*seconds), i64::from(*increment)]),
            Node::Text(_) | Node::Null => {}
            Node::Inside(fields, _) => values(fields, into),
        }
    }
}

/// The same document with other numbers.
fn changed(fields: &[(String, Node)], by: i64) -> Vec<(String, Node)> {
    let node = |node: &Node| match node {
        // Another numeric type does not end a chunk.
        Node::Double(value) if by % 3 == 0 => Node::Int64(*value as i64),
        Node::Double(value) => Node::Double(value * 1.5 + by as f64),
        Node::Int32(value) => Node::Int32(value.wrapping_add(by as i32)),
        Node::Int64(value) => Node::Int64(value.wrapping_mul(by | 1)),
        Node::Bool(value) => Node::Bool(value ^ (by % 2 == 0)),
        Node::Date(value) => Node::Date(value.wrapping_add(by * 1_000)),
        Node::Timestamp(seconds, increment) => Node::Timestamp(seconds.wrapping_add(by as u32), *increment),
        Node::Inside(fields, array) => Node::Inside(changed(fields, by), *array),
        same => same.clone(),
    };
    fields.iter().map(|(key, inside)| (key.clone(), node(inside))).collect()
}

proptest! {
    #[test]
    fn values_come_back_whatever_the_documents_are(
        shapes in prop::collection::vec(fields(), 1..4),
        samples in 1..12i64,
        per_chunk in 1..6usize,
    ) {
        let mut encoder = Encoder::new(per_chunk);
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for (number, fields) in shapes.iter().enumerate() {
            for second in 0..samples {
                let fields = changed(fields, second);
                let at = (number as i64 * samples + second) * 1_000;
                bytes.extend(encoder.add(at, &build(&fields).finish()).unwrap().unwrap_or_default());
                let mut row = Vec::new();
                values(&fields, &mut row);
                expected.push(row);
            }
        }
        bytes.extend(encoder.finish().unwrap_or_default());
        let read = common::read(&bytes);
        prop_assert_eq!(read.faults, vec![]);
        prop_assert_eq!(read.rows, expected);
    }

    #[test]
    fn columns_and_selections_are_the_matrix(
        fields in fields(),
        wanted in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut encoder = Encoder::new(8);
        for second in 0..8 {
            encoder.add(second, &build(&changed(&fields, second)).finish()).unwrap();
        }
        let bytes = encoder.finish().unwrap();
        let document = Documents::new(&bytes[..], Path::new("f"), Limits::default()).next().unwrap().unwrap();
        let mut decoder = Decoder::default();
        let chunk = decoder.open(&document).unwrap();
        let (mut whole, mut some) = (Matrix::default(), Matrix::default());
        chunk.read_into(&mut whole).unwrap();
        let mut columns = Vec::new();
        chunk.for_each_column(|place, values| columns.push((place, values.to_vec()))).unwrap();
        prop_assert_eq!(columns.len(), whole.columns());
        for (place, values) in columns {
            prop_assert_eq!(whole.column(place), &values[..]);
        }
        let count = chunk.schema().metrics().len();
        let wanted: Vec<usize> = wanted.iter().filter(|_| count > 0).map(|index| index.index(count)).collect();
        chunk.read_some_into(&wanted, &mut some).unwrap();
        for (column, place) in wanted.iter().enumerate() {
            prop_assert_eq!(some.column(column), whole.column(*place));
        }
    }
}

#[test]
fn samples_come_back_as_documents() {
    let bytes = common::file(0, 20, 9);
    let mut decoder = Decoder::default();
    let mut matrix = Matrix::default();
    let mut second = 0;
    for document in Documents::new(&bytes[..], Path::new("f"), Limits::default()) {
        let document = document.unwrap();
        if document.kind() != DocumentKind::Chunk {
            continue;
        }
        let chunk = decoder.open(&document).unwrap();
        chunk.read_into(&mut matrix).unwrap();
        for row in 0..chunk.samples() {
            let rebuilt = chunk.document(&matrix, row).unwrap();
            let of = |path: &[&str]| find_path(&rebuilt, path).unwrap().integer().unwrap();
            assert_eq!(of(&["serverStatus", "uptime"]), second);
            assert_eq!(of(&["serverStatus", "loads", "0"]), second);
            assert_eq!(of(&["start"]), 1_700_000_000_000 + second * 1_000);
            assert_eq!(find_path(&rebuilt, &["serverStatus", "host"]).unwrap().text().unwrap(), "a.example");
            second += 1;
        }
    }
    assert_eq!(second, 20);
}

#[test]
fn a_full_chunk_and_a_new_metric_end_a_chunk() {
    let sizes: Vec<usize> = {
        // The new metric comes with the thirteenth sample, amid a chunk of five.
        let bytes = common::file(0, 24, 4);
        let mut decoder = Decoder::default();
        let documents = Documents::new(&bytes[..], Path::new("f"), Limits::default()).map(Result::unwrap);
        let chunks = documents.filter(|document| document.kind() == DocumentKind::Chunk);
        chunks.map(|document| decoder.open(&document).unwrap().samples()).collect()
    };
    assert_eq!(sizes, [5, 5, 2, 5, 5, 2]);
}
