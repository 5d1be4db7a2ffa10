//! The view on a terminal: keys, redrawing, and leaving the terminal as it was found.

use super::draw;
use super::look::{Act, Look};
use crate::{LiveError, Source};
use backwater_report::html::Document;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
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
    let mut terminal = ratatui::try_init().map_err(LiveError::system("cannot use this terminal"))?;
    let shown = show(&mut terminal, first, &mut look, &newer, cancel);
    ratatui::restore();
    ended.store(true, Ordering::SeqCst);
    drop(newer);
    maker.thread().unpark();
    shown.map_err(LiveError::system("the terminal is gone"))
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
}

fn show(
    terminal: &mut DefaultTerminal,
    mut document: Document,
    look: &mut Look,
    newer: &Receiver<Document>,
    cancel: &AtomicBool,
) -> std::io::Result<()> {
    while !cancel.load(Ordering::SeqCst) {
        terminal.draw(|frame| draw(&document, look, frame.area(), frame.buffer_mut()))?;
        if event::poll(LISTEN)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release && quits(key) => return Ok(()),
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if let Some(act) = act(key) {
                        look.act(act, &document);
                    }
                }
                // Another size is drawn at the next turn.
                _ => {}
            }
        }
        if let Ok(newest) = newer.try_recv()
            && !look.paused
        {
            document = newest;
        }
    }
    Ok(())
}

fn quits(key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) || (control && matches!(key.code, KeyCode::Char('c' | 'd')))
}

fn act(key: KeyEvent) -> Option<Act> {
    Some(match key.code {
        KeyCode::Up | KeyCode::Char('k') => Act::Up,
        KeyCode::Down | KeyCode::Char('j') => Act::Down,
        KeyCode::Left | KeyCode::Char('h') => Act::Earlier,
        KeyCode::Right | KeyCode::Char('l') => Act::Later,
        KeyCode::Char('+' | '=') => Act::Closer,
        KeyCode::Char('-' | '_') => Act::Wider,
        KeyCode::Home | KeyCode::Char('g') => Act::First,
        KeyCode::End | KeyCode::Char('G' | '0') => Act::Newest,
        KeyCode::Char('p' | ' ') => Act::Pause,
        KeyCode::Char('?') => Act::Help,
        _ => return None,
    })
}
