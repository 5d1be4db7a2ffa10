//! Small plots: panels stacked over one time axis, with limits as level lines and happenings as upright ones.

use crate::Style;
use crate::canvas::Canvas;
use crate::page::Page;
use crate::scale::{extent, round_up, time_label, time_ticks, usable};
use crate::style::Tone;
use crate::text::{clean, cut, pad_left, pad_right, width};
use backwater_model::Unit;

/// Rows of a panel: fewer where there are many.
const ROWS: usize = 8;
const ROWS_OF_MANY: usize = 5;
/// Widest text beside an axis, and beside a limit.
const WIDEST_TICK: usize = 11;
const WIDEST_LIMIT: usize = 26;
/// From this width on, limits are named at the right of their lines; below, over the panel.
const ROOM_FOR_LIMITS: usize = 76;
/// A limit this many times above the largest value is named, not drawn: it would press the curve flat.
const FAR_LIMIT: f64 = 2.5;
/// A mark this share of the plotted time outside of it widens the axis; one further off is named only.
const NEAR_MARK: f64 = 0.25;
/// Signs of curves where neither colour nor dots tell them apart.
const SIGNS: [char; 5] = ['*', 'o', '+', 'x', '%'];

/// One line of a panel. Values that are NaN, infinite or beyond ±10¹⁸ are left out and break the line, which is how a
/// gap in a recording is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// What it is.
    pub label: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Seconds and value, in order of time.
    pub points: Vec<(f64, f64)>,
}

/// One panel: its curves share a value axis, in the unit of the first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// What is seen.
    pub title: String,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Level lines: name and value.
    pub limits: Vec<(String, f64)>,
}

/// A plot of curves over time, those of one unit in one panel.
pub fn plot(curves: &[Curve], style: &Style) -> String {
    let mut list: Vec<Panel> = Vec::new();
    for curve in curves {
        match list.iter_mut().find(|panel| panel.curves[0].unit == curve.unit) {
            Some(panel) => panel.curves.push(curve.clone()),
            None => list.push(Panel { curves: vec![curve.clone()], ..Panel::default() }),
        }
    }
    panels(&list, &[], style)
}

/// Panels over one time axis in seconds. Marks (seconds and name: load start, cliff) are drawn through all of them.
pub fn panels(panels: &[Panel], marks: &[(f64, String)], style: &Style) -> String {
    let frame = Frame::of(panels, marks, style);
    let mut page = Page::new(style);
    for panel in panels {
        frame.panel(&mut page, panel, marks);
    }
    if frame.time.is_some() {
        frame.time_axis(&mut page);
        frame.marks(&mut page, marks);
    }
    page.finish()
}

/// What all panels share.
struct Frame<'a> {
    style: &'a Style,
    /// First and last second; none where there is nothing to plot.
    time: Option<(f64, f64)>,
    /// Columns of the texts at the left, of the plot, and of the names of limits at the right.
    gutter: usize,
    columns: usize,
    margin: usize,
    rows: usize,
}

impl<'a> Frame<'a> {
    fn of(panels: &[Panel], marks: &[(f64, String)], style: &'a Style) -> Self {
        let points = panels.iter().flat_map(|panel| &panel.curves).flat_map(|curve| &curve.points);
        let data = extent(points.filter(|(_, value)| usable(*value)).map(|(at, _)| *at));
        let time = data.map(|(from, to)| {
            let near = (to - from).max(1e-3) * NEAR_MARK;
            let at_hand = |at: &f64| *at >= from - near && *at <= to + near;
            let marks = marks.iter().map(|(at, _)| *at).filter(at_hand);
            let (from, to) = extent(marks.chain([from, to])).unwrap_or((from, to));
            // One lone moment still needs a stretch to stand in.
            (from, if to > from { to } else { from + (from.abs() * 1e-6).max(1.0) })
        });
        let ticks = panels.iter().flat_map(|panel| Values::of(panel, style).ticks);
        let gutter = ticks.map(|(_, text)| width(&text)).max().unwrap_or(0);
        let margin = match style.columns() {
            columns if columns < ROOM_FOR_LIMITS => 0,
            _ => {
                let names =
                    panels.iter().flat_map(|panel| &panel.limits).map(|(name, _)| width(&clean(name, style)) + 1);
                names.max().unwrap_or(0).min(WIDEST_LIMIT)
            }
        };
        let columns = style.columns().saturating_sub(gutter + 1 + margin);
        let rows = if panels.len() > 3 { ROWS_OF_MANY } else { ROWS };
        Frame { style, time, gutter, columns, margin, rows }
    }

