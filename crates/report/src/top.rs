//! Who reads, writes, sends and computes: one line a process, the busiest first, with totals.
//!
//! A line must stay a line, or nobody can read the table as it changes; so what does not fit is left out by whole
//! columns, and the last column is cut.

mod number;
mod recorded;

pub use recorded::{TOP_MARGIN, top_of, top_unseen};

use crate::Style;
use crate::page::Page;
use crate::style::Tone;
use crate::text::{clean, cut, pad_left, pad_right};
use backwater_model::{ProcessUse, Unit, Unseen};
use number::{kib, number, percent};
use std::cmp::Ordering;

/// Columns from which calls and segments are shown, and from which also user and device.
const ROOM_FOR_CALLS: usize = 96;
const ROOM_FOR_ALL: usize = 120;
const PID: usize = 7;
const USER: usize = 9;
const NUMBER: usize = 7;
const CPU: usize = 6;
const DEVICE: usize = 16;

/// What the busiest processes are busy with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopSort {
    /// Bytes read and written.
    #[default]
    Io,
    /// Bytes sent and received.
    Net,
    /// Processor time.
    Cpu,
}

/// One picture of all processes.
#[derive(Clone, Copy, Debug)]
pub struct TopView<'a> {
    /// What was looked at, and when: its first line.
    pub title: &'a str,
    /// The processes, in any order.
    pub processes: &'a [ProcessUse],
    /// What could not be seen.
    pub unseen: &'a [Unseen],
    /// Which come first.
    pub sort: TopSort,
    /// At most so many of them; none for all.
    pub most: Option<usize>,
}

/// The table as text.
pub fn top(view: &TopView<'_>, style: &Style) -> String {
    let columns = Columns::of(style);
    let mut page = Page::new(style);
    page.heading(view.title, 0);
    for header in columns.headers() {
        page.ready(&style.paint(Tone::Faint, &cut(&header, style.columns(), style)), 0);
    }
    let sorted = sorted(view.processes, view.sort);
    let most = view.most.unwrap_or(sorted.len());
    for process in sorted.iter().take(most) {
        page.ready(&columns.row(process, &what(process, style), style), 0);
    }
    let all = total(view.processes);
    let title = format!("total of {}", Unit::Count.show(view.processes.len() as f64));
    page.ready(&style.paint(Tone::Strong, &columns.row(&all, &title, style)), 0);
    if sorted.len() > most {
        page.paragraph(Tone::Faint, &format!("{} more processes are not shown", sorted.len() - most), 0);
    }
    if let Some(missing) = columns.missing() {
        page.paragraph(Tone::Faint, missing, 0);
    }
    for unseen in view.unseen {
        let remedy = unseen.remedy.as_deref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        page.paragraph(Tone::Faint, &format!("Not seen: {} ({}){remedy}", unseen.what, unseen.why), 0);
    }
    page.finish()
}

/// The busiest first; of equals those that do anything else, then in order of process id.
fn sorted(processes: &[ProcessUse], sort: TopSort) -> Vec<&ProcessUse> {
    let cpu = |process: &ProcessUse| process.cpu_share.unwrap_or_default();
    let key = |process: &ProcessUse| {
        let (io, net, cpu) = (process.io_bytes_per_s(), process.net_bytes_per_s(), cpu(process));
        match sort {
            TopSort::Io => [io, net, cpu],
            TopSort::Net => [net, io, cpu],
            TopSort::Cpu => [cpu, io, net],
        }
    };
    let descending = |a: &&ProcessUse, b: &&ProcessUse| {
        let pairs = key(b).into_iter().zip(key(a)).map(|(b, a)| b.total_cmp(&a));
        pairs.fold(Ordering::Equal, Ordering::then).then(a.pid.cmp(&b.pid))
    };
    let mut list: Vec<&ProcessUse> = processes.iter().collect();
    list.sort_by(descending);
    list
}

/// All together. What could be seen of nobody stays unseen.
fn total(processes: &[ProcessUse]) -> ProcessUse {
    let sum = |part: fn(&ProcessUse) -> Option<f64>| processes.iter().filter_map(part).reduce(|a, b| a + b);
    ProcessUse {
        read_bytes_per_s: sum(|process| process.read_bytes_per_s),
        read_calls_per_s: sum(|process| process.read_calls_per_s),
        write_bytes_per_s: sum(|process| process.write_bytes_per_s),
        write_calls_per_s: sum(|process| process.write_calls_per_s),
        sent_bytes_per_s: sum(|process| process.sent_bytes_per_s),
        sent_segments_per_s: sum(|process| process.sent_segments_per_s),
        received_bytes_per_s: sum(|process| process.received_bytes_per_s),
        received_segments_per_s: sum(|process| process.received_segments_per_s),
        cpu_share: sum(|process| process.cpu_share),
        ..ProcessUse::default()
    }
}

