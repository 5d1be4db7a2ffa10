//! Advice for MongoDB and WiredTiger, for people: what was seen of the cache and its disk, and what to set, line by line.

use crate::Style;
use crate::page::Page;
use crate::remedies;
use backwater_diagnose::EngineAdvice;
use backwater_model::Unit;

/// The advice, server by server; nothing where there is none.
pub fn engine_advice(list: &[EngineAdvice], style: &Style) -> String {
    let mut page = Page::new(style);
    for advice in list {
        let target = Unit::Seconds.show(advice.burst_target_s);
        let release = advice
            .version_num
            .map_or(String::new(), |number| format!(" ({}.{}.{})", number / 10_000, number / 100 % 100, number % 100));
        let server = &advice.server;
        let heading = format!("{server}{release}, so that the disk takes what a checkpoint brings within {target}");
        remedies::section(&mut page, &heading, (&advice.notes, &advice.observed, &advice.remedies), style);
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::remedy;
    use backwater_model::Figure;

    #[test]
    fn each_server_has_its_release_its_figures_and_its_lines() {
        let advice = EngineAdvice {
            at_ease: false,
            server: "db1:27017\u{1b}[2J".to_owned(),
            version_num: Some(70_012),
            burst_target_s: 0.5,
            observed: vec![Figure::new("burst_bytes", 52_428_800.0, Unit::Bytes, "dirty when a checkpoint begins")],
            remedies: vec![remedy()],
            changes: Vec::new(),
            notes: vec!["Record under load.".to_owned()],
        };
        let text = engine_advice(&[advice], &Style::plain(100));
        for part in ["(7.0.12), so that", "500 ms", "50.0 MiB", "Record under load.", "risk: "] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "names cannot move the cursor");
        assert_eq!(engine_advice(&[], &Style::plain(100)).trim(), "");
    }
}
