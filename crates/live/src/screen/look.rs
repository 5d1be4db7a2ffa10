//! What somebody looks at, and what keys do to it: values, without a terminal.

use super::figures::{clock, fill, origin};
use backwater_model::Finding;
use backwater_report::html::Document;
use backwater_report::{Style as Ink, text};
use ratatui::style::Style;

/// Pieces that are looked at before anybody asks for more or fewer, and the fewest.
const SPAN: usize = 120;
const LEAST_SPAN: usize = 10;

/// What the screen shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it, as much of each as there is room for.
    #[default]
    All,
    /// The queues.
    Path,
    /// The chosen queue and the load over time.
    Curves,
    /// Who waits on what.
    Sessions,
    /// What is wrong, with all that it rests on.
    Findings,
}

impl Part {
    /// In the order of their keys.
    pub const EACH: [Part; 5] = [Part::All, Part::Path, Part::Curves, Part::Sessions, Part::Findings];

    /// The one so many places further, round and round.
    fn further(self, by: usize) -> Part {
        let place = Part::EACH.iter().position(|part| *part == self).unwrap_or(0);
        Part::EACH[(place + by) % Part::EACH.len()]
    }
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The next queue, or a line down.
    Down,
    /// The queue before, or a line up.
    Up,
    /// So many lines down as are shown.
    PageDown,
    /// So many lines up as are shown.
    PageUp,
    /// Earlier.
    Earlier,
    /// Later.
    Later,
    /// Closer.
    Closer,
    /// Wider.
    Wider,
    /// The first.
    First,
    /// The newest, and follow it.
    Newest,
    /// Stop, or go on.
    Pause,
    /// Explain, or back.
    Help,
    /// This part alone, or all.
    Show(Part),
    /// The part after this one.
    Next,
    /// The part before this one.
    Previous,
}

/// How far what was drawn can be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Lines by which it can be moved down at most.
    pub most: usize,
    /// Lines that are shown at once.
    pub page: usize,
}

/// What somebody looks at.
#[derive(Clone, Debug)]
pub struct Look {
    /// Whether the terminal shows more than ASCII.
    pub unicode: bool,
    /// Whether it may have colours.
    pub color: bool,
    /// Whether newer documents are shown.
    pub paused: bool,
    /// Whether the keys are explained instead.
    pub help: bool,
    /// Whether what is looked at is still being read, or was when it was last written.
    pub live: bool,
    /// Whether nothing new comes though it was being read.
    pub silent: bool,
    /// The part that is shown.
    pub part: Part,
    /// Lines that are left out above, of what can be moved.
    scrolled: usize,
    reach: Reach,
    /// The queue that is chosen, by name and server; none is the one that matters most.
    queue: Option<(String, Option<String>)>,
    span: usize,
    /// Seconds by the wall clock, or since the begin, of the last piece that is looked at; none follows the newest.
    end: Option<f64>,
}

impl Look {
    /// The newest of everything.
    pub fn new(unicode: bool, color: bool, live: bool) -> Look {
        Look {
            unicode,
            color,
            paused: false,
            help: false,
            live,
            silent: false,
            part: Part::All,
            scrolled: 0,
            reach: Reach::default(),
            queue: None,
            span: SPAN,
            end: None,
        }
    }

    /// All of a document's time at once, without colours, whatever is set: for files and pipes.
    pub(super) fn plain(self, document: &Document) -> Look {
        Look { color: false, span: document.axis.count.max(LEAST_SPAN), end: None, ..self }
    }

    /// Does what a key asks for.
    pub fn act(&mut self, act: Act, document: &Document) {
        let step = (self.span / 4).max(1) as isize;
        match act {
            Act::Down if self.moves_lines() => self.scroll(1),
            Act::Up if self.moves_lines() => self.scroll(-1),
            Act::Down => self.choose(document, 1),
            Act::Up => self.choose(document, -1),
            Act::PageDown => self.scroll(self.reach.page.max(1) as isize),
            Act::PageUp => self.scroll(-(self.reach.page.max(1) as isize)),
            Act::Earlier => self.go(document, -step),
            Act::Later => self.go(document, step),
            Act::Closer => self.span = (self.span / 2).max(LEAST_SPAN),
            Act::Wider => self.span = (self.span * 2).min(document.axis.count.max(LEAST_SPAN)),
            Act::First => self.go(document, -(document.axis.count as isize)),
            Act::Newest => (self.end, self.paused) = (None, false),
            Act::Pause => self.paused = !self.paused,
            Act::Help => (self.help, self.scrolled) = (!self.help, 0),
            Act::Show(part) => self.show(part),
            Act::Next => self.show(self.part.further(1)),
            Act::Previous => self.show(self.part.further(Part::EACH.len() - 1)),
        }
    }

