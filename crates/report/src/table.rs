//! Tables: columns aligned, numbers at the right, cells wrapped so that no line is wider than the style allows. Where
//! even that would break every word, each row becomes a list of its own.

use crate::Style;
use crate::style::Tone;
use crate::text::{clean, pad_left, pad_right, width, words, wrap};
use std::cmp::Reverse;

/// Columns between two columns of a table.
const GAP: usize = 2;
/// Words up to this long are kept whole if the table then fits; up to the second if not; else rows become lists.
const WHOLE_WORDS: [usize; 2] = [24, 12];

/// Rows from which the widths of columns are found.
const ROWS_MEASURED: usize = 40;

/// One cell: its text, cleaned, and its meaning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
    whole: bool,
}

impl Cell {
    /// A cell with a meaning.
    pub(crate) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Cell { text: text.into(), tone, whole: false }
    }

    /// The same cell, never to be broken over lines.
    pub(crate) fn whole(self) -> Self {
        Cell { whole: true, ..self }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::new(text, Tone::Plain)
    }
}

/// A table for people. Rows may be of unlike length; what is missing is empty. Every line ends with a newline.
pub fn table(headers: &[&str], rows: &[Vec<String>], style: &Style) -> String {
    let rows: Vec<Vec<Cell>> =
        rows.iter().map(|row| row.iter().map(|text| Cell::from(text.as_str())).collect()).collect();
    cells(headers, &rows, style)
}

/// As [`table`], of cells with meanings.
pub(crate) fn cells(headers: &[&str], rows: &[Vec<Cell>], style: &Style) -> String {
    let layout = Layout::of(headers, rows, style);
    if layout.headers.is_empty() {
        return String::new();
    }
    let widths = WHOLE_WORDS.iter().find_map(|longest| layout.widths(style.columns(), *longest));
    match widths {
        Some(widths) => layout.grid(&widths, style),
        None => layout.lists(style),
    }
}

struct Layout {
    headers: Vec<String>,
    rows: Vec<Vec<Cell>>,
    numeric: Vec<bool>,
}

impl Layout {
    fn of(headers: &[&str], rows: &[Vec<Cell>], style: &Style) -> Self {
        let count = rows.iter().map(Vec::len).chain([headers.len()]).max().unwrap_or(0);
        let header = |place| clean(headers.get(place).copied().unwrap_or_default(), style);
        let cell = |row: &Vec<Cell>, place: usize| {
            let cell = row.get(place).cloned().unwrap_or_default();
            Cell { text: clean(&cell.text, style), ..cell }
        };
        let headers: Vec<_> = (0..count).map(header).collect();
        let rows: Vec<Vec<_>> = rows.iter().map(|row| (0..count).map(|place| cell(row, place)).collect()).collect();
        let numeric = (0..count).map(|place| is_numeric(rows.iter().map(|row| row[place].text.as_str()))).collect();
        Layout { headers, rows, numeric }
    }

    /// The width of each column, or none where the table cannot be made narrow enough to be read.
    fn widths(&self, available: usize, longest_word: usize) -> Option<Vec<usize>> {
        let count = self.headers.len();
        let columns = available.checked_sub(GAP * (count - 1))?;
        let mut widths: Vec<usize> = (0..count).map(|place| self.natural(place).min(available)).collect();
        let least: Vec<usize> = (0..count).map(|place| self.least(place, longest_word).min(widths[place])).collect();
        let sizes = self.sizes();
        while widths.iter().sum::<usize>() > columns {
            // Narrow the column that costs the fewest lines; of several, the widest.
            let narrower = |place: &usize| {
                let mut tried = widths.clone();
                tried[*place] -= 1;
                (lines(&sizes, &tried), Reverse(widths[*place]))
            };
            let cheapest = (0..count).filter(|place| widths[*place] > least[*place]).min_by_key(narrower)?;
            widths[cheapest] -= 1;
        }
        Some(widths)
    }

    /// Widths of all cells of the header and the first rows, which stand for the rest.
    fn sizes(&self) -> Vec<Vec<usize>> {
        let header = self.headers.iter().map(|text| width(text)).collect();
        let row = |row: &Vec<Cell>| row.iter().map(|cell| width(&cell.text)).collect();
        [header].into_iter().chain(self.rows.iter().take(ROWS_MEASURED).map(row)).collect()
    }

