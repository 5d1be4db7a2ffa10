//! Which pool a session is of.

use crate::wire::StartUp;
use backwater_flow::{DEFAULT_POOL, Priority, State};

/// The setting by which a connection names its pool: `options=-c backwater.pool=p`.
const POOL_OPTION: &str = "backwater.pool";

/// Where a session goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placed<'s> {
    pub(super) pool: &'s str,
    /// The pool that its connection names in vain.
    pub(super) in_vain: Option<&'s str>,
}

/// The pool of a session: of its user, else of the door, unless the connection names another one. A user that is bound to a pool can
/// only go to a low one instead: nobody raises himself.
///
/// # Errors
/// The name of a pool that is not there.
pub(super) fn placed<'s>(state: &'s State, start: &StartUp, of_door: &'s str) -> Result<Placed<'s>, String> {
    let bound = state.users().contains_key(start.user());
    let own = if bound { state.pool_of(start.user()) } else { of_door };
    let Some(named) = start.option(POOL_OPTION) else { return Ok(Placed { pool: own, in_vain: None }) };
    let Some((name, pool)) = state.pools().get_key_value(&named) else { return Err(named) };
    let stays = bound && pool.priority == Priority::High;
    let in_vain = Some(name.as_str()).filter(|name| stays && *name != own);
    Ok(Placed { pool: if stays { own } else { name }, in_vain })
}

/// Whether it replicates and is in the default pool only because nobody said where it belongs: a base backup or a standby
/// would count as a statement that runs for ever.
pub(super) fn is_exempt(state: &State, start: &StartUp, of_door: &str) -> bool {
    let by_name = state.users().contains_key(start.user()) || start.option(POOL_OPTION).is_some();
    let is_placed = by_name || of_door != DEFAULT_POOL;
    start.is_replication() && !is_placed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_connection_may_name_its_pool_but_not_raise_itself() {
        let toml = "[pools.batch]\npriority = 'low'\n[pools.gold]\n[users]\netl = 'batch'\nboss = 'gold'";
        let state: State = toml::from_str(toml).unwrap();
        let pool = |user: &str, named: Option<&str>| {
            let mut start = StartUp::default();
            start.parameters.insert("user".to_owned(), user.to_owned());
            if let Some(named) = named {
                start.parameters.insert("options".to_owned(), format!("-c backwater.pool={named}"));
            }
            placed(&state, &start, DEFAULT_POOL).map(|placed| placed.pool.to_owned())
        };
        let in_vain = |user: &str, named: &str| {
            let mut start = StartUp::default();
            start.parameters.insert("user".to_owned(), user.to_owned());
            start.parameters.insert("options".to_owned(), format!("-c Backwater.Pool={named}"));
            placed(&state, &start, DEFAULT_POOL).unwrap().in_vain.map(str::to_owned)
        };
        assert_eq!(in_vain("etl", "gold").as_deref(), Some("gold"));
        assert_eq!([in_vain("etl", "batch"), in_vain("boss", "batch"), in_vain("anybody", "gold")], [None, None, None]);
        let by_door = |user: &str| {
            let mut start = StartUp::default();
            start.parameters.insert("user".to_owned(), user.to_owned());
            placed(&state, &start, "batch").unwrap().pool.to_owned()
        };
        assert_eq!((by_door("anybody").as_str(), by_door("boss").as_str()), ("batch", "gold"));
        assert_eq!(pool("etl", None).unwrap(), "batch");
        assert_eq!(pool("etl", Some("gold")).unwrap(), "batch");
        assert_eq!(pool("boss", Some("batch")).unwrap(), "batch");
        assert_eq!(pool("anybody", Some("gold")).unwrap(), "gold");
        assert_eq!(pool("anybody", None).unwrap(), DEFAULT_POOL);
        assert_eq!(pool("anybody", Some("no")).unwrap_err(), "no");
    }
}
