//! Values of a row as the server keeps them: it need not spell them out, nor reckon with them.

use backwater_model::Span;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

/// A moment of the server's clock (timestamptz: microseconds since 2000 as a big-endian number).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerTime(i64);

/// 1 January 2000 as microseconds since 1970.
const UNIX_2000_US: i64 = 946_684_800_000_000;

impl ServerTime {
    /// Before all that a server tells: the year 2000.
    pub(super) const EARLIEST: ServerTime = ServerTime(0);

    #[cfg(test)]
    pub(super) fn of(microseconds: i64) -> ServerTime {
        ServerTime(microseconds)
    }

    /// The moment so long before.
    pub(super) fn before(self, span: Span) -> ServerTime {
        ServerTime(self.0.saturating_sub(span.0))
    }

    /// The same moment, as a query's parameter is given.
    pub(super) fn as_parameter(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.0.saturating_add(UNIX_2000_US).try_into().unwrap_or_default())
    }

    /// How long after an earlier moment of the same clock.
    pub(super) fn since(self, earlier: ServerTime) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl<'a> FromSql<'a> for ServerTime {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(ServerTime(i64::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TIMESTAMPTZ
    }
}

/// A column's value; none where it is null, or of another type than PostgreSQL's own (forks differ).
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Option<T> {
    row.try_get::<_, Option<T>>(column).ok().flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_time_is_eight_bytes_and_nothing_else() {
        let time = |raw: &[u8]| ServerTime::from_sql(&Type::TIMESTAMPTZ, raw);
        let (one, other) = (time(&1_000_i64.to_be_bytes()).unwrap(), time(&3_500_i64.to_be_bytes()).unwrap());
        assert_eq!(other.since(one), Span(2_500));
        assert_eq!(one.since(time(&i64::MIN.to_be_bytes()).unwrap()), Span(i64::MAX));
        assert!(time(&[0; 4]).is_err() && !ServerTime::accepts(&Type::TIMESTAMP));
    }

    #[test]
    fn a_parameter_is_the_same_moment() {
        let seconds = |time: ServerTime| time.as_parameter().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert_eq!(seconds(ServerTime::EARLIEST), 946_684_800.0);
        assert_eq!(seconds(ServerTime(2_500_000).before(Span(1_000_000))), 946_684_801.5);
        assert_eq!(seconds(ServerTime(i64::MIN)), 0.0);
    }
}
