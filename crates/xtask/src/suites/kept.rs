//! What came of the suites, compared test by test, as the page docs/nightly/suites.md.

use super::console::Visit;
use super::outcome::{Outcome, Verdict};
use super::servers::{HELD, HELD_TO};
use super::{REASONS, Reason};
use crate::bench;
use anyhow::Context;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// How many names of one kind are written out.
const NAMED: usize = 30;

/// A suite both ways, one after the other.
pub(super) struct Pair {
    pub(super) direct: Outcome,
    pub(super) through: Outcome,
}

impl Pair {
    /// Tests that did not come out the same both ways, also where one way has no such test.
    pub(super) fn differences(&self) -> BTreeSet<&str> {
        let names = self.direct.tests.keys().chain(self.through.tests.keys());
        let unlike = names.filter(|name| self.direct.tests.get(*name) != self.through.tests.get(*name));
        unlike.map(String::as_str).collect()
    }

    /// Whether it passes direct and not through the proxy.
    fn is_lost(&self, test: &str) -> bool {
        let passed = |outcome: &Outcome| outcome.tests.get(test) == Some(&Verdict::Passed);
        passed(&self.direct) && !passed(&self.through)
    }
}

/// A suite's result by one proxy. The second pair is there only where the first was not alike.
pub(super) struct Compared {
    pub(super) name: &'static str,
    /// What the proxy does.
    pub(super) way: &'static str,
    pub(super) version: String,
    pub(super) first: Pair,
    pub(super) second: Option<Pair>,
}

impl Compared {
    /// Passed direct and not through the proxy, each time.
    fn lost(&self) -> Vec<&str> {
        let Some(second) = &self.second else { return Vec::new() };
        let lost = self.first.differences().into_iter();
        lost.filter(|test| self.first.is_lost(test) && second.is_lost(test)).collect()
    }

    /// Of those, what no reason is known for.
    pub(super) fn defects(&self) -> Vec<String> {
        let lost = self.lost().into_iter().filter(|test| self.reason(test).is_none());
        lost.map(|test| format!("{} ({}): {test}", self.name, self.way)).collect()
    }

    /// Came out differently in one pair only, or the other way round.
    fn unsteady(&self) -> Vec<&str> {
        let Some(second) = &self.second else { return Vec::new() };
        let lost = self.lost();
        let all: BTreeSet<_> = self.first.differences().into_iter().chain(second.differences()).collect();
        all.into_iter().filter(|test| !lost.contains(test)).collect()
    }

    /// Failed both ways in the first pair.
    fn failed_anyway(&self) -> Vec<&str> {
        let failed = |outcome: &Outcome, test: &String| outcome.tests.get(test) == Some(&Verdict::Failed);
        let both = self.first.direct.tests.keys();
        let both = both.filter(|test| failed(&self.first.direct, test) && failed(&self.first.through, test));
        both.map(String::as_str).collect()
    }

    fn reason(&self, test: &str) -> Option<&'static str> {
        let is_its = |of: &&Reason| of.suite == self.name && of.ways.contains(&self.way) && of.tests.contains(&test);
        REASONS.iter().find(is_its).map(|of| of.why)
    }
}

