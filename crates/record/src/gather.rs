//! Rows of a tail, or of several small segments, brought together and put in order.

use crate::RecordError;
use crate::table::{AT, Interner, Misfit, Table};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int32Type, Int64Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int32Array, PrimitiveArray, RecordBatch, UInt32Array, new_null_array,
};
use arrow_schema::{ArrowError, DataType};
use arrow_select::concat::concat;
use arrow_select::take::take;
use std::path::Path;

/// How many rows are put in order at a time: bounds the memory beside that of the rows themselves.
const ROWS_AT_ONCE: usize = 16_384;

/// Collects batches of one table, in which texts become numbers of one dictionary for each column.
pub(crate) struct Gather {
    table: Table,
    parts: Vec<Vec<ArrayRef>>,
    texts: Vec<Interner>,
    last_translation: Vec<Option<Translation>>,
}

/// What the numbers of one dictionary are in that of the whole.
#[derive(Debug)]
struct Translation {
    of: ArrayRef,
    to: Vec<i32>,
    /// Whether they are the same, as in a tail, whose dictionaries only grow.
    is_same: bool,
}

impl Translation {
    fn new(of: &ArrayRef, texts: &mut Interner) -> Result<Self, Misfit> {
        let values = of.as_string_opt::<i32>().ok_or(Misfit("of text"))?;
        let to: Vec<i32> = values.iter().map(|text| texts.number(text.unwrap_or_default())).collect();
        let is_same = to.iter().zip(0..).all(|(to, of)| *to == of);
        Ok(Translation { of: of.clone(), to, is_same })
    }

    fn keys(&self, keys: &Int32Array) -> Int32Array {
        let known = 0..self.to.len() as i32;
        if self.is_same && keys.values().iter().all(|key| known.contains(key)) {
            return keys.clone();
        }
        keys.iter().map(|key| self.to.get(usize::try_from(key?).ok()?).copied()).collect()
    }
}

impl Gather {
    pub(crate) fn new(table: Table) -> Self {
        let columns = table.schema().fields().len();
        Gather {
            table,
            parts: Vec::new(),
            texts: (0..columns).map(|_| Interner::default()).collect(),
            last_translation: (0..columns).map(|_| None).collect(),
        }
    }

    /// Adds the rows of a batch. Columns it lacks are null; columns that this table has not are left out.
    pub(crate) fn add(&mut self, path: &Path, batch: &RecordBatch) -> Result<(), RecordError> {
        let schema = self.table.schema();
        let mut part: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        for (place, field) in schema.fields().iter().enumerate() {
            let numbered = matches!(field.data_type(), DataType::Dictionary(..));
            let column = match batch.column_by_name(field.name()) {
                Some(column) if column.data_type() != field.data_type() => {
                    return Err(RecordError::damaged(path, format!("column {} has another type", field.name())));
                }
                Some(column) if numbered => {
                    self.renumber(place, column).map_err(|why| RecordError::damaged(path, why))?
                }
                Some(column) => column.clone(),
                None if field.is_nullable() && numbered => new_null_array(&DataType::Int32, batch.num_rows()),
                None if field.is_nullable() => new_null_array(field.data_type(), batch.num_rows()),
                None => return Err(RecordError::damaged(path, format!("column {} is missing", field.name()))),
            };
            part.push(column);
        }
        self.parts.push(part);
        Ok(())
    }

    /// A column's numbers in the dictionary of the whole.
    fn renumber(&mut self, place: usize, column: &ArrayRef) -> Result<ArrayRef, Misfit> {
        let numbered = column.as_dictionary_opt::<Int32Type>().ok_or(Misfit("of text"))?;
        let values = numbered.values();
        let is_of = |last: &Translation| last.of.to_data().ptr_eq(&values.to_data());
        let translation = match self.last_translation[place].take().filter(is_of) {
            Some(last) => last,
            None => Translation::new(values, &mut self.texts[place])?,
        };
        let keys = translation.keys(numbered.keys());
        self.last_translation[place] = Some(translation);
        Ok(std::sync::Arc::new(keys))
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.parts.iter().map(|part| part[0].len()).sum()
    }

