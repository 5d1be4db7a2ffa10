//! The terminal view: path, curves, sessions and findings on one screen, from 80 × 24 up, and each of them on one of its own.
//!
//! [`draw`] is a pure function of a page's document and of what somebody looks at; it draws into a buffer, which is shown on a
//! terminal ([`watch`]). [`plain`] tells all of it as text. The document is that of the page, so that they cannot disagree.

mod curves;
mod figures;
mod findings;
mod help;
mod look;
mod pane;
mod path;
mod plain;
mod sessions;
mod terminal;

pub use look::{Act, Look, Part, Reach};
pub use plain::plain;
pub use terminal::{restore, watch};

use backwater_report::html::Document;
use backwater_report::text;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

/// Narrower or lower than this, nothing sensible can be shown. A terminal of 80 × 24 has fewer lines inside tmux.
const LEAST: (u16, u16) = (60, 18);
/// Two parts stand side by side from so many columns on.
const BESIDE: u16 = 80;
/// Lines of curves and of what is below them, at least.
const CURVES: u16 = 4;
const BELOW: u16 = 5;

/// Draws what is looked at of a document. How far it can be moved.
pub fn draw(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) -> Reach {
    if area.width < LEAST.0 || area.height < LEAST.1 {
        too_small(look, area, buffer);
        return Reach::default();
    }
    let rows = Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)]);
    let [head, body, foot] = rows.areas(area);
    title(document, look, head, buffer);
    help::keys(look, foot, buffer);
    match look.part {
        _ if look.help => help::page(look, body, buffer),
        Part::All => overview(document, look, body, buffer),
        Part::Path => path::page(document, look, body, buffer),
        Part::Curves => curves::page(document, look, body, buffer),
        Part::Sessions => sessions::page(document, look, body, buffer),
        Part::Findings => findings::page(document, look, body, buffer),
    }
}

/// All parts. Findings are what can be moved.
fn overview(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) -> Reach {
    let wanted = u16::try_from(document.path.queues.len().max(1) + path::HEAD).unwrap_or(u16::MAX);
    // Half of the screen at most: with many standbys the others are reached by the arrow keys.
    let path = wanted.min(area.height / 2);
    let rest = area.height - path;
    let curves = (rest * 2 / 5).clamp(CURVES, rest.saturating_sub(BELOW).max(CURVES));
    let rows = Layout::vertical([Constraint::Length(path), Constraint::Length(curves), Constraint::Fill(1)]);
    let [path, curves, below] = rows.areas(area);
    path::draw(document, look, path, buffer);
    curves::draw(document, look, curves, buffer);
    let (sessions, findings) = if area.width >= BESIDE {
        let [left, _, right] =
            Layout::horizontal([Constraint::Percentage(40), Constraint::Length(1), Constraint::Fill(1)]).areas(below);
        (left, right)
    } else {
        let [top, bottom] = Layout::vertical([Constraint::Percentage(40), Constraint::Fill(1)]).areas(below);
        (top, bottom)
    };
    sessions::draw(document, look, sessions, buffer);
    findings::draw(document, look, findings, buffer)
}

/// Says what is wrong with the window, in as many words as fit.
fn too_small(look: &Look, area: Rect, buffer: &mut Buffer) {
    let words = format!(
        "Too small: this is {} × {}, {} × {} is needed. Make it larger; q quits.",
        area.width, area.height, LEAST.0, LEAST.1
    );
    let lines = text::wrap(&look.clean(&words), area.width.into());
    pane::draw(lines.into_iter().map(Line::from), area, buffer);
}

/// `1 finding`.
fn found(document: &Document) -> String {
    match document.findings.len() {
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    }
}

fn title(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) {
    let state = format!(" {}  {} ", look.state(document), found(document));
    let room = usize::from(area.width).saturating_sub(text::width(&state) + " Backwater ".len());
    let name = look.cut(&look.clean(&document.about.title), room);
    let gap = " ".repeat(room.saturating_sub(text::width(&name)));
    let style = look.style(Style::default().add_modifier(Modifier::REVERSED));
    pane::draw([Line::styled(format!(" Backwater {name}{gap}{state}"), style)], area, buffer);
}

#[cfg(test)]
mod tests;
