//! A plan for documents that expire: from the deletes and the load of each hour of the day, the quietest hours into which a day's
//! deletes fit at a stated rate, and what writers must put into `expireAt` so that they spread over them. It changes
//! nobody's documents: those that are there already expire when they say.

use crate::figures::Figures;
use crate::remedy::ttl as remedy;
use crate::rules::ttl_burst::deleted;
use crate::rules::wt_evidence::Engine;
use crate::scene::Scene;
use backwater_model::{Finding, Moment, Remedy, Target, Unit, catalogue as cat};

const HOURS: usize = 24;
const HOUR_S: f64 = 3_600.0;
/// Hours of the day that must be known, at least: a plan for a day needs the day. An hour is known from half of it on.
const LEAST_HOURS: usize = 20;
/// Deletes in the busiest hour below which nothing needs to be moved, a second.
const FEW: f64 = 10.0;
/// Unless a rate is stated, deletes shall be this share of the load of the day's busiest hour at most.
const OF_LOAD: f64 = 0.1;
/// Expired documents are looked for once a minute and then deleted as fast as can be: over less than some such minutes nothing is
/// spread. Nor over more than a day: that is a matter of the day's hours.
const LEAST_SPREAD_S: f64 = 600.0;
const MOST_SPREAD_S: f64 = 86_400.0;
/// One burst takes so many times as long as the longest stretch of it, at most.
const SAME_BURST: f64 = 1.5;
/// A plan is worth it where it takes this share off the deletes beside the busiest hours.
const WORTH: f64 = 0.8;

/// One hour of the day, in units a second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Hour {
    load: f64,
    deletes: f64,
}

/// A day by the hour of UTC; none where an hour was not seen, of which nobody knows how quiet it is.
struct Day([Option<Hour>; HOURS]);

/// Hours of the day into which deletes shall go: the first, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quiet {
    first: usize,
    hours: usize,
}

fn target<'a>(scene: &'a Scene<'_>, engine: &Engine<'_>) -> Option<&'a Target> {
    scene.window.meta.targets.iter().find(|target| target.name == engine.name)
}

/// The plan for one server, where a day was seen in which its deletes are many and stand beside its load; or come at once, which is
/// `felt` whatever the hour.
pub(super) fn plan(scene: &Scene<'_>, engine: &Engine<'_>, most_per_s: Option<f64>, felt: bool) -> Option<Remedy> {
    let day = day(scene, engine)?;
    let quiet = quiet(&day, most_rate(&day, most_per_s))?;
    let peak = day.most(|hour| hour.deletes);
    let rate = day.deletes() / (quiet.hours as f64 * HOUR_S);
    // Deletes beside the load: each hour's deletes weighed by its load.
    let now: f64 = day.seen().map(|(_, hour)| hour.deletes * hour.load).sum();
    let load = day.load(quiet)?;
    let then = rate * load;
    if peak < FEW || now <= 0.0 || (then > WORTH * now && !felt) {
        return None;
    }
    let mut predicted = Figures::default();
    predicted.add(
        "ttl_deleted_mean_per_s",
        Some(rate),
        Unit::PerSecond,
        "deletes of the expired, as a mean over the quiet hours",
    );
    predicted.add(
        "ttl_deleted_mean_now_per_s",
        Some(peak),
        Unit::PerSecond,
        "the same in their busiest hour, as it is",
    );
    let mean = load / quiet.hours as f64;
    predicted.add("load_quiet_per_s", Some(mean), Unit::PerSecond, "operations of clients in these hours");
    Some(remedy::spread(target(scene, engine), (quiet.first, quiet.hours), &day.unseen(), predicted.list()))
}

