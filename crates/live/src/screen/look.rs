//! What somebody looks at, and what keys do to it: values, without a terminal.

use backwater_report::html::{Document, Lane};
use ratatui::style::Style;

/// Pieces that are looked at before anybody asks for more or fewer, and the fewest.
const SPAN: usize = 120;
const LEAST_SPAN: usize = 10;
/// Flows are means over so many seconds.
const FLOW_S: f64 = 10.0;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The next queue.
    Down,
    /// The queue before.
    Up,
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
    /// Whether what is looked at is still being read.
    pub live: bool,
    /// The queue that is chosen, by name and server; none is the one that matters most.
    queue: Option<(String, Option<String>)>,
    span: usize,
    /// Seconds by the wall clock, or since the begin, of the last piece that is looked at; none follows the newest.
    end: Option<f64>,
}

impl Look {
    /// The newest of everything.
    pub fn new(unicode: bool, color: bool, live: bool) -> Look {
        Look { unicode, color, paused: false, help: false, live, queue: None, span: SPAN, end: None }
    }

    /// Does what a key asks for.
    pub fn act(&mut self, act: Act, document: &Document) {
        let step = (self.span / 4).max(1) as isize;
        match act {
            Act::Down => self.choose(document, 1),
            Act::Up => self.choose(document, -1),
            Act::Earlier => self.go(document, -step),
            Act::Later => self.go(document, step),
            Act::Closer => self.span = (self.span / 2).max(LEAST_SPAN),
            Act::Wider => self.span = (self.span * 2).min(document.axis.count.max(LEAST_SPAN)),
            Act::First => self.go(document, -(document.axis.count as isize)),
            Act::Newest => (self.end, self.paused) = (None, false),
            Act::Pause => self.paused = !self.paused,
            Act::Help => self.help = !self.help,
        }
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
            let named = |place: &usize| document.findings.iter().any(|view| view.finding.queue == queues[*place].name);
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

    /// `live 20:10:03`, `paused`, `recorded`.
    pub(super) fn state(&self, document: &Document) -> String {
        let (_, end) = self.pieces(document);
        let word = match (self.live, self.paused, self.follows()) {
            (true, true, _) => "paused",
            (true, false, true) => "live",
            (true, false, false) => "earlier",
            (false, ..) => "recorded",
        };
        format!("{word} {}", clock(document, end as f64 * document.axis.step_s))
    }

    /// A style, without colours where there are to be none.
    pub(super) fn style(&self, style: Style) -> Style {
        if self.color { style } else { Style { fg: None, bg: None, ..style } }
    }
}

/// The wall clock at the axis' begin, or nothing.
fn origin(document: &Document) -> f64 {
    document.axis.from_unix_ms.unwrap_or(0.0) / 1e3
}

/// A moment of the axis by the clock, in UTC, or as seconds since its begin.
pub(super) fn clock(document: &Document, seconds: f64) -> String {
    match document.axis.from_unix_ms {
        None => format!("{seconds:.0} s"),
        Some(ms) => {
            let of_day = ((ms / 1e3 + seconds) as i64).rem_euclid(86_400);
            format!("{:02}:{:02}:{:02} UTC", of_day / 3_600, of_day / 60 % 60, of_day % 60)
        }
    }
}

fn lane(document: &Document, series: Option<usize>) -> Option<&Lane> {
    document.series.get(series?).map(|series| &series.lane)
}

/// What a series was at the end of a stretch, not long before.
pub(super) fn at(document: &Document, series: Option<usize>, end: usize) -> Option<f64> {
    let pieces = lane(document, series)?.pieces();
    let within = (FLOW_S / document.axis.step_s).ceil() as usize;
    let known = pieces.get(..end.min(pieces.len()))?.iter().rev().take(within.max(1)).flatten().next();
    known.map(|(_, most)| *most)
}

/// The mean of a series over the seconds before the end of a stretch.
pub(super) fn mean(document: &Document, series: Option<usize>, end: usize) -> Option<f64> {
    let pieces = lane(document, series)?.pieces();
    let within = (FLOW_S / document.axis.step_s).ceil() as usize;
    let known: Vec<f64> = pieces
        .get(..end.min(pieces.len()))?
        .iter()
        .rev()
        .take(within.max(1))
        .flatten()
        .map(|(least, most)| f64::midpoint(*least, *most))
        .collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// Level by hard limit at the end of a stretch.
pub(super) fn fill(document: &Document, queue: usize, end: usize) -> Option<f64> {
    let queue = document.path.queues.get(queue)?;
    let limit = at(document, queue.hard_limit, end).filter(|limit| *limit > 0.0)?;
    Some(at(document, queue.level, end)? / limit)
}
