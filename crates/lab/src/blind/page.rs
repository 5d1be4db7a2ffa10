//! The summary as a page of Markdown, for people and for `docs/bench`.

use super::deed::Deed;
use super::tally::{self, Judged, Proportion, Summary, Verdict};
use crate::scenario::ServerKind;
use backwater_model::HostFacts;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The page: proportions, who was taken for whom, what was wrong, what did not happen, what was not tried, every run.
pub(super) fn page(summary: &Summary, runs: &[Judged], machine: &HostFacts) -> String {
    let mut text = format!(
        "# Blind test of the diagnosis{}\n\n{} of {} runs, seed {}, {:.0} s of load each, on {}. Each run was recorded by itself and diagnosed by a process that was given the recording and two moments; \
         answers that count as right were fixed beforehand, and only the first finding counts.\n\n",
        if summary.server == ServerKind::WiredTiger { " of WiredTiger" } else { "" },
        summary.done,
        summary.planned,
        summary.seed,
        summary.seconds,
        host(machine),
    );
    let mut line = |what: &str, proportion: &Proportion| {
        let _infallible = writeln!(
            text,
            "- **{what}: {} of {}** ({:.1} %, 95 % interval {:.1} % to {:.1} %, Wilson)",
            proportion.right,
            proportion.of,
            1e2 * proportion.share(),
            1e2 * proportion.low,
            1e2 * proportion.high
        );
    };
    line("injected causes named by the first finding", &summary.injected);
    line("healthy runs without a finding of warning or worse", &summary.healthy);
    let noted = |harmless: bool| -> Vec<&Judged> {
        runs.iter().filter(|run| !run.noted.is_empty() && run.deed.is_harmless() == harmless).collect()
    };
    let (injected, healthy) = (noted(false), noted(true));
    text.push_str(&format!(
        "- runs with something that was only worth knowing (info), counted for nothing: {}, and {} of the healthy ones{}\n",
        injected.len(),
        healthy.len(),
        named(&healthy)
    ));
    text.push_str(&format!("- not reproduced, so counted for nothing: {}\n", summary.not_reproduced.len()));
    text.push_str(&confusion(summary));
    text.push_str(&listed("Wrong", &summary.wrong));
    text.push_str(&listed("Not reproduced", &summary.not_reproduced));
    text.push_str("\n## What was not tried\n");
    for what in &summary.not_tried {
        text.push_str(&format!("- {what}\n"));
    }
    text.push_str("\n## Every run\n| | done | set | what came of it | first finding | |\n|---|---|---|---|---|---|\n");
    for run in runs {
        let set = run.set.join(", ");
        let (number, deed, because, answer) = (run.number, run.deed.name(), &run.because, run.answer());
        text.push_str(&format!("| {number} | {deed} | {set} | {because} | {answer} | {} |\n", word(run.verdict())));
    }
    text
}

/// What was worth knowing of these runs, each once, in brackets.
fn named(runs: &[&Judged]) -> String {
    let names: BTreeSet<String> = runs.iter().flat_map(|run| &run.noted).map(tally::pair).collect();
    if names.is_empty() { String::new() } else { format!(" ({})", names.into_iter().collect::<Vec<_>>().join(", ")) }
}

fn host(machine: &HostFacts) -> String {
    let memory = machine.memory_bytes.map(|bytes| format!("{} of memory", backwater_model::Bytes(bytes)));
    let kernel = machine.kernel.as_ref().map(|kernel| format!("Linux {kernel}"));
    let parts = [machine.cpus.map(|cpus| format!("{cpus} processors")), memory, kernel];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A verdict in words.
pub(super) fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Right => "right",
        Verdict::Wrong => "WRONG",
        Verdict::NotReproduced => "not reproduced",
    }
}

fn confusion(summary: &Summary) -> String {
    let mut text =
        "\n## What was done, and what was found first\n| done | counts as right | found first |\n|---|---|---|\n"
            .to_owned();
    let deeds = [false, true].into_iter().flat_map(|harmless| Deed::deck(summary.server, harmless));
    let mut told: Vec<&str> = Vec::new();
    for deed in deeds {
        let Some(found) = summary.confusion.get(deed.name()).filter(|_| !told.contains(&deed.name())) else { continue };
        told.push(deed.name());
        let answers: Vec<String> = deed.answers().iter().map(|(rule, cause)| format!("{rule}/{cause}")).collect();
        let answers = if answers.is_empty() { "nothing".to_owned() } else { answers.join(" or ") };
        let found: Vec<String> = found.iter().map(|(answer, count)| format!("{answer} × {count}")).collect();
        text.push_str(&format!("| {} | {answers} | {} |\n", deed.name(), found.join(", ")));
    }
    text
}

fn listed(title: &str, runs: &[Judged]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let mut text = format!("\n## {title}\n");
    for run in runs {
        let all: Vec<String> = run.found.iter().map(|(rule, cause)| format!("{rule}/{cause}")).collect();
        let all = if all.is_empty() { "nothing".to_owned() } else { all.join(", ") };
        let kept = run.recording.as_ref().map(|dir| format!("; recording {dir}")).unwrap_or_default();
        let (number, deed, set, because) = (run.number, run.deed.name(), run.set.join(", "), &run.because);
        text.push_str(&format!("- run {number}, {deed} ({set}; {because}): found {all}{kept}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: usize, deed: Deed, reproduced: bool, found: &[(&str, &str)]) -> Judged {
        Judged {
            number,
            deed,
            set: vec!["network 2 MiB a second".to_owned()],
            reproduced,
            because: "2 MiB/s arrived".to_owned(),
            found: found.iter().map(|(rule, cause)| ((*rule).to_owned(), (*cause).to_owned())).collect(),
            noted: Vec::new(),
            recording: Some("runs/002".to_owned()),
            stretch_unix_us: None,
            took_s: 30.0,
        }
    }

    #[test]
    fn the_page_shows_what_was_wrong_and_what_was_not_tried() {
        let runs = [
            run(1, Deed::NetworkNarrow, true, &[("network-narrow", "shaper")]),
            run(2, Deed::NetworkNarrow, true, &[("standby-disk", "slow"), ("network-narrow", "shaper")]),
            Judged { noted: vec![("slot-inactive".to_owned(), "idle".to_owned())], ..run(3, Deed::Idle, true, &[]) },
            run(4, Deed::StandbyCapped, false, &[]),
        ];
        let summary = Summary::of((9, ServerKind::Postgres, 24.0), 4, &runs);
        let text = page(&summary, &runs, &HostFacts::default());
        for part in [
            "**injected causes named by the first finding: 1 of 2** (50.0 %, 95 % interval 9.5 % to 90.5 %, Wilson)",
            "counted for nothing: 0, and 1 of the healthy ones (slot-inactive/idle)\n",
            "**healthy runs without a finding of warning or worse: 1 of 1**",
            "| network-narrow | network-narrow/shaper | network-narrow/shaper × 1, standby-disk/slow × 1 |",
            "- run 2, network-narrow (network 2 MiB a second; 2 MiB/s arrived): found standby-disk/slow, network-narrow/shaper; recording runs/002",
            "## Not reproduced\n- run 4, standby-capped",
            "## What was not tried\n- volumes of a cloud",
            "| 4 | standby-capped | network 2 MiB a second | 2 MiB/s arrived | nothing | not reproduced |",
        ] {
            assert!(text.contains(part), "{part}\n---\n{text}");
        }
    }
}
