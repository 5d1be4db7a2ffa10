//! `backwater export`: readings as JSON Lines, for every other tool.

use crate::args::Stretch;
use backwater_record::Recording;
use clap::Args;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// A recording's readings as JSON Lines (the Parquet files in it can be read as they are, too)
#[derive(Args)]
pub(crate) struct Arguments {
    /// The recording
    dir: PathBuf,
    #[command(flatten)]
    stretch: Stretch,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let recording = Recording::open(&arguments.dir)?;
    let Some(span) = recording.span() else { return Ok(ExitCode::SUCCESS) };
    let (from, to) = arguments.stretch.moments(recording.meta(), span)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    recording.export_jsonl(Some(from), Some(to), &mut out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