    /// The place of a moment on the axis, 0 to 1; none where it lies outside.
    fn place(&self, at: f64) -> Option<f64> {
        let (from, to) = self.time?;
        (usable(at) && at >= from && at <= to).then(|| (at - from) / (to - from))
    }

    fn panel(&self, page: &mut Page<'_>, panel: &Panel, marks: &[(f64, String)]) {
        let values = Values::of(panel, self.style);
        page.heading(&panel_title(panel), 0);
        let signs = self.signs(panel);
        if panel.curves.len() > 1 {
            for (number, curve) in panel.curves.iter().enumerate() {
                let sign = signs.map_or(self.style.sign('━', '-'), |signs| signs[number % signs.len()]);
                page.paragraph(Tone::Accent(number), &format!("{sign} {}", curve.label), 1);
            }
        }
        if self.time.is_none() || values.empty {
            page.paragraph(Tone::Faint, "no readings", 1);
            return;
        }
        for text in self.limits_in_words(panel, &values) {
            page.paragraph(Tone::Faint, &text, 1);
        }
        let canvas = self.draw(panel, &values, marks, signs);
        page.ready(&self.rows_of(&canvas, panel, &values), 0);
    }

    /// Signs for the curves, where dots in colours would not tell them apart.
    fn signs(&self, panel: &Panel) -> Option<[char; SIGNS.len()]> {
        (!self.style.unicode || (panel.curves.len() > 1 && !self.style.color)).then_some(SIGNS)
    }

    fn draw(&self, panel: &Panel, values: &Values, marks: &[(f64, String)], signs: Option<[char; 5]>) -> Canvas {
        let mut canvas = Canvas::new(self.columns, self.rows, signs.is_none());
        for (_, value) in &panel.limits {
            if let Some(y) = values.place(*value) {
                canvas.level(y, self.style.sign('┄', '-'));
            }
        }
        for x in marks.iter().filter_map(|(at, _)| self.place(*at)) {
            canvas.upright(x, self.style.sign('┊', ':'));
        }
        for (number, curve) in panel.curves.iter().enumerate() {
            let points = curve.points.iter().map(|(at, value)| Some((self.place(*at)?, values.place(*value)?)));
            canvas.curve(number, points, signs.map_or('*', |signs| signs[number % signs.len()]));
        }
        canvas
    }

    fn rows_of(&self, canvas: &Canvas, panel: &Panel, values: &Values) -> String {
        let style = self.style;
        let mut out = String::new();
        for row in 0..canvas.rows() {
            let tick = values.ticks.iter().find(|(y, _)| canvas.row(*y) == row);
            let label = tick.map(|(_, text)| text.as_str()).unwrap_or_default();
            out.push_str(&pad_left(label, self.gutter));
            out.push(if tick.is_some() { style.sign('┤', '+') } else { style.sign('│', '|') });
            let mut run = String::new();
            let mut tone = Tone::Plain;
            for (sign, curve) in canvas.characters(row) {
                let next = curve.map_or(Tone::Faint, Tone::Accent);
                if next != tone {
                    style.paint_onto(&mut out, tone, &run);
                    run.clear();
                    tone = next;
                }
                run.push(sign);
            }
            style.paint_onto(&mut out, tone, &run);
            style.paint_onto(&mut out, Tone::Faint, &self.limit_names(canvas, panel, values, row));
            out.push('\n');
        }
        out
    }

    /// The names of the limits whose line runs through this row, where there is room at the right.
    fn limit_names(&self, canvas: &Canvas, panel: &Panel, values: &Values, row: usize) -> String {
        if self.margin == 0 {
            return String::new();
        }
        let here = |value: &f64| values.place(*value).is_some_and(|y| canvas.row(y) == row);
        let names = panel.limits.iter().filter(|(_, value)| here(value)).map(|(name, _)| clean(name, self.style));
        let names: Vec<String> = names.collect();
        if names.is_empty() {
            return String::new();
        }
        cut(&format!(" {}", names.join(", ")), self.margin, self.style)
    }

