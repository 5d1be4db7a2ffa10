//! Two hands change rules, pools and users: the configuration file and the console. Whoever changed a thing last has his
//! way, thing by thing.
//!
//! What is kept between two starts is what was in force, and the file as it stood then. A rule that the file now has
//! otherwise than then was edited since: the file counts. One that the file has as before was last changed on the
//! console, if at all: what was in force counts.

use crate::StateForm;
use std::collections::BTreeMap;

impl StateForm {
    /// What is in force from now on: of `kept` what the file has not changed since it was `before`, otherwise what the
    /// file says `now`.
    pub fn merged(before: &StateForm, kept: &StateForm, now: &StateForm) -> StateForm {
        let file_changed = before.low_priority_bandwidth != now.low_priority_bandwidth;
        let bandwidth = if file_changed { now } else { kept };
        StateForm {
            low_priority_bandwidth: bandwidth.low_priority_bandwidth.clone(),
            rules: things(&before.rules, &kept.rules, &now.rules),
            pools: things(&before.pools, &kept.pools, &now.pools),
            users: things(&before.users, &kept.users, &now.users),
        }
    }
}

fn things<T: Clone + PartialEq>(
    before: &BTreeMap<String, T>,
    kept: &BTreeMap<String, T>,
    now: &BTreeMap<String, T>,
) -> BTreeMap<String, T> {
    let mut merged = kept.clone();
    for name in before.keys().chain(now.keys()).filter(|name| before.get(*name) != now.get(*name)) {
        match now.get(name) {
            Some(thing) => merged.insert(name.clone(), thing.clone()),
            None => merged.remove(name),
        };
    }
    merged
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn form(users: &[(&str, &str)]) -> StateForm {
        let users = users.iter().map(|(user, pool)| ((*user).to_owned(), (*pool).to_owned())).collect();
        StateForm { users, ..StateForm::default() }
    }

    #[test]
    fn who_changed_a_thing_last_has_his_way() {
        let before = form(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
        // The console changed a and c, dropped d and made e.
        let kept = form(&[("a", "console"), ("b", "1"), ("c", "console"), ("e", "console")]);
        // The file changed b and c since, and has f.
        let now = form(&[("a", "1"), ("b", "file"), ("c", "file"), ("d", "1"), ("f", "file")]);
        let merged = StateForm::merged(&before, &kept, &now);
        let wanted = form(&[("a", "console"), ("b", "file"), ("c", "file"), ("e", "console"), ("f", "file")]);
        assert_eq!(merged, wanted);
        assert!(!StateForm::merged(&before, &kept, &form(&[])).users.contains_key("a"), "what the file drops is gone");
    }

    fn users() -> impl Strategy<Value = StateForm> {
        prop::collection::btree_map("[a-c]", "[x-z]", 0..4)
            .prop_map(|users| StateForm { users, ..StateForm::default() })
    }

    proptest! {
        #[test]
        fn a_file_that_did_not_change_changes_nothing(file in users(), kept in users()) {
            prop_assert_eq!(StateForm::merged(&file, &kept, &file), kept);
        }

        #[test]
        fn what_nobody_changed_on_the_console_is_as_the_file_says(before in users(), now in users()) {
            prop_assert_eq!(StateForm::merged(&before, &before, &now), now);
        }
    }
}
