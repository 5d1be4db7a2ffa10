//! The parts of the screen: the path as a table, the chosen queue's curve and the load's, who waits on what, what is found.

use super::look::{Look, at, fill, mean};
use super::words::{bar, clean, cut, width, wrap};
use backwater_model::{Severity, Unit};
use backwater_report::html::{Document, FindingView, Group, QueueView};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Widget;

/// Columns of the bar of a queue's fill.
const BAR: usize = 8;
/// From these shares of its limit on a queue is filling, and nearly full.
const FILLING: f64 = 0.5;
const NEARLY_FULL: f64 = 0.75;
/// Groups of sessions are shown by these signs where there are more than ASCII's.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const PLAIN: [char; 9] = [' ', '.', '.', ':', ':', '+', '+', '#', '#'];

/// A heading with a rule behind it.
fn heading(text: &str, look: &Look, area: Rect, buffer: &mut Buffer) {
    let rule = if look.unicode { "─" } else { "-" };
    let text = cut(text, usize::from(area.width).saturating_sub(2));
    let rest = usize::from(area.width).saturating_sub(width(&text) + 1);
    let style = look.style(Style::default().fg(Color::Cyan)).add_modifier(Modifier::BOLD);
    Line::styled(format!("{text} {}", rule.repeat(rest)), style).render(Rect { height: 1, ..area }, buffer);
}

/// Lines below a heading, as many as there is room for.
fn body(lines: Vec<Line<'_>>, area: Rect, buffer: &mut Buffer) {
    for (line, y) in lines.into_iter().zip(area.y + 1..area.y + area.height) {
        line.render(Rect { y, height: 1, ..area }, buffer);
    }
}

/// The queues: how much stands, how full that is, what arrives and leaves, and how long until the limit.
pub(super) fn path(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) {
    heading("Path", look, area, buffer);
    let (_, end) = look.pieces(document);
    let chosen = look.chosen(document);
    let name_columns = usize::from(area.width).saturating_sub(62).clamp(16, 48);
    let faint = look.style(Style::default().fg(Color::DarkGray));
    let head = format!(
        "  {:<name_columns$} {:>10} {:<BAR$} {:>6} {:>11} {:>11} {:>8}",
        "queue", "level", "", "full", "in", "out", "to limit"
    );
    let room = usize::from(area.height).saturating_sub(2);
    // The chosen one stays on the screen.
    let skipped = chosen.map_or(0, |place| (place + 1).saturating_sub(room));
    let mut lines = vec![Line::styled(cut(&head, area.width.into()), faint)];
    if document.path.queues.is_empty() {
        lines.push(Line::from("  Nothing is known of any queue yet."));
    }
    for (place, queue) in document.path.queues.iter().enumerate().skip(skipped) {
        let text = row(document, look, place, queue, end, name_columns);
        let mut style = look.style(tone(fill(document, place, end)));
        if chosen == Some(place) {
            style = style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        }
        lines.push(Line::styled(cut(&text, area.width.into()), style));
    }
    body(lines, area, buffer);
}

fn row(document: &Document, look: &Look, place: usize, queue: &QueueView, end: usize, columns: usize) -> String {
    let rate = queue.unit.per_second();
    let show = |value: Option<f64>, unit: Unit| value.map_or_else(|| "-".to_owned(), |value| unit.show(value));
    let full = fill(document, place, end);
    let (level, hard) = (at(document, queue.level, end), at(document, queue.hard_limit, end));
    let (inflow, outflow) = (mean(document, queue.inflow, end), mean(document, queue.outflow, end));
    let growth = inflow.zip(outflow).map(|(inflow, outflow)| inflow - outflow).filter(|growth| *growth > 0.0);
    let left = hard.zip(level).map(|(hard, level)| (hard - level).max(0.0));
    let until = left.and_then(|left| if left == 0.0 { Some(0.0) } else { Some(left / growth?) });
    let ascii = |text: String| if look.unicode { text } else { text.replace('µ', "u") };
    format!(
        "{} {}{} {:>10} {} {:>6} {:>11} {:>11} {:>8}",
        mark(document, queue, look, end),
        cut(&name(document, queue, look), columns),
        " ".repeat(columns.saturating_sub(width(&cut(&name(document, queue, look), columns)))),
        show(level, queue.unit),
        full.map_or_else(|| " ".repeat(BAR), |full| bar(full, BAR, look.unicode)),
        show(full, Unit::Ratio),
        show(inflow, rate),
        show(outflow, rate),
        ascii(until.filter(|until| *until < 86_400.0).map_or_else(|| "-".to_owned(), short)),
    )
}

