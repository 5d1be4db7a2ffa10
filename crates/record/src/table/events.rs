//! `events`: things that happened.

use super::text::TextColumn;
use super::{AT, Columns, Misfit, Rows, Table, TextPool, text_field};
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field};
use backwater_model::{Event, EventKind, Moment};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Columns of text, in order. `fields` is a JSON object of texts.
const TEXTS: [&str; 4] = ["source", "kind", "message", "fields"];

pub(super) fn fields() -> Vec<Field> {
    let mut fields = vec![Field::new(AT, DataType::Int64, false)];
    fields.extend(TEXTS.map(|name| text_field(name, name == "fields")));
    fields
}

/// Happenings on their way to the tail.
#[derive(Debug, Default)]
pub(crate) struct EventRows {
    at: Vec<i64>,
    texts: [TextColumn; TEXTS.len()],
}

impl EventRows {
    /// Adds a happening.
    pub(crate) fn push(&mut self, event: &Event) {
        self.at.push(event.at.0);
        let kind = kind_name(event.kind);
        let fields = (!event.fields.is_empty()).then(|| serde_json::json!(event.fields).to_string());
        let texts = [Some(&*event.source), Some(&*kind), Some(&*event.message), fields.as_deref()];
        for (column, text) in self.texts.iter_mut().zip(texts) {
            column.push(text);
        }
    }
}

/// The kind as it is spelled in JSON.
fn kind_name(kind: EventKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name,
        // Every kind is a plain name; one that were not would read as unknown.
        _ => String::new(),
    }
}

impl Rows for EventRows {
    const TABLE: Table = Table::Events;

    fn len(&self) -> usize {
        self.at.len()
    }

    fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(std::mem::take(&mut self.at)))];
        for column in &mut self.texts {
            columns.push(column.take()?);
        }
        RecordBatch::try_new(Self::TABLE.schema(), columns)
    }

    fn forget_texts(&mut self) {
        self.texts.iter_mut().for_each(TextColumn::forget);
    }

    fn text_bytes(&self) -> usize {
        self.texts.iter().map(TextColumn::bytes).sum()
    }
}

/// Gives each happening of a batch to `visit`. Returns how many were of a kind that is not known here.
pub(crate) fn each_event(
    batch: &RecordBatch,
    pool: &mut TextPool,
    mut visit: impl FnMut(Event),
) -> Result<usize, Misfit> {
    let columns = Columns(batch);
    let at = columns.all_numbers::<Int64Type>(AT)?;
    let source = columns.texts("source", pool)?;
    let kind = columns.texts("kind", pool)?;
    let message = columns.texts("message", pool)?;
    let fields = columns.texts("fields", pool)?;
    let mut unknown = 0;
    for (row, at) in at.iter().enumerate() {
        let kind = kind.get(row).and_then(|name| serde_json::from_value(serde_json::json!(name)).ok());
        let Some(kind) = kind else {
            unknown += 1;
            continue;
        };
        let text = |text: Option<Arc<str>>| text.map(|text| text.to_string()).unwrap_or_default();
        let named: Option<BTreeMap<String, String>> =
            fields.get(row).and_then(|fields| serde_json::from_str(&fields).ok());
        visit(Event {
            at: Moment(*at),
            source: text(source.get(row)),
            kind,
            message: text(message.get(row)),
            fields: named.unwrap_or_default(),
        });
    }
    Ok(unknown)
}
