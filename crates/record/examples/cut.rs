//! Cuts a stretch out of a recording and makes a recording of its own of it, with words replaced: names of hosts and directories
//! that others need not see. A lab run's outcome is taken along with the findings that lie in the stretch.
//!
//! `cargo run -p backwater-record --example cut FROM TO FIRST_S LAST_S [OLD=NEW…]`, seconds since the recording's begin
#![allow(clippy::unwrap_used, reason = "an example that cannot read or write has nothing else to do")]

use backwater_model::{Batch, Meta, Moment, Registry, Sample, Series, Span, Text, Window};
use backwater_record::{Options, Recording, Writer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, first_s, last_s, words @ ..] = arguments.as_slice() else {
        panic!("give FROM TO FIRST_S LAST_S [OLD=NEW…]");
    };
    let words = Words(words.iter().map(|pair| pair.split_once('=').unwrap()).collect());
    let recording = Recording::open(Path::new(from)).unwrap();
    let (begin, _) = recording.span().unwrap();
    let at = |seconds: &str| begin + Span::from_seconds(seconds.parse().unwrap());
    let window = recording.window(Some(at(first_s)), Some(at(last_s))).unwrap();
    write(&window, Path::new(to), &words);
    if let Ok(outcome) = std::fs::read_to_string(Path::new(from).join("outcome.json")) {
        std::fs::write(Path::new(to).join("outcome.json"), words.in_text(&within(&outcome, &window))).unwrap();
    }
}

/// Second by second, as a recorder does it.
fn write(window: &Window, to: &Path, words: &Words<'_>) {
    let registry = Arc::new(Registry::new());
    let options = Options { free_floor_bytes: 0, ..Options::default() };
    let meta: Meta = words.within(&*window.meta);
    let mut writer = Writer::create(to, meta, Arc::clone(&registry), options).unwrap();
    let second = |at: Moment| (at.max(window.from) - window.from).0 / 1_000_000;
    let mut batches: Vec<Batch> = (0..=second(window.to)).map(|_| Batch::default()).collect();
    for track in window.all_tracks() {
        let series: Series = words.within(track.series);
        let number = registry.intern(series).unwrap();
        for point in track.points {
            let point = backwater_model::Point { series: number, ..*point };
            batches[second(point.at) as usize].points.push(point);
        }
    }
    for sample in window.samples() {
        batches[second(sample.at) as usize].samples.push(words.in_sample(sample));
    }
    for event in window.events() {
        batches[second(event.at) as usize].events.push(words.within(event));
    }
    for (number, batch) in batches.iter().enumerate() {
        writer.write(batch).unwrap();
        writer.tick(window.from + Span::from_seconds(number as f64)).unwrap();
    }
    writer.close().unwrap();
}

/// An outcome with the findings of this stretch only.
fn within(outcome: &str, window: &Window) -> String {
    let mut run: backwater_model::Outcome = serde_json::from_str(outcome).unwrap();
    run.findings.retain(|finding| finding.from <= window.to && finding.to >= window.from);
    serde_json::to_string(&run).unwrap()
}

/// What is replaced by what.
struct Words<'a>(Vec<(&'a str, &'a str)>);

impl Words<'_> {
    fn in_text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (old, new)| text.replace(old, new))
    }

    fn within<T: Serialize + DeserializeOwned>(&self, what: &T) -> T {
        serde_json::from_str(&self.in_text(&serde_json::to_string(what).unwrap())).unwrap()
    }

    fn in_sample(&self, sample: &Sample) -> Sample {
        let one = |text: &Option<Text>| text.as_deref().map(|text| Text::from(self.in_text(text)));
        Sample { query: one(&sample.query), application: one(&sample.application), ..sample.clone() }
    }
}
