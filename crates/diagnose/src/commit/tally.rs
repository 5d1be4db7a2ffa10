//! The active-session histogram as figures: what sessions were doing when they were looked at, counted by wait, query, user,
//! application, kernel wait, queue, or several of these together.
//!
//! A sample without a wait event counts as on CPU, unless the kernel saw its process asleep. Where the server says that a
//! session waits while the kernel says that it runs, the sample stays with the server's word and is counted as contested
//! besides: the kernel is asked a moment after the server, so waits shorter than that moment disagree by chance, but a large
//! share says that what the server calls waiting is partly work.

use super::queue::look_moments;
use backwater_model::{Moment, Sample, Text, Window};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a session was on when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnWhat {
    /// On CPU, or ready to be: no wait event, and the kernel knows of no sleep either.
    Cpu,
    /// Asleep in the kernel without a wait event: in a page fault, a read, a write.
    Kernel,
    /// In a wait of the server's.
    Wait,
}

/// What sessions are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// The server's wait event, `on CPU` where there is none.
    WaitEvent,
    /// The wait event's class.
    WaitClass,
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
    /// `active`, `idle in transaction`.
    State,
}

impl GroupBy {
    /// The word for it.
    pub fn title(self) -> &'static str {
        match self {
            GroupBy::WaitEvent => "wait event",
            GroupBy::WaitClass => "wait class",
            GroupBy::Query => "query",
            GroupBy::User => "user",
            GroupBy::Application => "application",
            GroupBy::KernelWait => "kernel wait",
            GroupBy::Queue => "queue",
            GroupBy::State => "state",
        }
    }
}

/// Sessions that have all of these in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Group {
    /// What they have in common, one name for each [`GroupBy`] asked for.
    pub names: Vec<String>,
    /// Samples.
    pub samples: usize,
    /// Of these, on CPU.
    pub on_cpu: usize,
    /// Of these, waiting by the server's word and running by the kernel's.
    pub contested: usize,
    /// Sessions on average.
    pub sessions: f64,
    /// Share of the time of all active sessions.
    pub session_time_ratio: f64,
    /// Share of the time of all waiting sessions, of those in this group that wait.
    pub wait_ratio: f64,
    /// Kernel functions and samples, the most frequent first.
    pub kernel_waits: Vec<(String, usize)>,
    /// Waits by the server's word and samples, the most frequent first.
    pub waits: Vec<(String, usize)>,
}

/// Active sessions, counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    /// How often was looked.
    pub looks: usize,
    /// Samples of active sessions.
    pub samples: usize,
    /// Of these, on CPU.
    pub on_cpu: usize,
    /// Of these, asleep in the kernel without a wait event.
    pub in_kernel: usize,
    /// Of these, in a wait of the server's.
    pub waiting: usize,
    /// Of those that wait, those that the kernel was asked about.
    pub kernel_asked: usize,
    /// Of these, running by the kernel's word.
    pub contested: usize,
    /// What they are counted by.
    pub by: Vec<GroupBy>,
    /// The groups, the largest first.
    pub groups: Vec<Group>,
}

impl Tally {
    /// Active sessions on average.
    pub fn sessions(&self) -> f64 {
        self.samples as f64 / self.looks.max(1) as f64
    }

    /// Share of the samples in a group of this first name.
    pub fn share(&self, name: &str) -> f64 {
        let of = |group: &&Group| group.names.first().is_some_and(|first| first == name);
        self.groups.iter().filter(of).map(|group| group.session_time_ratio).sum()
    }
}

/// Whether a sample is of a session at work: neither idle, nor a process in a wait of the class Activity (which means: for
/// work to do), nor one of those that carry WAL and pages, which are nobody's session.
pub fn is_active(sample: &Sample) -> bool {
    !sample.is_carrier()
        && !sample.state.as_deref().is_some_and(|state| state.starts_with("idle") || state == "disabled")
        && sample.wait_event_type.as_deref() != Some("Activity")
}

