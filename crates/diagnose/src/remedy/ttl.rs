//! What writers put into `expireAt` so that documents expire in quiet hours, spread evenly.

use backwater_model::{Activation, Figure, Remedy, Target, Unit};

/// What becomes of the index that expires documents now.
const OLD_INDEX: &str = "An index that expires them by another field goes on doing so: drop it once every document has expireAt; one \
     without expires no more.";
/// What no time in a document changes.
const AT_ONCE: &str = "The monitor wakes once a minute (ttlMonitorSleepSecs) and deletes what has expired since as fast as it can: the rate \
     is a mean over minutes.";
/// From here on an index is built beside readers and writers; until then a build holds the whole database unless told otherwise.
const BUILT_BESIDE: i32 = 40_200;

/// The index by which documents expire at the time that they hold. Newer releases take the word and do without.
fn index(target: Option<&Target>) -> String {
    let beside = target.and_then(|target| target.version_num).is_some_and(|version| version >= BUILT_BESIDE);
    let background = if beside { "" } else { ", background: true" };
    format!("db.COLLECTION.createIndex({{expireAt: 1}}, {{expireAfterSeconds: 0{background}}})")
}

/// Documents expire in these hours of UTC, of the day after their time; of the unseen ones it is told that they were not to choose.
pub(crate) fn spread(
    target: Option<&Target>,
    (first_hour, hours): (usize, usize),
    unseen: &[usize],
    predicted: Vec<Figure>,
) -> Remedy {
    let last = (first_hour + hours) % 24;
    Remedy {
        title: format!(
            "Let documents expire between {first_hour:02}:00 and {last:02}:00 UTC, spread at random (relieves the load of the day)"
        ),
        runtime: vec![
            "// In the writers, instead of a fixed time; LIFE_MS is how long a document is needed at least.".to_owned(),
            "const expireAt = new Date(Date.now() + LIFE_MS);".to_owned(),
            format!("if (expireAt.getUTCHours() >= {first_hour}) expireAt.setUTCDate(expireAt.getUTCDate() + 1);"),
            format!("expireAt.setUTCHours({first_hour}, 0, 0, 0);"),
            format!("expireAt.setTime(expireAt.getTime() + Math.random() * {hours} * 3600 * 1000);"),
            "document.expireAt = expireAt;".to_owned(),
        ],
        persistent: vec![index(target)],
        activation: Activation::Immediate,
        undo: vec!["document.expireAt = new Date(Date.now() + LIFE_MS);".to_owned()],
        predicted,
        risk: format!(
            "Documents stay up to {} hours longer, and take the room for it. Those that are there already expire when they say: the plan \
             holds from one life of a document on. {AT_ONCE} Deletes reach the secondaries through the oplog in the same hours. \
             {OLD_INDEX}{}",
            24 + hours,
            not_recorded(unseen)
        ),
    }
}

/// Which hours of UTC nothing is known of, as a sentence that may follow another; empty where all are known.
pub(crate) fn not_recorded(unseen: &[usize]) -> String {
    if unseen.is_empty() {
        return String::new();
    }
    let hours: Vec<String> = unseen.iter().map(|hour| format!("{hour:02}:00")).collect();
    format!(" Not recorded, and so neither chosen nor counted: the hours from {} UTC.", hours.join(", "))
}

/// Documents of one burst expire over so many seconds.
pub(crate) fn scatter(target: Option<&Target>, seconds: f64, predicted: Vec<Figure>) -> Remedy {
    let whole = seconds.ceil();
    Remedy {
        title: format!(
            "Let documents expire spread over {}, not at one moment (relieves the writes beside them)",
            Unit::Seconds.show(whole)
        ),
        runtime: vec![
            "// In the writers, instead of a fixed time; LIFE_MS is how long a document is needed at least.".to_owned(),
            format!("document.expireAt = new Date(Date.now() + LIFE_MS + Math.random() * {whole:.0} * 1000);"),
        ],
        persistent: vec![index(target)],
        activation: Activation::Immediate,
        undo: vec!["document.expireAt = new Date(Date.now() + LIFE_MS);".to_owned()],
        predicted,
        risk: format!(
            "It holds where the next such burst comes later than that. Documents stay so much longer, and take the room for it. Those that \
             are there already expire when they say. Which hours are quiet is told by a day of readings: `backwater advise` of a recording \
             that long moves them there. {OLD_INDEX}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_built_beside_others_in_every_release() {
        let of = |version_num| index(Some(&Target { version_num: Some(version_num), ..Target::default() }));
        assert!(of(30_600).ends_with("{expireAfterSeconds: 0, background: true})"), "{}", of(30_600));
        assert!(of(80_000).ends_with("{expireAfterSeconds: 0})"));
        assert!(index(None).contains("background: true"), "whichever release it is");
    }

    #[test]
    fn the_hours_stand_in_the_title_and_in_the_code() {
        let remedy = spread(None, (22, 4), &[], Vec::new());
        assert!(remedy.title.contains("between 22:00 and 02:00 UTC"), "{}", remedy.title);
        assert!(remedy.runtime.iter().any(|line| line.contains("Math.random() * 4 * 3600")));
        assert!(!remedy.risk.contains("recorded"), "{}", remedy.risk);
        assert!(spread(None, (22, 4), &[5, 6], Vec::new()).risk.ends_with("the hours from 05:00, 06:00 UTC."));
    }
}
