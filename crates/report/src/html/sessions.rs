//! What sessions waited on, slot by slot, counted as `backwater ash` counts them, so that the two cannot disagree.

use super::axis::Axis;
use super::document::{Group, Sessions, Top};
use backwater_diagnose::commit::{GroupBy, look_times, tally};
use backwater_model::{Moment, Sample, Window};
use std::collections::BTreeMap;

/// The most slots; lists that follow a brush need no more.
const MOST_SLOTS: usize = 720;
/// The most groups of a list, beside the one of all others; of a part of a long recording more, since what is rare in one part
/// may be frequent in all; and characters of a name.
const MOST_GROUPS: usize = 15;
const MOST_OF_PART: usize = 60;
const LONGEST_NAME: usize = 300;
/// The group of what does not fit.
const OTHERS: &str = "others";
/// The lists, each by one word or two.
const LISTS: [&[GroupBy]; 6] = [
    &[GroupBy::WaitEvent],
    &[GroupBy::WaitEvent, GroupBy::KernelWait],
    &[GroupBy::Query],
    &[GroupBy::User],
    &[GroupBy::Application],
    &[GroupBy::Queue],
];

/// The looks of one server and its samples, slot by slot.
struct Looked<'a> {
    looks: Vec<usize>,
    samples: Vec<Vec<&'a Sample>>,
}

/// Pieces of the axis in a slot.
pub(super) fn pieces_in_slot(axis: &Axis) -> usize {
    axis.count.div_ceil(MOST_SLOTS).max(1)
}

/// Sessions over the axis, of what the window holds from `since` on; none where nobody looked. A part: see [`finished`].
pub(super) fn sessions(window: &Window, axis: &Axis, since: Moment) -> Option<Sessions> {
    let pieces = pieces_in_slot(axis);
    let slots = axis.count.div_ceil(pieces);
    let slot = |at: Moment| axis.piece(at).map(|piece| piece / pieces);
    let servers: Vec<Looked<'_>> =
        window.meta.targets.iter().map(|target| looked(window, &target.name, since, slots, &slot)).collect();
    let looked: Vec<bool> = (0..slots).map(|slot| servers.iter().any(|server| server.looks[slot] > 0)).collect();
    if !looked.contains(&true) {
        return None;
    }
    let classes = groups(&servers, slots, &[GroupBy::WaitClass]);
    let list = |by: &&[GroupBy]| {
        let title = by.iter().map(|by| by.title()).collect::<Vec<_>>().join(" and ");
        Top { by: title, groups: groups(&servers, slots, by) }
    };
    Some(Sessions { pieces, looked, classes, tops: LISTS.iter().map(list).collect() })
}

/// Looks are those that were recorded; where none was, the moments at which somebody was seen.
fn looked<'a>(
    window: &'a Window,
    target: &str,
    since: Moment,
    slots: usize,
    slot: &dyn Fn(Moment) -> Option<usize>,
) -> Looked<'a> {
    let mut looked = Looked { looks: vec![0; slots], samples: vec![Vec::new(); slots] };
    let is_own = |sample: &&Sample| *sample.target == *target && sample.at >= since;
    let own: Vec<&Sample> = window.samples().iter().filter(is_own).collect();
    let seen = || own.iter().map(|sample| sample.at).collect();
    let mut moments = look_times(window, target, (window.from.max(since), window.to)).unwrap_or_else(seen);
    moments.dedup();
    moments.into_iter().filter_map(slot).for_each(|slot| looked.looks[slot] += 1);
    for sample in own {
        if let Some(slot) = slot(sample.at) {
            looked.samples[slot].push(sample);
        }
    }
    looked
}