/// `app@shop psql 10.0.0.7:53412`, `walsender → 10.0.0.2:41000`, `checkpointer`.
fn what(process: &ProcessUse, style: &Style) -> String {
    let part = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(session) = &process.session {
        let who = format!(
            "{}@{}",
            part(&session.user).unwrap_or_else(|| "?".to_owned()),
            part(&session.database).unwrap_or_else(|| "?".to_owned())
        );
        let words = [Some(who), part(&session.application), part(&session.client)];
        return clean(&words.into_iter().flatten().collect::<Vec<_>>().join(" "), style);
    }
    let peer = part(&process.peer).map(|peer| {
        let others = process.connections.unwrap_or_default().saturating_sub(1);
        let others = if others > 0 { format!(" (+{others})") } else { String::new() };
        format!(" {} {peer}{others}", style.sign("→", "->"))
    });
    clean(&(process.what.clone() + &peer.unwrap_or_default()), style)
}

/// Which columns there is room for.
#[derive(Clone, Copy)]
struct Columns {
    width: usize,
    calls: bool,
    all: bool,
}

impl Columns {
    fn of(style: &Style) -> Self {
        let width = style.columns();
        Columns { width, calls: width >= ROOM_FOR_CALLS, all: width >= ROOM_FOR_ALL }
    }

    fn missing(self) -> Option<&'static str> {
        match (self.calls, self.all) {
            (_, true) => None,
            (true, _) => Some("120 columns also show user and device"),
            _ => Some("96 columns also show calls and segments, 120 user and device"),
        }
    }

    fn headers(self) -> [String; 2] {
        let group = |name: &str| pad_left(name, if self.calls { 2 * NUMBER } else { NUMBER });
        let units = |count: &str| {
            let kib = pad_left("KiB/s", NUMBER);
            if self.calls { kib + &pad_left(count, NUMBER) } else { kib }
        };
        let front = |pid: &str, user: &str| {
            let user = if self.all { format!(" {}", pad_right(user, USER - 1)) } else { String::new() };
            pad_left(pid, PID) + &user
        };
        let back = |cpu: &str, device: &str, what: &str| {
            let device = if self.all { format!("  {}", pad_right(device, DEVICE - 2)) } else { String::new() };
            format!("{}{device}  {what}", pad_left(cpu, CPU)).trim_end().to_owned()
        };
        let groups: String = ["read", "write", "sent", "recv"].map(group).concat();
        let below: String = ["calls", "calls", "segs", "segs"].map(units).concat();
        [front("", "") + &groups + &back("cpu", "", ""), front("pid", "user") + &below + &back("%", "device", "what")]
    }

    /// A line; the total has no process id.
    fn row(self, process: &ProcessUse, what: &str, style: &Style) -> String {
        let pid = if process.pid == 0 { String::new() } else { process.pid.to_string() };
        let mut line = pad_left(&pid, PID);
        if self.all {
            let user = process.user.clone().or_else(|| process.uid.map(|uid| uid.to_string())).unwrap_or_default();
            line += &format!(" {}", pad_right(&cut(&clean(&user, style), USER - 1, style), USER - 1));
        }
        let pairs = [
            (process.read_bytes_per_s, process.read_calls_per_s),
            (process.write_bytes_per_s, process.write_calls_per_s),
            (process.sent_bytes_per_s, process.sent_segments_per_s),
            (process.received_bytes_per_s, process.received_segments_per_s),
        ];
        for (bytes, count) in pairs {
            line += &pad_left(&kib(bytes, style), NUMBER);
            if self.calls {
                line += &pad_left(&number(count, style), NUMBER);
            }
        }
        line += &pad_left(&percent(process.cpu_share, style), CPU);
        if self.all {
            let devices: Vec<&str> = process.devices.iter().chain(&process.interfaces).map(String::as_str).collect();
            let devices = clean(&devices.join(","), style);
            line += &format!("  {}", pad_right(&cut(&devices, DEVICE - 2, style), DEVICE - 2));
        }
        let room = self.width.saturating_sub(crate::text::width(&line) + 2);
        line += &format!("  {}", cut(what, room, style));
        cut(line.trim_end(), self.width, style)
    }
}

#[cfg(test)]
#[path = "top/tests.rs"]
mod tests;
