//! The path as a table: how much stands in each queue, how full that is, what arrives and leaves, how long until the limit.

use super::figures::{at, fill, held_from, mean};
use super::look::{Look, Reach};
use super::pane;
use backwater_model::Unit;
use backwater_report::html::{Document, FindingView, QueueView};
use backwater_report::text::{width, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

/// From these shares of its limit on a queue is filling, and nearly full.
const FILLING: f64 = 0.5;
const NEARLY_FULL: f64 = 0.75;
/// Columns before a name: its mark and a space.
const MARK: usize = 2;
/// Columns of a name that are worth giving up others for.
const WORTH: usize = 24;
/// Lines of the table beside its queues: heading and columns.
pub(super) const HEAD: usize = 2;
/// Lines that tell of the chosen queue, at least.
const TOLD: u16 = 6;

/// A column behind the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Level,
    Bar,
    Full,
    In,
    Out,
    Until,
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Column::Level => "level",
            Column::Bar => "",
            Column::Full => "full",
            Column::In => "in",
            Column::Out => "out",
            Column::Until => "to limit",
        }
    }

    fn width(self) -> usize {
        match self {
            Column::Level => 10,
            Column::Bar | Column::Until => 8,
            Column::Full => 6,
            Column::In | Column::Out => 11,
        }
    }
}

/// What is shown where there is room, and what is given up first: whole columns, never a part of one.
const SETS: [&[Column]; 4] = [
    &[Column::Level, Column::Bar, Column::Full, Column::In, Column::Out, Column::Until],
    &[Column::Level, Column::Full, Column::In, Column::Out, Column::Until],
    &[Column::Level, Column::Full, Column::Until],
    &[Column::Level, Column::Full],
];

/// The table of a document in so many columns.
struct Table<'a> {
    document: &'a Document,
    look: &'a Look,
    set: &'static [Column],
    name: usize,
    columns: usize,
    end: usize,
}

impl<'a> Table<'a> {
    fn new(document: &'a Document, look: &'a Look, columns: usize) -> Table<'a> {
        let longest = document.path.queues.iter().map(|queue| width(&name(document, queue, look))).max();
        let longest = longest.unwrap_or(0).max("queue".len());
        let room =
            |set: &[Column]| columns.saturating_sub(MARK + set.iter().map(|column| column.width() + 1).sum::<usize>());
        let fits =
            |set: &&&[Column]| room(set) >= if set.len() == SETS[0].len() { longest } else { longest.min(WORTH) };
        let set = SETS.iter().find(fits).copied().unwrap_or(SETS[SETS.len() - 1]);
        // What is left over stays empty at the right, so that figures stand near their names.
        let name = room(set).min(longest.max(16)).max(1);
        Table { document, look, set, name, columns: columns.max(1), end: look.pieces(document).1 }
    }

    fn head(&self) -> Line<'static> {
        let mut text = format!("{}{:<name$}", " ".repeat(MARK), self.look.cut("queue", self.name), name = self.name);
        for column in self.set {
            text.push_str(&format!(" {:>1$}", column.title(), column.width()));
        }
        Line::styled(text, self.look.style(Style::default().fg(Color::DarkGray)))
    }

    /// The lines of a queue: one, or where its whole name is asked for and is longer, that in lines of its own.
    fn row(&self, place: usize, whole: bool) -> Vec<Line<'static>> {
        let (document, look) = (self.document, self.look);
        let queue = &document.path.queues[place];
        let mark = mark(document, queue, look, self.end);
        let name = name(document, queue, look);
        let mut style = look.style(tone(fill(document, place, self.end)));
        if look.chosen(document) == Some(place) {
            style = style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        }
        let line = |before: &str| {
            let gap = " ".repeat((MARK + self.name).saturating_sub(width(before)));
            Line::styled(format!("{before}{gap}{}", self.cells(place)), style)
        };
        if whole && width(&name) > self.name {
            let named = pane::folded(&format!("{mark} {name}"), self.columns);
            return named.into_iter().map(|text| Line::styled(text, style)).chain([line("")]).collect();
        }
        vec![line(&format!("{mark} {}", look.cut(&name, self.name)))]
    }

    fn cells(&self, place: usize) -> String {
        let (document, end) = (self.document, self.end);
        let queue = &document.path.queues[place];
        let rate = queue.unit.per_second();
        let show = |value: Option<f64>, unit: Unit| value.map_or_else(|| "-".to_owned(), |value| unit.show(value));
        let bound = |text: String| if queue.at_least { format!(">{text}") } else { text };
        let cell = |column: &Column| {
            let text = match column {
                Column::Level => bound(show(at(document, queue.level, end), queue.unit)),
                Column::Bar => fill(document, place, end)
                    .map_or_else(String::new, |full| bar(full, column.width(), self.look.unicode)),
                Column::Full => show(fill(document, place, end), Unit::Ratio),
                Column::In => bound(show(mean(document, queue.inflow, end), rate)),
                Column::Out => bound(show(mean(document, queue.outflow, end), rate)),
                Column::Until => until(document, queue, end),
            };
            let text = self.look.clean(&text);
            format!(" {}{text}", " ".repeat(column.width().saturating_sub(width(&text))))
        };
        self.set.iter().map(cell).collect()
    }
}

