//! What is known of a server's archive: WAL that is not archived yet is kept, whatever else.

use super::head_series;
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Moment, Target, Window};

/// Whether a server archives, and whether it is seen how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Archive {
    /// There is none.
    Off,
    /// How far it is, is told.
    Told,
    /// Nothing is archived, for every attempt has failed.
    Failing,
    /// There is one, and how far it is, is not told: nothing was archived yet, or the last file held no WAL.
    Unseen,
}

impl Archive {
    /// As it is seen at a moment.
    pub(super) fn of(window: &Window, settings: Option<&Target>, primary: &str, at: Moment) -> Self {
        let own = [("target", primary)];
        let last = |def: &Def| window.track(def.name, &own)?.between(window.from, at).last();
        if !archives(window, settings, primary) {
            Archive::Off
        } else if last(&cat::PG_ARCHIVED_UPTO).is_some() {
            Archive::Told
        } else if last(&cat::PG_ARCHIVED) == Some(0.0) && last(&cat::PG_ARCHIVE_FAILED) > Some(0.0) {
            Archive::Failing
        } else {
            Archive::Unseen
        }
    }
}

/// Whether a server archives WAL; a standby does so by `always` alone.
fn archives(window: &Window, settings: Option<&Target>, primary: &str) -> bool {
    match settings.and_then(|target| target.settings.get("archive_mode")).map(String::as_str) {
        None | Some("off") => false,
        Some("always") => true,
        Some(_) => head_series(window, primary) == cat::PG_WAL_INSERT.name,
    }
}
