//! Comma-separated values, as RFC 4180 has them but for line ends, which are a newline.

use super::{Columns, Export};
use crate::json::time_text;
use crate::{Batch, FtdcError};
use std::fmt::Write as _;
use std::io::Write;

pub(super) fn write(
    export: &Export<'_>,
    out: &mut dyn Write,
    damaged: &mut dyn FnMut(FtdcError),
) -> Result<u64, FtdcError> {
    let columns = export.columns()?;
    let mut header = String::from("time");
    for metric in columns.metrics() {
        header.push(',');
        field(&mut header, &metric.path);
    }
    header.push('\n');
    out.write_all(header.as_bytes()).map_err(FtdcError::Write)?;
    let mut rows = 0;
    for batch in export.source.select(&export.selection, export.stretch.clone()) {
        match batch {
            Ok(batch) => {
                lines(&batch, &columns, out).map_err(FtdcError::Write)?;
                rows += batch.times_ms().len() as u64;
            }
            Err(error) => damaged(error),
        }
    }
    Ok(rows)
}

fn lines(batch: &Batch, columns: &Columns, out: &mut dyn Write) -> std::io::Result<()> {
    let mut values: Vec<Option<&[i64]>> = vec![None; columns.metrics().len()];
    for (metric, column) in batch.columns() {
        if let Some(slot) = columns.position(&metric.path).and_then(|place| values.get_mut(place)) {
            *slot = Some(column);
        }
    }
    let mut line = String::new();
    for (row, time) in batch.times_ms().iter().enumerate() {
        line.clear();
        line.push_str(&time_text(*time));
        for column in &values {
            line.push(',');
            if let Some(value) = column.and_then(|column| column.get(row)) {
                // Writing into a string cannot fail.
                let _ = write!(line, "{value}");
            }
        }
        line.push('\n');
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

fn field(out: &mut String, text: &str) {
    if text.contains(['"', ',', '\n', '\r']) {
        out.push('"');
        out.push_str(&text.replace('"', "\"\""));
        out.push('"');
    } else {
        out.push_str(text);
    }
}
