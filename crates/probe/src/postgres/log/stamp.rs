//! When a line was written, by its own word: lines are read later, after a restart much later.

use backwater_model::{ClockAnchor, Moment, Span};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const SECOND_US: i64 = 1_000_000;
/// Offsets of time zones are whole quarters of an hour,
const QUARTER_US: i64 = 900 * SECOND_US;
/// and none is farther from UTC.
const FARTHEST_ZONE_US: u64 = 14 * 3_600 * SECOND_US as u64;
/// A stamp is cut to whole seconds by `%t`, and is made a little before its line is in the file: so much earlier than the
/// look before it may lie.
const EARLY_US: i64 = 2 * SECOND_US;

/// What a line says of when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::postgres) struct Stamp {
    /// Microseconds of Unix time; of local time, counted as if it were UTC, where its offset is not known.
    us: i64,
    offset_known: bool,
}

impl Stamp {
    /// `2026-11-21 11:18:55.123 CET`, as csvlog and jsonlog have it, `%m`, and without the fraction `%t`.
    pub(super) fn of_time(text: &str) -> Option<Stamp> {
        let end = if text.get(19..)?.starts_with('.') { 23 } else { 19 };
        let local: DateTime = text.get(..end)?.replacen(' ', "T", 1).parse().ok()?;
        let local_us = local.to_zoned(TimeZone::UTC).ok()?.timestamp().as_microsecond();
        let offset_us = offset_us(text.get(end..)?.strip_prefix(' ')?);
        Some(Stamp { us: local_us - offset_us.unwrap_or(0), offset_known: offset_us.is_some() })
    }

    /// What stands at the beginning of a line for the first escape of log_line_prefix, if that is a time.
    pub(super) fn of_prefix(line: &str, prefix: &str) -> Option<Stamp> {
        let (literal, rest) = prefix.split_once('%')?;
        let text = line.strip_prefix(literal)?.trim_start();
        match rest.trim_start_matches(|c: char| c == '-' || c.is_ascii_digit()).chars().next()? {
            'm' | 't' => Stamp::of_time(text),
            'n' => Stamp::of_unix_time(text),
            _ => None,
        }
    }

    /// `1795262400.123`.
    fn of_unix_time(text: &str) -> Option<Stamp> {
        let (seconds, rest) = text.split_once('.')?;
        let (seconds, ms): (i64, i64) = (seconds.parse().ok()?, rest.get(..3)?.parse().ok()?);
        Some(Stamp { us: seconds.checked_mul(SECOND_US)?.checked_add(ms * 1_000)?, offset_known: true })
    }

    /// That time on the clock of readings. `read` is when the line was read, `since` when it was not there yet: a stamp that is
    /// not of the time between them is none to go by. Where the offset is not known, it is the one that brings the stamp there,
    /// if there is but one.
    pub(in crate::postgres) fn moment(self, since: Moment, read: ClockAnchor) -> Option<Moment> {
        let longest_us = (read.boot - since).0.saturating_add(EARLY_US);
        let stated_us = read.unix_us.checked_sub(self.us)?;
        let age_us = if self.offset_known { stated_us } else { stated_us.rem_euclid(QUARTER_US) };
        let zone_us = stated_us.saturating_sub(age_us).unsigned_abs();
        let possible = (0..=longest_us).contains(&age_us) && zone_us <= FARTHEST_ZONE_US;
        let only = self.offset_known || age_us + QUARTER_US > longest_us;
        (possible && only).then(|| (read.boot - Span(age_us)).max(since))
    }
}

