//! Whole lines out of bytes that come in pieces; a line beyond all measure is passed over, so that memory is bounded.

/// A longer line is passed over: the server itself cuts what it logs of an operation at 10 KB unless told otherwise.
pub(super) const LONGEST_LINE: usize = 64 * 1024;

/// The line that is being put together.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: Vec<u8>,
    /// Whether the line now being read is to be passed over.
    passed_over: bool,
}

impl Lines {
    /// Forgets what was begun. The rest of a line whose beginning is not known is passed over.
    pub(super) fn restart(&mut self, amid_a_line: bool) {
        self.partial.clear();
        self.passed_over = amid_a_line;
    }

    /// Takes the next bytes and hands on each line that is whole with them.
    pub(super) fn take(&mut self, bytes: &[u8], mut line: impl FnMut(&str)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.take_part(part, &mut line);
        }
    }

    /// Takes a part of a line, whole where it ends in a newline.
    fn take_part(&mut self, part: &[u8], line: &mut impl FnMut(&str)) {
        self.passed_over |= self.partial.len() + part.len() > LONGEST_LINE;
        if !self.passed_over {
            self.partial.extend_from_slice(part);
        }
        if part.last() != Some(&b'\n') {
            return;
        }
        if !self.passed_over {
            line(String::from_utf8_lossy(&self.partial).trim_end_matches(['\n', '\r']));
        }
        self.partial.clear();
        self.passed_over = false;
    }
}
