//! Members of the replica set that an engine belongs to.

use crate::rules::wt_evidence::Engine;
use crate::scene::Scene;
use backwater_model::catalogue as cat;

/// A member of which nothing was told for so many seconds is no longer there.
const GONE_S: f64 = 60.0;

/// The member that is furthest behind, where members go by their hosts.
pub(super) fn slowest(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<String> {
    let label = [("target", engine.name.as_str())];
    let tracks = scene.window.tracks(cat::MONGO_MEMBER_OPTIME.name, &label);
    // One that left the set meanwhile is not to be helped.
    let there =
        tracks.filter(|track| track.points.last().is_some_and(|last| scene.window.to.seconds_since(last.at) <= GONE_S));
    let last = there.filter_map(|track| Some((track.series.labels.get("member")?.to_owned(), track.last()?)));
    let member = last.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(member, _)| member)?;
    member.contains(':').then_some(member)
}
