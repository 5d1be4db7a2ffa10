//! The series of something that is read again and again, a process or a connection, or ten times a second the page cache,
//! a device or how many sessions there are, found once: finding a series by its labels costs more than reading what goes into it.

use crate::Sink;
use backwater_model::catalogue::Def;
use backwater_model::{Epoch, SeriesId};

/// Series that share their labels.
#[derive(Debug)]
pub(crate) struct Numbered {
    epoch: Epoch,
    labels: Vec<(&'static str, String)>,
    /// By the name of the series, those that had a value.
    ids: Vec<(&'static str, SeriesId)>,
    /// Where the next value is sought first: they come in the same order each time.
    next: usize,
}

impl Numbered {
    pub(crate) fn new(epoch: Epoch, labels: Vec<(&'static str, String)>) -> Self {
        Numbered { epoch, labels, ids: Vec::new(), next: 0 }
    }

    /// The counters behind the series may have begun anew.
    pub(crate) fn in_epoch(&mut self, epoch: Epoch) -> &mut Self {
        self.epoch = epoch;
        self
    }

    /// Adds a value.
    pub(crate) fn put(&mut self, sink: &mut Sink<'_>, def: &Def, value: f64) {
        if let Some(place) = self.place_of(def) {
            self.next = place + 1;
            return sink.put_numbered(self.ids[place].1, self.epoch, value);
        }
        if let Some(id) = sink.number(def, &self.labels) {
            self.ids.push((def.name, id));
            sink.put_numbered(id, self.epoch, value);
        }
    }

    fn place_of(&self, def: &Def) -> Option<usize> {
        let is_of = |(name, _): &(&str, SeriesId)| *name == def.name;
        if self.ids.get(self.next).is_some_and(is_of) { Some(self.next) } else { self.ids.iter().position(is_of) }
    }

    /// Says that there will be no more of it.
    pub(crate) fn leave(&self, sink: &Sink<'_>) {
        sink.gone(self.ids.iter().map(|(_, id)| *id));
    }
}
