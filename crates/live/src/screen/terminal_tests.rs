//! Keys, and a real terminal that is given back.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../tests/common/tmux.rs"]
mod tmux;

use super::*;
use ratatui::style::Style;
use tmux::Tmux;

#[test]
fn keys_mean_what_is_said_of_them() {
    let plain = |code| key_of(KeyEvent::new(code, KeyModifiers::NONE));
    let control = |code| key_of(KeyEvent::new(code, KeyModifiers::CONTROL));
    assert_eq!((plain(KeyCode::Char('q')), control(KeyCode::Char('c'))), (Key::Quit, Key::Quit));
    assert_eq!((plain(KeyCode::Char('d')), control(KeyCode::Char('d'))), (Key::Act(Act::PageDown), Key::Quit));
    assert_eq!(plain(KeyCode::Char('1')), Key::Act(Act::Show(Part::All)));
    assert_eq!(plain(KeyCode::Char('5')), Key::Act(Act::Show(Part::Findings)));
    assert_eq!((plain(KeyCode::Char('6')), plain(KeyCode::Esc)), (Key::None, Key::Back));
}

/// Runs itself once more inside a terminal, where it panics while the screen is shown.
#[test]
fn a_panic_gives_the_terminal_back() {
    const NAME: &str = "screen::terminal::tests::a_panic_gives_the_terminal_back";
    if std::env::var_os("BACKWATER_TEST_PANIC").is_some() {
        let shown: Result<(), LiveError> = on_terminal(|terminal| {
            let shown = terminal.draw(|frame| {
                frame.buffer_mut().set_string(0, 0, "shown", Style::default());
            });
            shown.map_err(gone())?;
            panic!("as planned");
        });
        return shown.unwrap();
    }
    let Some(tmux) = Tmux::start(NAME, 80, 24) else { return };
    let program = std::env::current_exe().unwrap();
    let again = format!("BACKWATER_TEST_PANIC=1 RUST_BACKTRACE=0 {} --exact {NAME} --nocapture", program.display());
    tmux.run(&again);
    let said = tmux.until("over: 101");
    assert!(said.contains("as planned") && said.contains("before the view"), "{said}");
    tmux.is_as_before();
}
