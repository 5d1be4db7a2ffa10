//! Texts as numbers: a session's user or query is the same at every look.

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, StringArray};
use arrow_schema::ArrowError;
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers texts from 0 in order of first use.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    numbers: HashMap<Arc<str>, i32>,
    list: Vec<Arc<str>>,
    bytes: usize,
    values: Option<ArrayRef>,
}

impl Interner {
    /// The number of a text.
    pub(crate) fn number(&mut self, text: &str) -> i32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        // Far from 2³¹: a tail is closed when its texts have a few MiB.
        let number = self.list.len() as i32;
        let text: Arc<str> = Arc::from(text);
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
    keys: Vec<Option<i32>>,
}

impl TextColumn {
    pub(crate) fn push(&mut self, text: Option<&str>) {
        let key = text.map(|text| self.texts.number(text));
        self.keys.push(key);
    }

    pub(crate) fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        let keys: Int32Array = self.keys.iter().copied().collect();
        self.keys.clear();
        Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(keys, self.texts.values())?))
    }

    pub(crate) fn forget(&mut self) {
        self.texts = Interner::default();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.texts.bytes()
    }
}