    /// Limits with their values, and what cannot be drawn.
    fn limits_in_words(&self, panel: &Panel, values: &Values) -> Vec<String> {
        let word = |(name, value): &(String, f64)| {
            let far = if values.place(*value).is_none() { " (outside the plot)" } else { "" };
            usable(*value).then(|| format!("{name} {}{far}", values.unit.show(*value)))
        };
        let words: Vec<String> = panel.limits.iter().filter_map(word).collect();
        if words.is_empty() {
            return Vec::new();
        }
        vec![format!("{} {}", self.style.sign("┄", "-"), words.join(", "))]
    }

    fn time_axis(&self, page: &mut Page<'_>) {
        let Some((from, to)) = self.time else { return };
        let mut line = vec![self.style.sign('─', '-'); self.columns];
        let mut labels: Vec<(usize, String)> = Vec::new();
        for tick in time_ticks(from, to, (self.columns / 9).max(1)) {
            let Some(x) = self.place(tick) else { continue };
            let column = ((x * self.columns as f64) as usize).min(self.columns - 1);
            let text = time_label(tick);
            let size = width(&text);
            let start = column.saturating_sub(size / 2).min(self.columns.saturating_sub(size));
            let free = labels.last().is_none_or(|(last, text)| last + width(text) < start);
            if free && size <= self.columns {
                line[column] = self.style.sign('┴', '+');
                labels.push((start, text));
            }
        }
        let corner = self.style.sign('└', '+');
        page.ready(&format!("{corner}{}", line.into_iter().collect::<String>()), self.gutter);
        page.ready(&row_of(&labels), self.gutter + 1);
    }

    fn marks(&self, page: &mut Page<'_>, marks: &[(f64, String)]) {
        let mut placed: Vec<(f64, usize, &str)> = Vec::new();
        for (at, name) in marks {
            match self.place(*at) {
                Some(x) => placed.push((*at, ((x * self.columns as f64) as usize).min(self.columns - 1), name)),
                None if usable(*at) => {
                    let text = format!("{name}: {} (outside the plot)", time_label(*at));
                    page.paragraph(Tone::Faint, &text, self.gutter.min(4));
                }
                None => {}
            }
        }
        placed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut rows: Vec<Vec<(usize, String)>> = Vec::new();
        for (at, column, name) in placed {
            let (start, text) = self.mark(at, column, name);
            let free =
                |row: &&mut Vec<(usize, String)>| row.last().is_none_or(|(last, text)| last + width(text) < start);
            match rows.iter_mut().find(free) {
                Some(row) => row.push((start, text)),
                None => rows.push(vec![(start, text)]),
            }
        }
        for row in rows {
            page.ready(&row_of(&row), self.gutter + 1);
        }
    }

    /// A mark's arrow under its line and its name on the side that has room; where its text begins.
    fn mark(&self, at: f64, column: usize, name: &str) -> (usize, String) {
        let arrow = self.style.sign('▲', '^');
        let name = clean(&format!("{name} {}", time_label(at)), self.style);
        let right = self.columns - column;
        if width(&name) + 2 <= right || right > column {
            return (column, cut(&format!("{arrow} {name}"), right, self.style));
        }
        let text = format!("{} {arrow}", cut(&name, column.saturating_sub(1), self.style));
        let text = if column < 2 { arrow.to_string() } else { text };
        ((column + 1).saturating_sub(width(&text)), text)
    }
}

/// What a panel is called: its title, or its only curve's name.
fn panel_title(panel: &Panel) -> String {
    match panel.curves.as_slice() {
        [only] if panel.title.is_empty() => only.label.clone(),
        [only] if !only.label.is_empty() && only.label != panel.title => format!("{}: {}", panel.title, only.label),
        _ => panel.title.clone(),
    }
}

/// Texts at their columns, in one line.
fn row_of(texts: &[(usize, String)]) -> String {
    texts.iter().fold(String::new(), |line, (start, text)| pad_right(&line, *start) + text)
}

/// A panel's value axis.
struct Values {
    unit: Unit,
    low: f64,
    high: f64,
    /// Nothing can be drawn.
    empty: bool,
    /// Named places: fraction and text.
    ticks: Vec<(f64, String)>,
}

