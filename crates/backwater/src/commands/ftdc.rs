//! `backwater ftdc`: what a MongoDB server's flight recorder wrote, summed up, listed, or turned into other formats.

use super::place::Place;
use crate::args::Stretch;
use crate::{signals, terminal};
use anyhow::{Context, anyhow, bail};
use backwater_model::{ClockAnchor, Meta, Moment, Unit};
use backwater_report::{Style, table};
use clap::{Args, ValueEnum};
use ftdc::export::Export;
use ftdc::{Decoder, DocumentKind, FtdcError, Selection, Source, Summary, time_text};
use std::io::{BufWriter, ErrorKind, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What MongoDB's flight recorder wrote (diagnostic.data): summed up, listed, exported
#[derive(Args)]
#[command(after_help = "\
Examples:
  backwater ftdc /var/lib/mongodb/diagnostic.data
  backwater ftdc metrics.2026-11-21T03-00-00Z-00000 --metric '*dirty*' --from 03:05 --to 03:15
  backwater ftdc diagnostic.data --export parquet -o week.parquet
  backwater ftdc diagnostic.data --export csv --metric 'serverStatus.opLatencies.*' > latencies.csv

Exit codes: 0 all of it could be read, 1 some of it is damaged (named on stderr; the rest was read), 2 could not do it.")]
pub(crate) struct Arguments {
    /// A file of the recorder, the directory of them, or a server's data directory
    path: PathBuf,
    /// Only metrics that match: a path in which * stands for anything (may be repeated)
    #[arg(long = "metric", value_name = "PATTERN")]
    metrics: Vec<String>,
    #[command(flatten)]
    stretch: Stretch,
    /// List every document: where it lies, its time, samples and metrics
    #[arg(long, group = "what")]
    list: bool,
    /// List the metrics' names
    #[arg(long, group = "what")]
    names: bool,
    /// What the server said of itself: build, options, host, parameters, as JSON
    #[arg(long, group = "what")]
    metadata: bool,
    /// Write samples in another format
    #[arg(long, group = "what", value_name = "FORMAT")]
    export: Option<Format>,
    /// Where to write an export (standard output by default)
    #[arg(short, long, value_name = "FILE", requires = "export")]
    out: Option<PathBuf>,
    /// The summary as JSON
    #[arg(long, conflicts_with = "what")]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// One JSON object a sample
    Jsonl,
    /// Comma-separated values, a column for each metric
    Csv,
    /// Parquet, a column for each metric
    Parquet,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let source = Source::open(&arguments.path)?;
    let stretch = moments(&arguments.stretch, &source)?;
    let chosen = match arguments.metrics.as_slice() {
        [] => None,
        patterns => Some(Selection::of(patterns.iter().cloned())),
    };
    let mut damage = Damage::default();
    if let Some(format) = arguments.export {
        let export = Export::new(&source, chosen.unwrap_or_else(Selection::all), stretch);
        if !arguments.metrics.is_empty() && export.columns()?.metrics().is_empty() && is_recorder(&source) {
            return Err(no_metric(arguments));
        }
        write_export(arguments, format, (&source, &export), &mut damage)?;
    } else if arguments.list {
        list(&source, &stretch, &mut damage)?;
        if damage.is_all() && !is_recorder(&source) {
            return Err(nothing(arguments));
        }
    } else if arguments.names {
        let export = Export::new(&source, chosen.unwrap_or_else(Selection::all), stretch);
        let columns = export.columns_telling(|error| damage.note(error))?;
        if columns.metrics().is_empty() {
            return Err(if is_recorder(&source) { no_metric(arguments) } else { nothing(arguments) });
        }
        let names = columns.metrics().iter().map(|metric| format!("{}\n", metric.path));
        terminal::print(&names.collect::<String>())?;
    } else {
        let summary = source.summarise(&chosen.unwrap_or_default(), stretch)?;
        summary.faults.iter().for_each(|fault| damage.note(&FtdcError::Damaged(fault.clone())));
        if summary.chunks == 0 && summary.metadata_documents == 0 && summary.fault_count > 0 {
            return Err(nothing(arguments));
        }
        if !arguments.metrics.is_empty() && summary.chosen.is_empty() {
            return Err(no_metric(arguments));
        }
        match (arguments.metadata, arguments.json) {
            (true, _) => print_metadata(&summary)?,
            (false, true) => terminal::print_json(&summary.to_json())?,
            (false, false) => terminal::print(&summary_text(&source, &summary, &terminal::style()))?,
        }
    }
    Ok(damage.exit_code())
}

/// Whether any of it is what a recorder writes.
fn is_recorder(source: &Source) -> bool {
    source.documents().any(|document| document.is_ok_and(|document| !matches!(document.kind(), DocumentKind::Other(_))))
}

fn nothing(arguments: &Arguments) -> anyhow::Error {
    anyhow!("{}: nothing of MongoDB's flight recorder in it", arguments.path.display())
}

fn no_metric(arguments: &Arguments) -> anyhow::Error {
    let (path, patterns) = (arguments.path.display(), arguments.metrics.join("', '"));
    if arguments.metrics.is_empty() {
        return anyhow!("{path}: no samples in that time");
    }
    anyhow!("{path}: no metric of that time is called '{patterns}'; they are listed by: backwater ftdc {path} --names")
}

/// Damage that was met, each said once on stderr.
#[derive(Default)]
struct Damage {
    faults: u64,
    /// Whether nothing else was there.
    alone: bool,
}

/// More than this would bury what the terminal shows.
const FAULTS_SHOWN: u64 = 20;

impl Damage {
    fn is_all(&self) -> bool {
        self.alone && self.faults > 0
    }

    fn note(&mut self, error: &FtdcError) {
        self.faults += 1;
        match self.faults.cmp(&FAULTS_SHOWN) {
            std::cmp::Ordering::Less => terminal::note(&format!("damaged: {error}")),
            std::cmp::Ordering::Equal => terminal::note("damaged: more of it, not shown"),
            std::cmp::Ordering::Greater => {}
        }
    }

    fn exit_code(&self) -> ExitCode {
        if self.faults == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
    }
}

/// The stretch of time meant, in milliseconds since 1970. Only if one was given is the recording's own span looked for.
fn moments(stretch: &Stretch, source: &Source) -> anyhow::Result<Range<i64>> {
    if stretch.from.is_none() && stretch.to.is_none() {
        return Ok(i64::MIN..i64::MAX);
    }
    let summary = source.summarise(&Selection::default(), i64::MIN..i64::MAX)?;
    let (first, last) = summary.span_ms.context("no samples in it, so --from and --to mean nothing")?;
    let moment = |unix_ms: i64| Moment(unix_ms.saturating_mul(1_000));
    let anchor = ClockAnchor { boot: moment(last), unix_us: last.saturating_mul(1_000) };
    let meta = Meta { anchors: vec![anchor], ..Meta::default() };
    let (from, to) = stretch.moments(&meta, (moment(first), moment(last)))?;
    let unix_ms = |at: Moment| meta.unix_us(at).map(|us| us.div_euclid(1_000));
    let (from, to) = (unix_ms(from).context("--from is out of range")?, unix_ms(to).context("--to is out of range")?);
    Ok(from..to.saturating_add(1))
}

fn write_export(
    arguments: &Arguments,
    format: Format,
    (source, export): (&Source, &Export<'_>),
    damage: &mut Damage,
) -> anyhow::Result<()> {
    let mut note = |error: FtdcError| damage.note(&error);
    let Some(path) = &arguments.out else {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let written = match format {
            Format::Jsonl => export.json_lines(&mut out, &mut note),
            Format::Csv => export.csv(&mut out, &mut note),
            Format::Parquet => bail!("Parquet needs a file to go to: give -o FILE"),
        };
        let flushed = written.and_then(|rows| out.flush().map(|()| rows).map_err(FtdcError::Write));
        return match flushed {
            // A reader that went away (`| head`) has what it wanted.
            Err(FtdcError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            Ok(0) if damage.faults > 0 && !is_recorder(source) => Err(nothing(arguments)),
            other => other.map(|_| ()).map_err(anyhow::Error::from),
        };
    };
    let same = |file: &ftdc::SourceFile| std::fs::canonicalize(file.path()).ok() == std::fs::canonicalize(path).ok();
    if path.exists() && source.files().iter().any(same) {
        bail!("{} is what is exported: give -o the name of another file", path.display());
    }
    let place = Place::of(path)?;
    let file = place.open().with_context(|| format!("cannot write {}", place.written.display()))?;
    let mut out = BufWriter::new(UntilEnded { file, ended: signals::cancel_flag()? });
    let rows = match format {
        Format::Jsonl => export.json_lines(&mut out, &mut note),
        Format::Csv => export.csv(&mut out, &mut note),
        Format::Parquet => export.parquet(&mut out, &mut note),
    };
    let rows = rows.and_then(|rows| out.flush().map(|()| rows).map_err(FtdcError::Write));
    let rows = rows.inspect_err(|_| place.give_up())?;
    if rows == 0 && damage.faults > 0 && !is_recorder(source) {
        place.give_up();
        return Err(nothing(arguments));
    }
    place.take().with_context(|| format!("cannot write {}", path.display()))?;
    terminal::note(&format!("{rows} samples written to {}", path.display()));
    Ok(())
}

/// A file that takes nothing more once somebody wants the program to end, so that the part that is there is removed.
struct UntilEnded {
    file: std::fs::File,
    ended: Arc<AtomicBool>,
}

impl Write for UntilEnded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.ended.load(Ordering::SeqCst) {
            return Err(std::io::Error::other("ended by a signal"));
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

fn list(source: &Source, stretch: &Range<i64>, damage: &mut Damage) -> anyhow::Result<()> {
    damage.alone = true;
    let mut decoder = Decoder::new(source.limits());
    let mut rows = Vec::new();
    for document in source.documents_between(stretch.clone()) {
        let document = match document {
            Err(error @ FtdcError::Damaged(_)) => {
                damage.note(&error);
                continue;
            }
            other => other?,
        };
        let (what, samples, metrics) = match document.kind() {
            DocumentKind::Metadata => ("metadata".to_owned(), String::new(), String::new()),
            DocumentKind::MetadataDelta => ("metadata change".to_owned(), String::new(), String::new()),
            DocumentKind::Other(number) => (format!("type {number}"), String::new(), String::new()),
            DocumentKind::Chunk => match decoder.open(&document) {
                Ok(chunk) => {
                    ("samples".to_owned(), chunk.samples().to_string(), chunk.schema().metrics().len().to_string())
                }
                Err(error) => {
                    damage.note(&error);
                    ("damaged".to_owned(), String::new(), String::new())
                }
            },
        };
        let file = document.file().file_name().unwrap_or_default().to_string_lossy().into_owned();
        damage.alone = false;
        let (offset, bytes) = (document.offset().to_string(), document.bytes().len().to_string());
        rows.push(vec![file, offset, time_text(document.at_ms()), what, samples, metrics, bytes]);
    }
    let headers = ["file", "offset", "time", "what", "samples", "metrics", "bytes"];
    terminal::print(&table(&headers, &rows, &terminal::style()))
}

fn print_metadata(summary: &Summary) -> anyhow::Result<()> {
    let metadata = &summary.metadata;
    if metadata.document().is_none() && metadata.periodic().is_none() {
        bail!("no metadata in it");
    }
    for document in [metadata.document(), metadata.periodic()].into_iter().flatten() {
        terminal::print(&ftdc::to_json(document)?)?;
    }
    Ok(())
}

fn summary_text(source: &Source, summary: &Summary, style: &Style) -> String {
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut row = |name: &str, text: String| rows.push([name.to_owned(), text]);
    if let Some(version) = summary.metadata.version() {
        row("server", format!("MongoDB {version}"));
    }
    if let Some(host) = summary.metadata.host() {
        let cores = summary.metadata.cores().map(|cores| format!(", {cores} processors")).unwrap_or_default();
        row("host", format!("{host}{cores}"));
    }
    if let Some((first, last)) = summary.span_ms {
        let seconds = last.saturating_sub(first) as f64 / 1e3;
        row("span", format!("{} to {} ({})", time_text(first), time_text(last), Unit::Seconds.show(seconds)));
    }
    let interim = if source.files().iter().any(ftdc::SourceFile::is_interim) { ", one of them interim" } else { "" };
    row("files", format!("{}{interim}", summary.files));
    let sizes = [summary.bytes, summary.inflated_bytes].map(|bytes| Unit::Bytes.show(bytes as f64));
    let chunks = counted(summary.chunks, "chunk");
    row("samples", format!("{} in {chunks}; {} ({} inflated)", summary.samples, sizes[0], sizes[1]));
    if let Some((fewest, most)) = summary.metrics {
        let count = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
        row("metrics", format!("{count} a sample, {}", counted(summary.schema_changes, "change")));
    }
    if summary.other_documents > 0 {
        row("unknown", format!("{} of a type not known here", counted(summary.other_documents, "document")));
    }
    if summary.steps_back > 0 {
        row("clock", format!("set back {}", counted(summary.steps_back, "time")));
    }
    row("gaps", gaps_text(summary));
    let damaged = match summary.fault_count {
        0 => "none".to_owned(),
        count => format!("in {}", counted(count, "place")),
    };
    row("damage", damaged);
    let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
    let mut text = table(&["", ""], &rows, style).trim_start_matches([' ', '\n']).to_owned();
    if !summary.chosen.is_empty() {
        let numbers = |metric: &ftdc::MetricSummary| [metric.first, metric.last, metric.least, metric.most];
        let rows: Vec<Vec<String>> = summary
            .chosen
            .iter()
            .map(|metric| {
                let counted = [metric.samples.to_string()];
                let named = [metric.path.clone()].into_iter().chain(counted);
                named.chain(numbers(metric).map(|number| number.to_string())).collect()
            })
            .collect();
        text.push('\n');
        text.push_str(&table(&["metric", "samples", "first", "last", "least", "most"], &rows, style));
    }
    text
}

/// `1 chunk`, `2 chunks`.
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn gaps_text(summary: &Summary) -> String {
    if summary.gaps == 0 {
        return format!("none longer than {}", Unit::Seconds.show(ftdc::GAP_MS as f64 / 1e3));
    }
    let longest = summary.longest_gaps(3);
    let shown: Vec<_> = longest
        .iter()
        .map(|(from, to)| {
            format!("{} at {}", Unit::Seconds.show(to.saturating_sub(*from) as f64 / 1e3), time_text(*from))
        })
        .collect();
    format!("{}; the longest: {}", summary.gaps, shown.join(", "))
}
