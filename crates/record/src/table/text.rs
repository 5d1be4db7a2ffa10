//! Texts as numbers: a session's user or query is the same at every look.
//!
//! Who looks shares equal texts between rows, so most rows have in a column the very text of the row before, and most others
//! one that a row had not long ago.

use super::built;
use arrow_array::builder::Int32Builder;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, StringArray};
use arrow_schema::ArrowError;
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers texts from 0 in order of first use.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    numbers: HashMap<Arc<str>, i32>,
    list: Vec<Arc<str>>,
    last: Option<(Arc<str>, i32)>,
    /// Those of the list that are shared, by address: to be found by what it says a long query would have to be read. While the
    /// list keeps them, no other text has their addresses.
    places: HashMap<usize, i32>,
    bytes: usize,
    values: Option<ArrayRef>,
}

impl Interner {
    /// The number of a text.
    pub(crate) fn number(&mut self, text: &str) -> i32 {
        match self.numbers.get(text) {
            Some(number) => *number,
            None => self.add(Arc::from(text)),
        }
    }

    /// The number of a shared text, which is found without reading it where it is one that was numbered before.
    pub(crate) fn number_of_shared(&mut self, text: &Arc<str>) -> i32 {
        if let Some((last, number)) = &self.last
            && Arc::ptr_eq(last, text)
        {
            return *number;
        }
        let place = text.as_ptr() as usize;
        let known = self.places.get(&place).or_else(|| self.numbers.get(text)).copied();
        let number = known.unwrap_or_else(|| {
            let number = self.add(Arc::clone(text));
            self.places.insert(place, number);
            number
        });
        self.last = Some((Arc::clone(text), number));
        number
    }

    fn add(&mut self, text: Arc<str>) -> i32 {
        // Far from 2³¹: a tail is closed when its texts have a few MiB.
        let number = self.list.len() as i32;
        self.bytes += text.len();
        self.numbers.insert(Arc::clone(&text), number);
        self.list.push(text);
        self.values = None;
        number
    }

    /// All texts in order of their numbers.
    pub(crate) fn values(&mut self) -> ArrayRef {
        let list = &self.list;
        Arc::clone(self.values.get_or_insert_with(|| Arc::new(StringArray::from_iter_values(list))))
    }

    /// Bytes of all texts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// One column of texts being filled.
#[derive(Debug, Default)]
pub(crate) struct TextColumn {
    texts: Interner,
    keys: Int32Builder,
}

impl TextColumn {
    pub(crate) fn push(&mut self, text: Option<&str>) {
        let key = text.map(|text| self.texts.number(text));
        self.keys.append_option(key);
    }

    pub(crate) fn push_shared(&mut self, text: Option<&Arc<str>>) {
        let key = text.map(|text| self.texts.number_of_shared(text));
        self.keys.append_option(key);
    }

    pub(crate) fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        let keys = built(&mut self.keys);
        Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(keys, self.texts.values())?))
    }

    pub(crate) fn forget(&mut self) {
        self.texts = Interner::default();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.texts.bytes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::Array;
    use arrow_array::cast::AsArray;

    #[test]
    fn a_shared_text_is_found_where_it_lies_and_another_at_its_place_is_not_taken_for_it() {
        let mut texts = Interner::default();
        let (one, other): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        assert_eq!([&one, &other, &one].map(|text| texts.number_of_shared(text)), [0, 1, 0]);
        assert_eq!(texts.places.len(), 2);
        for number in 2..1_000 {
            // Each is let go of at once: what the list did not keep would leave its place to the next.
            assert_eq!(texts.number_of_shared(&Arc::from(format!("text {number}"))), number);
        }
        let again = (2..1_000).map(|number| texts.number_of_shared(&Arc::from(format!("text {number}"))));
        assert!(again.eq(2..1_000));
    }

    #[test]
    fn shared_texts_have_the_numbers_of_equal_ones() {
        let mut column = TextColumn::default();
        let (one, twin, other): (Arc<str>, Arc<str>, Arc<str>) = ("a".into(), "a".into(), "b".into());
        for text in [Some(&one), Some(&one), None, Some(&twin), Some(&other), Some(&other), Some(&one)] {
            column.push_shared(text);
        }
        column.push(Some("b"));
        let taken = column.take().unwrap();
        let taken = taken.as_dictionary::<Int32Type>();
        let keys: Vec<Option<i32>> = taken.keys().iter().collect();
        let zero = Some(0);
        assert_eq!(keys, [zero, zero, None, zero, Some(1), Some(1), zero, Some(1)]);
        assert_eq!((taken.values().len(), column.bytes()), (2, 2));
        column.forget();
        column.push_shared(Some(&one));
        assert_eq!(column.take().unwrap().as_dictionary::<Int32Type>().keys().value(0), 0);
    }
}
