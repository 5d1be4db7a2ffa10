//! Sessions and events of a recording as they were read: who was active doing what, and what happened when.

use super::Reader;
use backwater_model::{CARRIERS, EventKind, Sample, catalogue as cat};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// Sessions on average by name and slot.
type ByName = BTreeMap<String, BTreeMap<usize, f64>>;
type Namer = fn(&Sample) -> String;

impl Reader<'_> {
    /// What happened, but for what is absent: that is no moment.
    pub fn events(&self) -> Vec<Value> {
        let happened = self.window.events().iter().filter(|event| event.kind != EventKind::Absent);
        let told = happened.map(|event| {
            let message: String = event.message.chars().take(400).collect();
            json!({ "at_s": self.seconds(event.at), "kind": event.kind, "source": event.source, "message": message })
        });
        told.collect()
    }

    /// Active sessions, slot by slot of so many pieces: counted sample by sample, over how often was looked.
    pub fn sessions(&self, slot_pieces: usize) -> Value {
        let slots = self.count.div_ceil(slot_pieces);
        let mut looked = vec![false; slots];
        let lists: [(&str, Namer); 7] = [
            ("class", class),
            ("wait event", event),
            ("wait event and kernel wait", |sample| format!("{} · {}", event(sample), kernel(sample))),
            ("query", |sample| or(&sample.query, sample, "(text not visible)")),
            ("user", |sample| or(&sample.user, sample, "(none)")),
            ("application", |sample| or(&sample.application, sample, "(none)")),
            ("queue", |sample| sample.queue.as_deref().unwrap_or("(none)").to_owned()),
        ];
        let mut counted: Vec<ByName> = vec![ByName::new(); lists.len()];
        for target in &self.window.meta.targets {
            let looks = self.looks(&target.name, slots, slot_pieces);
            looked.iter_mut().zip(&looks).for_each(|(looked, looks)| *looked |= *looks > 0);
            let mut texts: HashMap<(usize, i64), String> = HashMap::new();
            for sample in
                self.window.samples().iter().filter(|sample| *sample.target == *target.name && at_work(sample))
            {
                let slot = self.piece(sample.at) / slot_pieces;
                let each = 1.0 / looks[slot].max(1) as f64;
                for ((by, name), list) in lists.iter().zip(&mut counted) {
                    let mut name = name(sample);
                    if let ("query", Some(id)) = (*by, sample.query_id) {
                        // One statement has the text that it was first seen with.
                        name = texts.entry((slot, id)).or_insert(name).clone();
                    }
                    *list.entry(shortened(name)).or_default().entry(slot).or_default() += each;
                }
            }
        }
        if !looked.contains(&true) {
            return Value::Null;
        }
        let lists: BTreeMap<&str, ByName> = lists.iter().map(|(by, _)| *by).zip(counted).collect();
        json!({ "slot_pieces": slot_pieces, "looked": looked, "lists": lists })
    }

    /// How often a server was looked at in each slot: counts of its sessions, its answers, looks at its threads, or the moments at which somebody was seen.
    fn looks(&self, target: &str, slots: usize, slot_pieces: usize) -> Vec<usize> {
        let mut looks = vec![0; slots];
        let of = |def: &cat::Def| self.window.track(def.name, &[("target", target)]);
        let mut moments: Vec<_> =
            match [&cat::PG_SESSIONS_ACTIVE, &cat::PG_PROBE_RESPONSE, &cat::THREADS_LOOKED].into_iter().find_map(of) {
                Some(track) => track.points.iter().map(|point| point.at).collect(),
                None => self.window.samples().iter().filter(|one| *one.target == *target).map(|one| one.at).collect(),
            };
        moments.dedup();
        moments.into_iter().for_each(|at| looks[self.piece(at) / slot_pieces] += 1);
        looks
    }
}

/// Neither idle, nor a process that waits for work or carries WAL and pages.
fn at_work(sample: &Sample) -> bool {
    let state = sample.state.as_deref().unwrap_or_default();
    !sample.backend_type.as_deref().is_some_and(|kind| CARRIERS.contains(&kind))
        && !state.starts_with("idle")
        && state != "disabled"
        && sample.wait_event_type.as_deref() != Some("Activity")
}

fn asleep(sample: &Sample) -> bool {
    sample.kernel_wait.is_some() || matches!(sample.kernel_state, Some('D' | 'S'))
}

fn class(sample: &Sample) -> String {
    match (&sample.wait_event, asleep(sample)) {
        (Some(_), _) => sample.wait_event_type.as_deref().unwrap_or("(class not told)").to_owned(),
        (None, true) => "kernel".to_owned(),
        (None, false) => "on CPU".to_owned(),
    }
}

fn event(sample: &Sample) -> String {
    match (sample.wait_event_type.as_deref(), sample.wait_event.as_deref()) {
        (Some(class), Some(event)) => format!("{class}:{event}"),
        (None, Some(event)) => event.to_owned(),
        _ if asleep(sample) => "no wait event, asleep in the kernel".to_owned(),
        _ => "on CPU".to_owned(),
    }
}

fn kernel(sample: &Sample) -> String {
    sample.kernel_wait.as_deref().unwrap_or("(runs, or not visible)").to_owned()
}

/// A word of a session; of a process in the background what it is, where it has none.
fn or(word: &Option<backwater_model::Text>, sample: &Sample, none: &str) -> String {
    let background = sample.backend_type.as_deref().filter(|kind| *kind != "client backend");
    word.as_deref().or(background).unwrap_or(none).to_owned()
}

fn shortened(name: String) -> String {
    if name.chars().count() <= 300 { name } else { name.chars().take(300).chain(['…']).collect() }
}