    /// Back to all parts, or out of the explanation; false where there is nothing to come back from.
    pub fn back(&mut self) -> bool {
        let away = self.help || self.part != Part::All;
        if self.help {
            (self.help, self.scrolled) = (false, 0);
        } else {
            self.show(Part::All);
        }
        away
    }

    /// Takes note of how far what was just drawn can be moved, so that nobody has to come back from further down.
    pub fn settle(&mut self, reach: Reach) {
        self.reach = reach;
        self.scrolled = self.scrolled.min(reach.most);
    }

    /// Whether up and down move lines, not from queue to queue.
    pub(super) fn moves_lines(&self) -> bool {
        self.help || matches!(self.part, Part::Sessions | Part::Findings)
    }

    /// Lines that are left out above.
    pub(super) fn scrolled(&self) -> usize {
        self.scrolled
    }

    fn show(&mut self, part: Part) {
        (self.part, self.help, self.scrolled) = (part, false, 0);
    }

    fn scroll(&mut self, by: isize) {
        self.scrolled = self.scrolled.saturating_add_signed(by).min(self.reach.most);
    }

    fn choose(&mut self, document: &Document, by: isize) {
        let queues = &document.path.queues;
        let place = self.chosen(document).unwrap_or(0) as isize + by;
        let place = place.clamp(0, (queues.len() as isize - 1).max(0));
        self.queue =
            usize::try_from(place).ok().and_then(|place| queues.get(place)).map(|q| (q.name.clone(), q.target.clone()));
    }

    fn go(&mut self, document: &Document, by: isize) {
        let (_, end) = self.pieces(document);
        let last = document.axis.count as isize;
        let end = (end as isize + by).clamp((self.span as isize).min(last), last);
        self.end = (end < last).then(|| origin(document) + (end as f64 - 0.5) * document.axis.step_s);
    }

    /// The queue whose level is drawn: the chosen one, else the first that a finding names, else the fullest.
    pub(super) fn chosen(&self, document: &Document) -> Option<usize> {
        let queues = &document.path.queues;
        let is = |place: &usize| Some((&queues[*place].name, &queues[*place].target));
        let chosen = self.queue.as_ref().map(|(name, target)| (name, target));
        let mut places = 0..queues.len();
        places.clone().find(|place| chosen.is_some() && is(place) == chosen).or_else(|| {
            let named = |place: &usize| {
                let queue = &queues[*place];
                let of = |finding: &Finding| finding.queue == queue.name && finding.concerns(queue.target.as_deref());
                document.findings.iter().any(|view| of(&view.finding))
            };
            places.find(named).or_else(|| {
                let (_, end) = self.pieces(document);
                let fill = |place: &usize| fill(document, *place, end).unwrap_or(-1.0);
                (0..queues.len()).max_by(|a, b| fill(a).total_cmp(&fill(b)))
            })
        })
    }

    /// The first piece that is looked at, and the one behind the last.
    pub(super) fn pieces(&self, document: &Document) -> (usize, usize) {
        let count = document.axis.count;
        let end = self.end.map_or(count, |end| {
            let piece = ((end - origin(document)) / document.axis.step_s).floor();
            // What has left the memory of a live view is its first piece.
            (piece.max(0.0) as usize + 1).min(count)
        });
        (end.saturating_sub(self.span), end)
    }

    /// Whether the newest is looked at.
    pub(super) fn follows(&self) -> bool {
        self.end.is_none()
    }

    /// `live 20:10:03`, `paused`, `nothing new since`, `recorded`. Of what is silent the last moment of all that is known is told.
    pub(super) fn state(&self, document: &Document) -> String {
        let (_, end) = self.pieces(document);
        let (word, end) = match (self.live, self.paused, self.follows()) {
            (true, true, _) => ("paused", end),
            (true, false, _) if self.silent => ("nothing new since", document.axis.count),
            (true, false, true) => ("live", end),
            (true, false, false) => ("earlier", end),
            (false, ..) => ("recorded", end),
        };
        format!("{word} {}", clock(document, end as f64 * document.axis.step_s))
    }

    /// A style, without colours where there are to be none.
    pub(super) fn style(&self, style: Style) -> Style {
        if self.color { style } else { Style { fg: None, bg: None, ..style } }
    }

    /// How text is written here, in so many columns. Colours are the screen's own.
    pub(super) fn ink(&self, columns: usize) -> Ink {
        Ink { color: false, width: columns, unicode: self.unicode }
    }

    /// Foreign text on one line, nothing in it that a terminal would obey.
    pub(super) fn clean(&self, words: &str) -> String {
        text::clean(words, &self.ink(0))
    }

    /// A clean text in so many columns; a sign says where something is missing.
    pub(super) fn cut(&self, words: &str, columns: usize) -> String {
        text::cut(words, columns, &self.ink(0))
    }
}
