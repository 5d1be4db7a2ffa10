//! What to do about a right that is missing: it depends on who this process runs as.

/// For root that is refused something: it is confined.
const CONFINED: &str = "this process is root but confined, as in a container: run on the host itself, or give the \
                        container the right (--cap-add SYS_PTRACE --cap-add SYS_ADMIN, or --privileged)";

/// The remedy for an ordinary user (`run as root, or …`); for root, to whom that would be no help, what helps there.
pub(crate) fn remedy(ordinary: &'static str) -> &'static str {
    told(rustix::process::geteuid().is_root(), ordinary)
}

fn told(root: bool, ordinary: &'static str) -> &'static str {
    if root { CONFINED } else { ordinary }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_become_root() {
        assert_eq!(told(false, "run as root"), "run as root");
        assert!(told(true, "run as root").contains("--cap-add"));
    }
}
