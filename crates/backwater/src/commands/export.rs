//! `backwater export`: readings as JSON Lines, for every other tool.

use super::flight;
use crate::args::{Beside, Stretch};
use backwater_probe::mongodb::Flight;
use backwater_record::{RecordError, Recording};
use clap::Args;
use std::io::{BufWriter, Error, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// A recording's readings as JSON Lines (the Parquet files in it can be read as they are, too)
#[derive(Args)]
#[command(after_help = "\
Examples:
  backwater export rec | jq 'select(.series == \"host.bdi.written_bytes\")'
  backwater export rec --from 03:05 --to 03:15 > readings.jsonl")]
pub(crate) struct Arguments {
    /// The recording
    dir: PathBuf,
    #[command(flatten)]
    stretch: Stretch,
    #[command(flatten)]
    beside: Beside,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if Flight::is_at(&arguments.dir) {
        return flight(arguments);
    }
    arguments.beside.refuse()?;
    let recording = Recording::open(&arguments.dir)?;
    let Some(span) = recording.span() else { return Ok(ExitCode::SUCCESS) };
    let (from, to) = arguments.stretch.moments(recording.meta(), span)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let written = recording.export_jsonl(Some(from), Some(to), &mut out);
    // A reader that went away (`| head`) has what it wanted.
    let gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    match written {
        Err(RecordError::Io { source, .. }) if gone(&source) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.into()),
        Ok(()) => match out.flush() {
            Err(error) if !gone(&error) => Err(error.into()),
            _ => Ok(ExitCode::SUCCESS),
        },
    }
}

fn flight(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let Arguments { dir, stretch, beside } = arguments;
    let written = flight::export(dir, stretch, beside, &mut out).and_then(|()| Ok(out.flush()?));
    match written {
        // A reader that went away (`| head`) has what it wanted.
        Err(error) if error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) => {
            Ok(ExitCode::SUCCESS)
        }
        other => other.map(|()| ExitCode::SUCCESS),
    }
}
