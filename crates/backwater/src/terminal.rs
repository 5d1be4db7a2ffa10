//! Where output goes: data to stdout, the rest to stderr.

use backwater_report::Style;
use backwater_report::text::clean;
use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Log lines to stderr: warnings, with -v what the program does, with -vv every detail. RUST_LOG overrides. Of a program that
/// `governs` others' sessions what it decides and changes is logged always, and when.
pub(crate) fn log_to_stderr(verbose: u8, governs: bool) {
    let levels: Vec<String> = match verbose {
        0 if governs => vec!["backwater_gate=info".to_owned(), "warn".to_owned()],
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
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Log)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    match governs {
        true => lines.init(),
        false => lines.without_time().init(),
    }
}

/// How to write on stdout here: colour only on a terminal without NO_COLOR, its width, and whether it shows Unicode.
pub(crate) fn style() -> Style {
    style_of(100)
}

/// The same, so many columns wide where neither a terminal nor COLUMNS tells.
pub(crate) fn style_of(unattended_columns: usize) -> Style {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let seen = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    let language =
        ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    let terminal = std::io::stdout().is_terminal();
    Style {
        color: terminal && std::env::var_os("NO_COLOR").is_none(),
        width: columns.or(seen.filter(|width| *width > 0)).unwrap_or(unattended_columns).clamp(40, 160),
        unicode: language.is_none_or(|name| name.to_ascii_uppercase().contains("UTF") || !terminal),
    }
}

/// Whether a screen is shown on the terminal, and what is logged meanwhile, where that would go there too.
static SHOWN: AtomicBool = AtomicBool::new(false);
static HELD: Mutex<Option<Lines>> = Mutex::new(None);
/// So much of it is kept: what was logged last. A screen may be shown for days.
const KEPT_BYTES: usize = 64 << 10;

/// The last log lines, and how many there were before them.
#[derive(Default)]
struct Lines {
    text: VecDeque<u8>,
    left_out: u64,
}

impl Lines {
    fn add(&mut self, bytes: &[u8]) {
        self.text.extend(bytes);
        while self.text.len() > KEPT_BYTES {
            let line = self.text.iter().position(|byte| *byte == b'\n').map_or(self.text.len(), |end| end + 1);
            self.text.drain(..line);
            self.left_out += 1;
        }
    }

    fn write(mut self, out: &mut impl Write) -> std::io::Result<()> {
        if self.left_out > 0 {
            let lines = if self.left_out == 1 { "line" } else { "lines" };
            writeln!(out, "{} {lines} logged before are left out", self.left_out)?;
        }
        out.write_all(self.text.make_contiguous())
    }
}

/// Keeps what is logged to a terminal until it is dropped: it would be written across what is shown there.
#[must_use = "lines are held as long as this lives"]
pub(crate) struct Held(());

/// Begins to hold log lines, where stderr is a terminal.
pub(crate) fn hold() -> Held {
    SHOWN.store(true, Ordering::SeqCst);
    if std::io::stderr().is_terminal() {
        *held() = Some(Lines::default());
    }
    Held(())
}

impl Drop for Held {
    fn drop(&mut self) {
        SHOWN.store(false, Ordering::SeqCst);
        let lines = held().take().unwrap_or_default();
        // Nobody is left to tell where stderr is gone.
        let _told = lines.write(&mut std::io::stderr());
    }
}

/// For whoever ends the program at once: gives the terminal back if a screen is shown on it.
pub(crate) fn leave() {
    if SHOWN.swap(false, Ordering::SeqCst) {
        backwater_live::screen::restore();
    }
}

