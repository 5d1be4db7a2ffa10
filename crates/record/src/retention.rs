//! Keeps a recording within its age and its size: the oldest segments go, whichever table they belong to.

use crate::segment;
use crate::table::{TextPool, each_event};
use crate::{RecordError, Writer};
use backwater_model::{Event, EventKind, Moment};
use std::collections::HashSet;

/// Deletes what is older than `keep` and, oldest first, what is over the size. Tails count and stay.
pub(crate) fn keep_bounds(writer: &mut Writer, now: Moment) -> Result<(), RecordError> {
    if let Some(keep) = writer.options.keep {
        let horizon = Moment(now.0.saturating_sub(i64::try_from(keep.as_micros()).unwrap_or(i64::MAX)));
        while oldest(writer).is_some_and(|(last, _)| last < horizon) {
            drop_oldest(writer, now)?;
        }
    }
    if let Some(budget) = writer.options.max_size_bytes {
        while writer.bytes() > budget && oldest(writer).is_some() {
            drop_oldest(writer, now)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Points,
    Samples,
    Events,
}

/// The table whose oldest segment ends first, and when that is.
fn oldest(writer: &Writer) -> Option<(Moment, Of)> {
    let all = [
        (writer.points.shelf.oldest_until(), Of::Points),
        (writer.samples.shelf.oldest_until(), Of::Samples),
        (writer.events.shelf.oldest_until(), Of::Events),
    ];
    all.into_iter().filter_map(|(last, of)| Some((last?, of))).min()
}

fn drop_oldest(writer: &mut Writer, now: Moment) -> Result<(), RecordError> {
    match oldest(writer) {
        Some((_, Of::Points)) => writer.points.shelf.drop_oldest(),
        Some((_, Of::Samples)) => writer.samples.shelf.drop_oldest(),
        Some((_, Of::Events)) => {
            // What cannot be seen is said once, at the start, and must still be known in a week.
            for event in absences(writer) {
                writer.events.rows.push(&event);
            }
            writer.events.flush(now, &writer.options)?;
            writer.events.shelf.drop_oldest()
        }
        None => Ok(()),
    }
}

/// What the oldest events say to be absent, each once.
fn absences(writer: &Writer) -> Vec<Event> {
    let shelf = &writer.events.shelf;
    let Some(oldest) = shelf.segments.first() else { return Vec::new() };
    let mut found = Vec::new();
    let mut pool = TextPool::default();
    let mut said = HashSet::new();
    let read = segment::read(&shelf.dir, oldest.range, Moment(i64::MIN), Moment(i64::MAX), |path, batch| {
        let visit = |event: Event| {
            if event.kind == EventKind::Absent && said.insert((event.source.clone(), event.message.clone())) {
                found.push(event);
            }
        };
        each_event(&batch, &mut pool, visit).map(|_| ()).map_err(|error| RecordError::damaged(path, error))
    });
    if let Err(error) = read {
        tracing::warn!("{error}");
    }
    found
}
