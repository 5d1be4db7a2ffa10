//! When a line of mongod's log was written.

use backwater_model::Moment;

/// How a line of 4.4 and later begins.
const JSON: &str = r#"{"t":{"$date":""#;

/// The time at the front of a line, as a moment since 1970; none where it has none, or none with a zone (`ctime`, which
/// releases up to 4.2 could be told to write, names neither year nor zone).
pub(super) fn written_at(line: &str) -> Option<Moment> {
    let text = match line.strip_prefix(JSON) {
        Some(rest) => rest.split('"').next()?,
        None => line.split(' ').next()?,
    };
    // Sooner than a parser would: nothing shorter holds date, time and zone.
    if text.len() < 20 || !text.as_bytes()[0].is_ascii_digit() {
        return None;
    }
    text.parse::<jiff::Timestamp>().ok().map(|time| Moment(time.as_microsecond()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_shapes_of_line_have_a_time_with_a_zone() {
        let at = |line: &str| written_at(line).map(|at| at.0);
        // 2026-11-21T20:06:50.123Z.
        let expected = Some(1_795_291_610_123_000);
        assert_eq!(at(r#"{"t":{"$date":"2026-11-21T20:06:50.123+00:00"},"s":"I",  "c":"WRITE"}"#), expected);
        assert_eq!(at(r#"{"t":{"$date":"2026-11-21T22:06:50.123+02:00"},"s":"I"}"#), expected);
        assert_eq!(at("2026-11-21T20:06:50.123+0000 I  COMMAND  [conn1] x"), expected);
        assert_eq!(at("2026-11-21T12:06:50.123-0800 I COMMAND [conn1] x"), expected);
        assert_eq!(at("2026-11-21T20:06:50.123Z I COMMAND [conn1] x"), expected);
    }

    #[test]
    fn other_lines_have_none() {
        for line in
            ["", " ", "Wed Nov 21 20:06:50.123 [conn1] x", "2026-11-21T20:06:50.123 I", r#"{"t":{"$date":""#, "\tat f"]
        {
            assert_eq!(written_at(line), None, "{line}");
        }
    }
}
