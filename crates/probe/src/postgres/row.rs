//! Values of a row as the server keeps them: it need not spell them out, nor reckon with them.

use super::answer::{Answer, Columns};
use backwater_model::Span;
use bytes::{BufMut, BytesMut};
use std::error::Error;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// A moment of the server's clock (timestamptz: microseconds since 2000 as a big-endian number).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerTime(i64);

impl ServerTime {
    /// Before all that a server tells: the year 2000.
    pub(super) const EARLIEST: ServerTime = ServerTime(0);

    /// So many microseconds after [`ServerTime::EARLIEST`].
    pub(super) fn of(microseconds: i64) -> ServerTime {
        ServerTime(microseconds)
    }

    /// By this host's clock, which is that of a server on it.
    pub(super) fn now() -> ServerTime {
        const YEAR_2000_UNIX_US: i64 = 946_684_800_000_000;
        ServerTime(crate::anchor().unix_us - YEAR_2000_UNIX_US)
    }

    /// The moment so long before.
    pub(super) fn before(self, span: Span) -> ServerTime {
        ServerTime(self.0.saturating_sub(span.0))
    }

    /// How long after an earlier moment of the same clock.
    pub(super) fn since(self, earlier: ServerTime) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// As a query's parameter.
impl ToSql for ServerTime {
    fn to_sql(&self, _: &Type, to: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        to.put_i64(self.0);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

/// A column's value; none where it is null, or of another type than PostgreSQL's own (forks differ).
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Option<T> {
    row.try_get::<_, Option<T>>(column).ok().flatten()
}

/// What a buffer may keep that is hardly used.
const MUCH_BYTES: usize = 1 << 20;

/// The values of one row, each as its bytes; none where it is null.
pub(super) type Cells<'r, const N: usize> = [Option<&'r [u8]>; N];

/// The rows of an answer: as they came, or as the library has read them.
#[derive(Debug)]
pub(super) enum Rows {
    Kept(Columns, Answer),
    Read(Vec<Row>),
}

impl Rows {
    /// Gives the values of each row; those that are not of these types (forks differ) are left out.
    ///
    /// # Errors
    /// A row that was kept is not so many values.
    pub(super) fn each<'r, const N: usize>(
        &'r self,
        types: &[Type; N],
        mut visit: impl FnMut(Cells<'r, N>),
    ) -> Result<(), String> {
        match self {
            Rows::Kept(columns, answer) => {
                let mut fits = types
                    .iter()
                    .zip(columns.iter())
                    .map(|(wanted, found)| found.as_ref().is_some_and(|found| is_like(found, wanted)));
                let fits: [bool; N] = std::array::from_fn(|_| fits.next().unwrap_or(false));
                for row in answer.rows() {
                    visit(
                        cells(row, &fits)
                            .ok_or_else(|| format!("a row of {} bytes, which are not {N} values", row.len()))?,
                    );
                }
            }
            Rows::Read(rows) => {
                let cell = |row: &'r Row, column: usize| {
                    get::<Raw<'r>>(row, column).filter(|raw| is_like(&raw.0, &types[column])).map(|raw| raw.1)
                };
                rows.iter().for_each(|row| visit(std::array::from_fn(|column| cell(row, column))));
            }
        }
        Ok(())
    }

    /// How many rows there are.
    pub(super) fn count(&self) -> usize {
        match self {
            Rows::Kept(_, answer) => answer.count(),
            Rows::Read(rows) => rows.len(),
        }
    }

    /// The memory that rows were kept in, for the next ones; what a first look took, which has all texts, is given back.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        let Rows::Kept(_, answer) = self else { return Vec::new() };
        let mut bytes = answer.into_buffer();
        if bytes.capacity() > MUCH_BYTES {
            bytes.shrink_to((2 * bytes.len()).max(MUCH_BYTES));
        }
        bytes
    }
}

/// Any text will do for a text.
fn is_like(found: &Type, wanted: &Type) -> bool {
    found == wanted || (*wanted == Type::TEXT && <&str as FromSql>::accepts(found))
}

/// A value of any type.
struct Raw<'a>(Type, &'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Raw(kind.clone(), raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The values of a row's message (how many there are, in two bytes, then they), but for those that do not fit.
fn cells<'r, const N: usize>(body: &'r [u8], fits: &[bool; N]) -> Option<Cells<'r, N>> {
    let (count, values) = body.split_first_chunk()?;
    if usize::from(u16::from_be_bytes(*count)) != N {
        return None;
    }
    let (mut found, rest) = cells_in(values)?;
    if !rest.is_empty() {
        return None;
    }
    found.iter_mut().zip(fits).filter(|(_, fits)| !**fits).for_each(|(cell, _)| *cell = None);
    Some(found)
}

/// So many values, each behind its length (four bytes, −1 for null), and what follows them.
fn cells_in<const N: usize>(mut rest: &[u8]) -> Option<(Cells<'_, N>, &[u8])> {
    let mut found = [None; N];
    for cell in &mut found {
        (*cell, rest) = value(rest)?;
    }
    Some((found, rest))
}

