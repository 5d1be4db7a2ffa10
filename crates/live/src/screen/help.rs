//! The keys: a line of them below everything, and all of them explained.

use super::look::{Look, Part, Reach};
use super::pane;
use backwater_report::text::{width, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::Line;

/// A key as it is shown: in how many others' favour it is left out, and what it does in many words and in few.
struct Shown {
    rank: u8,
    key: &'static str,
    long: &'static str,
    short: &'static str,
}

const fn shown(rank: u8, key: &'static str, long: &'static str, short: &'static str) -> Shown {
    Shown { rank, key, long, short }
}

/// The keys of what is shown now, in the order in which they stand.
fn list(look: &Look) -> Vec<Shown> {
    let (up, before, less) = if look.unicode { ("↑↓", "←→", "+−") } else { ("k/j", "h/l", "+-") };
    let away = look.help || look.part != Part::All;
    let (moves, pages) = match (look.moves_lines(), look.part) {
        (true, _) => ("line", "page"),
        (_, Part::All) => ("queue", "more findings"),
        (_, Part::Curves) => ("queue", "more curves"),
        _ => ("queue", "more"),
    };
    let back = away.then_some(shown(1, "Esc", "back", "back"));
    let rest = [
        shown(2, "1-5", "parts", "parts"),
        shown(3, up, moves, moves),
        shown(4, "PgDn", pages, if look.moves_lines() { "page" } else { "more" }),
        shown(5, before, "earlier, later", "time"),
        shown(6, less, "closer, wider", "zoom"),
        shown(8, "End", "newest", "newest"),
        shown(7, "p", "pause", "pause"),
        shown(0, "?", "help", "help"),
    ];
    std::iter::once(shown(0, "q", "quit", "quit")).chain(back).chain(rest).collect()
}

/// The line of keys: in many words, else in few, else without those that are missed least; none is cut.
pub(super) fn keys(look: &Look, area: Rect, buffer: &mut Buffer) {
    let columns = usize::from(area.width);
    let list = list(look);
    let line = |most: u8, long: bool| {
        let kept = list.iter().filter(|shown| shown.rank <= most);
        let words = kept.map(|shown| format!("{} {}", shown.key, if long { shown.long } else { shown.short }));
        words.collect::<Vec<_>>().join("  ")
    };
    let least = line(0, false);
    let tries = std::iter::once(line(u8::MAX, true)).chain((0..=8).rev().map(|most| line(most, false)));
    let fits = tries.into_iter().find(|text| width(text) <= columns).unwrap_or(least);
    let style = look.style(Style::default().fg(Color::DarkGray));
    pane::draw([Line::styled(look.cut(&fits, columns), style)], area, buffer);
}

/// What each key does, in the order in which people need them.
const KEYS: [(&str, &str); 10] = [
    ("1 2 3 4 5", "all parts, or one of them alone: path, curves, sessions, findings"),
    ("Tab", "the next part; Shift-Tab the one before"),
    ("up, down, k, j", "choose a queue, whose level is drawn; on sessions and findings: a line up, down"),
    ("PgUp, PgDn, u, d", "turn pages of what does not fit: findings, curves, text"),
    ("left, right, h, l", "look earlier or later"),
    ("+, -", "look closer or wider"),
    ("Home, End", "the first, the newest"),
    ("p, space", "stop, go on"),
    ("?, Esc", "this text, or back"),
    ("q, Ctrl-C", "quit"),
];

const PARAGRAPHS: [&str; 3] = [
    "The path: queues from clients to durable storage. Level, how full that is, what arrives and leaves each second, and how \
     long until the limit at these rates: where the kernel begins to pause writers, else the hard limit. ! is a queue that a finding names, ~ one that it holds up. The chosen \
     queue is underlined.",
    "Of findings there is a summary beside the other parts, and all on 5: evidence, what was ruled out, what could not be seen, \
     commands. A heading says how many lines or queues are above and below what is shown.",
    "`backwater watch ... --once` prints all of it as plain text.",
];

/// Columns of the keys' names.
const NAMES: usize = 19;

/// The explanation, moved by lines where it does not fit.
pub(super) fn page(look: &Look, area: Rect, buffer: &mut Buffer) -> Reach {
    pane::pane("Keys", lines(look, area.width.into()), look.scrolled(), look, area, buffer)
}

fn lines(look: &Look, columns: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (key, what) in KEYS {
        let told = wrap(what, columns.saturating_sub(NAMES).max(1));
        for (place, text) in told.into_iter().enumerate() {
            let key = if place == 0 { key } else { "" };
            lines.push(Line::from(look.cut(&format!("{key:<NAMES$}{text}"), columns)));
        }
    }
    for text in PARAGRAPHS {
        lines.push(Line::default());
        lines.extend(wrap(text, columns).into_iter().map(Line::from));
    }
    lines
}
