//! Curves over time: the chosen queue's level and flow, and the load, on one time axis.

use super::figures::{at, clock, columns_of};
use super::look::{Look, Reach};
use super::{pane, path};
use backwater_report::html::{Document, Series};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::Line;

/// Lines of a curve that still has a shape, with its heading.
const LOWEST: u16 = 3;
/// Lines of a curve where they are one below the other, with its heading.
const COMFORTABLE: u16 = 5;
/// Eighths of a line, and as well as ASCII can.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const PLAIN: [char; 9] = [' ', '.', '.', ':', ':', '+', '+', '#', '#'];
/// Where nothing was read.
const GAP: [char; 2] = ['·', '?'];

/// A series that is drawn, and the limit it is drawn against.
struct Chart {
    label: String,
    series: usize,
    limit: Option<usize>,
}

/// The chosen queue's level, the load, and behind them what else belongs to both.
fn charts(document: &Document, look: &Look) -> Vec<Chart> {
    let queue = look.chosen(document).and_then(|place| document.path.queues.get(place));
    let named = queue.map(|queue| path::name(document, queue, look)).unwrap_or_default();
    let of_queue = |what: &str, series: Option<usize>, limit: Option<usize>| {
        series.map(|series| Chart { label: format!("{named}{what}"), series, limit })
    };
    let level = queue.and_then(|queue| of_queue("", queue.level, queue.hard_limit));
    let flow = queue.map(|queue| [(" in", queue.inflow), (" out", queue.outflow)]).into_iter().flatten();
    let load = document.panels.iter().filter(|panel| panel.group == "Load").filter_map(|panel| panel.curves.first());
    let mut load = load.map(|curve| {
        let label = look.clean(&document.series[curve.series].label);
        Chart { label, series: curve.series, limit: None }
    });
    let first = load.next();
    let flow = flow.filter_map(|(what, series)| of_queue(what, series, None));
    level.into_iter().chain(first).chain(flow).chain(load).collect()
}

/// The level and the load, one where there is no room for both.
pub(super) fn draw(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) {
    let count = usize::from(area.height / LOWEST).clamp(1, 2);
    let charts: Vec<Chart> = charts(document, look).into_iter().take(count).collect();
    below_one_another(document, look, &charts, area, buffer);
}

/// As many as there is room for; the rest is reached by turning pages.
pub(super) fn page(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) -> Reach {
    let charts = charts(document, look);
    let [head, rest] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let room = usize::from(rest.height / COMFORTABLE).max(1);
    let most = charts.len().saturating_sub(room);
    let from = look.scrolled().min(most);
    let note = pane::hidden(from, charts.len().saturating_sub(from + room));
    pane::draw([pane::heading("Curves", &note, look, head.width.into())], head, buffer);
    let shown = &charts[from..charts.len().min(from + room)];
    if shown.is_empty() {
        pane::draw([Line::from("Nothing was read yet.")], rest, buffer);
    }
    below_one_another(document, look, shown, rest, buffer);
    Reach { most, page: room }
}

fn below_one_another(document: &Document, look: &Look, charts: &[Chart], area: Rect, buffer: &mut Buffer) {
    let each: Vec<Constraint> = charts.iter().map(|_| Constraint::Fill(1)).collect();
    for (chart, part) in charts.iter().zip(Layout::vertical(each).split(area).iter()) {
        pane::draw(curve(document, look, chart, part.width.into(), part.height.into()), *part, buffer);
    }
}

/// The level and the load, in so many columns.
pub(super) fn lines(document: &Document, look: &Look, columns: usize) -> Vec<Line<'static>> {
    let drawn = charts(document, look).into_iter().take(2);
    let one = |chart: Chart| {
        let (title, since) = title(document, look, &chart);
        let lines = curve(document, look, &chart, columns, usize::from(COMFORTABLE) + 2);
        let title = pane::whole_heading(&format!("{title}, {since}"), look, columns);
        title.into_iter().chain(lines.into_iter().skip(1)).collect::<Vec<_>>()
    };
    drawn.flat_map(one).collect()
}

/// What a curve shows, with its most and its limit, and since when.
fn title(document: &Document, look: &Look, chart: &Chart) -> (String, String) {
    let (first, end) = look.pieces(document);
    let Series { unit, lane, .. } = &document.series[chart.series];
    let known = lane.pieces().iter().take(end).skip(first).flatten().map(|(_, most)| *most).reduce(f64::max);
    let limit = chart.limit.and_then(|limit| at(document, Some(limit), end));
    let told = known.map(|most| format!(", at most {}", unit.show(most))).unwrap_or_default();
    let bound = limit.map(|limit| format!(", limit {}", unit.show(limit))).unwrap_or_default();
    let since = format!("since {}", clock(document, first as f64 * document.axis.step_s));
    (format!("{}{}", chart.label, look.clean(&format!("{told}{bound}"))), since)
}

/// A heading, and the curve below it.
fn curve(document: &Document, look: &Look, chart: &Chart, columns: usize, lines: usize) -> Vec<Line<'static>> {
    let (first, end) = look.pieces(document);
    let values = columns_of(document, chart.series, (first, end), columns);
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    let limit = chart.limit.and_then(|limit| at(document, Some(limit), end));
    let top = limit.filter(|limit| *limit <= most * 2.5).map_or(most, |limit| limit.max(most)).max(f64::MIN_POSITIVE);
    let (title, since) = title(document, look, chart);
    let height = lines.saturating_sub(1);
    let (signs, gap) = if look.unicode { (BLOCKS, GAP[0]) } else { (PLAIN, GAP[1]) };
    let line = |row: usize| -> Line<'static> {
        let sign = |value: &Option<f64>| {
            let Some(value) = value else { return if row + 1 == height { gap } else { ' ' } };
            // Eighths of a line above the ones below; what is there at all shows.
            let eighths = (value / top * height as f64 * 8.0).max(if *value > 0.0 { 1.0 } else { 0.0 });
            let here = (eighths - ((height - 1 - row) * 8) as f64).round().clamp(0.0, 8.0);
            signs[here as usize]
        };
        Line::styled(values.iter().map(sign).collect::<String>(), look.style(Style::default().fg(Color::Blue)))
    };
    std::iter::once(pane::heading(&title, &since, look, columns)).chain((0..height).map(line)).collect()
}
