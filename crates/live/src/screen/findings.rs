//! What is found, the worst first: in short beside the rest, and whole on a page of its own, in the words of `diagnose`.

use super::figures::clock;
use super::look::{Look, Reach};
use super::pane;
use backwater_model::{Severity, Unit};
use backwater_report::html::{Document, FindingView};
use backwater_report::text::wrap;
use backwater_report::{finding_text, none_found, unseen_text};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

fn head(severity: Severity) -> (&'static str, Style) {
    let (sign, color) = match severity {
        Severity::Critical => ("CRITICAL", Color::Red),
        Severity::Warning => ("WARNING", Color::Yellow),
        Severity::Info => ("INFO", Color::Cyan),
    };
    (sign, Style::default().fg(color).add_modifier(Modifier::BOLD))
}

fn nothing(document: &Document, look: &Look, columns: usize) -> Vec<Line<'static>> {
    let text = look.clean(none_found(!document.path.queues.is_empty()));
    wrap(&text, columns).into_iter().map(Line::from).collect()
}

/// What is no longer read, and which servers were not seen.
fn doubts(document: &Document) -> Vec<String> {
    document.failing.iter().chain(&document.blind).cloned().collect()
}

/// What makes findings doubtful: what is no longer read, what was lost.
fn warnings(list: &[String], look: &Look, columns: usize) -> Vec<Line<'static>> {
    let style = look.style(Style::default().fg(Color::Yellow));
    let lines = list.iter().flat_map(|text| wrap(&look.clean(&format!("! {text}")), columns));
    lines.map(|line| Line::styled(line, style)).collect()
}

/// Each finding's name, summary and first remedy, as much as there is room for.
pub(super) fn draw(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) -> Reach {
    let columns = usize::from(area.width);
    let short = |view: &FindingView| -> Vec<Line<'static>> {
        let finding = &view.finding;
        let (sign, style) = head(finding.severity);
        let name = look.clean(&format!("{sign} {} ({}) {}", finding.rule, finding.cause, finding.queue));
        let remedy = finding.remedies.first().map(|remedy| format!("> {}", look.clean(&remedy.title)));
        let below = wrap(&look.clean(&finding.summary), columns).into_iter();
        let below = below.chain(remedy.into_iter().flat_map(|text| wrap(&text, columns)));
        let named = wrap(&name, columns).into_iter().map(|line| Line::styled(line, look.style(style)));
        named.chain(below.map(Line::from)).collect()
    };
    let mut lines = warnings(&doubts(document), look, columns);
    match document.findings.as_slice() {
        [] => lines.extend(nothing(document, look, columns)),
        findings => lines.extend(findings.iter().flat_map(short)),
    }
    pane::pane("Findings", lines, look.scrolled(), look, area, buffer)
}

/// Everything about each, moved by lines.
pub(super) fn page(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) -> Reach {
    let columns = usize::from(area.width);
    let long = whole(document, look, columns);
    let lines = long.into_iter().flat_map(|line| {
        let style = line.style;
        // A command is one line, which is longer than the screen.
        let folded = pane::folded(&line.to_string(), columns);
        folded.into_iter().map(move |text| Line::styled(text, style))
    });
    pane::pane(&title(document), lines.collect(), look.scrolled(), look, area, buffer)
}

/// `Findings: 3`.
pub(super) fn title(document: &Document) -> String {
    match document.findings.len() {
        0 => "Findings".to_owned(),
        count => format!("Findings: {count}"),
    }
}

/// Everything about each finding, what was lost of the recording, and what could not be seen. Commands stay on one line.
pub(super) fn whole(document: &Document, look: &Look, columns: usize) -> Vec<Line<'static>> {
    let ink = look.ink(columns);
    let mut lines = warnings(&doubts(document), look, columns);
    lines.extend(warnings(&document.about.warnings, look, columns));
    if document.findings.is_empty() {
        lines.extend(nothing(document, look, columns));
    }
    for view in &document.findings {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        let text = finding_text(&view.finding, &when(document, view), view.finding.server.as_deref(), &ink);
        let (_, style) = head(view.finding.severity);
        lines.extend(text.lines().enumerate().map(|(place, line)| {
            let style = if place == 0 { look.style(style) } else { Style::default() };
            Line::styled(line.to_owned(), style)
        }));
    }
    let unseen = unseen_text(&document.unseen, &ink);
    if !unseen.is_empty() {
        lines.push(Line::default());
    }
    lines.extend(unseen.lines().map(|line| Line::from(line.to_owned())));
    lines
}

fn when(document: &Document, view: &FindingView) -> String {
    let (from, to) = (clock(document, view.from_s), clock(document, view.to_s));
    format!("{from} to {to} ({})", Unit::Seconds.show(view.to_s - view.from_s))
}