/// What a session was on.
pub fn on_what(sample: &Sample) -> OnWhat {
    if sample.wait_event.is_some() {
        return OnWhat::Wait;
    }
    let asleep = sample.kernel_wait.is_some() || matches!(sample.kernel_state, Some('D' | 'S'));
    if asleep { OnWhat::Kernel } else { OnWhat::Cpu }
}

/// Whether the server says that a session waits while the kernel says that it runs; none where the session does not wait, or the
/// kernel was not asked (as of one that waits for another process). `functions_seen`: whether kernel functions can be seen at all
/// here; then a known state without a function means that the process ran as well.
pub fn contested(sample: &Sample, functions_seen: bool) -> Option<bool> {
    sample.wait_event.as_ref()?;
    let state = sample.kernel_state?;
    Some(state == 'R' || functions_seen && sample.kernel_wait.is_none())
}

/// Share of the waits that the kernel was asked about in which it says that the process runs; none where it was asked of none.
pub fn contested_share<'a>(waits: impl IntoIterator<Item = &'a Sample>, functions_seen: bool) -> Option<f64> {
    let told: Vec<bool> = waits.into_iter().filter_map(|sample| contested(sample, functions_seen)).collect();
    (!told.is_empty()).then(|| told.iter().filter(|disputed| **disputed).count() as f64 / told.len() as f64)
}

/// The wait as the server names it, `CLASS:Event`, or what the session was on instead.
pub fn wait_name(sample: &Sample) -> String {
    match (sample.wait_event_type.as_deref(), sample.wait_event.as_deref()) {
        (Some(class), Some(event)) => format!("{class}:{event}"),
        (None, Some(event)) => event.to_owned(),
        _ if on_what(sample) == OnWhat::Cpu => "on CPU".to_owned(),
        _ => "no wait event, asleep in the kernel".to_owned(),
    }
}

/// Counts active sessions. `looks` is how often was looked, those looks included that found nobody; where that is not known,
/// the moments of all samples stand for it.
pub fn tally<'a>(samples: impl Iterator<Item = &'a Sample>, looks: Option<usize>, by: &[GroupBy]) -> Tally {
    let all: Vec<&Sample> = samples.collect();
    let moments = || all.iter().map(|sample| sample.at).collect::<BTreeSet<_>>().len();
    let functions_seen = all.iter().any(|sample| sample.kernel_wait.is_some());
    let mut tally = Tally { looks: looks.unwrap_or_else(moments), by: by.to_vec(), ..Tally::default() };
    let mut groups: BTreeMap<Vec<String>, Building> = BTreeMap::new();
    for sample in all.iter().copied().filter(|sample| is_active(sample)) {
        let disputed = contested(sample, functions_seen);
        tally.samples += 1;
        tally.kernel_asked += usize::from(disputed.is_some());
        let disputed = disputed == Some(true);
        tally.contested += usize::from(disputed);
        match on_what(sample) {
            OnWhat::Cpu => tally.on_cpu += 1,
            OnWhat::Kernel => tally.in_kernel += 1,
            OnWhat::Wait => tally.waiting += 1,
        }
        groups.entry(by.iter().map(|by| key(sample, *by)).collect()).or_default().add(sample, by, disputed);
    }
    tally.groups = groups.into_values().map(|group| group.finish(&tally)).collect();
    // Stable: groups of one size stay in order of name.
    tally.groups.sort_by_key(|group| std::cmp::Reverse(group.samples));
    tally
}

/// A piece of time: how many sessions were active in it on average, by class of wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Slice {
    /// Its beginning, in seconds since the window's.
    pub at_s: f64,
    /// Sessions on average by class; none where nobody looked.
    pub sessions: Option<BTreeMap<String, f64>>,
}

