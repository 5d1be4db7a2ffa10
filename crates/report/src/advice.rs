//! Advice for people: what was seen, the limit to set with its commands, what more operations a second would buy.

use crate::Style;
use crate::findings::figures;
use crate::page::Page;
use crate::remedies;
use crate::style::Tone;
use crate::table::{Cell, cells};
use backwater_diagnose::{Advice, DeviceAdvice, IopsRow, LimitAdvice, Mechanism};
use backwater_model::Unit;

/// The advice, device by device, then the server's own settings.
pub fn advice(advice: &Advice, style: &Style) -> String {
    let mut page = Page::new(style);
    let target = Unit::Seconds.show(advice.drain_target_s);
    page.heading(&format!("Advice, so that everything dirty is written within {target}"), 0);
    for note in &advice.notes {
        page.paragraph(Tone::Plain, note, 0);
    }
    for device in &advice.devices {
        page.gap();
        of_device(&mut page, device, style);
    }
    if !advice.settings.is_empty() {
        remedies::list(&mut page, "Settings of the server", &advice.settings, style, 0);
    }
    page.finish()
}

fn of_device(page: &mut Page<'_>, device: &DeviceAdvice, style: &Style) {
    page.heading(&format!("Device {} ({})", device.name, device.dev), 0);
    for warning in &device.warnings {
        page.hanging(Tone::Warning, style.sign("▲ ", "! "), warning, 2);
    }
    for note in &device.notes {
        page.paragraph(Tone::Plain, note, 2);
    }
    if !device.observed.is_empty() {
        page.gap();
        page.heading("Seen", 2);
        page.ready(&figures(&device.observed, &style.indented(4)), 4);
    }
    if let Some(limit) = &device.limit {
        of_limit(page, limit, style);
    }
    if !device.more_iops.is_empty() {
        page.gap();
        page.heading("What other ratings would lead to", 2);
        page.ready(&ratings(&device.more_iops, &style.indented(4)), 4);
    }
}

fn of_limit(page: &mut Page<'_>, limit: &LimitAdvice, style: &Style) {
    page.gap();
    let how = match limit.mechanism {
        Mechanism::PerDevice => "for this device alone",
        Mechanism::WholeHost => "for the whole host, since this kernel has no limit of the device's own",
    };
    page.hanging(
        Tone::Good,
        style.sign("→ ", "-> "),
        &format!("Set the dirty limit to {} {how}", Unit::Bytes.show(limit.bytes as f64)),
        2,
    );
    page.ready(&now_and_then(limit, &style.indented(4)), 4);
    if let Some(remedy) = &limit.remedy {
        remedies::list(page, "How", std::slice::from_ref(remedy), style, 2);
    }
}

fn now_and_then(limit: &LimitAdvice, style: &Style) -> String {
    let shown = |value: Option<f64>, unit: Unit| Cell::from(value.map_or_else(|| "–".to_owned(), |v| unit.show(v)));
    let bytes = limit.bytes as f64;
    let rows = [
        vec![Cell::from("dirty limit"), shown(limit.now_bytes, Unit::Bytes), shown(Some(bytes), Unit::Bytes)],
        vec![
            Cell::from("time to write all of it"),
            shown(limit.whole_drain_now_s, Unit::Seconds),
            shown(Some(limit.whole_drain_s), Unit::Seconds),
        ],
    ];
    cells(&["", "in force", "predicted"], &rows, style)
}

fn ratings(rows: &[IopsRow], style: &Style) -> String {
    let shown = |value: Option<f64>, unit: Unit| Cell::from(value.map_or_else(|| "–".to_owned(), |v| unit.show(v)));
    let row = |row: &IopsRow| {
        let (held, tone) = if row.still_held { ("yes", Tone::Warning) } else { ("no", Tone::Good) };
        let mut cells = vec![
            Cell::new(Unit::Count.show(row.iops), if row.now { Tone::Strong } else { Tone::Plain }),
            Cell::from(if row.now { "now" } else { "" }),
            shown(row.throughput_per_s, Unit::PerSecond),
            shown(row.drain_s, Unit::Seconds),
            Cell::new(held, tone),
        ];
        // In whatever currency the price was given in.
        cells.extend(row.cost_per_month.map(|cost| Cell::from(format!("{cost:.2}"))));
        cells
    };
    let mut headers = vec!["write IOPS", "", "throughput", "drain", "writers held"];
    if rows.iter().any(|row| row.cost_per_month.is_some()) {
        headers.push("cost a month");
    }
    let rows: Vec<Vec<Cell>> = rows.iter().map(row).collect();
    cells(&headers, &rows, style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::{MIB, STYLES, remedy};
    use backwater_model::Figure;

    fn rating(iops: f64, now: bool, drain_s: f64) -> IopsRow {
        IopsRow {
            iops,
            now,
            throughput_per_s: Some(iops * 1.36),
            drain_s: Some(drain_s),
            still_held: now,
            cost_per_month: Some(iops * 0.065),
        }
    }

    fn example() -> Advice {
        let limit = LimitAdvice {
            bytes: 64 << 20,
            mechanism: Mechanism::PerDevice,
            now_bytes: Some(384.0 * MIB),
            whole_drain_now_s: Some(27.0),
            whole_drain_s: 4.5,
            remedy: Some(remedy()),
        };
        let device = DeviceAdvice {
            dev: "7:0".to_owned(),
            name: "loop0".to_owned(),
            observed: vec![Figure::new("outflow_bytes_per_s", 14.2 * MIB, Unit::BytesPerSecond, "written under load")],
            limit: Some(limit),
            more_iops: vec![rating(1_500.0, true, 9.8), rating(3_000.0, false, 4.9)],
            warnings: vec!["max_bytes is 64 MiB, but strict_limit is 0.".to_owned()],
            notes: vec![],
        };
        let nothing = DeviceAdvice {
            dev: "8:0".to_owned(),
            name: "sda\u{1b}[2J".to_owned(),
            observed: vec![],
            limit: None,
            more_iops: vec![],
            warnings: vec![],
            notes: vec!["No writing under load was seen on this device, so no limit can be told.".to_owned()],
        };
        let settings = vec![remedy()];
        let notes = vec!["A smaller limit does not make the device faster.".to_owned()];
        Advice { drain_target_s: 5.0, devices: vec![device, nothing], settings, notes }
    }

    #[test]
    fn advice_comes_with_commands_and_predictions() {
        for (name, style) in STYLES {
            insta::assert_snapshot!(format!("advice_{name}"), advice(&example(), &style));
        }
    }

    #[test]
    fn without_a_price_there_is_no_cost() {
        let row = IopsRow { cost_per_month: None, ..rating(1_500.0, false, 1.0) };
        assert!(!ratings(&[row], &Style::plain(80)).contains("cost"));
    }
}