    /// Gives all rows in the table's order, a limited number at a time.
    pub(crate) fn in_order(
        mut self,
        mut give: impl FnMut(&RecordBatch) -> Result<(), ArrowError>,
    ) -> Result<(), ArrowError> {
        if self.parts.is_empty() {
            return Ok(());
        }
        self.last_translation.clear();
        let schema = self.table.schema();
        let whole = self.whole()?;
        let order = order(self.table, &whole)?;
        let dictionaries: Vec<ArrayRef> = self.texts.iter_mut().map(Interner::values).collect();
        for rows in order.chunks(ROWS_AT_ONCE) {
            let rows = UInt32Array::from(rows.to_vec());
            let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
            for (place, field) in schema.fields().iter().enumerate() {
                let column = take(&whole[place], &rows, None)?;
                columns.push(match field.data_type() {
                    DataType::Dictionary(..) => {
                        let keys = column.as_primitive::<Int32Type>().clone();
                        std::sync::Arc::new(DictionaryArray::<Int32Type>::try_new(keys, dictionaries[place].clone())?)
                    }
                    _ => column,
                });
            }
            give(&RecordBatch::try_new(schema.clone(), columns)?)?;
        }
        Ok(())
    }

    /// Each column of all parts as one. What a column was made of is let go of with it, except where all lie in one buffer, as in a
    /// tail, which is no larger than a segment's bound.
    fn whole(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        let parts = std::mem::take(&mut self.parts);
        let mut columns: Vec<_> = parts.into_iter().map(Vec::into_iter).collect();
        let mut whole = Vec::with_capacity(self.texts.len());
        for _ in 0..self.texts.len() {
            let of_one: Vec<ArrayRef> = columns.iter_mut().filter_map(Iterator::next).collect();
            let of_one: Vec<&dyn Array> = of_one.iter().map(|part| &**part).collect();
            whole.push(concat(&of_one)?);
        }
        Ok(whole)
    }
}

/// The rows by the table's order, then by time, then as they were added.
fn order(table: Table, columns: &[ArrayRef]) -> Result<Vec<u32>, ArrowError> {
    let schema = table.schema();
    let mut keys = Vec::new();
    for name in table.order().iter().chain([&AT]) {
        let key = numbers(&columns[schema.index_of(name)?]);
        // What is the same in all rows puts none before another.
        if key.windows(2).any(|pair| pair[0] != pair[1]) {
            keys.push(key);
        }
    }
    let mut order: Vec<u32> = (0..columns[0].len() as u32).collect();
    // Stable, the least key first: rows come nearly in order of time, and a key of few values costs next to nothing.
    for key in keys.iter().rev() {
        order.sort_by_key(|row| key[*row as usize]);
    }
    Ok(order)
}

/// A column of numbers, or of texts as their numbers, as something to compare. Null comes first.
fn numbers(column: &ArrayRef) -> Vec<i64> {
    fn of<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>) -> Vec<i64>
    where
        i64: From<T::Native>,
    {
        if column.null_count() == 0 {
            return column.values().iter().map(|number| i64::from(*number)).collect();
        }
        column.iter().map(|number| number.map_or(i64::MIN, i64::from)).collect()
    }
    if let Some(column) = column.as_primitive_opt::<UInt32Type>() {
        of(column)
    } else if let Some(column) = column.as_primitive_opt::<Int32Type>() {
        of(column)
    } else if let Some(column) = column.as_primitive_opt::<Int64Type>() {
        of(column)
    } else {
        vec![0; column.len()]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::StringArray;
    use std::sync::Arc;

    fn keys_of(texts: &[&str], keys: &[Option<i32>], known: &mut Interner) -> (bool, Vec<Option<i32>>) {
        let values: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let translation = Translation::new(&values, known).unwrap();
        (translation.is_same, translation.keys(&Int32Array::from(keys.to_vec())).iter().collect())
    }

    #[test]
    fn numbers_of_a_growing_dictionary_stay_and_those_of_another_become_those_of_the_whole() {
        let mut known = Interner::default();
        let keys = [Some(1), None, Some(0)];
        assert_eq!(keys_of(&["a", "b"], &keys, &mut known), (true, keys.to_vec()));
        assert_eq!(keys_of(&["a", "b", "c"], &[Some(2)], &mut known), (true, vec![Some(2)]));
        let of_another = [Some(0), Some(1), None, Some(2)];
        assert_eq!(keys_of(&["c", "d", "a"], &of_another, &mut known), (false, vec![Some(2), Some(3), None, Some(0)]));
        // A damaged file's, whose numbers are of no text.
        assert_eq!(keys_of(&["a"], &[Some(0), Some(7), Some(-1)], &mut known), (true, vec![Some(0), None, None]));
    }
}
