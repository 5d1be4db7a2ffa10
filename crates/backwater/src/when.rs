//! Times as people type them: `03:10`, `03:10:30`, `2026-11-21 03:10`, RFC 3339, `-10min`, `now`.

use anyhow::{Context, bail};
use backwater_model::{Meta, Moment};
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

/// A time of day belongs to the last day of a recording of this span on which it had already come, or to the next where the
/// recording began later than that and lies nearer to the next; `-10min` counts back from its end.
pub(crate) fn parse(text: &str, meta: &Meta, (begin, end): (Moment, Moment)) -> anyhow::Result<Moment> {
    let text = text.trim();
    if let Some(back) = text.strip_prefix('-') {
        return Ok(Moment::from_seconds(end.seconds() - seconds(back)?));
    }
    let end_us =
        meta.unix_us(end).context("the recording has no clock anchor, so wall-clock times mean nothing in it")?;
    let end_wall = Timestamp::from_microsecond(end_us)?.to_zoned(TimeZone::system());
    let wall = wall_clock(text, &end_wall, end.seconds_since(begin))?;
    meta.moment_of_unix_us(wall.as_microsecond()).context("the recording has no clock anchor")
}

fn wall_clock(text: &str, end: &Zoned, length_s: f64) -> anyhow::Result<Timestamp> {
    if text == "now" {
        return Ok(end.timestamp());
    }
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Ok(timestamp);
    }
    if let Ok(civil) = text.replace(' ', "T").parse::<DateTime>() {
        return Ok(civil.to_zoned(TimeZone::system())?.timestamp());
    }
    let Ok(time) = text.parse::<Time>() else {
        bail!(
            "'{text}' is no time: give 03:10, 03:10:30, '2026-11-21 03:10', an RFC 3339 time, or -10min (before the end)"
        );
    };
    let on = |day: Date| anyhow::Ok(day.to_datetime(time).to_zoned(TimeZone::system())?.timestamp());
    let last = on(if time > end.time() { end.date().checked_sub(1.day())? } else { end.date() })?;
    let next = on(if time > end.time() { end.date() } else { end.date().checked_add(1.day())? })?;
    let seconds = |from: Timestamp, to: Timestamp| from.duration_until(to).as_secs_f64();
    let before_it = seconds(last, end.timestamp()) - length_s;
    Ok(if before_it > seconds(end.timestamp(), next) { next } else { last })
}

/// Seconds for a clap argument: more than nothing and at most a day.
pub(crate) fn some_seconds(text: &str) -> Result<f64, String> {
    match seconds(text) {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        Ok(_) => Err("give more than 0 seconds and at most a day".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A length of time: `90`, `90s`, `10min`, `2h`, `7d`.
pub(crate) fn seconds(text: &str) -> anyhow::Result<f64> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "" | "s" | "sec" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => bail!("'{text}' is no length of time: give 90s, 10min, 2h or 7d"),
    };
    let number: f64 =
        number.parse().with_context(|| format!("'{text}' is no length of time: give 90s, 10min, 2h or 7d"))?;
    let seconds = number * factor;
    // A hundred years: more is a slip, and would overflow what follows.
    if !(0.0..=3.2e9).contains(&seconds) {
        bail!("'{text}' is too long");
    }
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::ClockAnchor;

    fn meta() -> (Meta, Moment) {
        // 2026-11-21 12:00:00 UTC, 1,000 s after boot.
        let anchor = ClockAnchor { boot: Moment::from_seconds(1_000.0), unix_us: 1_795_262_400_000_000 };
        (Meta { anchors: vec![anchor], ..Meta::default() }, Moment::from_seconds(1_000.0))
    }

    #[test]
    fn times_are_understood() {
        let (meta, end) = meta();
        let parse = |text: &str| parse(text, &meta, (Moment(0), end));
        assert_eq!(parse("-10min").unwrap(), Moment::from_seconds(400.0));
        assert_eq!(parse("2026-11-21T11:59:00Z").unwrap(), Moment::from_seconds(940.0));
        assert_eq!(parse("now").unwrap(), end);
        let error = parse("teatime").unwrap_err().to_string();
        assert!(error.contains("03:10"), "{error}");
    }

    /// In seconds from a recording's end, the time of day that comes so long after it.
    fn time_of_day(after_end_s: i64, length_s: f64) -> f64 {
        let (meta, end) = meta();
        let wall = Timestamp::from_microsecond(meta.unix_us(end).unwrap()).unwrap().to_zoned(TimeZone::system());
        let text = wall.checked_add(after_end_s.seconds()).unwrap().time().to_string();
        let begin = Moment::from_seconds(end.seconds() - length_s);
        parse(&text, &meta, (begin, end)).unwrap().seconds_since(end)
    }

    #[test]
    fn a_time_of_day_that_is_yet_to_come_was_yesterday() {
        assert!((time_of_day(60, 90_000.0) - (60.0 - 86_400.0)).abs() < 1.0);
        assert!((time_of_day(72_000, 60.0) - (72_000.0 - 86_400.0)).abs() < 1.0, "hours before a short recording");
    }

    #[test]
    fn a_time_of_day_just_after_a_short_recording_is_no_day_before_it() {
        assert!((time_of_day(120, 420.0) - 120.0).abs() < 1.0);
        assert!((time_of_day(-120, 420.0) + 120.0).abs() < 1.0);
    }

    #[test]
    fn lengths_are_understood() {
        assert_eq!(seconds("7d").unwrap(), 604_800.0);
        assert_eq!(seconds("90").unwrap(), 90.0);
        assert!(seconds("soon").is_err() && seconds("1e300").is_err() && seconds("99999999999d").is_err());
        assert!(some_seconds("0").is_err() && some_seconds("NaN").is_err() && some_seconds("2d").is_err());
    }
}
