//! What people call each queue, what it is, what happens at its limit, and where more is told of it.

mod kinds;

use kinds::KINDS;

/// A page elsewhere: what it tells, and its address.
pub(super) type Page = (&'static str, &'static str);

/// Which of the path's rows a queue stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Commits, operations and writes up to the log.
    Writes,
    /// Reads, and what they keep alive.
    Reads,
    /// Pages on their way to disk.
    Pages,
    /// The oplog and its members.
    Members,
    /// Results on their way to clients.
    Results,
    /// Log on its way to one standby.
    Standby,
}

/// The words of one kind of queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// The queue's name, up to its `@`.
    pub(super) kind: &'static str,
    /// What people call it.
    pub(super) title: &'static str,
    /// What it is.
    pub(super) about: &'static str,
    /// What happens at its limit.
    pub(super) at_limit: &'static str,
    /// Where more is told.
    pub(super) docs: &'static [Page],
    /// Its row.
    pub(super) part: Part,
    /// How far along its row it stands.
    pub(super) step: usize,
    /// Kinds of the queues into which it flows.
    pub(super) next: &'static [&'static str],
    /// Whether something counts what stands in it. Where nothing does, what flows is shown all the same.
    pub(super) counted: bool,
}

/// The kind of a queue's name.
pub(super) fn kind(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// The words of a queue's name.
pub(super) fn of(name: &str) -> Option<&'static Words> {
    of_kind(kind(name))
}

/// The words of a kind.
pub(super) fn of_kind(kind: &str) -> Option<&'static Words> {
    KINDS.iter().find(|words| words.kind == kind)
}

/// The part of a queue's name behind its `@`.
pub(super) fn place(name: &str) -> Option<&str> {
    name.split_once('@').map(|(_, place)| place)
}

/// Every queue in Markdown, as `docs/reference/queues.md` has it.
pub(super) fn reference() -> String {
    let mut out = String::from(
        "# Queues\n\nMade from the program's own words: `cargo run -q -p backwater-report --example queues`.\n\n\
         What the path of a report, of `serve` and of `watch` shows, and what `/metrics` and findings name. Behind the `@` stands whose it \
         is: a device's number, a control group, a standby, a server. A part that nothing counts stays unknown.\n",
    );
    for words in &KINDS {
        out.push_str(&format!("\n## {} · `{}`\n\n{}\n\n", words.title, words.kind, words.about));
        out.push_str(&format!("At its limit: {}\n\n", words.at_limit));
        if !words.next.is_empty() {
            let next: Vec<String> = words.next.iter().map(|kind| format!("`{kind}`")).collect();
            out.push_str(&format!("It flows into {}.\n\n", next.join(", ")));
        }
        let docs: Vec<String> = words.docs.iter().map(|(title, url)| format!("[{title}]({url})")).collect();
        out.push_str(&format!("{}\n", docs.join(" · ")));
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_queue_has_its_own_words_and_a_page_that_tells_more() {
        for (place, words) in KINDS.iter().enumerate() {
            assert!(KINDS[..place].iter().all(|other| other.kind != words.kind), "{} twice", words.kind);
            assert!(!words.docs.is_empty(), "{}", words.kind);
            assert!(words.docs.iter().all(|(_, url)| url.starts_with("https://")), "{}", words.kind);
            assert!(words.about.ends_with('.') && words.at_limit.ends_with('.'), "{}", words.kind);
        }
    }

    #[test]
    fn the_reference_is_what_the_page_says() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/queues.md");
        let kept = std::fs::read_to_string(path).unwrap();
        let remedy = "make it anew: cargo run -q -p backwater-report --example queues > docs/reference/queues.md";
        assert!(kept == reference(), "{remedy}");
    }

    #[test]
    fn what_flows_on_flows_into_a_kind_that_there_is_and_never_in_a_circle() {
        for words in &KINDS {
            let mut reached: Vec<&str> = words.next.to_vec();
            for _ in 0..KINDS.len() {
                let further: Vec<&str> =
                    reached.iter().flat_map(|kind| of_kind(kind).unwrap().next.iter().copied()).collect();
                assert!(!further.contains(&words.kind), "{} flows into itself", words.kind);
                reached = further;
            }
            assert!(reached.is_empty(), "{}", words.kind);
        }
    }
}
