//! Jobs: sessions that write one small transaction after the other, by a procedure that commits inside or by the same
//! statement again and again. Only of such can be said that more could go into a commit; sessions that do many different
//! things, or that rest between their transactions, are the users of an application, whose commits are as small as their
//! business.

use super::ages::length_ms;
use super::queue::{expected_looks, look_times};
use crate::waits::foreground;
use backwater_model::{Moment, Sample, Text, Track, Window, catalogue as cat};
use std::collections::BTreeMap;

/// A job lasts at least so long, and is seen at least so often.
const LEAST_S: f64 = 5.0;
const LEAST_SAMPLES: usize = 12;
/// Share of looks at which a job is at work.
const BUSY: f64 = 0.5;
/// Share of a job's samples that are of one and the same statement, those that begin and end transactions apart.
pub(super) const SAME: f64 = 0.8;
/// Share of the rows changed that are inserted, for a repeated INSERT to be called a job.
const INSERTED: f64 = 0.8;

/// How a job commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Inside a procedure or a DO block.
    Procedure,
    /// By statements of its own, from the client.
    Statements,
}

/// One session's job.
#[derive(Clone, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) kind: Kind,
    /// The statement that it repeats, where texts can be seen.
    pub(crate) statement: Option<Text>,
    pub(crate) samples: Vec<&'a Sample>,
    /// Share of looks at which it was at work.
    pub(crate) busy: f64,
}

impl Job<'_> {
    pub(crate) fn from(&self) -> Moment {
        self.samples.first().map(|sample| sample.at).unwrap_or_default()
    }

    pub(crate) fn to(&self) -> Moment {
        self.samples.last().map(|sample| sample.at).unwrap_or_default()
    }

    /// Its looks: those at which it was at work, and those at which it rested.
    pub(crate) fn looks(&self) -> f64 {
        self.samples.len() as f64 / self.busy
    }

    /// How long one of its transactions takes, in milliseconds, by the ages at which they are seen; none where those are not told.
    pub(crate) fn transaction_ms(&self) -> Option<f64> {
        length_ms(&self.samples)
    }
}

/// The jobs of one server.
pub(crate) fn jobs<'a>(window: &'a Window, target: &str) -> Vec<Job<'a>> {
    let mut sessions: BTreeMap<i32, Vec<&Sample>> = BTreeMap::new();
    for sample in window.samples().iter().filter(|sample| *sample.target == *target && foreground(sample)) {
        sessions.entry(sample.pid).or_default().push(sample);
    }
    let per_s = look_rate(window, target);
    // What others wrote before a session came and after it went says nothing of it.
    let inserts = |from, to| inserting(window, target, (from, to));
    sessions.into_values().filter_map(|samples| job(samples, per_s, &inserts)).collect()
}

/// Looks a second.
fn look_rate(window: &Window, target: &str) -> Option<f64> {
    let looks = look_times(window, target, (window.from, window.to))?;
    let seconds = looks.last()?.seconds_since(*looks.first()?);
    (seconds > 0.0).then(|| (looks.len() - 1) as f64 / seconds)
}

fn job<'a>(
    samples: Vec<&'a Sample>,
    looks_per_s: Option<f64>,
    inserts: &dyn Fn(Moment, Moment) -> Option<bool>,
) -> Option<Job<'a>> {
    let (first, last) = (samples.first()?.at, samples.last()?.at);
    let seconds = last.seconds_since(first);
    if samples.len() < LEAST_SAMPLES || seconds < LEAST_S {
        return None;
    }
    let moments: Vec<Moment> = samples.iter().map(|sample| sample.at).collect();
    let looks = looks_per_s.map(|per_s| per_s * seconds + 1.0).or(expected_looks(&moments).map(|count| count as f64))?;
    let busy = (samples.len() as f64 / looks).min(1.0);
    let (statement, same) = statement(&samples);
    if busy < BUSY || same < SAME {
        return None;
    }
    let begins = |word: &str| statement.as_deref().is_some_and(|text| first_word(text).eq_ignore_ascii_case(word));
    let kind = if begins("CALL") || begins("DO") {
        Kind::Procedure
    } else if (begins("INSERT") || statement.as_deref().is_some_and(copies_in) || statement.is_none())
        && inserts(first, last).unwrap_or(statement.is_some())
    {
        Kind::Statements
    } else {
        return None;
    };
    Some(Job { kind, statement, samples, busy })
}

/// The statement seen most often, and its share among all but those that begin and end transactions. A session of which
/// only those were seen has no statement, and that all of the time.
pub(super) fn statement(samples: &[&Sample]) -> (Option<Text>, f64) {
    let mut counts: BTreeMap<&str, (usize, &Text)> = BTreeMap::new();
    let mut all = 0;
    for text in samples.iter().filter_map(|sample| sample.query.as_ref()).filter(|text| !is_control(text)) {
        all += 1;
        counts.entry(text).or_insert((0, text)).0 += 1;
    }
    let most = counts.into_values().max_by_key(|(count, _)| *count);
    match most {
        Some((count, text)) => (Some(Text::clone(text)), count as f64 / all as f64),
        None => (None, 1.0),
    }
}

pub(super) fn first_word(text: &str) -> &str {
    text.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default()
}

/// Whether a statement is a COPY of rows into a table: `COPY t (a, b) FROM …`, not `COPY t TO …` nor `COPY (SELECT …) TO …`.
fn copies_in(text: &str) -> bool {
    let words = || text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let is = |word: &str, other: &str| word.eq_ignore_ascii_case(other);
    let way = words().skip(2).find(|word| is(word, "FROM") || is(word, "TO"));
    let of_query = text.trim_start().get(4..).is_some_and(|rest| rest.trim_start().starts_with('('));
    is(first_word(text), "COPY") && !of_query && way.is_some_and(|word| is(word, "FROM"))
}

/// Whether a statement only begins or ends a transaction.
fn is_control(text: &str) -> bool {
    let words = ["BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"];
    words.iter().any(|word| first_word(text).eq_ignore_ascii_case(word))
}

/// Whether the rows changed on a server between two moments are mostly inserted ones; none where no count moved.
fn inserting(window: &Window, target: &str, (from, to): (Moment, Moment)) -> Option<bool> {
    let labels = [("target", target)];
    let sum = |def: &cat::Def| -> f64 {
        let within = |track: Track<'_>| track.between(from, to).increase();
        window.tracks(def.name, &labels).filter_map(within).sum()
    };
    let inserted = sum(&cat::PG_TUP_INSERTED);
    let changed = inserted + sum(&cat::PG_TUP_UPDATED) + sum(&cat::PG_TUP_DELETED);
    (changed > 0.0).then(|| inserted / changed >= INSERTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_copy_into_a_table_writes_rows() {
        for text in ["COPY t FROM STDIN", "copy s.t (a, b) from stdin with (format csv)", " COPY \"t\" FROM '/f'"] {
            assert!(copies_in(text), "{text}");
        }
        for text in [
            "COPY t TO STDOUT",
            "copy (select a from t) to stdout",
            "COPY(SELECT 1) TO STDOUT",
            "INSERT INTO t SELECT a FROM u",
            "COPY",
        ] {
            assert!(!copies_in(text), "{text}");
        }
    }
}
