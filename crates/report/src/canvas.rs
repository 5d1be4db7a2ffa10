//! A grid of characters to draw on: braille dots, eight a character, where the terminal shows them; else one sign a
//! character. A column keeps the whole span of its values, so that a peak between two columns is not lost.

/// Dots of one braille character: across and down.
const ACROSS: usize = 2;
const DOWN: usize = 4;
/// What a character of the grid shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spot {
    /// Braille dots that are set, as the low byte of U+2800.
    dots: u8,
    /// A sign instead of dots.
    sign: Option<char>,
    /// Which curve drew here last; none for lines behind the curves.
    curve: Option<usize>,
}

/// The grid. Places are fractions: x from 0 (left) to 1 (right), y from 0 (bottom) to 1 (top).
#[derive(Clone, Debug)]
pub(crate) struct Canvas {
    columns: usize,
    rows: usize,
    spots: Vec<Spot>,
    braille: bool,
}

impl Canvas {
    /// An empty grid of at least one character.
    pub(crate) fn new(columns: usize, rows: usize, braille: bool) -> Self {
        let (columns, rows) = (columns.max(1), rows.max(1));
        Canvas { columns, rows, spots: vec![Spot::default(); columns * rows], braille }
    }

    /// How many dots it is wide.
    fn dots_across(&self) -> usize {
        self.columns * if self.braille { ACROSS } else { 1 }
    }

    fn dots_down(&self) -> usize {
        self.rows * if self.braille { DOWN } else { 1 }
    }

    /// The character column at x.
    pub(crate) fn column(&self, x: f64) -> usize {
        place(x, self.columns)
    }

    /// The character row at y, counted from the top.
    pub(crate) fn row(&self, y: f64) -> usize {
        self.rows - 1 - place(y, self.rows)
    }

    /// A level line, behind everything.
    pub(crate) fn level(&mut self, y: f64, sign: char) {
        let row = self.row(y);
        for spot in &mut self.spots[row * self.columns..(row + 1) * self.columns] {
            spot.sign = Some(sign);
        }
    }

    /// An upright line, behind the curves.
    pub(crate) fn upright(&mut self, x: f64, sign: char) {
        let column = self.column(x);
        for row in 0..self.rows {
            self.spots[row * self.columns + column].sign = Some(sign);
        }
    }

    /// One curve. Points come in order of x; a point that is none breaks the line.
    pub(crate) fn curve(&mut self, number: usize, points: impl Iterator<Item = Option<(f64, f64)>>, sign: char) {
        let mut before: Option<(usize, usize)> = None;
        for point in points {
            let here = point.map(|(x, y)| (place(x, self.dots_across()), place(y, self.dots_down())));
            if let Some((x, y)) = here {
                let (from_x, from_y) = before.filter(|(before_x, _)| *before_x <= x).unwrap_or((x, y));
                self.line((from_x, from_y), (x, y), number, sign);
            }
            before = here;
        }
    }

    /// A line without holes from one dot to another at its right, drawn column by column.
    fn line(&mut self, from: (usize, usize), to: (usize, usize), number: usize, sign: char) {
        let run = (to.0 - from.0).max(1) as f64;
        let rise = to.1 as f64 - from.1 as f64;
        let height = |x: usize| (from.1 as f64 + rise * (x - from.0) as f64 / run).round() as usize;
        let mut last = from.1;
        for x in from.0..=to.0 {
            let y = if x == to.0 { to.1 } else { height(x) };
            // From the height of the column before, its own dot left out, up or down to this one's.
            let (low, high) = if x == from.0 && x != to.0 { (y, y) } else { span(last, y) };
            for dot in low..=high {
                self.dot(x, dot, number, sign);
            }
            last = y;
        }
    }

    fn dot(&mut self, x: usize, y: usize, number: usize, sign: char) {
        let top = self.dots_down() - 1 - y.min(self.dots_down() - 1);
        let (across, down) = if self.braille { (ACROSS, DOWN) } else { (1, 1) };
        let spot = &mut self.spots[top / down * self.columns + (x / across).min(self.columns - 1)];
        spot.curve = Some(number);
        if self.braille {
            spot.dots |= dot_bit(x % ACROSS, top % DOWN);
        } else {
            spot.sign = Some(sign);
        }
    }

    /// Characters of one row from the top, each with the curve that drew it.
    pub(crate) fn characters(&self, row: usize) -> impl Iterator<Item = (char, Option<usize>)> + '_ {
        self.spots[row * self.columns..(row + 1) * self.columns].iter().map(|spot| {
            let dots = char::from_u32(0x2800 + u32::from(spot.dots)).filter(|_| spot.dots != 0);
            (dots.or(spot.sign).unwrap_or(' '), spot.curve)
        })
    }

    /// How many rows it has.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }
}

/// The dots between two heights; the first is left out, since the column before has it.
fn span(before: usize, now: usize) -> (usize, usize) {
    match before.cmp(&now) {
        std::cmp::Ordering::Less => (before + 1, now),
        std::cmp::Ordering::Equal => (now, now),
        std::cmp::Ordering::Greater => (now, before - 1),
    }
}

/// The place of a fraction among `count` places.
fn place(fraction: f64, count: usize) -> usize {
    // A cast saturates and makes NaN 0.
    ((fraction * count as f64) as usize).min(count - 1)
}

/// Braille numbers its dots down the left, down the right, then the two at the bottom (Unicode, block 2800).
fn dot_bit(across: usize, down: usize) -> u8 {
    const BITS: [[u8; DOWN]; ACROSS] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
    BITS[across][down]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(canvas: &Canvas) -> Vec<String> {
        (0..canvas.rows()).map(|row| canvas.characters(row).map(|(c, _)| c).collect()).collect()
    }

    #[test]
    fn a_peak_narrower_than_a_column_stays() {
        let mut points: Vec<_> = (0..1_000).map(|place| Some((f64::from(place) / 1_000.0, 0.1))).collect();
        points[503] = Some((0.503, 1.0));
        let mut canvas = Canvas::new(10, 3, false);
        canvas.curve(0, points.into_iter(), '*');
        assert_eq!(text(&canvas), ["     *    ", "     *    ", "**********"]);
    }

    #[test]
    fn a_hole_stays_a_hole() {
        let points = [Some((0.0, 0.0)), None, Some((0.9, 0.0)), Some((1.0, 1.0))];
        let mut canvas = Canvas::new(10, 2, false);
        canvas.curve(0, points.into_iter(), '*');
        assert_eq!(text(&canvas), ["         *", "*        *"]);
    }

    #[test]
    fn braille_has_eight_dots_a_character() {
        let mut canvas = Canvas::new(1, 1, true);
        canvas.curve(0, [Some((0.0, 0.0)), Some((0.99, 0.99))].into_iter(), '*');
        assert_eq!(text(&canvas), ["⡸"]);
    }
}
