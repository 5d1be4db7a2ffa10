//! Members of the replica set that an engine belongs to.

use crate::rules::wt_evidence::{Engine, own_member};
use crate::scene::Scene;
use backwater_model::{Figure, Finding, Unit, catalogue as cat};

/// A member of which nothing was told for so many seconds is no longer there.
const GONE_S: f64 = 60.0;

/// The member that is furthest behind, where members go by their hosts.
pub(super) fn slowest(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<String> {
    let label = [("target", engine.name.as_str())];
    let tracks = scene.window.tracks(cat::MONGO_MEMBER_OPTIME.name, &label);
    // One that left the set meanwhile is not to be helped.
    let there =
        tracks.filter(|track| track.points.last().is_some_and(|last| scene.window.to.seconds_since(last.at) <= GONE_S));
    let own = own_member(scene, engine);
    let others = there.filter(|track| track.series.labels.get("member") != own.as_deref());
    let last = others.filter_map(|track| Some((track.series.labels.get("member")?.to_owned(), track.last()?)));
    // An optime of 0 is told of one that does not answer, and of one that has none, such as an arbiter.
    let member =
        last.filter(|(_, optime)| *optime > 0.0).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(member, _)| member)?;
    member.contains(':').then_some(member)
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
