//! Columns of a batch by name, whoever wrote it: missing ones read as null.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int32Type};
use arrow_array::{Array, Int32Array, PrimitiveArray, RecordBatch, StringArray};
use std::collections::HashSet;
use std::sync::Arc;

/// A column that is not what its name promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {0} is missing or of another type than this format has")]
pub(crate) struct Misfit(pub(crate) &'static str);

/// Shares equal texts between the rows of a window.
#[derive(Debug, Default)]
pub(crate) struct TextPool(HashSet<Arc<str>>);

impl TextPool {
    /// The shared copy of a text.
    pub(crate) fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let shared: Arc<str> = Arc::from(text);
        self.0.insert(Arc::clone(&shared));
        shared
    }
}

/// The columns of one batch.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a>(pub(crate) &'a RecordBatch);

impl<'a> Columns<'a> {
    /// A column of numbers that may be missing.
    pub(crate) fn numbers<T: ArrowPrimitiveType>(self, name: &'static str) -> Result<Numbers<'a, T>, Misfit> {
        match self.0.column_by_name(name) {
            None => Ok(Numbers(None)),
            Some(column) => Ok(Numbers(Some(column.as_primitive_opt().ok_or(Misfit(name))?))),
        }
    }

    /// A column of numbers that every row has.
    pub(crate) fn all_numbers<T: ArrowPrimitiveType>(self, name: &'static str) -> Result<&'a [T::Native], Misfit> {
        let column = self.0.column_by_name(name).ok_or(Misfit(name))?;
        let numbers: &PrimitiveArray<T> = column.as_primitive_opt().ok_or(Misfit(name))?;
        if numbers.null_count() > 0 { Err(Misfit(name)) } else { Ok(numbers.values()) }
    }

    /// A column of texts that may be missing; by dictionary, as we write it, or plain, as other programs may.
    pub(crate) fn texts(self, name: &'static str, pool: &mut TextPool) -> Result<Texts<'a>, Misfit> {
        let Some(column) = self.0.column_by_name(name) else { return Ok(Texts::Missing) };
        if let Some(plain) = column.as_string_opt::<i32>() {
            return Ok(Texts::Plain(plain.iter().map(|text| Some(pool.share(text?))).collect()));
        }
        let numbered = column.as_dictionary_opt::<Int32Type>().ok_or(Misfit(name))?;
        let values: &StringArray = numbered.values().as_string_opt().ok_or(Misfit(name))?;
        let values = values.iter().map(|text| Some(pool.share(text?))).collect();
        Ok(Texts::Numbered(numbered.keys(), values))
    }
}

/// Numbers by row.
pub(crate) struct Numbers<'a, T: ArrowPrimitiveType>(Option<&'a PrimitiveArray<T>>);

impl<T: ArrowPrimitiveType> Numbers<'_, T> {
    pub(crate) fn get(&self, row: usize) -> Option<T::Native> {
        let numbers = self.0.filter(|numbers| numbers.is_valid(row))?;
        Some(numbers.value(row))
    }
}

/// Texts by row.
pub(crate) enum Texts<'a> {
    Missing,
    Plain(Vec<Option<Arc<str>>>),
    Numbered(&'a Int32Array, Vec<Option<Arc<str>>>),
}

impl Texts<'_> {
    pub(crate) fn get(&self, row: usize) -> Option<Arc<str>> {
        match self {
            Texts::Missing => None,
            Texts::Plain(texts) => texts.get(row)?.clone(),
            Texts::Numbered(keys, values) if keys.is_valid(row) => values.get(keys.value(row) as usize)?.clone(),
            Texts::Numbered(..) => None,
        }
    }
}
