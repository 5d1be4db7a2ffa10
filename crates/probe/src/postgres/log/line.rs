//! Severity and message of one physical line, in each of the three formats (log_destination).

use super::stamp::Stamp;
use serde::Deserialize;

/// How the file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::postgres) enum Format {
    Stderr,
    Csv,
    Json,
}

impl Format {
    /// By the ending that the server gives its files.
    pub(in crate::postgres) fn of(path: &std::path::Path) -> Self {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Format::Csv,
            Some("json") => Format::Json,
            _ => Format::Stderr,
        }
    }
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) severity: &'static str,
    pub(super) message: String,
    pub(super) stamp: Option<Stamp>,
}

const SEVERITIES: [&str; 5] = ["LOG", "WARNING", "ERROR", "FATAL", "PANIC"];

fn severity(word: &str) -> Option<&'static str> {
    SEVERITIES.into_iter().find(|severity| *severity == word)
}

/// Reads lines of one file in order; remembers whether a CSV record is still open.
#[derive(Debug)]
pub(super) struct Reader {
    format: Format,
    inside_quotes: bool,
}

impl Reader {
    pub(super) fn new(format: Format) -> Self {
        Reader { format, inside_quotes: false }
    }

    /// Severity and message, if this line begins a record of one of the severities that matter. `prefix` is log_line_prefix.
    pub(super) fn read(&mut self, line: &str, prefix: &str) -> Option<Line> {
        match self.format {
            Format::Stderr => stderr(line, prefix),
            Format::Json => json(line),
            Format::Csv => {
                let begins = !self.inside_quotes;
                self.inside_quotes ^= line.bytes().filter(|byte| *byte == b'"').count() % 2 == 1;
                begins.then(|| csv(line)).flatten()
            }
        }
    }
}

/// `PREFIX LOG:  message`. The second and later lines of a record begin with a tab.
fn stderr(line: &str, prefix: &str) -> Option<Line> {
    if line.starts_with('\t') {
        return None;
    }
    let (at, severity) = SEVERITIES.iter().filter_map(|word| Some((find_severity(line, word)?, *word))).min()?;
    let message = line[at + severity.len() + 1..].trim_start();
    Some(Line { severity, message: message.to_owned(), stamp: Stamp::of_prefix(&line[..at], prefix) })
}

/// Where `WORD:  ` stands as a word of its own.
fn find_severity(line: &str, word: &str) -> Option<usize> {
    let own = |at: &usize| !line[..*at].ends_with(|c: char| c.is_ascii_alphanumeric());
    line.match_indices(word).map(|(at, _)| at).find(|at| line[at + word.len()..].starts_with(":  ") && own(at))
}

/// Fields 1, 12 and 14 of a record are time, severity and message; later fields may run over several lines.
fn csv(line: &str) -> Option<Line> {
    let mut fields = CsvFields { rest: Some(line) };
    let stamp = Stamp::of_time(&fields.next()?);
    let severity = severity(&fields.nth(10)?)?;
    let message = fields.nth(1)?;
    Some(Line { severity, message, stamp })
}

struct CsvFields<'a> {
    rest: Option<&'a str>,
}

impl Iterator for CsvFields<'_> {
    type Item = String;

    /// The next field; none at the end, and none where a quote is not closed on this line.
    fn next(&mut self) -> Option<String> {
        let text = self.rest.take()?;
        let Some(quoted) = text.strip_prefix('"') else {
            let (field, rest) = text.split_once(',').map_or((text, None), |(field, rest)| (field, Some(rest)));
            self.rest = rest;
            return Some(field.to_owned());
        };
        let mut field = String::new();
        let mut rest = quoted;
        loop {
            let (part, after) = rest.split_once('"')?;
            field.push_str(part);
            match after.strip_prefix('"') {
                Some(more) => {
                    field.push('"');
                    rest = more;
                }
                None => {
                    self.rest = after.strip_prefix(',');
                    return Some(field);
                }
            }
        }
    }
}