/// Active sessions over a window, in so many pieces of equal length, by class of wait. Sessions of several servers add up.
pub fn over_time(window: &Window, pieces: usize) -> Vec<Slice> {
    let length_s = window.seconds() / pieces.max(1) as f64;
    let mut slices: Vec<Slice> =
        (0..pieces).map(|piece| Slice { at_s: piece as f64 * length_s, sessions: None }).collect();
    if length_s <= 0.0 {
        return slices;
    }
    let place = |at: Moment| ((at.seconds_since(window.from) / length_s) as usize).min(pieces - 1);
    for target in &window.meta.targets {
        let mut looks = vec![0_usize; pieces];
        look_moments(window, &target.name).into_iter().for_each(|at| looks[place(at)] += 1);
        let own = || window.samples().iter().filter(|sample| *sample.target == *target.name);
        for (slice, _) in slices.iter_mut().zip(&looks).filter(|(_, looks)| **looks > 0) {
            slice.sessions.get_or_insert_with(BTreeMap::new);
        }
        for sample in own().filter(|sample| is_active(sample)) {
            let at = place(sample.at);
            // A look just before the end of one piece may be answered in the next.
            let each = 1.0 / looks[at].max(1) as f64;
            let sessions = slices[at].sessions.get_or_insert_with(BTreeMap::new);
            *sessions.entry(name(sample, GroupBy::WaitClass)).or_default() += each;
        }
    }
    slices
}

/// A group while it is counted.
#[derive(Default)]
struct Building {
    group: Group,
    waiting: usize,
    kernel_waits: BTreeMap<String, usize>,
    waits: BTreeMap<String, usize>,
}

impl Building {
    fn add(&mut self, sample: &Sample, by: &[GroupBy], disputed: bool) {
        if self.group.names.is_empty() {
            self.group.names = by.iter().map(|by| name(sample, *by)).collect();
        }
        self.group.samples += 1;
        self.group.contested += usize::from(disputed);
        match on_what(sample) {
            OnWhat::Cpu => self.group.on_cpu += 1,
            OnWhat::Kernel => {}
            OnWhat::Wait => self.waiting += 1,
        }
        if let Some(function) = sample.kernel_wait.as_deref() {
            *self.kernel_waits.entry(function.to_owned()).or_default() += 1;
        }
        *self.waits.entry(wait_name(sample)).or_default() += 1;
    }

    fn finish(self, all: &Tally) -> Group {
        let share = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
        Group {
            sessions: share(self.group.samples, all.looks),
            session_time_ratio: share(self.group.samples, all.samples),
            wait_ratio: share(self.waiting, all.waiting),
            kernel_waits: most_frequent(self.kernel_waits),
            waits: most_frequent(self.waits),
            ..self.group
        }
    }
}

