//! What is known of a server's archive: WAL that is not archived yet is kept, whatever else.

use super::head_series;
use super::unread::HOLE_S;
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Moment, Point, Span, Target, Track, Window};

/// How fast an archiver is shows with the last segments that it was done with, of so many seconds at most.
const MOST_SEGMENTS: usize = 5;
const RATE_S: f64 = 600.0;

/// Whether a server archives, and whether it is seen how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Archive {
    /// There is none.
    Off,
    /// How far it is, is told.
    Told,
    /// Nothing is archived, for every attempt has failed.
    Failing,
    /// There is one, and how far it is, is not told: nothing was archived yet, or the last file held no WAL.
    Unseen,
}

impl Archive {
    /// As it is seen at a moment.
    pub(super) fn of(window: &Window, settings: Option<&Target>, primary: &str, at: Moment) -> Self {
        let own = [("target", primary)];
        let last = |def: &Def| window.track(def.name, &own)?.between(window.from, at).last();
        if !archives(window, settings, primary) {
            Archive::Off
        } else if last(&cat::PG_ARCHIVED_UPTO).is_some() {
            Archive::Told
        } else if last(&cat::PG_ARCHIVED) == Some(0.0) && last(&cat::PG_ARCHIVE_FAILED) > Some(0.0) {
            Archive::Failing
        } else {
            Archive::Unseen
        }
    }
}

/// Whether a server archives WAL; a standby does so by `always` alone.
fn archives(window: &Window, settings: Option<&Target>, primary: &str) -> bool {
    match settings.and_then(|target| target.settings.get("archive_mode")).map(String::as_str) {
        None | Some("off") => false,
        Some("always") => true,
        Some(_) => head_series(window, primary) == cat::PG_WAL_INSERT.name,
    }
}

/// An archiver that has more to do than it can: bytes a second, and how much of the next segment it has by now, for it is done
/// with whole ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Archiving {
    pub(super) bytes_per_s: f64,
    pub(super) of_next: f64,
}

/// Whether an attempt failed since the last segment that an archiver was done with.
pub(super) fn fails(upto: Track<'_>, failed: Option<Track<'_>>, at: Moment) -> bool {
    let points = upto.between(at - Span::from_seconds(RATE_S), at).points;
    let last = points.last().map(|point| point.value);
    let since = points.iter().rev().take_while(|point| Some(point.value) == last).last();
    let rise = since.zip(failed).and_then(|(since, failed)| failed.between(since.at, at).increase());
    rise.is_some_and(|rise| rise > 0.0)
}

