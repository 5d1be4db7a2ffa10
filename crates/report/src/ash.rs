//! The active-session histogram: how many sessions were active on average, doing what, and where the kernel held them.
//! Shares are of the time of all active sessions, and beside them of the waits alone.

use crate::Style;
use crate::page::Page;
use crate::style::Tone;
use crate::table::{Cell, cells};
use crate::text::{clean, cut, pad_left, width};
use backwater_diagnose::commit::{Group, GroupBy, Slice, Tally};
use backwater_model::Unit;
use std::collections::BTreeMap;

/// Characters of the largest group's bar, and from which width on it is long.
const BAR: usize = 10;
const LONG_BAR: usize = 20;
const ROOM_FOR_LONG_BAR: usize = 100;
/// Longest name of a group: of a query, its beginning; shorter where names stand side by side.
const LONGEST_NAME: usize = 120;
const LONGEST_OF_MANY: usize = 40;
/// Kernel waits named beside a group.
const KERNEL_WAITS: usize = 2;
/// Rows and columns of the plot over time.
const ROWS: usize = 10;
const MOST_COLUMNS: usize = 100;

/// Groups of active sessions, the largest first: average number, share of session time and of waits, a bar with its part on
/// CPU marked, and the kernel's waits beside the server's. Idle sessions, and background processes that wait for work or carry
/// WAL, are left out. At most `most` groups are shown; the rest is added up.
pub fn ash(tally: &Tally, most: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    if tally.samples == 0 {
        // That nobody looked says nothing of sessions.
        let text = match tally.looks {
            0 => "Sessions were not looked at in this time.".to_owned(),
            looks => format!("No session was seen to be active in {looks} looks."),
        };
        page.paragraph(Tone::Plain, &text, 0);
        return page.finish();
    }
    let titles: Vec<&str> = tally.by.iter().map(|by| by.title()).collect();
    let average = Unit::Count.show(tally.sessions());
    page.heading(&format!("{average} active sessions on average, {} looks, by {}", tally.looks, titles.join(", ")), 0);
    let largest = tally.groups.first().map_or(1, |group| group.samples);
    let rows: Vec<Vec<Cell>> = tally.groups.iter().take(most).map(|group| row(group, tally, largest, style)).collect();
    let beside = if tally.by.contains(&GroupBy::KernelWait) { "server waits" } else { "kernel waits" };
    let figures = if titles.len() > 1 {
        &["sessions", "of time", "of waits"][..]
    } else {
        &["sessions", "of time", "of waits", ""]
    };
    let last = (!is_crossed_with_kernel(tally)).then_some(beside);
    let headers: Vec<&str> = titles.iter().chain(figures).copied().chain(last).collect();
    page.ready(&cells(&headers, &rows, style), 0);
    let rest = tally.groups.get(most..).unwrap_or_default();
    if !rest.is_empty() {
        let share: f64 = rest.iter().map(|group| group.session_time_ratio).sum();
        page.paragraph(Tone::Faint, &format!("{} more with {} together", rest.len(), Unit::Ratio.show(share)), 0);
    }
    page.paragraph(Tone::Faint, &format!("{} on CPU  {} waiting", style.sign("▒", "+"), style.sign("█", "#")), 0);
    if tally.contested > 0 {
        let share = Unit::Ratio.show(tally.contested as f64 / tally.kernel_asked.max(1) as f64);
        let text = format!(
            "In {} of {} waits that the kernel was asked about ({share}) it says that the process runs. It is asked a moment after the server, so waits \
             shorter than that moment disagree by chance.",
            tally.contested, tally.kernel_asked
        );
        page.paragraph(Tone::Faint, &text, 0);
    }
    page.finish()
}

/// Whether kernel waits stand in a column of their own already.
fn is_crossed_with_kernel(tally: &Tally) -> bool {
    tally.by.len() > 1 && tally.by.contains(&GroupBy::KernelWait)
}

