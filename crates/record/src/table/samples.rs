//! `samples`: one active session at one instant.

use super::text::TextColumn;
use super::{AT, Columns, Misfit, Rows, Table, TextPool, built, taken, text_field};
use arrow_array::builder::{Int32Builder, Int64Builder};
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field};
use backwater_model::{Moment, Sample, Text};
use std::sync::Arc;

/// Columns of text, in order.
const TEXTS: [&str; 13] = [
    "target",
    "backend_type",
    "user",
    "database",
    "application",
    "client_addr",
    "state",
    "wait_event_type",
    "wait_event",
    "kernel_wait",
    "kernel_state",
    "query",
    "queue",
];

/// The one of them that is a letter.
const KERNEL_STATE: usize = 10;

pub(super) fn fields() -> Vec<Field> {
    let mut fields = vec![
        Field::new(AT, DataType::Int64, false),
        Field::new("pid", DataType::Int32, false),
        Field::new("client_port", DataType::Int32, true),
        Field::new("query_id", DataType::Int64, true),
        Field::new("query_age_ms", DataType::Int64, true),
        Field::new("xact_age_ms", DataType::Int64, true),
    ];
    fields.extend(TEXTS.map(|name| text_field(name, name != "target")));
    fields
}

/// Sessions on their way to the tail.
#[derive(Debug, Default)]
pub(crate) struct SampleRows {
    at: Vec<i64>,
    pid: Vec<i32>,
    client_port: Int32Builder,
    query_id: Int64Builder,
    query_age_ms: Int64Builder,
    xact_age_ms: Int64Builder,
    texts: [TextColumn; TEXTS.len()],
}

impl SampleRows {
    /// Adds a session.
    pub(crate) fn push(&mut self, sample: &Sample) {
        self.at.push(sample.at.0);
        self.pid.push(sample.pid);
        self.client_port.append_option(sample.client_port);
        self.query_id.append_option(sample.query_id);
        self.query_age_ms.append_option(sample.query_age_ms);
        self.xact_age_ms.append_option(sample.xact_age_ms);
        let shared = [
            Some(&sample.target),
            sample.backend_type.as_ref(),
            sample.user.as_ref(),
            sample.database.as_ref(),
            sample.application.as_ref(),
            sample.client_addr.as_ref(),
            sample.state.as_ref(),
            sample.wait_event_type.as_ref(),
            sample.wait_event.as_ref(),
            sample.kernel_wait.as_ref(),
            None,
            sample.query.as_ref(),
            sample.queue.as_ref(),
        ];
        for (place, (column, text)) in self.texts.iter_mut().zip(shared).enumerate() {
            if place == KERNEL_STATE {
                let mut letter = [0; 4];
                column.push(sample.kernel_state.map(|state| &*state.encode_utf8(&mut letter)));
            } else {
                column.push_shared(text);
            }
        }
    }
}

impl Rows for SampleRows {
    const TABLE: Table = Table::Samples;

    fn len(&self) -> usize {
        self.at.len()
    }

    fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(taken(&mut self.at))),
            Arc::new(Int32Array::from(taken(&mut self.pid))),
            Arc::new(built(&mut self.client_port)),
            Arc::new(built(&mut self.query_id)),
            Arc::new(built(&mut self.query_age_ms)),
            Arc::new(built(&mut self.xact_age_ms)),
        ];
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

/// Gives each session of a batch to `visit`.
pub(crate) fn each_sample(
    batch: &RecordBatch,
    pool: &mut TextPool,
    mut visit: impl FnMut(Sample),
) -> Result<(), Misfit> {
    let columns = Columns(batch);
    let at = columns.all_numbers::<Int64Type>(AT)?;
    let pid = columns.all_numbers::<Int32Type>("pid")?;
    let client_port = columns.numbers::<Int32Type>("client_port")?;
    let query_id = columns.numbers::<Int64Type>("query_id")?;
    let query_age_ms = columns.numbers::<Int64Type>("query_age_ms")?;
    let xact_age_ms = columns.numbers::<Int64Type>("xact_age_ms")?;
    let texts = TEXTS.iter().map(|name| columns.texts(name, pool)).collect::<Result<Vec<_>, _>>()?;
    let nameless = pool.share("");
    for row in 0..batch.num_rows() {
        let mut next = texts.iter().map(|column| column.get(row));
        visit(Sample {
            at: Moment(at[row]),
            pid: pid[row],
            client_port: client_port.get(row),
            query_id: query_id.get(row),
            query_age_ms: query_age_ms.get(row),
            xact_age_ms: xact_age_ms.get(row),
            ..of_texts(&nameless, || next.next().flatten())
        });
    }
    Ok(())
}

/// A sample's texts, which come in the order of [`TEXTS`].
fn of_texts(nameless: &Text, mut text: impl FnMut() -> Option<Text>) -> Sample {
    Sample {
        target: text().unwrap_or_else(|| Arc::clone(nameless)),
        backend_type: text(),
        user: text(),
        database: text(),
        application: text(),
        client_addr: text(),
        state: text(),
        wait_event_type: text(),
        wait_event: text(),
        kernel_wait: text(),
        kernel_state: text().and_then(|state| state.chars().next()),
        query: text(),
        queue: text(),
        ..Sample::default()
    }
}
