//! Tables that the console answers with: typed, so that drivers get numbers as numbers, in both formats.

use jiff::Timestamp;

/// What a statement is answered with.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    /// None for a statement that shows nothing.
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Vec<Value>>,
    /// As `CREATE RESOURCE POOL`.
    pub(super) tag: String,
    pub(super) notices: Vec<String>,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// A column's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Whole,
    Real,
    Time,
    Truth,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Whole(i64),
    Real(f64),
    Time(Timestamp),
    Truth(bool),
    Null,
}

impl Kind {
    /// PostgreSQL's number of the type, and its size (pg_type.dat).
    pub(super) fn type_of(self) -> (u32, i16) {
        match self {
            Kind::Text => (25, -1),
            Kind::Whole => (20, 8),
            Kind::Real => (701, 8),
            Kind::Time => (1184, 8),
            Kind::Truth => (16, 1),
        }
    }
}

/// Microseconds between 1970 and 2000: PostgreSQL counts from there.
const EPOCH_US: i64 = 946_684_800_000_000;

impl Value {
    /// As bytes on the wire; None is null.
    pub(super) fn encoded(&self, binary: bool) -> Option<Vec<u8>> {
        Some(match self {
            Value::Null => return None,
            Value::Text(text) => text.clone().into_bytes(),
            Value::Whole(number) if binary => number.to_be_bytes().to_vec(),
            Value::Whole(number) => number.to_string().into_bytes(),
            Value::Real(number) if binary => number.to_be_bytes().to_vec(),
            Value::Real(number) => number.to_string().into_bytes(),
            Value::Truth(is_so) if binary => vec![u8::from(*is_so)],
            Value::Truth(is_so) => if *is_so { "t" } else { "f" }.into(),
            Value::Time(time) if binary => (time.as_microsecond() - EPOCH_US).to_be_bytes().to_vec(),
            Value::Time(time) => time.strftime("%Y-%m-%d %H:%M:%S%.6f+00").to_string().into_bytes(),
        })
    }

    pub(super) fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    pub(super) fn count(number: impl TryInto<i64>) -> Value {
        number.try_into().map_or(Value::Null, Value::Whole)
    }

    /// A number with at most three decimals; null where it is not known.
    pub(super) fn real(number: Option<f64>) -> Value {
        number.map_or(Value::Null, |number| Value::Real((number * 1e3).round() / 1e3))
    }
}

impl<T: TryInto<i64>> From<Option<T>> for Value {
    fn from(number: Option<T>) -> Self {
        number.map_or(Value::Null, Value::count)
    }
}