/// How long until whoever fills it begins to be held, at the rates of the last seconds; a dash where that comes no nearer.
fn until(document: &Document, queue: &QueueView, end: usize) -> String {
    let (level, limit) = (at(document, queue.level, end), held_from(document, queue, end));
    let (inflow, outflow) = (mean(document, queue.inflow, end), mean(document, queue.outflow, end));
    let growth = inflow.zip(outflow).map(|(inflow, outflow)| inflow - outflow).filter(|growth| *growth > 0.0);
    let left = limit.zip(level).map(|(limit, level)| (limit - level).max(0.0));
    let until = left.and_then(|left| if left == 0.0 { Some(0.0) } else { Some(left / growth?) });
    match until.filter(|seconds| *seconds < 86_400.0) {
        None => "-".to_owned(),
        Some(s) if s < 120.0 => Unit::Seconds.show(s),
        Some(s) if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        Some(s) => format!("{:.1} h", s / 3_600.0),
    }
}

/// What a queue is called here.
pub(super) fn name(document: &Document, queue: &QueueView, look: &Look) -> String {
    let own = match &queue.target {
        // The name alone does not tell whose it is where several servers are watched.
        Some(target) if !queue.name.contains('@') && document.path.rows.len() > 2 => format!("{} {target}", queue.name),
        _ => queue.name.clone(),
    };
    look.clean(&own)
}

/// Whether a finding that holds at the end names this queue, or says that it is held up.
fn mark(document: &Document, queue: &QueueView, look: &Look, end: usize) -> char {
    let (first, _) = look.pieces(document);
    let step = document.axis.step_s;
    let holds = |view: &&FindingView| view.to_s >= first as f64 * step && view.from_s <= end as f64 * step;
    let own = |view: &&FindingView| view.finding.concerns(queue.target.as_deref());
    let now = || document.findings.iter().filter(holds).filter(own);
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

/// A share as a bar of so many columns.
pub(super) fn bar(share: f64, columns: usize, unicode: bool) -> String {
    // A cast saturates and makes NaN 0.
    let full = ((share * columns as f64).round().max(0.0) as usize).min(columns);
    let (on, off) = if unicode { ("█", "░") } else { ("#", ".") };
    on.repeat(full) + &off.repeat(columns - full)
}

/// All queues below the columns' names, each name whole.
pub(super) fn lines(document: &Document, look: &Look, columns: usize) -> Vec<Line<'static>> {
    let table = Table::new(document, look, columns);
    let rows = (0..document.path.queues.len()).flat_map(|place| table.row(place, true));
    if document.path.queues.is_empty() { vec![nothing()] } else { std::iter::once(table.head()).chain(rows).collect() }
}

fn nothing() -> Line<'static> {
    Line::from("  Nothing is known of any queue yet.")
}

/// The table, moved so that the chosen queue is seen; how many others are not is said.
pub(super) fn draw(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) {
    let table = Table::new(document, look, area.width.into());
    let count = document.path.queues.len();
    let room = usize::from(area.height).saturating_sub(HEAD);
    let above = look.chosen(document).map_or(0, |place| (place + 1).saturating_sub(room));
    let note = pane::hidden(above, count.saturating_sub(above + room));
    let title = if note.is_empty() { "Path".to_owned() } else { format!("Path: {count} queues") };
    let shown = above..count.min(above + room);
    let mut lines = vec![pane::heading(&title, &note, look, area.width.into()), table.head()];
    lines.extend(shown.flat_map(|place| table.row(place, false)));
    if count == 0 {
        lines.push(nothing());
    }
    pane::draw(lines, area, buffer);
}

/// The table with as many queues as there is room for, and what the chosen one is.
pub(super) fn page(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) -> Reach {
    let rows = u16::try_from(document.path.queues.len().max(1) + HEAD).unwrap_or(u16::MAX);
    let table = rows.min(area.height.saturating_sub(TOLD));
    let [above, below] = Layout::vertical([Constraint::Length(table), Constraint::Fill(1)]).areas(area);
    draw(document, look, above, buffer);
    let Some(queue) = look.chosen(document).and_then(|place| document.path.queues.get(place)) else {
        return Reach::default();
    };
    let columns = usize::from(area.width);
    let told = told(document, look, queue);
    let lines = told.iter().flat_map(|text| wrap(&look.clean(text), columns)).map(Line::from).collect();
    let title = format!("{}, {}", look.clean(&queue.title), name(document, queue, look));
    pane::pane(&title, lines, look.scrolled(), look, below, buffer)
}

/// What a queue is, where its limits stand, and what happens there.
fn told(document: &Document, look: &Look, queue: &QueueView) -> Vec<String> {
    let (_, end) = look.pieces(document);
    let figure = |what: &str, series, unit: Unit| {
        at(document, series, end).map(|value: f64| format!("{what} {}", unit.show(value)))
    };
    let figures: Vec<String> = [
        figure(if queue.at_least { "level at least" } else { "level" }, queue.level, queue.unit),
        figure("soft limit", queue.soft_limit, queue.unit),
        figure("hard limit", queue.hard_limit, queue.unit),
        figure("sessions waiting", queue.waiters, Unit::Count),
    ]
    .into_iter()
    .flatten()
    .collect();
    vec![queue.about.to_owned(), queue.at_limit.to_owned(), figures.join(", ")]
}
