//! The active-session histogram: how many sessions were active on average, doing what, and where the kernel held them.

use crate::Style;
use crate::page::Page;
use crate::style::Tone;
use crate::table::{Cell, cells};
use crate::text::{clean, cut};
use backwater_model::{Sample, Unit};
use std::collections::{BTreeMap, BTreeSet};

/// Characters of the largest group's bar, and from which width on it is long.
const BAR: usize = 10;
const LONG_BAR: usize = 20;
const ROOM_FOR_LONG_BAR: usize = 100;
/// Groups shown; the rest is added up in one line.
const GROUPS: usize = 20;
/// Longest name of a group: of a query, its beginning.
const LONGEST_NAME: usize = 120;
/// Kernel waits named beside a group.
const KERNEL_WAITS: usize = 2;

const ON_CPU: &str = "on CPU";

/// What sessions are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// The server's wait event, `on CPU` where there is none.
    WaitEvent,
    /// The statement, by its identifier where there is one, else by its text.
    Query,
    /// The role.
    User,
    /// application_name.
    Application,
    /// The kernel function a process sleeps in.
    KernelWait,
    /// The queue a session waits on.
    Queue,
}

#[derive(Default)]
struct Group {
    name: String,
    samples: usize,
    on_cpu: usize,
    kernel_waits: BTreeMap<String, usize>,
    waits: BTreeMap<String, usize>,
}

/// Active sessions by group, the largest first: average number, share, a bar with its part on CPU marked, and the
/// kernel's waits beside the server's. Idle sessions, and background processes that wait for work, are left out.
pub fn ash(samples: &[Sample], by: GroupBy, style: &Style) -> String {
    let mut page = Page::new(style);
    let looks = samples.iter().map(|sample| sample.at).collect::<BTreeSet<_>>().len();
    let active: Vec<&Sample> = samples.iter().filter(|sample| is_active(sample)).collect();
    if active.is_empty() {
        page.paragraph(Tone::Plain, &format!("No session was active in {looks} looks."), 0);
        return page.finish();
    }
    let groups = groups(&active, by);
    let average = active.len() as f64 / looks as f64;
    let text = format!("{} active sessions on average, {looks} looks, by {}", Unit::Count.show(average), title(by));
    page.heading(&text, 0);
    let largest = groups.first().map_or(1, |group| group.samples);
    let row = |group: &Group| row(group, by, Total { looks, active: active.len(), largest }, style);
    let rows: Vec<Vec<Cell>> = groups.iter().take(GROUPS).map(row).collect();
    let beside = if by == GroupBy::KernelWait { "server waits" } else { "kernel waits" };
    page.ready(&cells(&[title(by), "sessions", "share", "", beside], &rows, style), 0);
    if groups.len() > GROUPS {
        let rest: usize = groups.iter().skip(GROUPS).map(|group| group.samples).sum();
        let share = Unit::Ratio.show(rest as f64 / active.len() as f64);
        page.paragraph(Tone::Faint, &format!("{} more with {share} together", groups.len() - GROUPS), 0);
    }
    page.paragraph(Tone::Faint, &format!("{} on CPU  {} waiting", style.sign("▒", "+"), style.sign("█", "#")), 0);
    page.finish()
}

/// Idle sessions, and processes in a wait of the class Activity (which means: for work), are not active.
fn is_active(sample: &Sample) -> bool {
    !sample.state.as_deref().is_some_and(|state| state.starts_with("idle") || state == "disabled")
        && sample.wait_event_type.as_deref() != Some("Activity")
}

/// The server sees no wait, and the kernel does not either. (A process without a wait event may well sleep in the
/// kernel: in a write, a read, a page fault.)
fn is_on_cpu(sample: &Sample) -> bool {
    let sleeps = sample.kernel_wait.is_some() || matches!(sample.kernel_state, Some('D' | 'S'));
    sample.wait_event.is_none() && !sleeps
}

fn groups(active: &[&Sample], by: GroupBy) -> Vec<Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for sample in active {
        let group = groups.entry(key(sample, by)).or_default();
        if group.name.is_empty() {
            group.name = name(sample, by);
        }
        group.samples += 1;
        group.on_cpu += usize::from(is_on_cpu(sample));
        if let Some(wait) = sample.kernel_wait.as_deref() {
            *group.kernel_waits.entry(wait.to_owned()).or_default() += 1;
        }
        *group.waits.entry(wait(sample)).or_default() += 1;
    }
    let mut list: Vec<Group> = groups.into_values().collect();
    // Stable: groups of one size stay in order of name.
    list.sort_by_key(|group| std::cmp::Reverse(group.samples));
    list
}