fn held() -> MutexGuard<'static, Option<Lines>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where log lines go: stderr, now or once it shows lines again.
struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match held().as_mut() {
            Some(lines) => {
                lines.add(bytes);
                Ok(bytes.len())
            }
            None => {
                to_stderr(bytes);
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
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

/// Lines for the person at the terminal, on stderr. Names in them may be of somebody else's making: a server's, a host's.
pub(crate) fn note(text: &str) {
    to_stderr(format!("{}\n", safe(text)).as_bytes());
}

/// Nobody is left to tell where stderr is gone (`2>&1 | head`), and the work goes on.
fn to_stderr(bytes: &[u8]) {
    let _told = std::io::stderr().write_all(bytes);
}

/// The same without anything that a terminal would act on. Lines and spaces are ours and stay.
fn safe(text: &str) -> String {
    let style = Style { color: false, width: usize::MAX, unicode: true };
    let line = |line: &str| line.split(' ').map(|word| clean(word, &style)).collect::<Vec<_>>().join(" ");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Why it could not be done, with each cause, on stderr.
pub(crate) fn error(error: &anyhow::Error) {
    note(&without_passwords(&format!("backwater: {}", with_causes(error, "\n  because "))));
}

/// The same in one line.
pub(crate) fn told(error: &anyhow::Error) -> String {
    without_passwords(&with_causes(error, ": "))
}

fn with_causes(error: &anyhow::Error, because: &str) -> String {
    let mut text = error.to_string().trim_end().to_owned();
    for cause in error.chain().skip(1) {
        // Library errors often repeat their source; say each thing once.
        let cause = cause.to_string();
        if !text.contains(cause.trim_end()) {
            text.push_str(because);
            text.push_str(cause.trim_end());
        }
    }
    text
}

/// A text in which what stands where a connection string has its password is `***`: somebody may have given one where a file or
/// something else was asked for, and then it is repeated.
fn without_passwords(text: &str) -> String {
    text.split_inclusive(ends_word).map(without_password).collect()
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || "'\"`".contains(c)
}

fn without_password(word: &str) -> String {
    let lower = word.to_ascii_lowercase();
    if let Some(place) = ["password=", "pwd="].iter().find_map(|key| lower.find(key).map(|place| place + key.len())) {
        let end = word[place..].find(['&', ';']).map_or(word.trim_end_matches(ends_word).len(), |end| place + end);
        // Where nothing stands behind it the word itself is spoken of.
        return if end > place { format!("{}***{}", &word[..place], &word[end..]) } else { word.to_owned() };
    }
    let Some(at) = word.rfind('@') else { return word.to_owned() };
    let front = &lower[..at];
    // Behind the scheme, be it spelled wrong.
    let scheme = ["mongodb", "mongodb+srv", "postgres", "postgresql", "http", "https"].iter().find_map(|scheme| {
        let rest = front.strip_prefix(scheme)?;
        let marks = rest.len() - rest.trim_start_matches([':', '/']).len();
        (marks > 0).then_some(scheme.len() + marks)
    });
    let from = scheme.unwrap_or(0);
    match front[from..].find(':') {
        Some(colon) => format!("{}***{}", &word[..=from + colon], &word[at..]),
        None => word.to_owned(),
    }
}

/// What is said of arguments that cannot be understood, or of a program that explains itself; and how it then ends.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let text = error.render();
    if error.use_stderr() {
        let styled = std::io::stderr().is_terminal();
        let text = if styled { text.ansi().to_string() } else { text.to_string() };
        to_stderr(without_passwords(&text).as_bytes());
    } else {
        drop(error.print());
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn written(lines: Lines) -> String {
        let mut out = Vec::new();
        lines.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_password_that_somebody_gave_in_the_wrong_place_is_not_repeated() {
        let told = without_passwords(
            "mongodb://mon:s3cr3t@h:1/ is no recording: 'mongodb:/mon:s3/cr@t@h' and mon:s3cr3t@127.0.0.1:27017\n",
        );
        assert_eq!(told, "mongodb://mon:***@h:1/ is no recording: 'mongodb:/mon:***@h' and mon:***@127.0.0.1:27017\n");
        let told =
            without_passwords("u:s3//cret@h 'host=h password=s3cret' postgres://h/db?user=u&password=s3cret&x=1");
        assert_eq!(told, "u:***@h 'host=h password=***' postgres://h/db?user=u&password=***&x=1");
        let plain = "wt.dirty@m: 12:30 at host:27017, user@host, mongodb://user@h/ after 'password=' is nothing";
        assert_eq!(without_passwords(plain), plain);
    }

    #[test]
    fn of_what_is_logged_under_a_screen_the_last_is_kept_and_the_rest_counted() {
        let mut lines = Lines::default();
        lines.add(b"one\n");
        assert_eq!(written(lines), "one\n");
        let mut lines = Lines::default();
        for number in 0..10_000 {
            lines.add(format!("line {number:05}\n").as_bytes());
            assert!(lines.text.len() <= KEPT_BYTES);
        }
        let text = written(lines);
        let kept = KEPT_BYTES / "line 00000\n".len();
        assert!(text.starts_with(&format!("{0} lines logged before are left out\nline {0:05}\n", 10_000 - kept)));
        assert!(text.ends_with("line 09999\n"));
        assert_eq!(text.lines().count(), kept + 1);
    }

    #[test]
    fn a_name_cannot_act_on_the_terminal_and_our_lines_stay() {
        assert_eq!(safe("serving db\x1b]0;owned\x07 | b"), "serving db\\x1b]0;owned\\x07 | b");
        assert_eq!(safe("a:\n  because  b…\n"), "a:\n  because  b…\n");
    }
}
