//! What advice leaves open, and why: in words beside the settings.

use super::measured::Measured;
use super::{Changed, EngineAdvice, LEAST_SHARE};
use crate::remedy::engine as remedy;
use backwater_model::{Target, Unit};

/// That no setting makes up for a disk that writes less than is made dirty; None where it writes as much.
pub(super) fn outrun(seen: &Measured, drain: f64) -> Option<String> {
    let inflow = seen.inflow.filter(|inflow| *inflow > drain)?;
    Some(format!(
        "More is made dirty ({}) than the disk takes of it ({}): settings only decide when writers are held. It takes a faster disk, \
         fewer or smaller writes, or writers that are held before the cache holds them.",
        Unit::BytesPerSecond.show(inflow),
        Unit::BytesPerSecond.show(drain)
    ))
}

/// A level this many times over what is wanted misses it.
const OVER_WANTED: f64 = 1.1;

/// That eviction cannot begin as early as what the disk takes in time.
pub(super) fn least_burst(target: Option<&Target>, seen: &Measured, drain: f64, wanted: f64) -> Option<String> {
    let (_, level) = remedy::level(target, wanted.max(LEAST_SHARE * seen.cache), seen.cache);
    (level > OVER_WANTED * wanted && seen.burst > wanted).then(|| {
        format!(
            "Eviction begins at {} of the cache at the least, which is {} of this one and takes the disk {}: less is left only where the \
             cache itself is smaller, if what is read fits into that.",
            Unit::Ratio.show(level / seen.cache),
            Unit::Bytes.show(level),
            Unit::Seconds.show(level / drain)
        )
    })
}

/// That the lines do not follow from the server's release, which is not known.
pub(super) fn release_unknown(advice: &EngineAdvice) -> Option<String> {
    (advice.version_num.is_none() && !advice.remedies.is_empty()).then(|| {
        "Which release this is, is not known (a user may have no right to ask): every line here is one that all releases take, or says \
         where it is right; what only some of them have is left out."
            .to_owned()
    })
}

/// That the lines of several remedies are one line in the server's file.
pub(super) fn one_config_string(remedies: &[Changed]) -> Option<String> {
    let config_string = |(remedy, _): &&Changed| remedy.persistent.iter().any(|line| line.contains("configString"));
    (remedies.iter().filter(config_string).count() > 1).then(|| {
        "Each line of a file is for its remedy alone: what is kept of several goes into one configString, with commas between.".to_owned()
    })
}

/// That the trigger is never reached, so that no time to it is told.
pub(super) fn never_filled(seen: &Measured) -> Option<String> {
    let (inflow, left) = (seen.inflow_peak?, seen.drain? - seen.journal);
    (inflow <= left).then(|| {
        format!(
            "The time until application threads must evict is not told: at its most {} is made dirty, and the disk takes {}.",
            Unit::BytesPerSecond.show(inflow),
            Unit::BytesPerSecond.show(left)
        )
    })
}
