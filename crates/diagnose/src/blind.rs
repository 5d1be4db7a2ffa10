//! Why that nothing was found in a window says little: servers that were not read, sessions that were hidden, and waits that no rule
//! judges.

use backwater_model::{Event, EventKind, Moment, Unit, Window};

/// What the probe says to be absent where nothing can be told of sessions.
const SESSIONS: [&str; 2] = ["sessions of other roles", "what sessions do"];
/// A server that was read for less of the window than this was not watched.
const READ_RATIO: f64 = 0.5;
/// Seconds at the end of a window without a reading that are more than a restart takes.
const RESTART_S: f64 = 5.0;
/// A share of session time that somebody would ask about, where more than one session waits on average.
const MUCH_RATIO: f64 = 0.5;
/// The class of waits for heavyweight locks, as PostgreSQL spells it.
const LOCK: &str = "Lock";

/// Why servers whose findings are none may not be healthy: one sentence each. Empty where they were looked at.
pub fn blind(window: &Window) -> Vec<String> {
    window.meta.targets.iter().filter_map(|target| of_server(window, &target.kind, &target.name)).collect()
}

/// Whether it is sessions that cannot be told of where a probe says this to be absent.
pub fn hides_sessions(what: &str) -> bool {
    SESSIONS.contains(&what)
}

fn of_server(window: &Window, kind: &str, name: &str) -> Option<String> {
    let gaps = unread(window, &format!("{kind}.{name}"));
    let unread_s: f64 = gaps.iter().map(|(from, to)| to.seconds_since(*from)).sum();
    let show = |seconds| Unit::Seconds.show(seconds);
    let whole_s = window.seconds();
    if unread_s > 0.0 && whole_s - unread_s < READ_RATIO * whole_s {
        let read = show((whole_s - unread_s).max(0.0));
        return Some(format!("{name} could be read for {read} of {} only", show(whole_s)));
    }
    let last_s = gaps.last().filter(|(_, to)| *to >= window.to).map(|(from, to)| to.seconds_since(*from));
    if let Some(last_s) = last_s.filter(|last_s| *last_s > RESTART_S) {
        return Some(format!("{name} could not be read for the last {}", show(last_s)));
    }
    let is_hidden =
        |event: &Event| event.source == name && event.fields.get("what").is_some_and(|what| hides_sessions(what));
    let hidden = window.events_of(EventKind::Absent).find(|event| is_hidden(event))?;
    Some(format!("{} of {name} could not be seen", hidden.fields.get("what")?))
}

/// From when to when a probe did not read, as far as that lies in the window.
fn unread(window: &Window, probe: &str) -> Vec<(Moment, Moment)> {
    let (mut stretches, mut open) = (Vec::new(), None);
    for event in window.events_of(EventKind::Gap) {
        if event.fields.get("probe").is_none_or(|of| of != probe) {
            continue;
        }
        // Of one that began before the window its end alone may be told.
        let since: Moment = open.unwrap_or_else(|| event.failing_since().max(window.from));
        if event.ends_gap() {
            stretches.push((if open.is_some() { since } else { window.from }, event.at));
            open = None;
        } else {
            open = Some(since);
        }
    }
    stretches.extend(open.map(|since| (since, window.to)));
    stretches
}

/// That sessions waited for one another's locks for much of their time, which is no queue that a rule judges.
pub fn lock_waits(window: &Window) -> Option<String> {
    let mut looks = 0;
    let (mut last, mut active, mut waiting) = (None, 0_usize, 0_usize);
    for sample in window.samples().iter().filter(|sample| sample.state.as_deref() == Some("active")) {
        looks += usize::from(last != Some(sample.at));
        last = Some(sample.at);
        active += 1;
        waiting += usize::from(sample.wait_event_type.as_deref() == Some(LOCK));
    }
    let ratio = waiting as f64 / active.max(1) as f64;
    let is_much = ratio >= MUCH_RATIO && waiting > looks;
    is_much.then(|| {
        format!(
            "Sessions waited for locks of one another for {} of their time: that is no queue that a rule judges; `backwater ash` shows \
             who waits, and pg_blocking_pids() for whom.",
            Unit::Ratio.show(ratio)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use backwater_model::{Meta, Sample, Target};
    use std::sync::Arc;

    fn event(second: f64, source: &str, kind: EventKind, fields: &[(&str, &str)]) -> Event {
        Event::new(Moment::from_seconds(second), source, kind, "", fields)
    }

    fn window(samples: Vec<Sample>, events: Vec<Event>) -> Window {
        let target = Target { name: "db".to_owned(), kind: "postgres".to_owned(), ..Target::default() };
        let meta = Arc::new(Meta { targets: vec![target], ..Meta::default() });
        Window::new(Moment::from_seconds(100.0), Moment::from_seconds(160.0), meta, vec![], samples, events)
    }

    #[test]
    fn a_server_that_was_hardly_read_or_is_not_any_more_may_be_anything() {
        let gap = |second: f64, more: &[(&str, &str)]| {
            let fields = [&[("probe", "postgres.db"), ("reason", "refused")], more].concat();
            event(second, "recorder", EventKind::Gap, &fields)
        };
        let ended = |second| gap(second, &[("ended", "true")]);
        let told = |events: Vec<Event>| blind(&window(vec![], events)).join("; ");
        assert_eq!(told(vec![]), "");
        assert_eq!(told(vec![gap(110.0, &[]), ended(120.0)]), "", "it was restarted");
        assert_eq!(told(vec![gap(158.0, &[])]), "", "it may be restarting");
        assert_eq!(told(vec![gap(150.0, &[])]), "db could not be read for the last 10.0 s");
        assert_eq!(
            told(vec![gap(110.0, &[]), gap(140.0, &[("failing_s", "30")]), ended(155.0)]),
            "db could be read for 15.0 s of 60.0 s only"
        );
        assert_eq!(told(vec![gap(120.0, &[("failing_s", "40")])]), "db could be read for 0 s of 60.0 s only");
        assert_eq!(told(vec![ended(145.0)]), "db could be read for 15.0 s of 60.0 s only", "it began before");
        let other = event(101.0, "recorder", EventKind::Gap, &[("probe", "host.levels"), ("reason", "no")]);
        assert_eq!(told(vec![other]), "");
    }

    #[test]
    fn sessions_that_a_role_may_not_see_may_be_anything() {
        let absent = |source: &str, what: &str| event(101.0, source, EventKind::Absent, &[("what", what), ("why", "")]);
        let told = |event: Event| blind(&window(vec![], vec![event])).join("; ");
        assert_eq!(told(absent("db", "sessions of other roles")), "sessions of other roles of db could not be seen");
        assert_eq!(told(absent("db", "log")), "");
        assert_eq!(told(absent("db2", "sessions of other roles")), "");
    }

    #[test]
    fn much_waiting_for_locks_is_told() {
        let sample = |second: f64, wait: Option<&str>| Sample {
            at: Moment::from_seconds(second),
            state: Some("active".into()),
            wait_event_type: wait.map(Into::into),
            ..Sample::default()
        };
        let of = |waiting: usize, busy: usize| {
            let look = |second: usize| {
                let at = 100.0 + second as f64;
                (0..waiting).map(move |_| sample(at, Some(LOCK))).chain((0..busy).map(move |_| sample(at, None)))
            };
            lock_waits(&window((0..10).flat_map(look).collect(), vec![]))
        };
        assert_eq!((of(0, 0), of(1, 0), of(2, 3)), (None, None, None));
        assert!(of(9, 1).unwrap().starts_with("Sessions waited for locks of one another for 90.0 % of their time"));
    }
}