/// A value, and what follows it.
fn value(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, after) = bytes.split_first_chunk()?;
    match usize::try_from(i32::from_be_bytes(*length)) {
        Ok(length) => after.split_at_checked(length).map(|(value, after)| (Some(value), after)),
        Err(_null) => Some((None, after)),
    }
}

/// A text.
pub(super) fn text(cell: Option<&[u8]>) -> Option<&str> {
    std::str::from_utf8(cell?).ok()
}

/// An int4.
pub(super) fn int(cell: Option<&[u8]>) -> Option<i32> {
    Some(i32::from_be_bytes(cell?.try_into().ok()?))
}

/// An int8.
pub(super) fn long(cell: Option<&[u8]>) -> Option<i64> {
    Some(i64::from_be_bytes(cell?.try_into().ok()?))
}

/// A timestamptz.
pub(super) fn time(cell: Option<&[u8]>) -> Option<ServerTime> {
    long(cell).map(ServerTime)
}

/// The elements of an array of one dimension that has so many: what it says of its length is not believed. Before them stand
/// how many dimensions it has, whether there are nulls, the elements' type, and the dimension's length and lower bound.
pub(super) fn array<const N: usize>(cell: Option<&[u8]>) -> Option<Cells<'_, N>> {
    let (head, elements) = cell?.split_first_chunk::<20>()?;
    let number = |place: usize| int(head.get(place * 4..place * 4 + 4));
    let is_so = number(0) == Some(1) && number(3).and_then(|length| usize::try_from(length).ok()) == Some(N);
    is_so.then(|| cells_in(elements)).flatten().map(|(cells, _)| cells)
}

/// A row's message that may be any bytes.
#[cfg(fuzzing)]
pub(super) fn exercise(body: &[u8]) {
    for cell in cells(body, &[true; 10]).into_iter().flatten() {
        let _ = (text(cell), int(cell), time(cell), array::<5>(cell));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_time_is_eight_bytes_and_nothing_else() {
        let time = |raw: &[u8]| time(Some(raw));
        let (one, other) = (time(&1_000_i64.to_be_bytes()).unwrap(), time(&3_500_i64.to_be_bytes()).unwrap());
        assert_eq!(other.since(one), Span(2_500));
        assert_eq!(one.since(time(&i64::MIN.to_be_bytes()).unwrap()), Span(i64::MAX));
        assert_eq!(time(&[0; 4]), None);
    }

    fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut body = (values.len() as u16).to_be_bytes().to_vec();
        for value in values {
            body.extend(value.map_or(-1, |value| value.len() as i32).to_be_bytes());
            body.extend(value.unwrap_or_default());
        }
        body
    }

    #[test]
    fn a_row_is_its_values_and_one_of_another_shape_is_none() {
        let whole = row(&[Some(&7_i32.to_be_bytes()), None, Some(b""), Some("né".as_bytes())]);
        let [pid, null, empty, name] = cells(&whole, &[true; 4]).unwrap();
        assert_eq!((int(pid), text(null), text(empty), text(name)), (Some(7), None, Some(""), Some("né")));
        assert_eq!((int(name), long(pid), text(Some(&[0xff]))), (None, None, None));
        assert_eq!(cells(&whole, &[false, true, true, true]).unwrap(), [None, null, empty, name], "of another type");
        assert_eq!((cells(&whole, &[true; 3]), cells(&whole, &[true; 5])), (None, None));
        assert!((0..whole.len()).all(|cut| cells(&whole[..cut], &[true; 4]).is_none()), "a row that is cut has none");
        assert_eq!(cells(&[whole.as_slice(), b"x"].concat(), &[true; 4]), None, "something behind its last value");
    }

    #[test]
    fn an_array_has_its_texts() {
        let mut array = [1_i32, 1, 25, 2, 1].map(i32::to_be_bytes).concat();
        array.extend(row(&[Some(b"client backend"), None])[2..].iter());
        assert_eq!(super::array(Some(&array)), Some([Some(b"client backend".as_slice()), None]));
        assert_eq!((super::array::<2>(Some(&array[..25])), super::array::<2>(None)), (None, None));
        array[12..16].copy_from_slice(&i32::MAX.to_be_bytes());
        assert_eq!((super::array::<2>(Some(&array)), super::array::<3>(Some(&array))), (None, None));
    }

    #[test]
    fn a_parameter_is_the_same_moment() {
        let mut sent = BytesMut::new();
        ServerTime(-5).before(Span(2)).to_sql_checked(&Type::TIMESTAMPTZ, &mut sent).unwrap();
        assert_eq!(time(Some(&sent)), Some(ServerTime(-7)));
        assert!(ServerTime::EARLIEST.to_sql_checked(&Type::TIMESTAMP, &mut sent).is_err(), "another type");
    }
}
