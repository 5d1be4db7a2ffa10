//! What the terminal can show, and the colours and signs used on it.

use std::fmt::Write;

/// How to write: the binary decides it from the terminal, NO_COLOR, COLUMNS and LANG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to use ANSI colours.
    pub color: bool,
    /// Columns that a line may take. Fewer than [`Style::LEAST_WIDTH`] count as that many.
    pub width: usize,
    /// Whether the terminal shows more than ASCII.
    pub unicode: bool,
}

/// The meaning of a piece of text, from which its colour follows. Colour never carries a meaning alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As it is.
    #[default]
    Plain,
    /// Headings and names.
    Strong,
    /// What is there for completeness.
    Faint,
    /// As it should be.
    Good,
    /// Worth a look.
    Warning,
    /// Bad.
    Bad,
    /// The nth curve or command of several.
    Accent(usize),
}

impl Tone {
    /// Parameters of the escape sequence that selects graphic rendition.
    fn code(self) -> &'static str {
        const ACCENTS: [&str; 5] = ["36", "35", "33", "32", "34"];
        match self {
            Tone::Plain => "",
            Tone::Strong => "1",
            Tone::Faint => "2",
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "1;31",
            Tone::Accent(place) => ACCENTS[place % ACCENTS.len()],
        }
    }
}

impl Style {
    /// The narrowest width that is honoured.
    pub const LEAST_WIDTH: usize = 20;

    /// No colour, ASCII only: for files and dumb terminals.
    pub const fn plain(width: usize) -> Self {
        Style { color: false, width, unicode: false }
    }

    /// The width in force.
    pub(crate) fn columns(&self) -> usize {
        self.width.max(Self::LEAST_WIDTH)
    }

    /// The same style for text that stands `indent` columns in.
    pub(crate) fn indented(&self, indent: usize) -> Style {
        Style { width: self.columns().saturating_sub(indent), ..*self }
    }

    /// Text in its colour, which must be clean already.
    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        let mut out = String::new();
        self.paint_onto(&mut out, tone, text);
        out
    }

    /// As [`Style::paint`], at the end of a text.
    pub(crate) fn paint_onto(&self, out: &mut String, tone: Tone, text: &str) {
        if !self.color || tone == Tone::Plain || text.is_empty() {
            out.push_str(text);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "\u{1b}[{}m{text}\u{1b}[0m", tone.code());
        }
    }

    /// The first where Unicode shows, else the second.
    pub(crate) fn sign<T>(&self, unicode: T, ascii: T) -> T {
        if self.unicode { unicode } else { ascii }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_only_written_when_wanted() {
        let colourful = Style { color: true, width: 80, unicode: true };
        assert_eq!(colourful.paint(Tone::Bad, "x"), "\u{1b}[1;31mx\u{1b}[0m");
        assert_eq!(colourful.paint(Tone::Plain, "x"), "x");
        assert_eq!(Style::plain(80).paint(Tone::Bad, "x"), "x");
    }
}
