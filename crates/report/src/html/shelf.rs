//! Series and panels of a document while it is put together.

use super::axis::{Axis, Lane};
use super::document::{Curve, CurveRole, Panel, Series};
use backwater_model::{Unit, Window};

/// What is collected, and from where.
pub(super) struct Shelf<'a> {
    pub(super) window: &'a Window,
    pub(super) axis: Axis,
    pub(super) series: Vec<Series>,
    pub(super) panels: Vec<Panel>,
}

impl<'a> Shelf<'a> {
    pub(super) fn new(window: &'a Window, axis: Axis) -> Self {
        Shelf { window, axis, series: Vec::new(), panels: Vec::new() }
    }

    /// Keeps a lane, if anything of it is known, and says where it stands.
    pub(super) fn keep(&mut self, label: impl Into<String>, unit: Unit, lane: Lane) -> Option<usize> {
        lane.known().then(|| {
            self.series.push(Series { label: label.into(), unit, lane });
            self.series.len() - 1
        })
    }

    /// Adds a chart of these curves, if any of its lines is known, and says where it stands.
    pub(super) fn chart(
        &mut self,
        group: &str,
        title: &str,
        unit: Unit,
        curves: &[(Option<usize>, CurveRole)],
    ) -> Option<usize> {
        let curves: Vec<Curve> =
            curves.iter().filter_map(|(series, role)| Some(Curve { series: (*series)?, role: *role })).collect();
        let (group, title) = (group.to_owned(), title.to_owned());
        curves.iter().any(|curve| curve.role == CurveRole::Line).then(|| {
            self.panels.push(Panel { title, group, unit, curves, shown: false });
            self.panels.len() - 1
        })
    }

    /// The largest value of a series that was kept.
    pub(super) fn most(&self, series: Option<usize>) -> Option<f64> {
        self.series.get(series?)?.lane.max()
    }
}
