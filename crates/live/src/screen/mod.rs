//! The terminal view: path, curves, sessions and findings on one screen, from 80 × 24 up.
//!
//! [`draw`] is a pure function of a page's document and of what somebody looks at; it draws into a buffer, which is shown on a
//! terminal ([`watch`]) or told as plain text ([`text`]). The document is that of the page, so that the two cannot disagree.

mod look;
mod parts;
mod terminal;
mod words;

pub use look::{Act, Look};
pub use terminal::watch;

use backwater_report::html::Document;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget};
use words::clean;

/// Narrower or lower than this, nothing sensible can be shown.
const LEAST: (u16, u16) = (40, 12);
/// Lines of the path's table beside its queues: heading and columns.
const PATH_HEAD: u16 = 2;

/// Draws what is looked at of a document.
pub fn draw(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) {
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let words = format!("{} × {} is too small: {} × {} at least", area.width, area.height, LEAST.0, LEAST.1);
        return Paragraph::new(words).render(area, buffer);
    }
    if look.help {
        return help(look, area, buffer);
    }
    let queues = document.path.queues.len().max(1) as u16;
    // Half of the screen at most: with many standbys the others are reached by the arrow keys.
    let path = (queues + PATH_HEAD).min(area.height / 2);
    let rest = area.height - path - 2;
    let curves = (rest * 2 / 5).max(4);
    let rows = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(path),
        Constraint::Length(curves),
        Constraint::Fill(1),
        Constraint::Length(1),
    ]);
    let [head, path, curves, below, foot] = rows.areas(area);
    title(document, look, head, buffer);
    parts::path(document, look, path, buffer);
    parts::curves(document, look, curves, buffer);
    if area.width >= 80 {
        let [left, right] = Layout::horizontal([Constraint::Percentage(42), Constraint::Fill(1)]).areas(below);
        parts::sessions(document, look, left, buffer);
        parts::findings(document, look, right, buffer);
    } else {
        let [top, bottom] = Layout::vertical([Constraint::Percentage(40), Constraint::Fill(1)]).areas(below);
        parts::sessions(document, look, top, buffer);
        parts::findings(document, look, bottom, buffer);
    }
    keys(look, foot, buffer);
}

/// The same as plain text, line by line, as wide and as high as told.
pub fn text(document: &Document, look: &Look, width: u16, height: u16) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw(document, look, area, &mut buffer);
    let line = |y: u16| -> String {
        let cells: String = (0..width).filter_map(|x| buffer.cell((x, y))).map(|cell| cell.symbol()).collect();
        cells.trim_end().to_owned()
    };
    let lines: Vec<String> = (0..height).map(line).collect();
    lines.join("\n") + "\n"
}

fn title(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) {
    let count = document.findings.len();
    let found = if count == 1 { "1 finding".to_owned() } else { format!("{count} findings") };
    let state = format!(" {}  {found} ", look.state(document));
    let room = usize::from(area.width).saturating_sub(words::width(&state) + 11);
    let name = words::cut(&clean(&document.about.title, look.unicode), room);
    let gap = " ".repeat(room.saturating_sub(words::width(&name)));
    let style = look.style(Style::default().add_modifier(Modifier::REVERSED));
    Line::styled(format!(" Backwater {name}{gap}{state}"), style).render(area, buffer);
}

fn keys(look: &Look, area: Rect, buffer: &mut Buffer) {
    let text = "q quit  ↑↓ queue  ←→ earlier, later  +− closer, wider  End newest  p pause  ? help";
    let text = if look.unicode {
        text.to_owned()
    } else {
        text.replace("↑↓", "k/j").replace("←→", "h/l").replace('−', "-")
    };
    Line::styled(words::cut(&text, area.width.into()), look.style(Style::default().fg(Color::DarkGray)))
        .render(area, buffer);
}

fn help(look: &Look, area: Rect, buffer: &mut Buffer) {
    const TEXT: &str = "\
The path: queues from clients to durable storage. Level, how much of the hard limit that is, what
arrives and leaves each second, and how long until the limit at these rates. ! is a queue that a
finding names, ~ one that it holds up.

  up, down, k, j      choose a queue: its level is drawn below
  left, right, h, l   look earlier or later
  + and -             look closer or wider
  Home, End           the first, the newest
  p, space            stop, go on
  ?                   this text, or back
  q, Esc, Ctrl-C      quit

The newest finding is told first and whole where it has room; `backwater diagnose` tells all of
them with evidence, what was ruled out, and commands.";
    let text: Vec<Line<'_>> = TEXT.lines().map(|line| Line::from(words::cut(line, area.width.into()))).collect();
    Paragraph::new(text).style(look.style(Style::default())).render(area, buffer);
}

#[cfg(test)]
mod tests;