fn most_frequent(counts: BTreeMap<String, usize>) -> Vec<(String, usize)> {
    let mut list: Vec<_> = counts.into_iter().collect();
    list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
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
    let text = |value: &Option<Text>, none: &str| value.as_deref().unwrap_or(none).to_owned();
    let background = sample.backend_type.as_deref().filter(|kind| *kind != "client backend");
    match by {
        GroupBy::WaitEvent => wait_name(sample),
        GroupBy::WaitClass => match on_what(sample) {
            OnWhat::Wait => text(&sample.wait_event_type, "(class not told)"),
            OnWhat::Cpu => "on CPU".to_owned(),
            OnWhat::Kernel => "kernel".to_owned(),
        },
        GroupBy::Query => text(&sample.query, background.unwrap_or("(text not visible)")),
        GroupBy::User => text(&sample.user, background.unwrap_or("(none)")),
        GroupBy::Application => text(&sample.application, background.unwrap_or("(none)")),
        GroupBy::KernelWait => text(&sample.kernel_wait, "(runs, or not visible)"),
        GroupBy::Queue => text(&sample.queue, "(none)"),
        GroupBy::State => text(&sample.state, background.unwrap_or("(not told)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backwater_model::Moment;

    fn sample(at: i64, wait: Option<(&str, &str)>, kernel: Option<&str>, state: Option<char>) -> Sample {
        Sample {
            at: Moment(at),
            state: Some("active".into()),
            wait_event_type: wait.map(|(class, _)| class.into()),
            wait_event: wait.map(|(_, event)| event.into()),
            kernel_wait: kernel.map(Into::into),
            kernel_state: state,
            user: Some(if at % 2 == 0 { "even" } else { "odd" }.into()),
            ..Sample::default()
        }
    }

    fn samples() -> Vec<Sample> {
        let sync = Some(("IO", "WALSync"));
        vec![
            sample(1, None, None, Some('R')),
            sample(2, sync, Some("folio_wait_bit_common"), Some('D')),
            sample(3, sync, None, Some('R')),
            sample(4, sync, None, Some('S')),
            sample(5, None, Some("folio_wait_bit_common"), Some('D')),
            Sample { state: Some("idle".into()), ..sample(6, None, None, None) },
            sample(7, Some(("Activity", "WalWriterMain")), None, None),
        ]
    }

    #[test]
    fn shares_are_of_session_time_and_of_waits() {
        let tally = tally(samples().iter(), Some(10), &[GroupBy::WaitEvent]);
        assert_eq!((tally.samples, tally.on_cpu, tally.in_kernel, tally.waiting), (5, 1, 1, 3));
        assert_eq!(tally.sessions(), 0.5);
        let first = &tally.groups[0];
        assert_eq!((first.names[0].as_str(), first.samples), ("IO:WALSync", 3));
        assert_eq!((first.session_time_ratio, first.wait_ratio, first.sessions), (0.6, 1.0, 0.3));
        assert_eq!(tally.share("on CPU"), 0.2);
    }

    #[test]
    fn waits_that_the_kernel_denies_are_contested() {
        let counted = tally(samples().iter(), None, &[GroupBy::WaitEvent]);
        // One runs; one sleeps nowhere, where functions can be seen.
        assert_eq!((counted.contested, counted.groups[0].contested), (2, 2));
        assert_eq!(counted.looks, 7);
        let blind: Vec<Sample> = samples().into_iter().map(|s| Sample { kernel_wait: None, ..s }).collect();
        assert_eq!(tally(blind.iter(), None, &[]).contested, 1);
    }

    #[test]
    fn of_waits_that_the_kernel_is_not_asked_about_nothing_is_known() {
        let wait = |event: &str, state| Sample {
            wait_event: Some(event.into()),
            kernel_state: state,
            kernel_wait: None,
            ..samples()[0].clone()
        };
        // A wait for a standby is one for another process.
        let standby = wait("SyncRep", None);
        assert_eq!(contested_share([&standby, &standby], true), None);
        let flush = [wait("WALSync", Some('R')), wait("WALSync", Some('D'))];
        assert_eq!(contested_share(flush.iter().chain([&standby, &standby]), false), Some(0.5));
        let counted = tally(flush.iter().chain([&standby]), None, &[]);
        assert_eq!((counted.waiting, counted.kernel_asked, counted.contested), (3, 2, 1));
    }

    #[test]
    fn pieces_of_time_without_looks_are_holes() {
        let meta = backwater_model::Meta {
            targets: vec![backwater_model::Target { name: "lab".into(), ..Default::default() }],
            ..Default::default()
        };
        let look = |tenth: i64| Sample {
            target: "lab".into(),
            at: Moment(tenth * 100_000),
            ..sample(1, Some(("IO", "WALSync")), None, None)
        };
        let list = (0..20).chain(40..60).map(look).collect();
        let window = Window::new(Moment(0), Moment(6_000_000), std::sync::Arc::new(meta), vec![], list, vec![]);
        let slices = over_time(&window, 6);
        // A sum of tenths, to the last digits.
        let io = |slice: &Slice| slice.sessions.as_ref().map(|sessions| (sessions["IO"] * 1e9).round() / 1e9);
        let expected = [Some(1.0), Some(1.0), None, None, Some(1.0), Some(1.0)];
        assert!(slices.iter().zip(expected).all(|(slice, expected)| io(slice) == expected), "{slices:?}");
    }

    #[test]
    fn groups_cross() {
        let tally = tally(samples().iter(), None, &[GroupBy::WaitClass, GroupBy::User]);
        let names: Vec<_> = tally.groups.iter().map(|group| (group.names.join("/"), group.samples)).collect();
        let expected = [("IO/even", 2), ("IO/odd", 1), ("kernel/odd", 1), ("on CPU/odd", 1)];
        assert_eq!(names, expected.map(|(name, count)| (name.to_owned(), count)));
    }
}
