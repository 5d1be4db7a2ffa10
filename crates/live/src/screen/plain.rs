//! Everything as plain text: as long as it is, nothing filled up, nothing left out.

use super::figures::clock;
use super::look::Look;
use super::{curves, findings, found, pane, path, sessions};
use backwater_report::html::Document;
use backwater_report::text::wrap;
use ratatui::text::Line;

/// What there is of a document, in so many columns (40 at least). Only commands to copy are longer than a line.
pub fn plain(document: &Document, look: &Look, columns: usize) -> String {
    let columns = columns.max(40);
    let look = &look.clone().plain(document);
    let (first, end) = look.pieces(document);
    let at = |piece: usize| clock(document, piece as f64 * document.axis.step_s);
    let mut text = Text(String::new());
    text.paragraph(&look.clean(&format!("Backwater: {}", document.about.title)), columns);
    let state = format!("{} to {}, {}", at(first), at(end), found(document));
    text.paragraph(&look.clean(&state), columns);
    text.part(&format!("Path at {}", at(end)), path::lines(document, look, columns), look, columns);
    text.gap();
    text.lines(curves::lines(document, look, columns));
    let (title, lists) = sessions::whole(document, look, columns);
    text.part(&title, lists, look, columns);
    text.part(&findings::title(document), findings::whole(document, look, columns), look, columns);
    if let Some(more) = more(document) {
        text.gap();
        text.paragraph(&look.clean(&more), columns);
    }
    text.0
}

/// What else the page has, which no terminal shows.
fn more(document: &Document) -> Option<String> {
    let count = document.events.len() + document.events_left_out;
    let parts = [
        document.lab.as_ref().map(|lab| format!("the results of the experiment {}", lab.scenario)),
        document.flow.as_ref().map(|_| "who is held back, and by what".to_owned()),
        (count > 0).then(|| if count == 1 { "1 event".to_owned() } else { format!("{count} events") }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("The page also has {}: `backwater report` or `serve`.", parts.join(", ")))
}

struct Text(String);

impl Text {
    fn lines(&mut self, lines: impl IntoIterator<Item = Line<'static>>) {
        for line in lines {
            self.0.push_str(line.to_string().trim_end());
            self.0.push('\n');
        }
    }

    fn paragraph(&mut self, words: &str, columns: usize) {
        self.lines(wrap(words, columns).into_iter().map(Line::from));
    }

    fn gap(&mut self) {
        self.0.push('\n');
    }

    /// Lines below a heading, with an empty line before it.
    fn part(&mut self, title: &str, lines: Vec<Line<'static>>, look: &Look, columns: usize) {
        self.gap();
        self.lines(pane::whole_heading(title, look, columns));
        self.lines(lines);
    }
}
