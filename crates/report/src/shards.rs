//! The shards of a cluster side by side: a row a shard, a column a figure.

use crate::Style;
use crate::page::Page;
use crate::style::Tone;
use crate::table::{Cell, cells};
use backwater_diagnose::{ShardFigure, ShardRow};

/// A table of shards, each with its own queues' figures; empty without shards.
pub fn shards(rows: &[ShardRow], style: &Style) -> String {
    let mut page = Page::new(style);
    let Some(first) = rows.first() else { return page.finish() };
    page.heading("Shards side by side, on average while each member was primary", 0);
    let places = known(rows);
    let heads = places.iter().map(|place| first.figures[*place].head);
    let heads: Vec<&str> = ["shard", "server"].into_iter().chain(heads).collect();
    let row = |row: &ShardRow| {
        let values = places.iter().map(|place| Cell::from(shown(&row.figures[*place])));
        let names = [Cell::new(row.shard.as_str(), Tone::Strong), Cell::from(row.server.as_str())];
        names.into_iter().chain(values).collect()
    };
    page.ready(&cells(&heads, &rows.iter().map(row).collect::<Vec<_>>(), style), 0);
    let words = places.iter().map(|place| &first.figures[*place]);
    let words: Vec<String> = words.map(|figure| format!("{}: {}", figure.head, figure.label)).collect();
    page.paragraph(Tone::Faint, &words.join("; "), 0);
    page.finish()
}

/// Places of the figures that any of the shards has.
pub(crate) fn known(rows: &[ShardRow]) -> Vec<usize> {
    let count = rows.iter().map(|row| row.figures.len()).min().unwrap_or_default();
    (0..count).filter(|place| rows.iter().any(|row| row.figures[*place].value.is_some())).collect()
}

pub(crate) fn shown(figure: &ShardFigure) -> String {
    figure.value.map_or_else(|| "–".to_owned(), |value| figure.unit.show(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use backwater_model::Unit;

    fn row(shard: &str, ms: Option<f64>, lag_s: Option<f64>) -> ShardRow {
        let figure = |name, head, label, unit, value| ShardFigure { name, head, label, unit, value };
        let figures = vec![
            figure("ms", "time", "mean time of an operation", Unit::Milliseconds, ms),
            figure("tickets_count", "tickets", "tickets in use", Unit::Count, None),
            figure("majority_lag_s", "lag", "lag of the majority", Unit::Seconds, lag_s),
        ];
        ShardRow { shard: shard.to_owned(), server: format!("{shard}-a:27018"), figures }
    }

    #[test]
    fn a_row_a_shard_and_no_column_of_which_nothing_is_known() {
        let rows = [row("rs0", Some(2.0), None), row("rs1\u{1b}[2J", Some(40.0), Some(3.0))];
        insta::assert_snapshot!(shards(&rows, &Style::plain(80)));
        assert_eq!(shards(&[], &Style::plain(80)), "");
    }
}