/// Writes the page.
pub(super) fn write(workspace: &Path, server: &str, all: &[Compared], visits: &[Visit]) -> anyhow::Result<()> {
    let path = workspace.join("docs/nightly/suites.md");
    let text = page(&bench::machine()?, server, all)? + &console(visits)?;
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn page(machine: &str, server: &str, all: &[Compared]) -> anyhow::Result<String> {
    let mut text = format!(
        "# suites\n\n`cargo xtask nightly suites`, {machine}\n\nOther people's test suites against {server} on loopback: direct, \
         through `backwater proxy`, which holds nothing, and through another (held) that holds sessions to its low class of \
         {HELD_TO} a second (but those that replicate, which have no pool), all three without encryption but where a test asks for it \
         by itself, which these proxies pass through; and with encryption, direct and through a third (ended), which ends it on both \
         sides. The proxies are \
         built with their own assertions checked (their times are not those of a release). Where a proxy and direct are not alike, both are run a second time: what passes direct and not through the proxy \
         both times is a difference, the rest is unsteady.\n\n\
         | suite | version | direct: passed, failed, skipped | | proxy | passed, failed, skipped | | differences |\n\
         |---|---|---|---|---|---|---|---|\n"
    );
    for suite in all {
        let Pair { direct, through } = &suite.first;
        let counts = [direct, through].map(|outcome| {
            let [passed, failed, skipped] =
                [Verdict::Passed, Verdict::Failed, Verdict::Skipped].map(|verdict| outcome.count(verdict));
            format!("{passed}, {failed}, {skipped} | {} s", outcome.took.as_secs())
        });
        let lost = suite.lost().len();
        let Compared { name, way, version, .. } = suite;
        writeln!(text, "| {name} | {version} | {} | {way} | {} | {lost} |", counts[0], counts[1])?;
    }
    section(&mut text, "Passes direct, not through the proxy", all, |suite| {
        let why = |test| suite.reason(test).unwrap_or("a defect");
        suite.lost().into_iter().map(|test| format!("{test}: {}", why(test))).collect()
    })?;
    section(&mut text, "Unsteady: came out differently once", all, |suite| {
        let why = |test| suite.reason(test).map_or(String::new(), |why| format!(": {why}"));
        suite.unsteady().into_iter().map(|test| format!("{test}{}", why(test))).collect()
    })?;
    let names = |tests: Vec<&str>| tests.into_iter().map(str::to_owned).collect();
    section(&mut text, "Fails direct too: no matter of the proxy", all, |suite| match suite.way {
        // It is the same that failed direct.
        HELD => Vec::new(),
        _ => names(suite.failed_anyway()),
    })?;
    Ok(text)
}

/// What drivers came to on the console.
fn console(visits: &[Visit]) -> anyhow::Result<String> {
    let mut text =
        "\n## The console, by drivers\nEach says the article's statements as they stand, changes a pool within a \
                    transaction, is refused, and reads back the rule, the user, the SQLSTATE and the pool.\n\n\
                    | driver | version | reads back |\n|---|---|---|\n"
            .to_owned();
    for Visit { driver, version, unlike } in visits {
        writeln!(text, "| {driver} | {version} | {} |", unlike.as_deref().unwrap_or("what is there"))?;
    }
    Ok(text)
}

/// A heading, and names below it, a line each.
fn section(
    text: &mut String,
    title: &str,
    all: &[Compared],
    names: impl Fn(&Compared) -> Vec<String>,
) -> anyhow::Result<()> {
    writeln!(text, "\n## {title}")?;
    let before = text.len();
    for suite in all {
        let names = names(suite);
        for name in names.iter().take(NAMED) {
            writeln!(text, "- {} ({}): {name}", suite.name, suite.way)?;
        }
        if names.len() > NAMED {
            writeln!(text, "- {} ({}): {} more", suite.name, suite.way, names.len() - NAMED)?;
        }
    }
    if text.len() == before {
        writeln!(text, "none")?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Compared, Pair, page};
    use crate::suites::outcome::{Outcome, Verdict};
    use crate::suites::servers::THROUGH;
    use std::time::Duration;

    /// Tests `a`, `b`, …: p(assed), f(ailed), s(kipped), - (not there).
    fn outcome(verdicts: &str) -> Outcome {
        let tests = verdicts.chars().zip('a'..).filter_map(|(verdict, name)| {
            let verdict = match verdict {
                'p' => Verdict::Passed,
                'f' => Verdict::Failed,
                's' => Verdict::Skipped,
                _ => return None,
            };
            Some((name.to_string(), verdict))
        });
        Outcome { tests: tests.collect(), took: Duration::from_secs(7) }
    }

    fn pair(direct: &str, through: &str) -> Pair {
        Pair { direct: outcome(direct), through: outcome(through) }
    }

    #[test]
    fn a_defect_is_what_is_lost_each_time() {
        //                                      a lost twice, b lost once, c gained, d fails anyway, e vanishes
        let (first, second) = (pair("ppffp", "ffpf-"), pair("ppffp", "fpff-"));
        let suite = Compared { name: "x", way: THROUGH, version: "1".to_owned(), first, second: Some(second) };
        assert_eq!(suite.defects(), ["x (through): a", "x (through): e"]);
        assert_eq!(suite.unsteady(), ["b", "c"]);
        assert_eq!(suite.failed_anyway(), ["d"]);
        let text = page("on a machine", "PostgreSQL 15", &[suite]).unwrap();
        assert!(text.contains("| x | 1 | 3, 2, 0 | 7 s | through | 1, 3, 0 | 7 s | 2 |"), "{text}");
        assert!(text.contains("- x (through): a: a defect\n- x (through): e: a defect\n"), "{text}");
    }

    #[test]
    fn what_is_alike_is_said_to_be() {
        let first = pair("psp", "psp");
        let suite = Compared { name: "x", way: "held", version: "1".to_owned(), first, second: None };
        assert!(suite.defects().is_empty());
        let text = page("on a machine", "PostgreSQL 15", &[suite]).unwrap();
        assert_eq!(text.matches("\nnone\n").count(), 3, "{text}");
    }
}
