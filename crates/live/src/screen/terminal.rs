//! The view on a terminal: keys, redrawing, and leaving the terminal as it was found, whatever ends it.

use super::draw;
use super::look::{Act, Look, Part};
use crate::{LiveError, Source};
use backwater_report::html::Document;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

/// How often there is something newer to see.
const REFRESH: Duration = Duration::from_secs(1);
/// How long a key may wait for what was read meanwhile.
const LISTEN: Duration = Duration::from_millis(100);

/// Shows a source until somebody quits or `cancel` is raised. Documents are made on a thread of their own, so that keys are
/// heard at once.
///
/// Errors: the source cannot be read, or this is no terminal.
pub fn watch(source: &Source, mut look: Look, cancel: &AtomicBool) -> Result<(), LiveError> {
    let (first, _) = source.document()?;
    let (send, news) = sync_channel(1);
    let ended = Arc::new(AtomicBool::new(false));
    let (own, over, grew) = (source.clone(), Arc::clone(&ended), look.live);
    let maker = std::thread::Builder::new().name("screen".into()).spawn(move || make(&own, grew, &send, &over));
    let maker = maker.map_err(LiveError::system("cannot start a thread"))?;
    let shown = on_terminal(|terminal| show(terminal, first, &mut look, &news, cancel));
    ended.store(true, Ordering::SeqCst);
    drop(news);
    maker.thread().unpark();
    shown
}

/// Takes this terminal for as long as `act` runs, and gives it back as it was, also where `act` panics.
fn on_terminal(act: impl FnOnce(&mut DefaultTerminal) -> Result<(), LiveError>) -> Result<(), LiveError> {
    let mut terminal = ratatui::try_init().map_err(LiveError::system("cannot use this terminal"))?;
    let done = act(&mut terminal);
    let cursor = terminal.show_cursor();
    restore();
    done.and(cursor.map_err(gone()))
}

fn gone() -> impl FnOnce(Error) -> LiveError {
    LiveError::system("the terminal is gone")
}

/// Gives the terminal back as it was: for whoever ends the program while it is shown.
pub fn restore() {
    ratatui::restore();
}

/// What there is to tell of a source.
enum News {
    /// What it holds now.
    Newer(Box<Document>),
    /// Nothing is added to it any more; what was made stays on the screen. Somebody may go on with it.
    Silent,
}

/// Makes documents, one each second in which there is something newer, until nobody takes them. `grew` is whether the first look
/// was at something that grows.
fn make(source: &Source, mut grew: bool, send: &SyncSender<News>, ended: &AtomicBool) {
    while !ended.load(Ordering::SeqCst) {
        std::thread::park_timeout(REFRESH);
        let grows = source.grows();
        let news = if grows { newer(source) } else { grew.then_some(News::Silent) };
        grew = grows;
        if news.is_some_and(|news| send.send(news).is_err()) {
            return;
        }
    }
}

fn newer(source: &Source) -> Option<News> {
    match source.document() {
        Ok((document, true)) => Some(News::Newer(Box::new(document))),
        // It has ended this moment. All of a recording is not what is looked at.
        Ok((_, false)) => None,
        Err(error) => {
            tracing::debug!(%error, "cannot be read now");
            None
        }
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    mut document: Document,
    look: &mut Look,
    news: &Receiver<News>,
    cancel: &AtomicBool,
) -> Result<(), LiveError> {
    let mut newest = None;
    while !cancel.load(Ordering::SeqCst) {
        let mut reach = super::Reach::default();
        terminal.draw(|frame| reach = draw(&document, look, frame.area(), frame.buffer_mut())).map_err(gone())?;
        look.settle(reach);
        if event::poll(LISTEN).map_err(gone())? {
            match event::read().map_err(gone())? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match key_of(key) {
                    Key::Quit => return Ok(()),
                    Key::Back if !look.back() => return Ok(()),
                    Key::Back | Key::None => {}
                    Key::Act(act) => look.act(act, &document),
                },
                // Another size is drawn at the next turn.
                _ => {}
            }
        }
        match news.try_recv() {
            Ok(News::Newer(newer)) => (newest, look.live, look.silent) = (Some(*newer), true, false),
            Ok(News::Silent) => look.silent = true,
            Err(TryRecvError::Empty) => {}
            // Its maker ends before this only by a panic, which has given the terminal back and said why.
            Err(TryRecvError::Disconnected) => return Err(LiveError::Document),
        }
        // What came last while it was paused may be the last there is.
        if !look.paused
            && let Some(newest) = newest.take()
        {
            document = newest;
        }
    }
    Ok(())
}

/// What a key means.
#[derive(Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Back,
    Act(Act),
    None,
}

fn key_of(key: KeyEvent) -> Key {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Key::Act(match key.code {
        KeyCode::Char('c' | 'd') if control => return Key::Quit,
        KeyCode::Char('q') => return Key::Quit,
        KeyCode::Esc => return Key::Back,
        KeyCode::Up | KeyCode::Char('k') => Act::Up,
        KeyCode::Down | KeyCode::Char('j') => Act::Down,
        KeyCode::PageUp | KeyCode::Char('u') => Act::PageUp,
        KeyCode::PageDown | KeyCode::Char('d') => Act::PageDown,
        KeyCode::Left | KeyCode::Char('h') => Act::Earlier,
        KeyCode::Right | KeyCode::Char('l') => Act::Later,
        KeyCode::Char('+' | '=') => Act::Closer,
        KeyCode::Char('-' | '_') => Act::Wider,
        KeyCode::Home | KeyCode::Char('g') => Act::First,
        KeyCode::End | KeyCode::Char('G' | '0') => Act::Newest,
        KeyCode::Char('p' | ' ') => Act::Pause,
        KeyCode::Char('?') => Act::Help,
        KeyCode::Tab => Act::Next,
        KeyCode::BackTab => Act::Previous,
        KeyCode::Char(digit @ '1'..='5') => Act::Show(Part::EACH[digit as usize - '1' as usize]),
        _ => return Key::None,
    })
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