/// A length of time in eight columns at most.
fn short(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => Unit::Seconds.show(s),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

fn name(document: &Document, queue: &QueueView, look: &Look) -> String {
    let own = match &queue.target {
        // The name alone does not tell whose it is where several servers are watched.
        Some(target) if !queue.name.contains('@') && document.path.rows.len() > 2 => format!("{} {target}", queue.name),
        _ => queue.name.clone(),
    };
    clean(&own, look.unicode)
}

/// Whether a finding that holds at the end names this queue, or says that it is held up.
fn mark(document: &Document, queue: &QueueView, look: &Look, end: usize) -> char {
    let (first, _) = look.pieces(document);
    let step = document.axis.step_s;
    let holds = |view: &&FindingView| view.to_s >= first as f64 * step && view.from_s <= end as f64 * step;
    let now = || document.findings.iter().filter(holds);
    if now().any(|view| view.finding.queue == queue.name) {
        '!'
    } else if now().any(|view| view.finding.victims.contains(&queue.name)) {
        '~'
    } else {
        ' '
    }
}

fn tone(full: Option<f64>) -> Style {
    match full {
        Some(full) if full >= NEARLY_FULL => Style::default().fg(Color::Red),
        Some(full) if full >= FILLING => Style::default().fg(Color::Yellow),
        _ => Style::default(),
    }
}

/// The load's throughput and the chosen queue's level, on one time axis.
pub(super) fn curves(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) {
    let load = document.panels.iter().find(|panel| panel.group == "Load").and_then(|panel| panel.curves.first());
    let queue = look.chosen(document).and_then(|place| document.path.queues.get(place));
    let mut drawn: Vec<(String, usize, Option<usize>)> = Vec::new();
    drawn.extend(queue.and_then(|queue| Some((name(document, queue, look), queue.level?, queue.hard_limit))));
    drawn.extend(load.map(|curve| (document.series[curve.series].label.clone(), curve.series, None)));
    let each: Vec<Constraint> = drawn.iter().map(|_| Constraint::Fill(1)).collect();
    for ((label, series, limit), part) in drawn.into_iter().zip(Layout::vertical(each).split(area).iter()) {
        curve(document, look, &label, series, limit, *part, buffer);
    }
}

fn curve(
    document: &Document,
    look: &Look,
    label: &str,
    series: usize,
    limit: Option<usize>,
    area: Rect,
    buffer: &mut Buffer,
) {
    let (first, end) = look.pieces(document);
    let unit = document.series[series].unit;
    let columns = usize::from(area.width);
    let values = columns_of(document, series, first, end, columns);
    let known = || values.iter().flatten().copied();
    let most = known().fold(0.0, f64::max);
    let limit = limit.and_then(|limit| at(document, Some(limit), end));
    let top = limit.filter(|limit| *limit <= most * 2.5).map_or(most, |limit| limit.max(most)).max(f64::MIN_POSITIVE);
    let told = known().next().map(|_| format!(", at most {}", unit.show(most))).unwrap_or_default();
    let bound = limit.map(|limit| format!(", limit {}", unit.show(limit))).unwrap_or_default();
    let from = super::look::clock(document, first as f64 * document.axis.step_s);
    heading(&format!("{label}{told}{bound}, since {from}"), look, area, buffer);
    let height = usize::from(area.height).saturating_sub(1);
    let signs = if look.unicode { BLOCKS } else { PLAIN };
    let line = |row: usize| -> Line<'static> {
        let sign = |value: &Option<f64>| {
            // Eighths of a line above the ones below; what is there at all shows.
            let eighths =
                value.map_or(0.0, |value| (value / top * height as f64 * 8.0).max(if value > 0.0 { 1.0 } else { 0.0 }));
            let here = (eighths - ((height - 1 - row) * 8) as f64).round().clamp(0.0, 8.0);
            signs[here as usize]
        };
        Line::styled(values.iter().map(sign).collect::<String>(), look.style(Style::default().fg(Color::Blue)))
    };
    body((0..height).map(line).collect(), area, buffer);
}