impl Values {
    fn of(panel: &Panel, style: &Style) -> Self {
        let unit = panel.curves.first().map_or(Unit::Count, |curve| curve.unit);
        let points = panel.curves.iter().flat_map(|curve| &curve.points);
        let data = extent(points.filter(|(at, _)| usable(*at)).map(|(_, value)| *value));
        let (least, most) = data.unwrap_or((0.0, 0.0));
        let near = |limit: &f64| usable(*limit) && *limit <= most.max(0.0) * FAR_LIMIT && *limit >= least.min(0.0);
        let limits = panel.limits.iter().map(|(_, value)| *value).filter(near);
        let most = limits.fold(most, f64::max);
        let high = if most > 0.0 { round_up(most, unit) } else { 0.0 };
        let low = if least < 0.0 { -round_up(-least, unit) } else { 0.0 };
        let high = if high > low { high } else { low + 1.0 };
        let tick = |share: f64| {
            let text = unit.show(low + (high - low) * share);
            (share, cut(&clean(&text, style), WIDEST_TICK, style))
        };
        let ticks = if data.is_some() { vec![tick(0.0), tick(0.5), tick(1.0)] } else { Vec::new() };
        Values { unit, low, high, empty: data.is_none(), ticks }
    }

    /// The place of a value on the axis, 0 to 1; none where it lies outside or is no number.
    fn place(&self, value: f64) -> Option<f64> {
        (usable(value) && value >= self.low && value <= self.high).then(|| (value - self.low) / (self.high - self.low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::{STYLES, stampede_marks, stampede_panels};
    use proptest::prelude::*;

    #[test]
    fn throughput_and_dirty_level_share_one_time_axis() {
        for (name, style) in STYLES {
            insta::assert_snapshot!(format!("stampede_{name}"), panels(&stampede_panels(), &stampede_marks(), &style));
        }
    }

    #[test]
    fn nothing_to_plot_is_said() {
        let panel = Panel {
            title: "TPS".to_owned(),
            curves: vec![Curve { label: String::new(), unit: Unit::Count, points: vec![] }],
            limits: vec![],
        };
        assert_eq!(panels(&[panel], &[], &Style::plain(80)), "TPS\n no readings\n");
        assert_eq!(panels(&[], &[], &Style::plain(80)), "");
    }

    #[test]
    fn far_limits_and_far_marks_are_named_not_drawn() {
        let curve = Curve { label: "level".to_owned(), unit: Unit::Bytes, points: vec![(0.0, 10.0), (9.0, 20.0)] };
        let panel = Panel { title: String::new(), curves: vec![curve], limits: vec![("limit".to_owned(), 4e9)] };
        let text = panels(&[panel], &[(900.0, "predicted cliff".to_owned())], &Style::plain(80));
        assert!(text.contains("limit 3.73 GiB (outside the plot)"), "{text}");
        assert!(text.contains("predicted cliff: 15 min (outside the plot)"), "{text}");
    }

    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![any::<f64>(), -1e3..1e3f64, Just(f64::NAN), Just(f64::INFINITY), Just(0.0), Just(1e18)]
    }

    fn curve() -> impl Strategy<Value = Curve> {
        let unit = prop_oneof![Just(Unit::Bytes), Just(Unit::PerSecond), Just(Unit::Microseconds)];
        (any::<String>(), unit, proptest::collection::vec((number(), number()), 0..30))
            .prop_map(|(label, unit, points)| Curve { label, unit, points })
    }

    fn panel() -> impl Strategy<Value = Panel> {
        let limits = proptest::collection::vec((any::<String>(), number()), 0..4);
        (any::<String>(), proptest::collection::vec(curve(), 0..4), limits).prop_map(|(title, curves, limits)| Panel {
            title,
            curves,
            limits,
        })
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_style(
            list in proptest::collection::vec(panel(), 0..5),
            marks in proptest::collection::vec((number(), any::<String>()), 0..6),
            width in 0usize..160, unicode: bool,
        ) {
            let style = Style { color: false, width, unicode };
            for line in panels(&list, &marks, &style).lines() {
                prop_assert!(crate::text::width(line) <= style.columns(), "{line:?}");
            }
        }
    }
}
