//! Where a probe puts what it reads.

use backwater_model::catalogue::Def;
use backwater_model::{Batch, Epoch, Event, EventKind, Moment, Point, Registry, Sample, SeriesId};
use std::collections::HashSet;
use std::fmt::Display;

/// Collects one look of one probe.
#[derive(Debug)]
pub struct Sink<'a> {
    /// When the look began.
    pub at: Moment,
    /// What it brought so far.
    pub batch: &'a mut Batch,
    registry: &'a Registry,
    absences: &'a mut HashSet<String>,
}

impl<'a> Sink<'a> {
    /// A sink for a look at `at`. `absences` outlives the look, so that what is absent is said once.
    pub fn new(at: Moment, registry: &'a Registry, batch: &'a mut Batch, absences: &'a mut HashSet<String>) -> Self {
        Sink { at, batch, registry, absences }
    }

    /// Adds a value.
    pub fn put<V: Display>(&mut self, def: &Def, labels: &[(&'static str, V)], epoch: Epoch, value: f64) {
        self.put_as_of(def, labels, epoch, value, None);
    }

    /// Adds a value that was true at `as_of`.
    pub fn put_as_of<V: Display>(
        &mut self,
        def: &Def,
        labels: &[(&'static str, V)],
        epoch: Epoch,
        value: f64,
        as_of: Option<Moment>,
    ) {
        if let Some(series) = self.number(def, labels) {
            self.batch.points.push(Point { at: self.at, series, epoch, value, as_of });
        }
    }

    /// The number of a series, for a probe that keeps it: of hundreds of series, finding them is much of the work.
    pub fn number<V: Display>(&self, def: &Def, labels: &[(&'static str, V)]) -> Option<SeriesId> {
        self.registry.number(def, labels)
    }

    /// Says that these series are of something that has ended.
    pub fn gone(&self, ids: impl IntoIterator<Item = SeriesId>) {
        self.registry.gone(ids);
    }

    /// Adds a value of a series by its number.
    pub fn put_numbered(&mut self, series: SeriesId, epoch: Epoch, value: f64) {
        self.batch.points.push(Point { at: self.at, series, epoch, value, as_of: None });
    }

    /// Adds a session.
    pub fn sample(&mut self, sample: Sample) {
        self.batch.samples.push(sample);
    }

    /// Adds a happening.
    pub fn event(&mut self, event: Event) {
        self.batch.events.push(event);
    }

    /// Says, once for each `what` until it is [`present`](Sink::present) or forgotten, that something cannot be read here, why, and what
    /// would change that.
    pub fn absent(&mut self, source: &str, what: &str, why: &str, remedy: Option<&str>) {
        if !self.absences.insert(key(source, what)) {
            return;
        }
        let mut fields = vec![("what", what), ("why", why)];
        fields.extend(remedy.map(|remedy| ("remedy", remedy)));
        let event = Event::new(self.at, source, EventKind::Absent, format!("{what} cannot be seen: {why}"), &fields);
        self.batch.events.push(event);
    }

    /// Notes that this was read: should it be absent later on, that is to be said again.
    pub fn present(&mut self, source: &str, what: &str) {
        self.absences.remove(&key(source, what));
    }

    /// Forgets what was said to be absent by a source: what is so now is to be said again.
    pub fn forget(&mut self, source: &str) {
        let own = key(source, "");
        self.absences.retain(|absence| !absence.starts_with(&own));
    }
}

fn key(source: &str, what: &str) -> String {
    format!("{source}\u{0}{what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_said_once_until_it_was_there() {
        let (registry, mut batch, mut absences) = (Registry::new(), Batch::default(), HashSet::new());
        let mut sink = Sink::new(Moment(0), &registry, &mut batch, &mut absences);
        let say = |sink: &mut Sink<'_>| {
            let all = [("a", "standbys"), ("a", "log"), ("ab", "standbys")];
            all.iter().for_each(|(source, what)| sink.absent(source, what, "no right", None));
        };
        say(&mut sink);
        say(&mut sink);
        assert_eq!(sink.batch.events.len(), 3);
        sink.present("a", "log");
        say(&mut sink);
        assert_eq!(sink.batch.events.len(), 4);
        sink.forget("a");
        say(&mut sink);
        assert_eq!(sink.batch.events.len(), 6, "of the other nothing has changed");
    }
}