/// Why there is no plan, where somebody would look for one; `burst` tells that there is a burst that nothing answers.
pub(super) fn without(scene: &Scene<'_>, engine: &Engine<'_>, burst: bool, most_per_s: Option<f64>) -> Option<String> {
    if most_per_s.is_some() && !deleted(scene, engine).max(&(0..scene.grid.count)).is_some_and(|most| most > 0.0) {
        return Some("Nothing was seen to expire, so that there is no plan for it (--ttl-rate).".to_owned());
    }
    let Some(day) = day(scene, engine) else {
        let note =
            format!("No plan of hours for what expires: of a day's hours at least {LEAST_HOURS} must be recorded.");
        return burst.then_some(note);
    };
    let most = most_rate(&day, most_per_s);
    let many = day.most(|hour| hour.deletes) >= FEW;
    (many && quiet(&day, most).is_none()).then(|| {
        let unseen = day.unseen();
        let seen = if unseen.is_empty() { "" } else { " that were all recorded" };
        format!(
            "No plan for what expires: a day's deletes, {}, do not fit into fewer than {HOURS} hours in a row{seen} at {}. State a \
             higher rate (--ttl-rate), or have less expire.{}",
            Unit::Count.show(day.deletes()),
            Unit::PerSecond.show(most),
            remedy::not_recorded(&unseen)
        )
    })
}

fn most_rate(day: &Day, stated_per_s: Option<f64>) -> f64 {
    stated_per_s.unwrap_or_else(|| OF_LOAD * day.most(|hour| hour.load))
}

/// What is to be done about bursts where no day was seen, so that nothing is known of quiet hours: documents that expire over so
/// much time that the deletes of the one burst stay under a rate. None where there are several, which would come to lie upon each
/// other, or where so many are deleted at other times, too.
pub(super) fn scatter(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    finding: &Finding,
    most_per_s: Option<f64>,
) -> Option<Remedy> {
    let now = finding.figure("ttl_deleted_per_s")?;
    let of_load = finding.figure("client_writes_per_s").map_or(FEW, |writes| (OF_LOAD * writes).max(FEW));
    let rate = most_per_s.unwrap_or(of_load);
    let burst_s = finding.to.seconds_since(finding.from);
    let deletes = deleted(scene, engine);
    let other: Vec<f64> = (0..scene.grid.count)
        .filter(|second| !(finding.from..=finding.to).contains(&scene.grid.start(*second)))
        .filter_map(|second| deletes.get(second))
        .collect();
    let at_other_times = other.iter().sum::<f64>() / other.len().max(1) as f64;
    let several = finding.figure("burst_s")? > SAME_BURST * burst_s;
    let left = rate - at_other_times;
    let documents = now * burst_s;
    let seconds = (documents / left).max(LEAST_SPREAD_S);
    let then = documents / seconds + at_other_times;
    let too_long = seconds > MOST_SPREAD_S || then > WORTH * now;
    if several || left <= 0.0 || too_long || day(scene, engine).is_some() {
        return None;
    }
    let mut predicted = Figures::default();
    predicted.add("ttl_deleted_per_s", Some(then), Unit::PerSecond, "deletes of the expired, as a mean over minutes");
    predicted.add("ttl_deleted_now_per_s", Some(now), Unit::PerSecond, "the same in this burst, as it is");
    Some(remedy::scatter(target(scene, engine), seconds, predicted.list()))
}

impl Quiet {
    fn has(self, hour: usize) -> bool {
        (hour + HOURS - self.first) % HOURS < self.hours
    }
}

impl Day {
    /// The hours that were seen, each with its place in the day.
    fn seen(&self) -> impl Iterator<Item = (usize, Hour)> + '_ {
        self.0.iter().enumerate().filter_map(|(place, hour)| Some((place, (*hour)?)))
    }

    fn unseen(&self) -> Vec<usize> {
        (0..HOURS).filter(|hour| self.0[*hour].is_none()).collect()
    }

    /// Deletes of all hours that were seen.
    fn deletes(&self) -> f64 {
        self.seen().map(|(_, hour)| hour.deletes * HOUR_S).sum()
    }

    fn most(&self, of: impl Fn(Hour) -> f64) -> f64 {
        self.seen().map(|(_, hour)| of(hour)).fold(0.0, f64::max)
    }

    /// The load of these hours together; none where one of them was not seen.
    fn load(&self, quiet: Quiet) -> Option<f64> {
        (0..HOURS).filter(|hour| quiet.has(*hour)).map(|hour| Some(self.0[hour]?.load)).sum()
    }
}