fn row(group: &Group, tally: &Tally, largest: usize, style: &Style) -> Vec<Cell> {
    let by_kernel = tally.by.contains(&GroupBy::KernelWait);
    let beside = if by_kernel { &group.waits } else { &group.kernel_waits };
    let longest = if group.names.len() > 1 { LONGEST_OF_MANY } else { LONGEST_NAME };
    let names = group.names.iter().enumerate().map(|(place, name)| {
        let tone = if place == 0 { Tone::Strong } else { Tone::Plain };
        Cell::new(cut(&clean(name, style), longest, style), tone)
    });
    let waits = if group.wait_ratio > 0.0 { Unit::Ratio.show(group.wait_ratio) } else { "–".to_owned() };
    let figures = [
        Cell::from(Unit::Count.show(group.sessions)),
        Cell::from(Unit::Ratio.show(group.session_time_ratio)),
        Cell::from(waits),
    ];
    // Where several names stand side by side there is no room for bars.
    let bar = (tally.by.len() <= 1).then(|| Cell::new(bar(group, largest, style), Tone::Accent(0)).whole());
    let last = (!is_crossed_with_kernel(tally)).then(|| Cell::new(most(beside, group.samples), Tone::Faint));
    names.chain(figures).chain(bar).chain(last).collect()
}

/// The part on CPU, then the part that waits. A group that is there has at least one character.
fn bar(group: &Group, largest: usize, style: &Style) -> String {
    let longest = if style.columns() >= ROOM_FOR_LONG_BAR { LONG_BAR } else { BAR };
    let scale = |samples: usize| (samples * longest).div_ceil(largest.max(1)).min(longest);
    let all = scale(group.samples);
    let on_cpu = (group.on_cpu * all + group.samples / 2) / group.samples.max(1);
    style.sign("▒", "+").repeat(on_cpu) + &style.sign("█", "#").repeat(all - on_cpu)
}

/// The most frequent of the waits, each with its share of the group.
fn most(waits: &[(String, usize)], of: usize) -> String {
    let show = |(name, count): &(String, usize)| format!("{name} {}", Unit::Ratio.show(*count as f64 / of as f64));
    waits.iter().take(KERNEL_WAITS).map(show).collect::<Vec<_>>().join(", ")
}

/// Active sessions over time, stacked by class of wait with the part on CPU at the bottom. A slice
/// without looks is left blank.
pub fn ash_over_time(slices: &[Slice], style: &Style) -> String {
    let classes = classes(slices);
    let sum = |slice: &BTreeMap<String, f64>| slice.values().filter(|value| value.is_finite()).sum::<f64>();
    let highest = slices.iter().filter_map(|slice| slice.sessions.as_ref()).map(sum).fold(0.0, f64::max);
    let mut page = Page::new(style);
    if classes.is_empty() || highest <= 0.0 {
        return page.finish();
    }
    page.heading("Active sessions over time, by class of wait", 0);
    let top = Unit::Count.show(highest);
    let gutter = width(&top).max(1);
    let columns = style.columns().saturating_sub(gutter + 1).clamp(1, MOST_COLUMNS);
    let shown = squeeze(slices, columns);
    for row in (0..ROWS).rev() {
        let label = if row == ROWS - 1 {
            top.as_str()
        } else if row == 0 {
            "0"
        } else {
            ""
        };
        let height = (row as f64 + 0.5) / ROWS as f64 * highest;
        let line: String = shown.iter().map(|slice| cell(slice.as_ref(), height, &classes, style)).collect();
        page.ready(&format!("{}{}{line}", pad_left(label, gutter), style.sign("┤", "|")), 0);
    }
    let (first, last) = (slices.first().map_or(0.0, |s| s.at_s), slices.last().map_or(0.0, |s| s.at_s));
    let span = format!("{} to {}", Unit::Seconds.show(first), Unit::Seconds.show(last));
    page.paragraph(Tone::Faint, &span, gutter + 1);
    let names: Vec<String> =
        classes.iter().map(|class| format!("{} {}", class.sign, clean(&class.name, style))).collect();
    page.paragraph(Tone::Faint, &names.join("  "), gutter + 1);
    page.finish()
}

