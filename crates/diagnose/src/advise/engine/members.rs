//! Members of the replica set that an engine belongs to.

use crate::rules::history_pinned::holds_majority;
use crate::rules::wt_evidence::Engine;
use crate::scene::Scene;
use backwater_model::{Figure, Finding, Unit, catalogue as cat};

/// A member of which nothing was told for so many seconds is no longer there, and not to be helped.
const GONE_S: f64 = 60.0;

/// The member for which a majority waited in a finding, where members go by their hosts.
pub(super) fn in_the_way(scene: &Scene<'_>, engine: &Engine<'_>, finding: &Finding) -> Option<String> {
    let to = scene.grid.second(finding.to).unwrap_or(scene.grid.count);
    let member = holds_majority(scene, engine, &(scene.grid.second(finding.from)?..to))?;
    let labels = [("target", engine.name.as_str()), ("member", member.as_str())];
    let track = scene.window.track(cat::MONGO_MEMBER_OPTIME.name, &labels)?;
    let there = track.points.last().is_some_and(|last| scene.window.to.seconds_since(last.at) <= GONE_S);
    Some(member).filter(|member| there && member.contains(':'))
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