/// How fast an archiver is, by the segments that followed one upon the other: when it was done with one the next was whole
/// already. One that has not been done with the next for twice as long as that takes stands still. None where none followed.
pub(super) fn archiving(upto: Track<'_>, head: Track<'_>, at: Moment, size: f64) -> Option<Archiving> {
    let points = upto.between(at - Span::from_seconds(RATE_S), at).points;
    let done = |pair: &[Point]| (pair[1].epoch == pair[0].epoch && pair[1].value > pair[0].value).then_some(pair[1]);
    let done: Vec<Point> = points.windows(2).filter_map(done).collect();
    let next_was_whole = |done: &Point| head.at(done.at, HOLE_S).is_some_and(|head| head.value >= done.value + size);
    let at_once = done.windows(2).rev().filter(|pair| pair[0].epoch == pair[1].epoch && next_was_whole(&pair[0]));
    let (bytes, seconds) = at_once.take(MOST_SEGMENTS).fold((0.0, 0.0), |(bytes, seconds), pair| {
        (bytes + pair[1].value - pair[0].value, seconds + pair[1].at.seconds_since(pair[0].at))
    });
    (seconds > 0.0).then_some(())?;
    let standing_s = done.last().map_or(0.0, |done| {
        let whole = head.between(done.at, at).points.iter().find(|head| head.value >= done.value + size);
        whole.map_or(0.0, |whole| at.seconds_since(whole.at))
    });
    let of_next = bytes / seconds * standing_s;
    Some(match of_next {
        of_next if of_next > 2.0 * size => Archiving::default(),
        // It is not done with the next one yet.
        of_next if of_next > size => Archiving { bytes_per_s: (bytes + size) / (seconds + standing_s), of_next: size },
        of_next => Archiving { bytes_per_s: bytes / seconds, of_next },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::testing;
    use super::fails as fails_at;
    use super::*;

    const SIZE: f64 = 16.0;

    /// Read once a second.
    fn points(seconds: i32, value: impl Fn(i32) -> f64) -> Vec<Point> {
        testing::points((0..=seconds).map(|second| (f64::from(second), value(second))))
    }

    /// Done with a segment at each of these seconds, while the head stands where it does.
    fn told(done: &[i32], at: i32, head: impl Fn(i32) -> f64) -> Option<Archiving> {
        let upto = points(at, |second| SIZE * done.iter().filter(|done| **done <= second).count() as f64);
        let head = points(at, head);
        let own = [("target", "p")];
        let (of_upto, of_head) = (cat::PG_ARCHIVED_UPTO.series(&own), cat::PG_WAL_INSERT.series(&own));
        let track = Track { series: &of_upto, points: &upto };
        archiving(track, Track { series: &of_head, points: &head }, Moment::from_seconds(f64::from(at)), SIZE)
    }

    #[test]
    fn segments_that_follow_at_once_tell_how_fast_it_is_and_how_far() {
        let plenty = |_| 1e6;
        let every_5_s = [5, 10, 15, 20];
        let archiving = |bytes_per_s, of_next| Some(Archiving { bytes_per_s, of_next });
        assert_eq!(told(&every_5_s, 20, plenty), archiving(3.2, 0.0));
        assert_eq!(told(&every_5_s, 23, plenty), archiving(3.2, 3.0 * 3.2));
        assert_eq!(told(&every_5_s, 28, plenty), archiving(64.0 / 23.0, 16.0), "it is slower than it was");
        assert_eq!(told(&every_5_s, 31, plenty), archiving(0.0, 0.0), "it stands still");
        // A minute for each: two of them tell.
        assert_eq!(told(&[60, 120], 150, plenty), archiving(16.0 / 60.0, 8.0));
        assert_eq!((told(&[5], 9, plenty), told(&[], 9, plenty)), (None, None));
    }

    #[test]
    fn an_archiver_that_waited_for_a_whole_segment_is_no_slow_one() {
        // 16 a minute until the third is done, and then plenty.
        let head = |second: i32| if second < 180 { f64::from(second) * SIZE / 60.0 } else { 1e6 };
        assert_eq!(told(&[60, 120, 170], 179, head), None);
        assert_eq!(told(&[60, 120, 180, 181, 182, 183], 183, head).unwrap().bytes_per_s, 16.0);
    }

    #[test]
    fn an_archiver_that_stops_stands_still_once_the_next_segment_was_whole() {
        // A burst that it was done with at once; then 16 a minute, and after the one of 240 s nothing more.
        let head = |second: i32| f64::from(second) * SIZE / 60.0 + if second < 180 { 0.0 } else { 48.0 };
        let done = [60, 120, 180, 181, 182, 183, 240];
        assert_eq!(told(&done, 299, head).unwrap().bytes_per_s, 16.0, "it waits");
        assert_eq!(told(&done, 310, head), Some(Archiving::default()));
    }

    #[test]
    fn attempts_that_failed_before_the_last_segment_count_no_more() {
        let failed = |fails: &[i32]| {
            let upto = points(20, |second| SIZE * f64::from(second / 5));
            let count = points(20, |second| fails.iter().filter(|failed| **failed <= second).count() as f64);
            let own = [("target", "p")];
            let (of_upto, of_failed) = (cat::PG_ARCHIVED_UPTO.series(&own), cat::PG_ARCHIVE_FAILED.series(&own));
            let failed = Track { series: &of_failed, points: &count };
            let at = Moment::from_seconds(19.0);
            fails_at(Track { series: &of_upto, points: &upto }, Some(failed), at)
        };
        assert_eq!([failed(&[]), failed(&[3, 12]), failed(&[17])], [false, false, true]);
    }
}