/// A class of waits in the plot.
struct Class {
    name: String,
    sign: char,
    tone: Tone,
}

/// Signs in the order in which they are given where a class's own letter is taken.
const SPARE: &str = "XYZVUWQ";

/// The classes seen: on CPU first, then the largest first.
fn classes(slices: &[Slice]) -> Vec<Class> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, value) in slices.iter().filter_map(|slice| slice.sessions.as_ref()).flatten() {
        *sums.entry(name).or_default() += value;
    }
    let mut names: Vec<(&str, f64)> = sums.into_iter().filter(|(_, sum)| *sum > 0.0).collect();
    names.sort_by(|a, b| (b.0 == "on CPU").cmp(&(a.0 == "on CPU")).then(b.1.total_cmp(&a.1)));
    let mut taken = String::new();
    let sign = |name: &str, taken: &mut String| {
        let letters = name.chars().filter(char::is_ascii_alphabetic).map(|letter| letter.to_ascii_uppercase());
        let own: Vec<char> = if name == "on CPU" { vec!['+'] } else { letters.collect() };
        let free = own.into_iter().chain(SPARE.chars()).find(|letter| !taken.contains(*letter)).unwrap_or('#');
        taken.push(free);
        free
    };
    let one = |(place, (name, _)): (usize, (&str, f64))| Class {
        name: name.to_owned(),
        sign: sign(name, &mut taken),
        tone: if name == "on CPU" { Tone::Good } else { Tone::Accent(place) },
    };
    names.into_iter().enumerate().map(one).collect()
}

/// As many slices as there are columns, by the mean of neighbours, those without looks apart.
fn squeeze(slices: &[Slice], columns: usize) -> Vec<Option<BTreeMap<String, f64>>> {
    let count = slices.len().min(columns);
    let part = |column: usize| &slices[column * slices.len() / count..(column + 1) * slices.len() / count];
    let mean = |part: &[Slice]| {
        let known: Vec<_> = part.iter().filter_map(|slice| slice.sessions.as_ref()).collect();
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for (name, value) in known.iter().flat_map(|slice| slice.iter()) {
            *sums.entry(name.clone()).or_default() += value / known.len() as f64;
        }
        (!known.is_empty()).then_some(sums)
    };
    (0..count).map(|column| mean(part(column))).collect()
}