/// The fewest neighbouring hours in which a day's deletes stay under a rate, of those that were seen the ones with the least load.
fn quiet(day: &Day, most_per_s: f64) -> Option<Quiet> {
    let hours = (day.deletes() / HOUR_S / most_per_s.max(f64::MIN_POSITIVE)).ceil().max(1.0) as usize;
    if hours >= HOURS {
        return None;
    }
    let choices = (0..HOURS).map(|first| Quiet { first, hours });
    let seen = choices.filter_map(|quiet| Some((day.load(quiet)?, quiet)));
    seen.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, quiet)| quiet)
}

/// Means of each hour of UTC; none unless most of a day is known.
fn day(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Day> {
    let rate = |def: &cat::Def, op: Option<&str>| crate::rules::wt_evidence::rate(scene, def, &engine.name, op);
    let deletes = deleted(scene, engine);
    let lanes = ["insert", "query", "update", "delete"].map(|op| rate(&cat::MONGO_OPCOUNTERS, Some(op)));
    let mut sums = [(0.0, Hour { load: 0.0, deletes: 0.0 }); HOURS];
    for second in 0..scene.grid.count {
        let load = lanes.iter().filter_map(|lane| lane.get(second)).reduce(|a, b| a + b);
        let Some((load, deletes)) = load.zip(deletes.get(second)) else { continue };
        let Some(hour) = hour_of(scene, scene.grid.start(second)) else { continue };
        let (seconds, sum) = &mut sums[hour];
        (*seconds, sum.load, sum.deletes) = (*seconds + 1.0, sum.load + load, sum.deletes + deletes);
    }
    let day = Day(sums.map(|(seconds, sum)| {
        let seen = seconds >= HOUR_S / 2.0;
        seen.then(|| Hour { load: sum.load / seconds, deletes: sum.deletes / seconds })
    }));
    (day.seen().count() >= LEAST_HOURS).then_some(day)
}

fn hour_of(scene: &Scene<'_>, at: Moment) -> Option<usize> {
    let unix_us = scene.window.meta.unix_us(at)?;
    Some((unix_us.div_euclid(3_600_000_000)).rem_euclid(HOURS as i64) as usize)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Load by day, deletes at noon.
    fn example() -> Day {
        Day(std::array::from_fn(|hour| {
            let load = if (8..20).contains(&hour) { 10_000.0 } else { 500.0 + hour as f64 };
            Some(Hour { load, deletes: if (11..14).contains(&hour) { 1_000.0 } else { 0.0 } })
        }))
    }

    #[test]
    fn the_quietest_hours_that_take_a_days_deletes() {
        let day = example();
        assert_eq!(quiet(&day, 1_000.0), Some(Quiet { first: 0, hours: 3 }));
        assert_eq!(quiet(&day, 500.0), Some(Quiet { first: 0, hours: 6 }));
        // 3,000 h⁻¹ in all at 300 a second: ten of the twelve quiet hours, across midnight.
        let wide = quiet(&day, 300.0).unwrap();
        assert_eq!(wide.hours, 10);
        assert!((0..HOURS).filter(|hour| wide.has(*hour)).all(|hour| day.0[hour].unwrap().load < 1_000.0), "{wide:?}");
        assert_eq!(quiet(&day, 100.0), None, "more than a day can take");
    }

    #[test]
    fn hours_that_nobody_saw_are_not_quiet() {
        let mut day = example();
        day.0[1..4].fill(None);
        assert_eq!(quiet(&day, 1_000.0), Some(Quiet { first: 4, hours: 3 }));
        assert_eq!((quiet(&day, 150.0), day.unseen()), (Some(Quiet { first: 5, hours: 20 }), vec![1, 2, 3]));
        assert_eq!(quiet(&day, 140.0), None, "22 hours in a row were not seen");
    }

    #[test]
    fn hours_go_round_midnight() {
        let quiet = Quiet { first: 22, hours: 4 };
        let has: Vec<usize> = (0..HOURS).filter(|hour| quiet.has(*hour)).collect();
        assert_eq!(has, [0, 1, 22, 23]);
    }
}
