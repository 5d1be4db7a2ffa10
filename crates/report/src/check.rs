//! What this host and this role allow, and what each missing privilege costs.

use crate::Style;
use crate::page::Page;
use crate::style::Tone;

/// One thing that may or may not be readable here.
#[derive(Clone, Debug, Default)]
pub struct CheckRow {
    /// What it is.
    pub what: String,
    /// What is lost without it; empty where its name says so.
    pub costs: String,
    /// Why it cannot be read; none where it can.
    pub why_not: Option<String>,
    /// A GRANT, a mount or a privilege that would add it.
    pub remedy: Option<String>,
}

/// What can be read first, then what cannot with what would add it, then how many of each.
pub fn check(rows: &[CheckRow], style: &Style) -> String {
    let mut page = Page::new(style);
    let (there, missing): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.why_not.is_none());
    for row in &there {
        page.hanging(Tone::Plain, style.sign("✓ ", "ok  "), &row.what, 0);
    }
    if !missing.is_empty() {
        page.gap();
    }
    for CheckRow { what, costs, why_not, remedy } in missing.iter().copied() {
        let why = why_not.as_deref().unwrap_or_default();
        page.hanging(Tone::Warning, style.sign("✗ ", "--  "), &format!("{what}: {why}"), 0);
        if !costs.is_empty() {
            page.paragraph(Tone::Plain, &format!("lost without it: {costs}"), 4);
        }
        if let Some(remedy) = remedy {
            page.paragraph(Tone::Faint, "to add it:", 4);
            page.commands(std::slice::from_ref(remedy), 6);
        }
    }
    page.gap();
    let verdict = match missing.len() {
        0 => format!("All {} can be read.", rows.len()),
        _ => format!("{} of {} can be read.", there.len(), rows.len()),
    };
    page.heading(&verdict, 0);
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::STYLES;

    #[test]
    fn what_is_missing_comes_with_what_would_add_it() {
        let row = |what: &str, costs: &str, why_not: Option<&str>, remedy: Option<&str>| CheckRow {
            what: what.to_owned(),
            costs: costs.to_owned(),
            why_not: why_not.map(str::to_owned),
            remedy: remedy.map(str::to_owned),
        };
        let rows = [
            row("page cache of the host (/proc/vmstat)", "how full it is", None, None),
            row(
                "sessions of other roles",
                "who waits on what",
                Some("the role is not in pg_monitor"),
                Some("GRANT pg_monitor TO backwater;"),
            ),
            row("pressure (PSI)", "", Some("this kernel has none"), None),
        ];
        for (name, style) in STYLES {
            insta::assert_snapshot!(format!("check_{name}"), check(&rows, &style));
        }
        assert_eq!(
            check(&rows[..1], &Style::plain(80)),
            "ok  page cache of the host (/proc/vmstat)\n\nAll 1 can be read.\n"
        );
    }
}
