//! The series of something that is read again and again, a process or a connection, found once: there are hundreds of them
//! at each look, and finding a series by its labels costs more than reading what goes into it.

use crate::Sink;
use backwater_model::catalogue::Def;
use backwater_model::{Epoch, SeriesId};

/// Series that share their labels.
#[derive(Debug)]
pub(super) struct Numbered {
    epoch: Epoch,
    labels: Vec<(&'static str, String)>,
    /// By the name of the series, those that had a value.
    ids: Vec<(&'static str, SeriesId)>,
}

impl Numbered {
    pub(super) fn new(epoch: Epoch, labels: Vec<(&'static str, String)>) -> Self {
        Numbered { epoch, labels, ids: Vec::new() }
    }

    /// Adds a value.
    pub(super) fn put(&mut self, sink: &mut Sink<'_>, def: &Def, value: f64) {
        if let Some((_, id)) = self.ids.iter().find(|(name, _)| *name == def.name) {
            return sink.put_numbered(*id, self.epoch, value);
        }
        if let Some(id) = sink.number(def, &self.labels) {
            self.ids.push((def.name, id));
            sink.put_numbered(id, self.epoch, value);
        }
    }

    /// Says that there will be no more of it.
    pub(super) fn leave(&self, sink: &Sink<'_>) {
        sink.gone(self.ids.iter().map(|(_, id)| *id));
    }
}
