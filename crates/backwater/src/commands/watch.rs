//! `backwater watch`: path, curves, sessions and findings on a terminal, live or over a recording.

use super::source::is_recording;
use crate::args::Sight;
use crate::{signals, terminal, when};
use anyhow::bail;
use backwater_live::screen::{Look, plain, watch};
use backwater_live::{Feed, Source};
use backwater_probe::session::{Session, Setup};
use clap::Args;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Readings that plain text rests on, in seconds: rates need two readings of the slowest source that matters.
const ENOUGH_S: f64 = 6.0;
/// How often it is looked whether there are enough of them.
const LOOK: Duration = Duration::from_millis(100);
/// Columns of plain text that nobody looks at on a terminal.
const COLUMNS: usize = 80;

/// Path, curves, sessions and findings on this terminal, live or over a recording
#[derive(Args)]
#[command(after_help = "\
Keys: 1 to 5 or Tab show all or one part, arrows choose a queue and a time, PgUp and PgDn turn pages, + and - look closer or \
wider, End is the newest, p stops, ? explains, Esc goes back, q quits.

Examples:
  backwater watch                             this host
  backwater watch postgres:///app             a server
  backwater watch rec                         a recording, also one that is being written
  backwater watch /var/lib/mongodb/diagnostic.data   what MongoDB's flight recorder holds
  backwater watch postgres:///app --once      what is seen now, as plain text")]
pub(crate) struct Arguments {
    /// Servers to watch (postgres://… or a libpq connection string; `host` or nothing for this host alone), or the directory of a
    /// recording or of MongoDB's flight recorder. Passwords belong into PGPASSWORD, a password file or a service file, not here
    sources: Vec<String>,
    /// Print it once as plain text, after six seconds where it is live
    #[arg(long)]
    once: bool,
    /// How much of the past is remembered
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = when::some_seconds)]
    history: f64,
    #[command(flatten)]
    sight: Sight,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if !arguments.once && !std::io::stdout().is_terminal() {
        bail!("stdout is no terminal; --once prints what is seen as plain text");
    }
    if !arguments.once && !terminal::attended() {
        bail!("a terminal of TERM=dumb cannot show a screen; --once prints what is seen as plain text");
    }
    let cancel = signals::cancel_flag()?;
    match arguments.sources.as_slice() {
        [one] if is_recording(one) => {
            let source = Source::recording(Path::new(one), arguments.history)?;
            if source.is_empty()? {
                bail!("{one} holds no readings yet, so there is nothing to show");
            }
            show(arguments, &source, &cancel)?;
        }
        several if several.iter().any(|text| is_recording(text)) => {
            bail!("one recording at a time, or servers; `backwater serve` shows several of both")
        }
        _ => {
            let setup = Setup {
                targets: arguments.sources.clone(),
                volumes: arguments.sight.volume.declared()?,
                keep_query_text: arguments.sight.keep_query_text,
                ..Setup::default()
            };
            let (session, batches) = Session::start(setup)?;
            let feed = Feed::of(&session, arguments.history);
            feed.take(batches, None, None)?;
            if arguments.once {
                enough(&feed, &cancel);
            }
            let shown = show(arguments, &Source::live(feed), &cancel);
            session.stop();
            shown?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until there are enough readings, or somebody wants to end it.
fn enough(feed: &Feed, cancel: &AtomicBool) {
    while feed.window(ENOUGH_S).seconds() < ENOUGH_S && !cancel.load(Ordering::SeqCst) {
        std::thread::park_timeout(LOOK);
    }
}

fn show(arguments: &Arguments, source: &Source, cancel: &AtomicBool) -> anyhow::Result<()> {
    let style = terminal::style_of(COLUMNS);
    let look = Look::new(style.unicode, style.color, source.grows());
    if !arguments.once {
        // What is logged meanwhile would be written across the screen.
        let _held = terminal::hold();
        return Ok(watch(source, look, cancel)?);
    }
    let (document, _) = source.document()?;
    terminal::print(&plain(&document, &look, style.width))
}
