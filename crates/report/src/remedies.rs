//! Remedies as commands to copy: now, for good, and back.

use crate::Style;
use crate::findings::figures;
use crate::page::Page;
use crate::style::Tone;
use backwater_model::{Activation, Figure, Remedy};

/// Advice about one server: under its heading what to keep in mind, what was seen, and what to set.
pub(crate) fn section(
    page: &mut Page<'_>,
    heading: &str,
    (notes, observed, remedies): (&[String], &[Figure], &[Remedy]),
    style: &Style,
) {
    page.gap();
    page.heading(heading, 0);
    for note in notes {
        page.paragraph(Tone::Plain, note, 2);
    }
    if !observed.is_empty() {
        page.gap();
        page.heading("Seen", 2);
        page.ready(&figures(observed, &style.indented(4)), 4);
    }
    list(page, "What to set", remedies, style, 2);
}

/// Remedies, numbered, under a heading; nothing where there are none.
pub(crate) fn list(page: &mut Page<'_>, heading: &str, remedies: &[Remedy], style: &Style, indent: usize) {
    if remedies.is_empty() {
        return;
    }
    page.gap();
    page.heading(heading, indent);
    for (place, remedy) in remedies.iter().enumerate() {
        if place > 0 {
            page.gap();
        }
        page.hanging(Tone::Strong, &format!("{}. ", place + 1), &remedy.title, indent + 2);
        one(page, remedy, style, indent + 5);
    }
}

fn one(page: &mut Page<'_>, remedy: &Remedy, style: &Style, indent: usize) {
    commands(page, "to change it now:", &remedy.runtime, indent);
    commands(page, "to keep it so:", &remedy.persistent, indent);
    commands(page, "to take it back:", &remedy.undo, indent);
    page.paragraph(Tone::Plain, &format!("takes effect {}", activation(remedy.activation)), indent);
    if !remedy.predicted.is_empty() {
        page.paragraph(Tone::Plain, "predicted:", indent);
        page.ready(&figures(&remedy.predicted, &style.indented(indent + 2)), indent + 2);
    }
    if !remedy.risk.is_empty() {
        page.hanging(Tone::Plain, "risk: ", &remedy.risk, indent);
    }
}

fn commands(page: &mut Page<'_>, title: &str, commands: &[String], indent: usize) {
    if !commands.is_empty() {
        page.paragraph(Tone::Plain, title, indent);
        page.commands(commands, indent + 2);
    }
}

/// When a change takes effect, in words.
pub(crate) fn activation(activation: Activation) -> &'static str {
    match activation {
        Activation::Immediate => "at once",
        Activation::Reload => "after a reload of the server",
        Activation::Restart => "after a restart of the server",
    }
}
