//! Moments as wall-clock times of the place where they are read.

use backwater_model::{Finding, Meta, Moment, Unit};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Serialize;

/// A finding for programs: beside its moments, which count from boot, the same in UTC (RFC 3339), where the recording has a clock anchor.
#[derive(Debug, Serialize)]
pub struct DatedFinding<'a> {
    #[serde(flatten)]
    finding: &'a Finding,
    /// From when.
    pub from_utc: Option<String>,
    /// Until when.
    pub to_utc: Option<String>,
}

impl<'a> DatedFinding<'a> {
    /// A finding in what this tells of.
    pub fn of(finding: &'a Finding, meta: &Meta) -> Self {
        DatedFinding { finding, from_utc: utc(finding.from, meta), to_utc: utc(finding.to, meta) }
    }
}

/// `2026-11-21T12:00:12.500Z`.
fn utc(at: Moment, meta: &Meta) -> Option<String> {
    Some(format!("{:.3}", Timestamp::from_microsecond(meta.unix_us(at)?).ok()?))
}

/// `2026-11-21 03:10:02 – 03:10:24 (22 s)`, in local time with its offset; without a clock anchor, the length and the seconds since boot.
pub(crate) fn range(from: Moment, to: Moment, meta: &Meta) -> String {
    range_in(from, to, meta, &TimeZone::system())
}

/// `2026-11-21 03:10:02`, in local time; without a clock anchor, the seconds since boot.
pub(crate) fn moment(at: Moment, meta: &Meta) -> String {
    let wall = wall(at, meta, &TimeZone::system());
    wall.map_or_else(|| format!("{:.1} s after boot", at.seconds()), |wall| wall.strftime("%F %H:%M:%S").to_string())
}

fn range_in(from: Moment, to: Moment, meta: &Meta, zone: &TimeZone) -> String {
    let length = Unit::Seconds.show(to.seconds_since(from));
    let wall = |at| wall(at, meta, zone);
    let (Some(start), Some(end)) = (wall(from), wall(to)) else {
        return format!("{:.1} to {:.1} s after boot ({length})", from.seconds(), to.seconds());
    };
    let until = if start.date() == end.date() { end.strftime("%H:%M:%S") } else { end.strftime("%F %H:%M:%S") };
    format!("{} – {until} {} ({length})", start.strftime("%F %H:%M:%S"), end.strftime("UTC%:z"))
}

fn wall(at: Moment, meta: &Meta, zone: &TimeZone) -> Option<Zoned> {
    let timestamp = Timestamp::from_microsecond(meta.unix_us(at)?).ok()?;
    Some(timestamp.to_zoned(zone.clone()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::samples_for_tests::meta;

    #[test]
    fn programs_get_moments_as_boot_time_and_as_utc() {
        let (from, to) = (Moment::from_seconds(1_012.0), Moment::from_seconds(1_024.5));
        let finding = Finding { from, to, ..crate::samples_for_tests::finding() };
        let read = |meta: &Meta| serde_json::to_value(DatedFinding::of(&finding, meta)).unwrap();
        let value = read(&meta());
        assert_eq!(
            (&value["from_utc"], &value["to_utc"]),
            (&"2026-11-21T12:00:12.000Z".into(), &"2026-11-21T12:00:24.500Z".into())
        );
        assert_eq!(serde_json::from_value::<Finding>(value).unwrap(), finding);
        assert_eq!(read(&Meta::default())["from_utc"], serde_json::Value::Null);
    }

    #[test]
    fn a_range_names_the_day_once() {
        let (from, to) = (Moment::from_seconds(1_012.0), Moment::from_seconds(1_024.5));
        assert_eq!(range_in(from, to, &meta(), &TimeZone::UTC), "2026-11-21 12:00:12 – 12:00:24 UTC+00:00 (12.5 s)");
        let later = Moment::from_seconds(1_000.0 + 86_400.0);
        let text = range_in(from, later, &meta(), &TimeZone::UTC);
        assert!(text.starts_with("2026-11-21 12:00:12 – 2026-11-22 12:00:00"), "{text}");
    }

    #[test]
    fn without_an_anchor_only_boot_time_is_known() {
        let text = range_in(Moment::from_seconds(5.0), Moment::from_seconds(7.5), &Meta::default(), &TimeZone::UTC);
        assert_eq!(text, "5.0 to 7.5 s after boot (2.50 s)");
    }

    #[test]
    fn absurd_moments_do_not_panic() {
        let (from, to) = (Moment(i64::MIN / 4), Moment(i64::MAX / 4));
        assert!(range_in(from, to, &meta(), &TimeZone::UTC).contains("after boot"));
    }
}
