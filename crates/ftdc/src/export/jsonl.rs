//! JSON Lines.

use super::Export;
use crate::json::{quoted, time_text};
use crate::{Batch, FtdcError, MetricKind};
use std::fmt::Write as _;
use std::io::Write;

pub(super) fn write(
    export: &Export<'_>,
    out: &mut dyn Write,
    damaged: &mut dyn FnMut(FtdcError),
) -> Result<u64, FtdcError> {
    let mut rows = 0;
    for batch in export.source.select(&export.selection, export.stretch.clone()) {
        match batch {
            Ok(batch) => {
                lines(&batch, out).map_err(FtdcError::Write)?;
                rows += batch.times_ms().len() as u64;
            }
            Err(error) => damaged(error),
        }
    }
    Ok(rows)
}

fn lines(batch: &Batch, out: &mut dyn Write) -> std::io::Result<()> {
    // Names are quoted once a chunk, not once a sample.
    let columns: Vec<(String, bool, &[i64])> = batch
        .columns()
        .map(|(metric, values)| {
            let mut name = String::new();
            quoted(&mut name, &metric.path);
            (name, metric.kind == MetricKind::Bool, values)
        })
        .collect();
    let mut line = String::new();
    for (row, time) in batch.times_ms().iter().enumerate() {
        line.clear();
        line.push_str("{\"time\":");
        quoted(&mut line, &time_text(*time));
        line.push_str(",\"metrics\":{");
        for (place, (name, truth, values)) in columns.iter().enumerate() {
            if place > 0 {
                line.push(',');
            }
            line.push_str(name);
            line.push(':');
            let value = values.get(row).copied().unwrap_or_default();
            // Writing into a string cannot fail.
            let _ = if *truth { write!(line, "{}", value != 0) } else { write!(line, "{value}") };
        }
        line.push_str("}}\n");
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}
