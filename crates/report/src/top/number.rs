//! Rates in six characters.

use crate::Style;

const KIB: f64 = 1024.0;

/// Bytes a second as KiB a second.
pub(super) fn kib(bytes: Option<f64>, style: &Style) -> String {
    number(bytes.map(|bytes| bytes / KIB), style)
}

/// A share as percent.
pub(super) fn percent(share: Option<f64>, style: &Style) -> String {
    number(share.map(|share| share * 100.0), style)
}

/// At most six characters for anything below 10^14; a dash for what could not be seen.
pub(super) fn number(value: Option<f64>, style: &Style) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else { return style.sign("–", "-").to_owned() };
    let size = value.abs();
    match size {
        _ if size == 0.0 => "0".to_owned(),
        _ if size < 0.05 => "<0.1".to_owned(),
        _ if size < 9.95 => format!("{value:.1}"),
        _ if size < 99_999.5 => format!("{value:.0}"),
        _ if size < 99_999.5e3 => format!("{:.0}k", value / 1e3),
        _ if size < 99_999.5e6 => format!("{:.0}M", value / 1e6),
        _ if size < 99_999.5e9 => format!("{:.0}G", value / 1e9),
        _ => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_short() {
        let style = Style::plain(80);
        let shown = |value| number(Some(value), &style);
        assert_eq!([shown(0.0), shown(0.01), shown(1.25), shown(9.96)], ["0", "<0.1", "1.2", "10"]);
        assert_eq!([shown(12_345.6), shown(99_999.6), shown(1.2e9)], ["12346", "100k", "1200M"]);
        assert_eq!((number(None, &style), kib(Some(2_048.0), &style)), ("-".to_owned(), "2.0".to_owned()));
        assert_eq!(percent(Some(0.5), &style), "50");
    }

    proptest! {
        #[test]
        fn none_is_wider_than_six(value in 0.0..1e14f64) {
            prop_assert!(number(Some(value), &Style::plain(80)).len() <= 6);
        }
    }
}
