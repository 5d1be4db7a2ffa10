//! Where output goes: data to stdout, the rest to stderr.

use backwater_report::Style;
use std::io::{IsTerminal, Write};

/// Log lines to stderr: warnings, with -v what the program does, with -vv every detail. RUST_LOG overrides.
pub(crate) fn log_to_stderr(verbose: u8) {
    let levels: Vec<String> = match verbose {
        0 => vec!["warn".to_owned()],
        _ => {
            let own = if verbose == 1 { "info" } else { "debug" };
            let crates = [
                "backwater",
                "backwater_gate",
                "backwater_lab",
                "backwater_probe",
                "backwater_record",
                "backwater_undo",
            ];
            crates.iter().map(|name| format!("{name}={own}")).chain(["warn".to_owned()]).collect()
        }
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(levels.join(",")));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .without_time()
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .init();
}

/// How to write on stdout here: colour only on a terminal without NO_COLOR, its width, and whether it shows Unicode.
pub(crate) fn style() -> Style {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let seen = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    let language =
        ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    let terminal = std::io::stdout().is_terminal();
    Style {
        color: terminal && std::env::var_os("NO_COLOR").is_none(),
        width: columns.or(seen.filter(|width| *width > 0)).unwrap_or(100usize).clamp(40, 160),
        unicode: language.is_none_or(|name| name.to_ascii_uppercase().contains("UTF") || !terminal),
    }
}

/// Data for stdout. A reader that went away (`| head`) is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let text = if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Whether somebody watches stdout on a terminal that can be written over.
pub(crate) fn attended() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Lines of the terminal.
pub(crate) fn lines() -> usize {
    let told = std::env::var("LINES").ok().and_then(|text| text.parse().ok());
    let seen = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_row));
    told.or(seen.filter(|lines| *lines > 0)).unwrap_or(24)
}

/// Shows a text in place of the one before: from the upper left corner, the rest of each line and of the screen cleared.
pub(crate) fn redraw(text: &str) -> anyhow::Result<()> {
    let lines: String = text.lines().map(|line| format!("{line}\x1b[K\n")).collect();
    print(&format!("\x1b[H{}\x1b[J", lines))
}

/// JSON for stdout.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

/// A line for the person at the terminal, on stderr.
#[allow(clippy::print_stderr)]
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

/// Why it could not be done, with each cause, on stderr.
pub(crate) fn error(error: &anyhow::Error) {
    let mut text = format!("backwater: {error}");
    for cause in error.chain().skip(1) {
        // Library errors often repeat their source; say each thing once.
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(&format!("\n  because {cause}"));
        }
    }
    note(&text);
}