    fn texts(&self, place: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |row| row[place].text.as_str())
    }

    fn natural(&self, place: usize) -> usize {
        self.texts(place).chain([self.headers[place].as_str()]).map(width).max().unwrap_or(0)
    }

    /// Numbers and what must not be broken stay whole; so do words, up to a length.
    fn least(&self, place: usize, longest_word: usize) -> usize {
        let word = |text: &str| words(text).into_iter().map(width).max().unwrap_or(0).min(longest_word);
        let header = word(&self.headers[place]);
        let whole = self.numeric[place] || self.rows.iter().any(|row| row[place].whole);
        let cells = if whole { self.texts(place).map(width).max() } else { self.texts(place).map(word).max() };
        cells.unwrap_or(0).max(header)
    }

    fn grid(&self, widths: &[usize], style: &Style) -> String {
        let mut out = String::new();
        let headers: Vec<Cell> = self.headers.iter().map(|text| Cell::new(text.as_str(), Tone::Strong)).collect();
        if self.headers.iter().any(|header| !header.is_empty()) {
            self.grid_row(&mut out, &headers, widths, style);
            let rule: Vec<_> = widths.iter().map(|width| style.sign("─", "-").repeat(*width)).collect();
            style.paint_onto(&mut out, Tone::Faint, &rule.join(&" ".repeat(GAP)));
            out.push('\n');
        }
        for row in &self.rows {
            self.grid_row(&mut out, row, widths, style);
        }
        out
    }

    fn grid_row(&self, out: &mut String, row: &[Cell], widths: &[usize], style: &Style) {
        let wrapped: Vec<_> = row.iter().zip(widths).map(|(cell, width)| wrap(&cell.text, *width)).collect();
        for line in 0..wrapped.iter().map(Vec::len).max().unwrap_or(0) {
            let start = out.len();
            for (place, lines) in wrapped.iter().enumerate() {
                let text = lines.get(line).map(String::as_str).unwrap_or_default();
                let aligned =
                    if self.numeric[place] { pad_left(text, widths[place]) } else { pad_right(text, widths[place]) };
                if place > 0 {
                    out.push_str(&" ".repeat(GAP));
                }
                style.paint_onto(out, row[place].tone, if text.is_empty() { &aligned[text.len()..] } else { &aligned });
            }
            out.truncate(start + out[start..].trim_end_matches(' ').len());
            out.push('\n');
        }
    }

    /// Each row as a list: its first cell, then every other one that says something behind its header.
    fn lists(&self, style: &Style) -> String {
        let mut page = crate::page::Page::new(style);
        for row in &self.rows {
            for (place, cell) in row.iter().enumerate() {
                let header = &self.headers[place];
                let indent = if place == 0 { 0 } else { 2 };
                let text = if place == 0 || header.is_empty() {
                    cell.text.clone()
                } else {
                    format!("{header}: {}", cell.text)
                };
                let tone = if place == 0 && cell.tone == Tone::Plain { Tone::Strong } else { cell.tone };
                let dash = place > 0 && matches!(cell.text.as_str(), "–" | "-");
                if !cell.text.is_empty() && !dash {
                    page.paragraph(tone, &text, indent);
                }
            }
        }
        page.finish()
    }
}

/// About how many lines cells of these sizes take in columns of these widths.
fn lines(sizes: &[Vec<usize>], widths: &[usize]) -> usize {
    let row = |row: &Vec<usize>| row.iter().zip(widths).map(|(size, width)| size.div_ceil((*width).max(1))).max();
    sizes.iter().filter_map(row).sum()
}

/// Whether all that stands in a column are numbers, with or without units, and at least one does.
fn is_numeric<'a>(mut texts: impl Iterator<Item = &'a str>) -> bool {
    let mut any = false;
    let all = texts.all(|text| match text.trim_start_matches(['+', '-', '−', '~', '≈', '<', '>', '≤', '≥', ' '])
    {
        "" | "–" => true,
        rest => {
            any = true;
            rest.starts_with(|c: char| c.is_ascii_digit()) && rest.len() <= 40 && !rest.contains('/') || is_rate(rest)
        }
    });
    all && any
}

/// `12.3 MiB/s` is a number, `7:0/a` and `0/16B3748` are not.
fn is_rate(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.len() <= 40
        && text.trim_end_matches("/s").find('/').is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(texts: &[&[&str]]) -> Vec<Vec<String>> {
        texts.iter().map(|row| row.iter().map(|text| (*text).to_owned()).collect()).collect()
    }

    fn example() -> Vec<Vec<String>> {
        rows(&[
            &["default", "2,040/s", "falls off the cliff after twelve seconds and never recovers"],
            &["small-limit", "960/s", "steadier; \u{1b}[31mdrains\u{1b}[0m within a second"],
            &["advised", "–"],
        ])
    }

    const HEADERS: [&str; 3] = ["arm", "throughput", "seen"];

    #[test]
    fn columns_are_aligned_and_wrapped() {
        for width in [120, 80, 40, 20] {
            let style = Style { color: false, width, unicode: true };
            insta::assert_snapshot!(format!("table_{width}"), table(&HEADERS, &example(), &style));
        }
        insta::assert_snapshot!("table_ascii_80", table(&HEADERS, &example(), &Style::plain(80)));
    }

    #[test]
    fn nothing_makes_nothing() {
        assert_eq!(table(&[], &[], &Style::plain(80)), "");
        assert_eq!(table(&[], &[vec![], vec![]], &Style::plain(80)), "");
    }

    #[test]
    fn positions_and_devices_are_no_numbers() {
        assert!(is_numeric(["12.3 MiB/s", "", "–"].into_iter()));
        assert!(!is_numeric(["0/16B3748"].into_iter()));
        assert!(!is_numeric([""].into_iter()));
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_style(
            headers in proptest::collection::vec(any::<String>(), 0..8),
            rows in proptest::collection::vec(proptest::collection::vec("\\PC{0,40}|.{0,60}|[0-9]{1,60}", 0..10), 0..6),
            width in 0usize..140, unicode: bool,
        ) {
            let style = Style { color: false, width, unicode };
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            for line in table(&headers, &rows, &style).lines() {
                prop_assert!(crate::text::width(line) <= style.columns(), "{line:?}");
            }
        }
    }
}
