//! Who waits on what over the stretch that is looked at, counted as everywhere else.

use super::look::{Look, Reach};
use super::pane;
use super::path::bar;
use backwater_model::Unit;
use backwater_report::html::{Document, Group, Sessions, Top};
use backwater_report::text::{width, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::Line;

/// Columns of the bar behind a group, and of a figure with the spaces around it; from so many columns on there is room for both.
const BAR: usize = 7;
const FIGURE: usize = 8;
const ROOM_FOR_BARS: usize = 40;

/// The sessions over a stretch.
struct Stretch<'a> {
    sessions: &'a Sessions,
    slots: (usize, usize),
    looked: f64,
    all: f64,
}

impl<'a> Stretch<'a> {
    fn of(document: &'a Document, look: &Look) -> Option<Stretch<'a>> {
        let sessions = document.sessions.as_ref()?;
        let (first, end) = look.pieces(document);
        let (from, to) = (first / sessions.pieces, end.div_ceil(sessions.pieces));
        let looked = sessions.looked.iter().take(to).skip(from).filter(|looked| **looked).count().max(1) as f64;
        let stretch = Stretch { sessions, slots: (from, to), looked, all: 0.0 };
        let all = sessions.classes.iter().map(|group| stretch.mean(group)).sum();
        Some(Stretch { all, ..stretch })
    }

    fn mean(&self, group: &Group) -> f64 {
        let within = |slot: &usize| (self.slots.0..self.slots.1).contains(slot);
        group.slots.iter().filter(|(slot, _)| within(slot)).map(|(_, value)| value).sum::<f64>() / self.looked
    }

    /// The groups of a list that were there, the largest first; long names in several lines where they are wanted whole.
    fn list(&self, top: &Top, look: &Look, columns: usize, whole: bool) -> Vec<Line<'static>> {
        let mut groups: Vec<(&Group, f64)> = top.groups.iter().map(|group| (group, self.mean(group))).collect();
        groups.retain(|(_, mean)| *mean > 0.0);
        groups.sort_by(|a, b| b.1.total_cmp(&a.1));
        let bars = columns >= ROOM_FOR_BARS;
        let figures = if bars { FIGURE + BAR + 1 } else { FIGURE };
        let room = columns.saturating_sub(figures).max(1);
        let row = |(group, mean): &(&Group, f64)| -> Vec<Line<'static>> {
            let name = look.clean(&group.name);
            let names = if whole { wrap(&name, room) } else { vec![look.cut(&name, room)] };
            let share = if bars { bar(mean / self.all.max(1e-9), BAR, look.unicode) } else { String::new() };
            let figures = format!("{:>6} {share}", Unit::Count.show(*mean));
            let line = |(place, name): (usize, String)| match place {
                0 => Line::from(format!("{name}{} {figures}", " ".repeat(room.saturating_sub(width(&name))))),
                _ => Line::from(name),
            };
            names.into_iter().enumerate().map(line).collect()
        };
        groups.iter().flat_map(row).collect()
    }
}

fn title(stretch: Option<&Stretch<'_>>, columns: usize) -> String {
    match stretch {
        Some(stretch) if columns < ROOM_FOR_BARS => format!("Sessions: {} active", Unit::Count.show(stretch.all)),
        Some(stretch) => format!("Sessions: {} active on average", Unit::Count.show(stretch.all)),
        None => "Sessions".to_owned(),
    }
}

/// Who waits on what, as much as there is room for.
pub(super) fn draw(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) {
    let stretch = Stretch::of(document, look);
    let of = |stretch: &Stretch<'_>| {
        let top = stretch.sessions.tops.first();
        top.map(|top| stretch.list(top, look, area.width.into(), false)).unwrap_or_default()
    };
    let lines = or_nobody(stretch.as_ref().map(of), area.width.into());
    pane::pane(&title(stretch.as_ref(), area.width.into()), lines, 0, look, area, buffer);
}

/// Every list, one below the other.
pub(super) fn page(document: &Document, look: &Look, area: Rect, buffer: &mut Buffer) -> Reach {
    let (title, lines) = whole(document, look, area.width.into());
    pane::pane(&title, lines, look.scrolled(), look, area, buffer)
}

/// The heading, and every list with names whole.
pub(super) fn whole(document: &Document, look: &Look, columns: usize) -> (String, Vec<Line<'static>>) {
    let stretch = Stretch::of(document, look);
    let faint = look.style(Style::default().fg(Color::DarkGray));
    let list = |stretch: &Stretch<'_>, top: &Top| {
        let rows = stretch.list(top, look, columns, true);
        let head = (!rows.is_empty()).then(|| Line::styled(format!("by {}", look.clean(&top.by)), faint));
        head.into_iter().chain(rows).collect::<Vec<_>>()
    };
    let lists =
        stretch.as_ref().map(|stretch| stretch.sessions.tops.iter().flat_map(|top| list(stretch, top)).collect());
    (title(stretch.as_ref(), columns), or_nobody(lists, columns))
}

fn or_nobody(lines: Option<Vec<Line<'static>>>, columns: usize) -> Vec<Line<'static>> {
    let said = |words: &str| wrap(words, columns).into_iter().map(Line::from).collect();
    match lines {
        None => said("No server's sessions were looked at."),
        Some(lines) if lines.is_empty() => said("No session was seen to be active here."),
        Some(lines) => lines,
    }
}