/// Sessions on average by name and slot, those of several servers added up; the largest first, the smallest together.
fn groups(servers: &[Looked<'_>], slots: usize, by: &[GroupBy]) -> Vec<Group> {
    let mut all: BTreeMap<String, BTreeMap<usize, f64>> = BTreeMap::new();
    for server in servers {
        for slot in (0..slots).filter(|slot| !server.samples[*slot].is_empty()) {
            // A look just before the end of a slot may be answered in the next.
            let looks = server.looks[slot].max(1);
            for group in tally(server.samples[slot].iter().copied(), Some(looks), by).groups {
                let name = shortened(&group.names.join(" · "));
                *all.entry(name).or_default().entry(slot).or_default() += group.sessions;
            }
        }
    }
    let group = |(name, slots): (String, BTreeMap<usize, f64>)| Group { name, slots: slots.into_iter().collect() };
    largest(all.into_iter().map(group).collect(), MOST_OF_PART)
}

/// The largest groups first; those beyond so many together as the last one.
fn largest(mut list: Vec<Group>, most: usize) -> Vec<Group> {
    let sum = |group: &Group| group.slots.iter().map(|(_, value)| value).sum::<f64>();
    let mut others: BTreeMap<usize, f64> = BTreeMap::new();
    let mut add =
        |group: Group| group.slots.into_iter().for_each(|(slot, value)| *others.entry(slot).or_default() += value);
    while let Some(place) = list.iter().position(|group| group.name == OTHERS) {
        add(list.remove(place));
    }
    list.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
    list.split_off(list.len().min(most)).into_iter().for_each(add);
    let others = (!others.is_empty()).then(|| Group { name: OTHERS.to_owned(), slots: others.into_iter().collect() });
    list.into_iter().chain(others).collect()
}

/// Takes in what was seen in a later part of the same axis.
pub(super) fn absorb(known: &mut Sessions, part: Sessions) {
    known.looked.iter_mut().zip(part.looked).for_each(|(known, new)| *known |= new);
    let lists = std::iter::once((&mut known.classes, part.classes))
        .chain(known.tops.iter_mut().zip(part.tops).map(|(known, new)| (&mut known.groups, new.groups)));
    for (known, new) in lists {
        for group in new {
            match known.iter_mut().find(|one| one.name == group.name) {
                Some(one) => one.slots.extend(group.slots),
                None => known.push(group),
            }
        }
    }
}

/// Sessions as a page has them, once every part was taken in.
pub(super) fn finished(mut sessions: Sessions) -> Sessions {
    let round = |groups: Vec<Group>| -> Vec<Group> {
        let short = |group: Group| {
            let mut slots: Vec<(usize, f64)> =
                group.slots.into_iter().map(|(slot, value)| (slot, (value * 1e3).round() / 1e3)).collect();
            slots.sort_by_key(|(slot, _)| *slot);
            Group { slots, ..group }
        };
        largest(groups, MOST_GROUPS).into_iter().map(short).collect()
    };
    sessions.classes = round(sessions.classes);
    // Stable: the others stay the largest first.
    sessions.classes.sort_by_key(|group| group.name != "on CPU");
    sessions.tops.iter_mut().for_each(|top| top.groups = round(std::mem::take(&mut top.groups)));
    sessions
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= LONGEST_NAME {
        return name.to_owned();
    }
    name.chars().take(LONGEST_NAME).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{Meta, Target};
    use std::sync::Arc;

    fn window(samples: Vec<Sample>) -> Window {
        let meta = Meta { targets: vec![Target { name: "lab".to_owned(), ..Target::default() }], ..Meta::default() };
        Window::new(Moment(0), Moment::from_seconds(4.0), Arc::new(meta), vec![], samples, vec![])
    }

    fn sample(at_s: f64, wait: Option<&str>, user: &str) -> Sample {
        Sample {
            at: Moment::from_seconds(at_s),
            target: "lab".into(),
            state: Some("active".into()),
            wait_event_type: wait.map(|_| "IO".into()),
            wait_event: wait.map(Into::into),
            user: Some(user.into()),
            ..Sample::default()
        }
    }

    #[test]
    fn slots_hold_averages_and_holes_are_said() {
        let mut list = Vec::new();
        for tenth in 0..10 {
            list.push(sample(f64::from(tenth) / 10.0, Some("WALSync"), "a"));
            list.push(sample(f64::from(tenth) / 10.0, None, "b"));
        }
        list.push(sample(2.5, Some("WALSync"), "a"));
        let window = window(list);
        let seen = finished(sessions(&window, &Axis::of(&window), window.from).unwrap());
        assert_eq!(seen.looked, [true, false, true, false]);
        let names: Vec<_> = seen.classes.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["on CPU", "IO"]);
        assert_eq!(seen.classes[1].slots, [(0, 1.0), (2, 1.0)]);
        assert_eq!(seen.tops[3].groups[0], Group { name: "a".to_owned(), slots: vec![(0, 1.0), (2, 1.0)] });
    }

    #[test]
    fn what_does_not_fit_is_added_up() {
        let list: Vec<Sample> = (0..40).map(|user| sample(0.5, None, &format!("user{user:02}"))).collect();
        let window = window(list);
        let seen = finished(sessions(&window, &Axis::of(&window), window.from).unwrap());
        let users = &seen.tops[3].groups;
        assert_eq!((users.len(), users[MOST_GROUPS].name.as_str()), (MOST_GROUPS + 1, OTHERS));
        assert_eq!(users[MOST_GROUPS].slots, [(0, 25.0)]);
    }

    #[test]
    fn nobody_looked_is_no_empty_chart() {
        assert!(sessions(&window(vec![]), &Axis::of(&window(vec![])), Moment(0)).is_none());
    }
}