/// Statements that differ only in text belong together where the server identifies them.
fn key(sample: &Sample, by: GroupBy) -> String {
    match (by, sample.query_id) {
        (GroupBy::Query, Some(id)) => format!("id {id}"),
        _ => name(sample, by),
    }
}

fn name(sample: &Sample, by: GroupBy) -> String {
    let text = |value: &Option<backwater_model::Text>, none: &str| value.as_deref().unwrap_or(none).to_owned();
    let background = sample.backend_type.as_deref().filter(|kind| *kind != "client backend");
    match by {
        GroupBy::WaitEvent => wait(sample),
        GroupBy::Query => text(&sample.query, background.unwrap_or("(text not visible)")),
        GroupBy::User => text(&sample.user, background.unwrap_or("(none)")),
        GroupBy::Application => text(&sample.application, background.unwrap_or("(none)")),
        GroupBy::KernelWait => text(&sample.kernel_wait, "(runs, or not visible)"),
        GroupBy::Queue => text(&sample.queue, "(none)"),
    }
}

fn wait(sample: &Sample) -> String {
    match (sample.wait_event_type.as_deref(), sample.wait_event.as_deref()) {
        (Some(class), Some(event)) => format!("{class}:{event}"),
        (None, Some(event)) => event.to_owned(),
        _ if is_on_cpu(sample) => ON_CPU.to_owned(),
        _ => "no wait event, asleep in the kernel".to_owned(),
    }
}

fn title(by: GroupBy) -> &'static str {
    match by {
        GroupBy::WaitEvent => "wait event",
        GroupBy::Query => "query",
        GroupBy::User => "user",
        GroupBy::Application => "application",
        GroupBy::KernelWait => "kernel wait",
        GroupBy::Queue => "queue",
    }
}

#[derive(Clone, Copy)]
struct Total {
    looks: usize,
    active: usize,
    largest: usize,
}

fn row(group: &Group, by: GroupBy, total: Total, style: &Style) -> Vec<Cell> {
    let beside = if by == GroupBy::KernelWait { &group.waits } else { &group.kernel_waits };
    vec![
        Cell::new(cut(&clean(&group.name, style), LONGEST_NAME, style), Tone::Strong),
        Cell::from(Unit::Count.show(group.samples as f64 / total.looks as f64)),
        Cell::from(Unit::Ratio.show(group.samples as f64 / total.active as f64)),
        Cell::new(bar(group, total.largest, style), Tone::Accent(0)).whole(),
        Cell::new(most(beside, group.samples), Tone::Faint),
    ]
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
fn most(waits: &BTreeMap<String, usize>, of: usize) -> String {
    let mut list: Vec<_> = waits.iter().collect();
    list.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let show = |(name, count): &(&String, &usize)| format!("{name} {}", Unit::Ratio.show(**count as f64 / of as f64));
    list.iter().take(KERNEL_WAITS).map(show).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::STYLES;
    use backwater_model::Moment;

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
        }
        list
    }

    #[test]
    fn sessions_are_counted_by_what_they_wait_on() {
        for (name, style) in STYLES {
            insta::assert_snapshot!(format!("ash_{name}"), ash(&samples(), GroupBy::WaitEvent, &style));
        }
        insta::assert_snapshot!("ash_query", ash(&samples(), GroupBy::Query, &Style::plain(80)));
        insta::assert_snapshot!("ash_kernel", ash(&samples(), GroupBy::KernelWait, &Style::plain(80)));
    }

    #[test]
    fn endless_query_texts_are_cut_and_many_groups_added_up() {
        let long = "SELECT ".repeat(10_000);
        let list: Vec<_> = (0..30).map(|n| sample(0, None, None, &format!("{n} {long}"))).collect();
        let text = ash(&list, GroupBy::Query, &Style::plain(80));
        assert!(text.contains("10 more with 33.3 % together"), "{text}");
        assert!(text.len() < 10_000, "{}", text.len());
    }

    #[test]
    fn no_samples_are_no_error() {
        assert_eq!(ash(&[], GroupBy::User, &Style::plain(80)), "No session was active in 0 looks.\n");
    }
}