fn json(line: &str) -> Option<Line> {
    #[derive(Deserialize)]
    struct Record {
        #[serde(default)]
        timestamp: String,
        error_severity: String,
        message: String,
    }
    let record: Record = serde_json::from_str(line).ok()?;
    let stamp = Stamp::of_time(&record.timestamp);
    Some(Line { severity: severity(&record.error_severity)?, message: record.message, stamp })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn read(format: Format, text: &str) -> Option<(&'static str, String)> {
        said(Reader::new(format).read(text, ""))
    }

    fn said(line: Option<Line>) -> Option<(&'static str, String)> {
        line.map(|line| (line.severity, line.message))
    }

    fn line(severity: &'static str, message: &str) -> Option<(&'static str, String)> {
        Some((severity, message.to_owned()))
    }

    #[test]
    fn every_format_tells_its_time() {
        let time = "2026-11-21 11:18:55.123 UTC";
        let stamp = Stamp::of_time(time);
        assert!(stamp.is_some());
        let csv = format!(r#"{time},"u","d",1,"h:1",65.1,2,"SELECT",2026-11-21 11:00:00 UTC,3/4,0,LOG,00000,"m",,,"#);
        let json = format!(r#"{{"timestamp":"{time}","error_severity":"LOG","message":"m"}}"#);
        let stderr = format!("{time} [1] LOG:  m");
        for (format, text) in [(Format::Csv, csv), (Format::Json, json), (Format::Stderr, stderr)] {
            let line = Reader::new(format).read(&text, "%m [%p] ").unwrap();
            assert_eq!((line.stamp, line.message.as_str()), (stamp, "m"), "{format:?}");
        }
    }

    #[test]
    fn stderr_lines_with_any_prefix() {
        let text = "2026-11-21 11:18:55.123 UTC [123] LOG:  checkpoint starting: time";
        assert_eq!(read(Format::Stderr, text), line("LOG", "checkpoint starting: time"));
        let text = "user=u,db=BACKLOG: x FATAL:  terminating walreceiver due to timeout";
        assert_eq!(read(Format::Stderr, text), line("FATAL", "terminating walreceiver due to timeout"));
        // The first severity counts: a statement that quotes another does not.
        let text = "[1] LOG:  statement: SELECT 'LOG:  checkpoint starting: x'";
        assert_eq!(read(Format::Stderr, text), line("LOG", "statement: SELECT 'LOG:  checkpoint starting: x'"));
        assert_eq!(read(Format::Stderr, "\tLOG:  checkpoint starting: forged"), None);
        assert_eq!(read(Format::Stderr, "[1] STATEMENT:  SELECT 1"), None);
    }

    #[test]
    fn csv_records_over_several_lines() {
        let head = r#"2026-11-21 11:18:55.123 UTC,"u","d",1,"h:1",65.1,2,"SELECT",2026-11-21 11:00:00 UTC,3/4,0,"#;
        assert_eq!(
            read(Format::Csv, &format!(r#"{head}LOG,00000,"say ""hi"", now",,,"#)),
            line("LOG", r#"say "hi", now"#)
        );
        let mut reader = Reader::new(Format::Csv);
        let opening = format!(r#"{head}ERROR,42601,"bad",,,,,,"SELECT"#);
        assert_eq!(said(reader.read(&opening, "")), line("ERROR", "bad"));
        assert_eq!(reader.read(&format!(r"{head}LOG,00000,forged"), ""), None);
        assert_eq!(reader.read(r#"x",,,"psql","client backend",,0"#, ""), None);
        assert!(reader.read(&format!(r"{head}LOG,00000,next"), "").is_some());
    }

    #[test]
    fn json_records() {
        let text = r#"{"timestamp":"x","pid":1,"error_severity":"WARNING","message":"a \"b\"","backend_type":"y"}"#;
        assert_eq!(read(Format::Json, text), line("WARNING", "a \"b\""));
        assert_eq!(read(Format::Json, r#"{"error_severity":"DEBUG1","message":"m"}"#), None);
        assert_eq!(read(Format::Json, "{"), None);
    }

    proptest! {
        #[test]
        fn never_panics(text in "(?s).{0,120}") {
            for format in [Format::Stderr, Format::Csv, Format::Json] {
                let _ = read(format, &text);
            }
        }

        #[test]
        fn never_panics_on_csv(text in "[\",LOG:ü \n]{0,80}") {
            let mut reader = Reader::new(Format::Csv);
            let _ = (reader.read(&text, ""), reader.read(&text, ""));
            let _ = stderr(&text, "%m ");
        }
    }
}
