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
    let (send, newer) = sync_channel(1);
    let ended = Arc::new(AtomicBool::new(false));
    let (own, over) = (source.clone(), Arc::clone(&ended));
    let maker = std::thread::Builder::new().name("screen".into()).spawn(move || make(&own, &send, &over));
    let maker = maker.map_err(LiveError::system("cannot start a thread"))?;
    let shown = on_terminal(|terminal| show(terminal, first, &mut look, &newer, cancel));
    ended.store(true, Ordering::SeqCst);
    drop(newer);
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

/// Makes documents, one each second, until nobody takes them.
fn make(source: &Source, send: &SyncSender<Document>, ended: &AtomicBool) {
    while !ended.load(Ordering::SeqCst) && source.grows() {
        std::thread::park_timeout(REFRESH);
        match source.document() {
            Ok((document, _)) => {
                if send.send(document).is_err() {
                    return;
                }
            }
            Err(error) => tracing::debug!(%error, "cannot be read now"),
        }
    }
    // Nothing newer will come, but what was made stays on the screen.
    while !ended.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    mut document: Document,
    look: &mut Look,
    newer: &Receiver<Document>,
    cancel: &AtomicBool,
) -> Result<(), LiveError> {
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
        match newer.try_recv() {
            Ok(newest) if !look.paused => document = newest,
            Ok(_) | Err(TryRecvError::Empty) => {}
            // Its maker ends before this only by a panic, which has given the terminal back and said why.
            Err(TryRecvError::Disconnected) => return Err(LiveError::Document),
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
