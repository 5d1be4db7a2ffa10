//! A pane: a heading with a rule behind it, lines below, and how many of them are hidden.

use super::look::{Look, Reach};
use backwater_report::text::{width, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Widget;

/// A heading in so many columns: its text, a rule, and a note at the end, which is never cut while there is room for it.
pub(super) fn heading(text: &str, note: &str, look: &Look, columns: usize) -> Line<'static> {
    let rule = if look.unicode { "─" } else { "-" };
    let note = if note.is_empty() { String::new() } else { format!(" {note} {rule}") };
    let text = look.cut(text, columns.saturating_sub(width(&note) + 2));
    let rest = columns.saturating_sub(width(&text) + 1 + width(&note));
    let style = look.style(Style::default().fg(Color::Cyan)).add_modifier(Modifier::BOLD);
    Line::styled(format!("{text} {}{note}", rule.repeat(rest)), style)
}

/// A heading with all of its words, in several lines where they are longer than one.
pub(super) fn whole_heading(text: &str, look: &Look, columns: usize) -> Vec<Line<'static>> {
    let mut lines = wrap(text, columns.saturating_sub(2));
    let last = lines.pop().unwrap_or_default();
    lines.into_iter().map(Line::from).chain([heading(&last, "", look, columns)]).collect()
}

/// `3 above, 12 below`; nothing where all is shown.
pub(super) fn hidden(above: usize, below: usize) -> String {
    match (above, below) {
        (0, 0) => String::new(),
        (0, below) => format!("{below} below"),
        (above, 0) => format!("{above} above"),
        (above, below) => format!("{above} above, {below} below"),
    }
}

/// A heading and lines from one of them on, with what is hidden said in the heading. How far they can be moved.
pub(super) fn pane(
    text: &str,
    lines: Vec<Line<'static>>,
    from: usize,
    look: &Look,
    area: Rect,
    buffer: &mut Buffer,
) -> Reach {
    let room = usize::from(area.height).saturating_sub(1);
    let most = lines.len().saturating_sub(room);
    let from = from.min(most);
    let note = hidden(from, lines.len().saturating_sub(from + room));
    let all = std::iter::once(heading(text, &note, look, area.width.into())).chain(lines.into_iter().skip(from));
    draw(all, area, buffer);
    // A line stays in sight, so that whoever turns pages sees where it goes on.
    Reach { most, page: room.saturating_sub(1).max(1) }
}

/// Lines from the top of an area on, as many as there is room for.
pub(super) fn draw(lines: impl IntoIterator<Item = Line<'static>>, area: Rect, buffer: &mut Buffer) {
    for (line, y) in lines.into_iter().zip(area.y..area.bottom()) {
        line.render(Rect { y, height: 1, ..area }, buffer);
    }
}

/// A line that is longer than there are columns, in several: behind a space where there is one late in it. Nothing of it is
/// lost or added.
pub(super) fn folded(line: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut rest, mut used, mut space) = (line, 0, None);
    let mut chars = line.char_indices();
    while let Some((_, c)) = chars.next() {
        let mut bytes = [0; 4];
        let own = width(c.encode_utf8(&mut bytes));
        let place = rest.len() - chars.as_str().len() - c.len_utf8();
        if used + own > columns && place > 0 {
            let (line, more) = rest.split_at(space.filter(|space| *space * 2 > place).unwrap_or(place));
            lines.push(line.to_owned());
            (rest, used, space) = (more, 0, None);
            chars = more.char_indices();
            continue;
        }
        used += own;
        if c == ' ' {
            space = Some(place + 1);
        }
    }
    lines.push(rest.to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_broken_behind_a_space_or_anywhere() {
        assert_eq!(folded("echo 1 > /sys/max", 9), ["echo 1 > ", "/sys/max"]);
        assert_eq!(folded("a /sys/class/bdi", 6), ["a /sys", "/class", "/bdi"]);
        assert_eq!(
            (folded("", 4), folded("日本", 1), folded("x", 0)),
            (vec![String::new()], vec!["日".into(), "本".into()], vec!["x".into()])
        );
    }

    proptest::proptest! {
        #[test]
        fn nothing_of_a_folded_line_is_lost(line in ".{0,60}", columns in 2usize..30) {
            let lines = folded(&line, columns);
            proptest::prop_assert_eq!(lines.concat(), line);
            proptest::prop_assert!(lines.iter().all(|line| width(line) <= columns));
        }
    }
}
