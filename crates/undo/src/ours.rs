//! Which paths an undo may remove: Backwater's own and no others, whatever a journal says.

use std::path::{Component, Path};

/// What the names of Backwater's own directories, control groups and namespaces begin with.
pub(crate) const PREFIX: &str = "backwater-";

/// Whether `path` is absolute, free of `..`, and either inside `state_dir` or inside (or itself) something named
/// `backwater-…`.
pub(crate) fn is_ours(path: &Path, state_dir: &Path) -> bool {
    let straight = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let named = path.components().any(|part| part.as_os_str().to_string_lossy().starts_with(PREFIX));
    path.is_absolute() && straight && (named || (path.starts_with(state_dir) && path != state_dir))
}

/// Whether the last part of `path` is named `backwater-…`.
pub(crate) fn is_named_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_paths_are_ours() {
        let state = Path::new("/var/lib/backwater");
        for ours in ["/var/lib/backwater/lab/x", "/dev/shm/backwater-1-2-disk/image", "/tmp/backwater-1"] {
            assert!(is_ours(Path::new(ours), state), "{ours}");
        }
        for not in ["/var/lib/backwater", "/var/lib", "/", "/home/me", "lab/backwater-1", "/var/lib/backwater/../x", ""]
        {
            assert!(!is_ours(Path::new(not), state), "{not}");
        }
    }
}
