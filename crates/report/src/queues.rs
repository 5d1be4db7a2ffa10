//! Queues as a table: what stands, how full, what flows, and how long until the limit.

use crate::Style;
use crate::page::Page;
use crate::style::Tone;
use crate::table::{Cell, cells};
use backwater_model::{Queue, Unit};

/// Characters of the bar that shows how full a queue is.
const BAR: usize = 10;
/// From these shares of the limit on a queue is worth a look, and bad.
const FILLING: f64 = 0.5;
const NEARLY_FULL: f64 = 0.75;

const HEADERS: [&str; 11] =
    ["queue", "level", "", "fill", "in", "out", "soft limit", "hard limit", "residence", "to the limit", "waiters"];

/// From this width on queues make a table; below, each has a few lines of its own.
const ROOM_FOR_TABLE: usize = 110;

/// One row a queue, or a few lines where there is little room. What is not known is a dash or left out.
pub fn queues(list: &[Queue], style: &Style) -> String {
    if style.columns() < ROOM_FOR_TABLE {
        let mut page = Page::new(style);
        list.iter().for_each(|queue| card(&mut page, queue, style));
        return page.finish();
    }
    let rows: Vec<Vec<Cell>> = list.iter().map(|queue| row(queue, style)).collect();
    // Columns of which nothing is known for any queue only take room.
    let known: Vec<usize> =
        (0..HEADERS.len()).filter(|place| *place == 0 || list.iter().any(|queue| knows(queue, *place))).collect();
    let headers: Vec<&str> = known.iter().map(|place| HEADERS[*place]).collect();
    let rows: Vec<Vec<Cell>> = rows.iter().map(|row| known.iter().map(|place| row[*place].clone()).collect()).collect();
    cells(&headers, &rows, style)
}

fn row(queue: &Queue, style: &Style) -> Vec<Cell> {
    let rate = queue.unit.per_second();
    let (fill, tone) = (queue.fill(), tone(queue));
    vec![
        Cell::new(queue.name.as_str(), Tone::Strong),
        shown(queue.level, queue.unit),
        Cell::new(fill.map(|fill| bar(fill, style)).unwrap_or_default(), tone).whole(),
        Cell::new(shown_text(fill, Unit::Ratio), tone),
        shown(queue.inflow_per_s, rate),
        shown(queue.outflow_per_s, rate),
        shown(queue.soft_limit, queue.unit),
        shown(queue.hard_limit, queue.unit),
        shown(queue.residence_s(), Unit::Seconds),
        shown(queue.time_to_limit_s(), Unit::Seconds),
        shown(queue.waiters, Unit::Count),
    ]
}

/// A queue in a few lines: its name and fill, then what else is known.
fn card(page: &mut Page<'_>, queue: &Queue, style: &Style) {
    page.heading(&queue.name, 0);
    if let (Some(fill), Some(limit)) = (queue.fill(), queue.held_from()) {
        let text = format!("{} {} of {}", bar(fill, style), Unit::Ratio.show(fill), queue.unit.show(limit));
        page.paragraph(tone(queue), &text, 2);
    }
    let rate = queue.unit.per_second();
    let parts = [
        ("level", queue.level, queue.unit),
        ("soft limit", queue.soft_limit, queue.unit),
        ("in", queue.inflow_per_s, rate),
        ("out", queue.outflow_per_s, rate),
        ("residence", queue.residence_s(), Unit::Seconds),
        ("to the limit", queue.time_to_limit_s(), Unit::Seconds),
        ("waiters", queue.waiters, Unit::Count),
    ];
    let known: Vec<String> =
        parts.iter().filter_map(|(name, value, unit)| Some(format!("{name} {}", unit.show((*value)?)))).collect();
    let text = if known.is_empty() { "nothing is known of it".to_owned() } else { known.join(", ") };
    page.paragraph(Tone::Plain, &text, 2);
}

/// How worrying a queue's fill is.
fn tone(queue: &Queue) -> Tone {
    match queue.fill() {
        Some(fill) if fill >= NEARLY_FULL => Tone::Bad,
        Some(fill) if fill >= FILLING => Tone::Warning,
        _ => Tone::Plain,
    }
}

/// Whether a queue has something to say in a column of [`HEADERS`].
fn knows(queue: &Queue, place: usize) -> bool {
    match place {
        1 => queue.level.is_some(),
        2 | 3 => queue.fill().is_some(),
        4 => queue.inflow_per_s.is_some(),
        5 => queue.outflow_per_s.is_some(),
        6 => queue.soft_limit.is_some(),
        7 => queue.hard_limit.is_some(),
        8 => queue.residence_s().is_some(),
        9 => queue.time_to_limit_s().is_some(),
        10 => queue.waiters.is_some(),
        _ => true,
    }
}

fn shown(value: Option<f64>, unit: Unit) -> Cell {
    Cell::from(shown_text(value, unit))
}

fn shown_text(value: Option<f64>, unit: Unit) -> String {
    value.map_or_else(|| "–".to_owned(), |value| unit.show(value))
}

/// A bar of a share: `███████···`.
pub(crate) fn bar(share: f64, style: &Style) -> String {
    // A cast saturates and makes NaN 0.
    let full = ((share * BAR as f64).round().max(0.0) as usize).min(BAR);
    style.sign("█", "#").repeat(full) + &style.sign("░", ".").repeat(BAR - full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::{MIB, STYLES};

    #[test]
    fn queues_show_their_fill_and_their_time_to_the_limit() {
        let dirty = Queue {
            inflow_per_s: Some(30.0 * MIB),
            outflow_per_s: Some(14.0 * MIB),
            level: Some(224.0 * MIB),
            soft_limit: Some(192.0 * MIB),
            hard_limit: Some(288.0 * MIB),
            held_midway: true,
            waiters: Some(11.0),
            ..Queue::unknown("host.dirty@7:0", Unit::Bytes)
        };
        let disk = Queue { level: Some(3.0), ..Queue::unknown("host.disk@7:0", Unit::Count) };
        for (name, style) in STYLES {
            insta::assert_snapshot!(format!("queues_{name}"), queues(&[dirty.clone(), disk.clone()], &style));
        }
    }

    #[test]
    fn a_bar_has_one_length_whatever_the_share() {
        let style = Style::plain(80);
        assert_eq!(bar(0.5, &style), "#####.....");
        assert_eq!(bar(7.0, &style), "##########");
        assert_eq!(bar(f64::NAN, &style), "..........");
        assert_eq!(bar(-1.0, &style), "..........");
    }
}
