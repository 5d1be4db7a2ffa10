//! Asks one view and puts its values down, each in the epoch of its counters and as old as the server says it is.

use super::identity::Identity;
use super::link::{Link, QueryError};
use super::views::{Fresh, View};
use crate::Sink;
use backwater_model::catalogue::Def;
use backwater_model::{Moment, Span};
use tokio_postgres::Row;

/// A value read this much after the look began carries its own time.
const NOTABLY_LATE: Span = Span::from_millis(20);

/// What a view answered, and when it was asked.
#[derive(Debug)]
pub(super) struct Answer {
    asked: Moment,
    rows: Vec<Row>,
}

/// Asks the view.
pub(super) async fn ask(link: &Link, view: &View) -> Result<Answer, QueryError> {
    let asked = crate::now();
    Ok(Answer { asked, rows: link.rows(view.what, &view.sql).await? })
}

impl Answer {
    /// Whether the view has no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// One value of a view that has a single row.
    pub(super) fn value(&self, view: &View, def: &Def) -> Option<f64> {
        let place = view.columns.iter().position(|column| column.def == def)?;
        self.rows.first()?.get(view.labels.len() + 2 + place)
    }

    /// Puts down every value that is not null.
    pub(super) fn put(&self, view: &View, target: &str, identity: &Identity, sink: &mut Sink<'_>) {
        let most = view.most_rows.unwrap_or(self.rows.len());
        for row in self.rows.iter().take(most) {
            put(view, row, target, identity, self.asked, sink);
        }
        if self.rows.len() > most {
            let what = format!("rows of {} beyond the first {most}", view.what);
            sink.absent(target, &what, "there are more of them than a recording should hold", None);
        }
    }
}

fn put(view: &View, row: &Row, target: &str, identity: &Identity, asked: Moment, sink: &mut Sink<'_>) {
    let text = |column: usize| row.get::<_, Option<&str>>(column).unwrap_or_default();
    let mut labels = vec![("target", target)];
    labels.extend(view.labels.iter().enumerate().map(|(column, name)| (*name, text(column))));
    let first = view.labels.len();
    let epoch = identity.epoch_of(if text(first).is_empty() { "" } else { view.what }, text(first));
    let aged = row.get::<_, Option<f64>>(first + 1).map(|age_s| as_of(asked, age_s));
    // A look that was held up asks late; a rate must know.
    let late = Some(asked).filter(|asked| *asked - sink.at > NOTABLY_LATE);
    for (place, column) in view.columns.iter().enumerate() {
        let Some(value) = row.get::<_, Option<f64>>(first + 2 + place) else { continue };
        let as_of = aged.filter(|_| column.fresh == Fresh::Aged).or(late);
        sink.put_as_of(column.def, &labels, epoch, value, as_of);
    }
}

/// When a value of this age was true. An age below zero means that the clocks differ (a standby's is another one):
/// then it is taken as fresh.
fn as_of(asked: Moment, age_s: f64) -> Moment {
    asked - Span::from_seconds(age_s.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_never_in_the_future() {
        assert_eq!(as_of(Moment(5_000_000), 1.5), Moment(3_500_000));
        assert_eq!(as_of(Moment(5_000_000), -1.5), Moment(5_000_000));
    }
}
