//! A sample as a document again, as mongod itself puts it together: numbers become 64-bit integers, what is no number
//! is as it was in the chunk's first sample (`constructDocumentFromMetrics` in `src/mongo/db/ftdc/util.cpp`).

use crate::bson::{Element, elements, kind};
use crate::{Builder, Chunk, Damage, Matrix};

impl Chunk<'_> {
    /// Sample `sample` of this chunk, whose values are in `matrix`.
    pub fn document(&self, matrix: &Matrix, sample: usize) -> Result<Vec<u8>, Damage> {
        rebuild(self.reference(), &mut matrix.row(sample)).map(Builder::finish)
    }
}

fn rebuild(document: &[u8], values: &mut dyn Iterator<Item = i64>) -> Result<Builder, Damage> {
    let mut built = Builder::new();
    for element in elements(document)? {
        let element = element?;
        built = put(built, &element, values)?;
    }
    Ok(built)
}

fn put(built: Builder, element: &Element<'_>, values: &mut dyn Iterator<Item = i64>) -> Result<Builder, Damage> {
    let mut next = || values.next().ok_or(Damage::Bson("there are fewer values than metrics"));
    let (kind, value) = match element.kind {
        kind::DOUBLE | kind::INT32 | kind::INT64 | kind::DECIMAL => (kind::INT64, next()?.to_le_bytes().to_vec()),
        kind::DATE => (kind::DATE, next()?.to_le_bytes().to_vec()),
        kind::BOOL => (kind::BOOL, vec![u8::from(next()? != 0)]),
        kind::TIMESTAMP => {
            let (seconds, increment) = (next()? as u32, next()? as u32);
            (kind::TIMESTAMP, (u64::from(seconds) << 32 | u64::from(increment)).to_le_bytes().to_vec())
        }
        kind::DOCUMENT | kind::ARRAY => (element.kind, rebuild(element.value, values)?.finish()),
        _ => return Ok(built.element(element)),
    };
    Ok(built.element(&Element { kind, key: element.key, value: &value }))
}