/// What stands at a height of a column.
fn cell(slice: Option<&BTreeMap<String, f64>>, height: f64, classes: &[Class], style: &Style) -> String {
    let Some(slice) = slice else { return " ".to_owned() };
    let mut upto = 0.0;
    for class in classes {
        upto += slice.get(&class.name).copied().unwrap_or(0.0);
        if height < upto {
            return style.paint(class.tone, &class.sign.to_string());
        }
    }
    " ".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::STYLES;
    use backwater_diagnose::commit::tally;
    use backwater_model::{Moment, Sample};
    use proptest::prelude::*;

    const MOST: usize = 20;

    fn sample(at: i64, wait: Option<(&str, &str)>, kernel: Option<&str>, query: &str) -> Sample {
        Sample {
            at: Moment(at),
            backend_type: Some("client backend".into()),
            user: Some("app".into()),
            application: Some("pgbench".into()),
            state: Some("active".into()),
            wait_event_type: wait.map(|(class, _)| class.into()),
            wait_event: wait.map(|(_, event)| event.into()),
            kernel_wait: kernel.map(Into::into),
            query: Some(query.into()),
            ..Sample::default()
        }
    }

    fn samples() -> Vec<Sample> {
        let mut list = Vec::new();
        for look in 0..10 {
            list.push(sample(look, None, None, "SELECT 1"));
            list.push(sample(look, Some(("IO", "DataFileWrite")), Some("ext4_buffered_write_iter"), "UPDATE accounts"));
            list.push(sample(look, Some(("IO", "DataFileWrite")), Some("balance_dirty_pages"), "UPDATE accounts"));
            list.push(sample(look, None, Some("folio_wait_bit_common"), "UPDATE \u{1b}[31maccounts\u{202e}"));
            list.push(Sample { state: Some("idle in transaction".into()), ..sample(look, None, None, "") });
            let idle = Some(("Activity", "CheckpointerMain"));
            list.push(Sample { state: None, ..sample(look, idle, Some("ep_poll"), "") });
            let working = sample(look, Some(("IO", "WALSync")), None, "");
            list.push(Sample { state: None, backend_type: Some("walwriter".into()), ..working });
        }
        list.push(Sample { kernel_state: Some('R'), ..sample(9, Some(("LWLock", "WALWrite")), None, "COMMIT") });
        list
    }

    fn by(by: &[GroupBy]) -> Tally {
        tally(samples().iter(), None, by)
    }

    #[test]
    fn sessions_are_counted_by_what_they_wait_on() {
        for (name, style) in STYLES {
            insta::assert_snapshot!(format!("ash_{name}"), ash(&by(&[GroupBy::WaitEvent]), MOST, &style));
        }
        insta::assert_snapshot!("ash_query", ash(&by(&[GroupBy::Query]), MOST, &Style::plain(80)));
        insta::assert_snapshot!("ash_kernel", ash(&by(&[GroupBy::KernelWait]), MOST, &Style::plain(80)));
        let crossed = [GroupBy::WaitEvent, GroupBy::Query, GroupBy::User, GroupBy::Application];
        insta::assert_snapshot!("ash_crossed", ash(&by(&crossed), MOST, &Style::plain(120)));
    }

    #[test]
    fn endless_query_texts_are_cut_and_many_groups_added_up() {
        let long = "SELECT ".repeat(10_000);
        let list: Vec<_> = (0..30).map(|n| sample(0, None, None, &format!("{n} {long}"))).collect();
        let text = ash(&tally(list.iter(), None, &[GroupBy::Query]), MOST, &Style::plain(80));
        assert!(text.contains("10 more with 33.3 % together"), "{text}");
        assert!(text.len() < 10_000, "{}", text.len());
    }

    #[test]
    fn no_samples_are_no_error() {
        let none = tally([].iter(), Some(7), &[GroupBy::User]);
        assert_eq!(ash(&none, MOST, &Style::plain(80)), "No session was seen to be active in 7 looks.\n");
        let blind = tally([].iter(), Some(0), &[GroupBy::User]);
        assert!(ash(&blind, MOST, &Style::plain(80)).starts_with("Sessions were not looked at"));
        assert_eq!(ash_over_time(&[], &Style::plain(80)), "");
        assert_eq!(ash_over_time(&[Slice { at_s: 0.0, sessions: None }], &Style::plain(80)), "");
    }

    fn slice(parts: &[(&str, f64)]) -> Option<BTreeMap<String, f64>> {
        Some(parts.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect())
    }

    #[test]
    fn classes_are_stacked_over_time_and_holes_stay_blank() {
        let mut slices: Vec<_> = (0..30)
            .map(|n| (f64::from(n), slice(&[("on CPU", 1.0), ("IO", f64::from(n) / 10.0), ("IPC", 0.5)])))
            .map(|(at_s, sessions)| Slice { at_s, sessions })
            .collect();
        slices[12].sessions = None;
        for (name, style) in STYLES {
            insta::assert_snapshot!(format!("ash_time_{name}"), ash_over_time(&slices, &style));
        }
    }

    proptest! {
        #[test]
        fn no_line_of_the_plot_is_wider_than_the_style(
            slices in proptest::collection::vec(
                (0.0..1e6_f64, proptest::option::of(proptest::collection::btree_map(".{0,12}", 0.0..1e9_f64, 0..9))), 0..200),
            columns in 20usize..140, unicode: bool,
        ) {
            let style = Style { color: false, width: columns, unicode };
            let slices: Vec<_> = slices.into_iter().map(|(at_s, sessions)| Slice { at_s, sessions }).collect();
            for line in ash_over_time(&slices, &style).lines() {
                prop_assert!(width(line) <= columns.max(20), "{line:?}");
            }
        }
    }
}
