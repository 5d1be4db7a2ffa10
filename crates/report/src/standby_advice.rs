//! Advice for standbys, for people: what was seen, what to set so that one may be away for a while, and what to keep in mind.

use crate::Style;
use crate::page::Page;
use crate::remedies;
use backwater_diagnose::StandbyAdvice;
use backwater_model::Unit;

/// The advice, standby by standby; nothing where there is none.
pub fn standby_advice(list: &[StandbyAdvice], style: &Style) -> String {
    let mut page = Page::new(style);
    for advice in list {
        let survive = Unit::Seconds.show(advice.survive_s);
        let (standby, primary) = (&advice.standby, &advice.primary);
        let heading = format!("Standby {standby} of {primary}, so that it may be away for {survive}");
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
    fn each_standby_has_its_outage_its_figures_and_its_commands() {
        let advice = StandbyAdvice {
            primary: "main".to_owned(),
            standby: "s1\u{1b}[2J".to_owned(),
            survive_s: 1_800.0,
            observed: vec![Figure::new("generated_bytes_per_s", 8_388_608.0, Unit::BytesPerSecond, "WAL made")],
            remedies: vec![remedy()],
            notes: vec!["Record under load.".to_owned()],
        };
        let text = standby_advice(&[advice], &Style::plain(100));
        for part in ["of main, so that it may be away for 30 min 00 s", "8.00 MiB/s", "Record under load.", "risk: "] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "names cannot move the cursor");
        assert!(text.contains(&remedy().title) && text.contains(&remedy().undo[0]));
        assert_eq!(standby_advice(&[], &Style::plain(100)).trim(), "");
    }
}
