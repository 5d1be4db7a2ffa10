//! Arms that ran with what was advised from another arm's recording: what was set, from which figures, and what it came to.

use crate::Style;
use crate::page::Page;
use crate::style::Tone;
use backwater_model::{Advised, AimOutcome, Figure, Outcome, Unit};

/// A paragraph an arm; nothing where no arm was advised or was to reach anything.
pub(crate) fn told(page: &mut Page<'_>, outcome: &Outcome, style: &Style) {
    let arms: Vec<_> = outcome.arms.iter().filter(|arm| arm.advised.is_some() || arm.aim.is_some()).collect();
    if arms.is_empty() {
        return;
    }
    page.gap();
    page.heading("Advised, and what it came to", 0);
    for arm in arms {
        page.gap();
        page.paragraph(Tone::Strong, &arm.name, 2);
        if let Some(advised) = &arm.advised {
            choice(page, advised);
        }
        if let Some(aim) = &arm.aim {
            reached(page, aim, style);
        }
    }
}

fn choice(page: &mut Page<'_>, advised: &Advised) {
    let Advised { from, repeat, relieves, remedy, observed, notes } = advised;
    let set = match remedy {
        Some(remedy) => {
            format!("From the recording of {from} (its repeat {repeat}), for the queue {relieves}: {}.", remedy.title)
        }
        None => format!(
            "From the recording of {from} (its repeat {repeat}): nothing is to be changed, so it ran as {from} does."
        ),
    };
    page.paragraph(Tone::Plain, &set, 4);
    page.commands(remedy.as_ref().map_or(&[], |remedy| &remedy.runtime), 6);
    for note in notes {
        page.paragraph(Tone::Faint, note, 4);
    }
    let predicted = remedy.as_ref().map_or(&[][..], |remedy| &remedy.predicted);
    for (words, figures) in [("Seen there", &observed[..]), ("Predicted", predicted)] {
        if !figures.is_empty() {
            page.paragraph(Tone::Faint, &format!("{words}: {}.", list(figures)), 4);
        }
    }
}

fn list(figures: &[Figure]) -> String {
    let shown = figures.iter().map(|figure| format!("{} {}", figure.label, figure.unit.show(figure.value)));
    shown.collect::<Vec<_>>().join("; ")
}

fn reached(page: &mut Page<'_>, aim: &AimOutcome, style: &Style) {
    let (tone, mark) = if aim.met {
        (Tone::Good, style.sign("✓ met: ", "met: "))
    } else {
        (Tone::Bad, style.sign("✗ missed: ", "MISSED: "))
    };
    let (seconds, most) = (Unit::Seconds.show(aim.stall_s), Unit::Seconds.show(aim.stall_s_most));
    let text = format!(
        "latency p99 is {:.2} of that of {} (at most {:.2}); stalled for {seconds} in the worst repeat (at most {most}).",
        aim.p99_ratio, aim.against, aim.p99_ratio_most
    );
    page.hanging(tone, mark, &text, 4);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::remedy;
    use backwater_model::ArmOutcome;

    #[test]
    fn what_was_set_and_what_it_came_to_is_told() {
        let advised = Advised {
            from: "last-round".to_owned(),
            repeat: 2,
            relieves: "host.dirty@7:0".to_owned(),
            remedy: Some(remedy()),
            observed: vec![Figure::new("drain_s", 2.5, Unit::Seconds, "burst ÷ drain")],
            notes: Vec::new(),
        };
        let aim = AimOutcome {
            against: "last-round".to_owned(),
            p99_ratio: 0.5,
            p99_ratio_most: 0.334,
            stall_s: 2.0,
            stall_s_most: 0.0,
            met: false,
        };
        let arm =
            ArmOutcome { name: "advised".to_owned(), advised: Some(advised), aim: Some(aim), ..ArmOutcome::default() };
        let style = Style::plain(100);
        let text = |outcome: &Outcome| {
            let mut page = Page::new(&style);
            told(&mut page, outcome, &style);
            page.finish()
        };
        let shown = text(&Outcome { arms: vec![arm], ..Outcome::default() });
        for part in
            ["(its repeat 2)", "host.dirty@7:0", "drain 2.50 s", "MISSED: latency p99 is 0.50", "(at most 0.33)"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(text(&Outcome { arms: vec![ArmOutcome::default()], ..Outcome::default() }).trim(), "");
    }
}