/// How far a zone is ahead of UTC. Abbreviations of letters have several meanings (IST, CST), but for these two; zones without
/// one are written as their offset, `+0545` or `-03`.
fn offset_us(zone: &str) -> Option<i64> {
    let end = zone.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(zone.len());
    if matches!(&zone[..end], "UTC" | "GMT") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let digits = zone.strip_prefix(['+', '-'])?;
    let digits = &digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())];
    let minutes = match (digits.len(), digits.parse::<i64>().ok()?) {
        (2, hours) => hours * 60,
        (4, both) => both / 100 * 60 + both % 100,
        _ => return None,
    };
    Some(sign * minutes * 60 * SECOND_US)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// 2026-11-21 12:00:00 UTC, 1,000 s after boot.
    const READ: ClockAnchor = ClockAnchor { boot: Moment(1_000 * SECOND_US), unix_us: 1_795_262_400 * SECOND_US };

    /// When a line of this time was written, in seconds after boot, if it is one of the last so many seconds.
    fn written(text: &str, within_s: i64) -> Option<f64> {
        Some(Stamp::of_time(text)?.moment(READ.boot - Span(within_s * SECOND_US), READ)?.seconds())
    }

    #[test]
    fn a_known_offset_is_believed() {
        for text in ["2026-11-21 11:59:35.250 UTC", "2026-11-21 17:44:35.250 +0545", "2026-11-21 08:59:35.250 -03"] {
            assert_eq!(written(text, 26), Some(975.25), "{text}");
            assert_eq!(written(text, 3_600), Some(975.25), "{text}");
        }
        assert_eq!(written("2026-11-21 11:59:35 GMT:127.0.0.1", 26), Some(975.0));
    }

    #[test]
    fn an_abbreviation_is_the_only_offset_that_fits() {
        for text in ["2026-11-21 12:59:35.250 CET", "2026-11-21 17:29:35.250 IST", "2026-11-21 03:59:35.250 PST"] {
            assert_eq!(written(text, 26), Some(975.25), "{text}");
            assert_eq!(written(text, 1_000), None, "several offsets bring {text} there");
        }
        assert_eq!(written("2026-11-22 12:59:35.250 CET", 26), None, "no zone is a day ahead");
    }

    #[test]
    fn a_line_is_never_put_after_its_reading_nor_before_the_look_that_lacked_it() {
        assert_eq!(written("2026-11-21 12:00:00.001 UTC", 26), None);
        assert_eq!(written("2026-11-21 11:59:00.000 UTC", 26), None);
        assert_eq!(written("2026-11-21 11:58:00.000 CET", 26), None);
        assert_eq!(written("2026-11-21 11:59:33 UTC", 26), Some(974.0), "whole seconds: that of the look");
    }

    #[test]
    fn a_prefix_tells_where_the_time_stands() {
        let at = |line: &str, prefix: &str| Stamp::of_prefix(line, prefix);
        let wanted = Stamp::of_time("2026-11-21 11:59:35.250 UTC");
        assert!(wanted.is_some());
        assert_eq!(at("2026-11-21 11:59:35.250 UTC [7] LOG:  x", "%m [%p] "), wanted);
        assert_eq!(at("<2026-11-21 11:59:35.250 UTC> LOG:  x", "<%-10m> "), wanted);
        assert_eq!(at("1795262375.250 LOG:  x", "%n "), wanted);
        assert_eq!(at("2026-11-21 11:59:35 UTC LOG:  x", "%s "), None, "the session's beginning");
        assert_eq!(at("app 2026-11-21 11:59:35.250 UTC LOG:  x", "%a %m "), None, "what users choose may say anything");
        assert_eq!(at("2026-11-21 11:59:35.250 UTC LOG:  x", ""), None);
    }

    proptest! {
        #[test]
        fn never_panics(text in "[0-9ü]{0,4}-?[0-9 :.+-]{0,30}[A-Zü]{0,4}", prefix in "[%0-9mtnsü-]{0,6}", boot: i64, unix_us: i64) {
            let read = ClockAnchor { boot: Moment(boot), unix_us };
            for stamp in [Stamp::of_time(&text), Stamp::of_prefix(&text, &prefix), Stamp::of_unix_time(&text)] {
                let _ = stamp.and_then(|stamp| stamp.moment(Moment(0), read));
            }
        }
    }
}
