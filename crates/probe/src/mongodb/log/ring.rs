//! The last lines that a server keeps in memory and hands out (getLog), told apart from those seen before.

/// How many lines it keeps (src/mongo/logv2/ramlog.h). As many new ones mean that some were lost.
const KEPT: usize = 1_024;

/// What was seen of them.
#[derive(Clone, Debug, Default)]
pub(in crate::mongodb) struct Ring {
    /// The last lines of the look before; none before the first.
    seen: Option<Vec<String>>,
}

/// Lines remembered to find the place again: one alone may be there twice.
const REMEMBERED: usize = 4;

impl Ring {
    /// The lines that were not there at the look before, and whether some between were lost. At the first look none is new.
    pub(in crate::mongodb) fn new_lines<'a>(&mut self, lines: &[&'a str]) -> (Vec<&'a str>, bool) {
        let tail = lines.iter().rev().take(REMEMBERED).rev().map(|line| (*line).to_owned()).collect();
        let Some(seen) = self.seen.replace(tail) else { return (Vec::new(), false) };
        if seen.is_empty() {
            return (lines.to_vec(), lines.len() >= KEPT);
        }
        let whole = (seen.len()..=lines.len()).rev().find(|end| lines[end - seen.len()..*end] == seen[..]);
        // The older ones of those remembered may be gone: the newer then stand at the front.
        let front =
            || (1..seen.len().min(lines.len() + 1)).rev().find(|count| lines[..*count] == seen[seen.len() - count..]);
        match whole.or_else(front) {
            Some(end) => (lines[end..].to_vec(), false),
            None => (lines.to_vec(), true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_since() {
        let mut ring = Ring::default();
        assert_eq!(ring.new_lines(&["a", "b", "c"]), (vec![], false));
        assert_eq!(ring.new_lines(&["b", "c", "d", "e"]), (vec!["d", "e"], false), "one remembered is gone");
        assert_eq!(ring.new_lines(&["a", "b", "c", "d", "e", "f"]), (vec!["f"], false));
        assert_eq!(ring.new_lines(&["c", "d", "e", "f", "f", "g"]), (vec!["f", "g"], false));
        assert_eq!(ring.new_lines(&["c", "d", "e", "f", "f", "g"]), (vec![], false));
        assert_eq!(ring.new_lines(&["x", "y"]), (vec!["x", "y"], true));
    }

    #[test]
    fn an_empty_log_fills() {
        let mut ring = Ring::default();
        assert_eq!(ring.new_lines(&[]), (vec![], false));
        assert_eq!(ring.new_lines(&["a"]), (vec!["a"], false));
    }
}
