//! Gathers the named figures of a finding: what is unknown, or no number, is left out.

use backwater_model::{Figure, Unit};

/// Figures in the order in which they were added.
#[derive(Default)]
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    /// Adds a figure, if it is known.
    pub(crate) fn add(&mut self, name: &str, value: Option<f64>, unit: Unit, label: &str) {
        let known = value.filter(|value| value.is_finite());
        self.0.extend(known.map(|value| Figure::new(name, value, unit, label)));
    }

    /// All of them.
    pub(crate) fn list(self) -> Vec<Figure> {
        self.0
    }
}