/// The most of a series column by column, over a stretch.
fn columns_of(document: &Document, series: usize, first: usize, end: usize, columns: usize) -> Vec<Option<f64>> {
    let pieces = document.series[series].lane.pieces();
    let count = end.saturating_sub(first).max(1);
    let value = |column: usize| {
        let from = first + column * count / columns;
        let to = (first + (column + 1) * count / columns).max(from + 1).min(end);
        let most = |found: Option<f64>, piece: &Option<(f64, f64)>| match (found, piece) {
            (Some(a), Some((_, b))) => Some(a.max(*b)),
            (found, piece) => found.or(piece.map(|(_, most)| most)),
        };
        pieces.get(from..to)?.iter().fold(None, most)
    };
    (0..columns).map(value).collect()
}

/// Who waits on what over the stretch that is looked at.
pub(super) fn sessions(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) {
    let Some(sessions) = &document.sessions else {
        heading("Sessions", look, area, buffer);
        return body(vec![Line::from("No server is watched.")], area, buffer);
    };
    let (first, end) = look.pieces(document);
    let (from, to) = (first / sessions.pieces, end.div_ceil(sessions.pieces));
    let looked = sessions.looked.iter().take(to).skip(from).filter(|looked| **looked).count().max(1) as f64;
    let sum = |group: &Group| -> f64 {
        group.slots.iter().filter(|(slot, _)| (from..to).contains(slot)).map(|(_, value)| value).sum()
    };
    let all: f64 = sessions.classes.iter().map(sum).sum::<f64>() / looked;
    heading(&format!("Sessions: {} active on average", Unit::Count.show(all)), look, area, buffer);
    let mut groups: Vec<(&str, f64)> = sessions
        .tops
        .first()
        .map(|top| top.groups.iter().map(|group| (group.name.as_str(), sum(group) / looked)).collect())
        .unwrap_or_default();
    groups.retain(|(_, mean)| *mean > 0.0);
    groups.sort_by(|a, b| b.1.total_cmp(&a.1));
    let columns = usize::from(area.width).saturating_sub(16);
    let row = |(name, mean): &(&str, f64)| {
        let name = cut(&clean(name, look.unicode), columns);
        let gap = " ".repeat(columns.saturating_sub(width(&name)));
        Line::from(format!("{name}{gap} {:>6} {}", Unit::Count.show(*mean), bar(mean / all.max(1e-9), 7, look.unicode)))
    };
    let nobody = vec![Line::from("No session was active here.")];
    let lines: Vec<Line<'_>> = groups.iter().map(row).collect();
    body(if lines.is_empty() { nobody } else { lines }, area, buffer);
}

/// What is found, the worst first.
pub(super) fn findings(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) {
    let area = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
    heading("Findings", look, area, buffer);
    let columns = usize::from(area.width);
    if document.findings.is_empty() {
        return body(vec![Line::from(cut("None: no rule sees a queue at its limit.", columns))], area, buffer);
    }
    let mut lines = Vec::new();
    for view in &document.findings {
        let finding = &view.finding;
        let (sign, color) = match finding.severity {
            Severity::Critical => ("CRITICAL", Color::Red),
            Severity::Warning => ("WARNING", Color::Yellow),
            Severity::Info => ("info", Color::Cyan),
        };
        let head = format!("{sign} {} ({}) {}", finding.rule, finding.cause, finding.queue);
        let style = look.style(Style::default().fg(color)).add_modifier(Modifier::BOLD);
        lines.push(Line::styled(cut(&clean(&head, look.unicode), columns), style));
        let text = wrap(&clean(&finding.summary, look.unicode), columns);
        lines.extend(text.into_iter().map(Line::from));
        let remedy = finding.remedies.first().map(|remedy| format!("> {}", clean(&remedy.title, look.unicode)));
        lines.extend(remedy.map(|text| Line::from(cut(&text, columns))));
    }
    body(lines, area, buffer);
}
