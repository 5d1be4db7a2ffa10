//! A text under construction: lines, wrapped paragraphs with a hanging indent, bullets, commands.

use crate::Style;
use crate::style::Tone;
use crate::text::{clean, clean_verbatim, width, wrap};

/// Collects lines.
pub(crate) struct Page<'a> {
    style: &'a Style,
    out: String,
}

impl<'a> Page<'a> {
    /// An empty page.
    pub(crate) fn new(style: &'a Style) -> Self {
        Page { style, out: String::new() }
    }

    /// The text so far, every line of it ended.
    pub(crate) fn finish(self) -> String {
        self.out
    }

    /// Lines that are ready: a table, a plot.
    pub(crate) fn ready(&mut self, lines: &str, indent: usize) {
        for line in lines.lines() {
            self.raw_line(line, indent);
        }
    }

    /// One empty line, unless the page is empty or ends with one.
    pub(crate) fn gap(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    /// A line that begins a part of the page.
    pub(crate) fn heading(&mut self, text: &str, indent: usize) {
        self.paragraph(Tone::Strong, text, indent);
    }

    /// Text, wrapped.
    pub(crate) fn paragraph(&mut self, tone: Tone, text: &str, indent: usize) {
        self.hanging(tone, "", text, indent);
    }

    /// Text, wrapped, with a mark (our own text: it is not cleaned) before its first line.
    pub(crate) fn hanging(&mut self, tone: Tone, mark: &str, text: &str, indent: usize) {
        let deep = width(mark);
        let text = clean(text, self.style);
        let columns = self.style.columns().saturating_sub(indent + deep);
        for (place, line) in wrap(&text, columns).iter().enumerate() {
            let before = if place == 0 { mark.to_owned() } else { " ".repeat(deep) };
            self.raw_line(&format!("{before}{}", self.style.paint(tone, line)), indent);
        }
    }

    /// A point of a list.
    pub(crate) fn bullet(&mut self, text: &str, indent: usize) {
        self.hanging(Tone::Plain, self.style.sign("• ", "- "), text, indent);
    }

    /// Commands or file contents to copy: each on a line of its own, never broken, nothing before it but the indent.
    pub(crate) fn commands(&mut self, commands: &[String], indent: usize) {
        for line in commands.iter().flat_map(|command| command.lines()) {
            let line = clean_verbatim(line, self.style);
            let painted = self.style.paint(Tone::Accent(0), &line);
            self.raw_line(&painted, indent);
        }
    }

    fn raw_line(&mut self, line: &str, indent: usize) {
        if !line.is_empty() {
            self.out.push_str(&" ".repeat(indent));
        }
        self.out.push_str(line.trim_end_matches(' '));
        self.out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_hangs_behind_its_mark_and_commands_stay_whole() {
        let style = Style::plain(24);
        let mut page = Page::new(&style);
        page.bullet("one two three four five six", 2);
        page.gap();
        page.gap();
        page.commands(&["echo a very long command that stays whole".to_owned()], 4);
        insta::assert_snapshot!(page.finish(), @r"
          - one two three four
            five six

            echo a very long command that stays whole
        ");
    }
}
