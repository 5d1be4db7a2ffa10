//! Coordinate descent over knobs with a few values each: one knob after another is turned as far as it helps, until turning none
//! helps. What is asked for next follows from what was told; nothing here waits, measures or draws lots.
//!
//! A single measurement is noisy: only what is clearly better is followed, and no point is measured twice. What is found this way
//! must be measured again beside what it is compared with, since the best of many single measurements looks better than it is.

use std::collections::BTreeMap;

/// The place of each knob's value in its list.
pub(super) type Point = Vec<usize>;

/// The share of the best so far below which a measurement is clearly better; single runs of one arm differ by a tenth.
const CLEARLY: f64 = 0.9;

/// A search as far as it has come.
#[derive(Clone, Debug)]
pub(super) struct Descent {
    /// How many values each knob has.
    values: Vec<usize>,
    best: Point,
    tried: BTreeMap<Point, f64>,
    most: usize,
    knob: usize,
    upwards: bool,
    /// Knobs that were left since the last that helped.
    without: usize,
}

impl Descent {
    /// One that begins at `start` and measures at most so many points. Each knob has so many values, at least one.
    pub(super) fn new(values: Vec<usize>, start: Point, most: usize) -> Descent {
        Descent { values, best: start, tried: BTreeMap::new(), most, knob: 0, upwards: true, without: 0 }
    }

    /// What to measure next; none once nothing is left to try or enough was tried. What is given must be told before the next.
    pub(super) fn next(&mut self) -> Option<Point> {
        if self.tried.len() >= self.most {
            return None;
        }
        if !self.tried.contains_key(&self.best) {
            return Some(self.best.clone());
        }
        while self.without < self.values.len() {
            match self.neighbour() {
                Some(point) if !self.tried.contains_key(&point) => return Some(point),
                _ => self.turn(),
            }
        }
        None
    }

    /// What a point came to: less is better. Whether it is the best so far.
    pub(super) fn tell(&mut self, point: Point, cost: f64) -> bool {
        let first = self.tried.is_empty();
        let better = first || self.tried.get(&self.best).is_some_and(|best| cost < CLEARLY * best);
        self.tried.insert(point.clone(), cost);
        match (first, better) {
            (true, _) => {}
            (false, true) => (self.best, self.without) = (point, 0),
            (false, false) => self.turn(),
        }
        better
    }

    /// The best so far.
    pub(super) fn best(&self) -> &Point {
        &self.best
    }

    /// The best with the present knob turned by one.
    fn neighbour(&self) -> Option<Point> {
        let at = self.best.get(self.knob)?;
        let to = if self.upwards { at + 1 } else { at.checked_sub(1)? };
        let mut point = self.best.clone();
        *point.get_mut(self.knob)? = to;
        (to < *self.values.get(self.knob)?).then_some(point)
    }

    /// The other way, and then the next knob.
    fn turn(&mut self) {
        if self.upwards {
            self.upwards = false;
            return;
        }
        self.upwards = true;
        self.knob = (self.knob + 1) % self.values.len().max(1);
        self.without += 1;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// Runs a search to its end; what it measured, in order.
    fn run(search: &mut Descent, cost: impl Fn(&Point) -> f64) -> Vec<Point> {
        let mut measured = Vec::new();
        while let Some(point) = search.next() {
            search.tell(point.clone(), cost(&point));
            measured.push(point);
        }
        measured
    }

    /// Knobs with the place where each begins and where it would be best.
    fn knobs() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
        let knob = (1usize..6).prop_flat_map(|values| (Just(values), 0..values, 0..values));
        proptest::collection::vec(knob, 1..6)
    }

    proptest! {
        #[test]
        fn where_each_knob_has_one_valley_its_floor_is_found(knobs in knobs()) {
            let floor: Point = knobs.iter().map(|knob| knob.2).collect();
            let away = |point: &Point| point.iter().zip(&floor).map(|(a, b)| a.abs_diff(*b)).sum::<usize>();
            let mut search =
                Descent::new(knobs.iter().map(|knob| knob.0).collect(), knobs.iter().map(|knob| knob.1).collect(), 1_000);
            run(&mut search, |point| 2f64.powi(away(point) as i32));
            prop_assert_eq!(search.best(), &floor);
        }

        #[test]
        fn nothing_is_measured_twice_nor_beyond_what_there_is_nor_too_often(
            knobs in knobs(), most in 1usize..40, costs in proptest::collection::vec(0.1f64..10.0, 40)
        ) {
            let values: Vec<usize> = knobs.iter().map(|knob| knob.0).collect();
            let start: Point = knobs.iter().map(|knob| knob.1).collect();
            let mut search = Descent::new(values.clone(), start.clone(), most);
            let at = |point: &Point| point.iter().fold(7usize, |sum, at| sum * 31 + at) % costs.len();
            let measured = run(&mut search, |point| costs[at(point)]);
            prop_assert!(measured.len() <= most);
            prop_assert_eq!(&measured[0], &start);
            let mut once = measured.clone();
            once.sort();
            once.dedup();
            prop_assert_eq!(once.len(), measured.len());
            prop_assert!(measured.iter().flat_map(|point| point.iter().zip(&values)).all(|(at, values)| at < values));
            prop_assert!(costs[at(search.best())] <= costs[at(&start)]);
        }
    }

    #[test]
    fn what_is_only_a_little_better_is_noise() {
        let mut search = Descent::new(vec![3], vec![0], 10);
        assert_eq!(run(&mut search, |point| 100.0 - 5.0 * point[0] as f64), [vec![0], vec![1]]);
        assert_eq!(search.best(), &vec![0]);
    }
}
