//! Members of the replica set that an engine belongs to.

use crate::rules::history_pinned::holds_majority;
use crate::rules::wt_evidence::Engine;
use crate::scene::Scene;
use backwater_model::{Figure, Finding, Unit};

/// A member of which nothing was told for so many seconds is no longer there, and not to be helped.
const GONE_S: usize = 60;

/// The member for which a majority waits in the end, where members go by their hosts.
pub(super) fn in_the_way(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<String> {
    let end = scene.grid.count.saturating_sub(GONE_S)..scene.grid.count;
    holds_majority(scene, engine, &end).filter(|member| member.contains(':'))
}

/// What becomes of a primary's cache once a majority keeps up, by what the cache held before it fell behind: a checkpoint can write
/// everything again.
pub(super) fn kept_up(finding: &Finding) -> Vec<Figure> {
    let told = [
        ("dirty_before_ratio", Unit::Ratio, "dirty share of the cache, on average"),
        ("dirty_peak_ratio", Unit::Ratio, "the same as it is, at most"),
        ("trigger_in_s", Unit::Seconds, "until application threads must evict, as it is; then they need not"),
    ];
    let figures =
        told.into_iter().map(|(name, unit, label)| Some(Figure::new(name, finding.figure(name)?, unit, label)));
    figures.flatten().collect()
}
