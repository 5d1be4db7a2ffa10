//! A real terminal for tests: tmux, with a shell in it that notes how its terminal is set before and after a command.

#![allow(clippy::unwrap_used, clippy::print_stderr, dead_code, unreachable_pub)]

use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long anything on the screen may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal of its own, until it is dropped.
pub struct Tmux {
    /// Its socket and the shell's notes.
    dir: tempfile::TempDir,
}

impl Tmux {
    /// A shell in a terminal of this size; none, which is said, where there is no tmux.
    pub fn start(test: &str, columns: u16, lines: u16) -> Option<Tmux> {
        if Command::new("tmux").arg("-V").output().is_err() {
            eprintln!("skipped: {test}: needs tmux");
            return None;
        }
        let tmux = Tmux { dir: tempfile::tempdir().unwrap() };
        let size = [columns.to_string(), lines.to_string()];
        let mut arguments = vec!["new-session", "-d", "-x", &size[0], "-y", &size[1]];
        // Whatever somebody's own shell prints would be in the way.
        arguments.extend(["env", "-u", "NO_COLOR", "PS1=$ ", "sh", "-i"]);
        let started = tmux.command(&arguments);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        tmux.command(&["set-option", "-g", "status", "off"]);
        tmux.resize(columns, lines);
        Some(tmux)
    }

    fn command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(self.dir.path().join("socket")).args(arguments);
        command.env("LC_ALL", "C.UTF-8").env_remove("TMUX").output().unwrap()
    }

    pub fn resize(&self, columns: u16, lines: u16) {
        self.command(&["resize-window", "-x", &columns.to_string(), "-y", &lines.to_string()]);
    }

    /// Keys by tmux' names.
    pub fn keys(&self, keys: &[&str]) {
        self.command(&[&["send-keys"], keys].concat());
    }

    /// Runs a command in the shell, between notes of the terminal's settings. How it ended is printed.
    pub fn run(&self, command: &str) {
        let dir = self.dir.path().display();
        let script = format!(
            "stty -g > {dir}/before; echo before the view; {command}; echo over: $?; stty -g > {dir}/after; : > {dir}/done\n"
        );
        let path = self.dir.path().join("script");
        std::fs::write(&path, script).unwrap();
        self.keys(&[&format!(". {}", path.display()), "Enter"]);
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        String::from_utf8(self.command(&["capture-pane", "-p"]).stdout).unwrap()
    }

    /// The same with the sequences that colour it.
    pub fn coloured(&self) -> String {
        String::from_utf8(self.command(&["capture-pane", "-p", "-e"]).stdout).unwrap()
    }

    /// Waits until these words are on the screen; what else is there.
    pub fn until(&self, words: &str) -> String {
        self.until_all(&[words])
    }

    /// Waits until all of these words are on the screen.
    pub fn until_all(&self, words: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if words.iter().all(|words| screen.contains(words)) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "{words:?} never came:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A figure of tmux' about the terminal: `alternate_on`, `cursor_flag`.
    pub fn told(&self, name: &str) -> String {
        let output = self.command(&["display-message", "-p", &format!("#{{{name}}}")]);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The process that a command line names, run from the shell here.
    pub fn process(&self, name: &str) -> i32 {
        let shell: i32 = self.told("pane_pid").parse().unwrap();
        let begun = Instant::now();
        loop {
            let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap_or_default();
            let is = |pid: &&str| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains(name)
            };
            if let Some(pid) = children.split_whitespace().find(is) {
                return pid.parse().unwrap();
            }
            assert!(begun.elapsed() < PATIENCE, "no child of {shell} is {name}: {children}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether the terminal is as it was before the command: its settings, its first screen, its cursor.
    pub fn is_as_before(&self) {
        let begun = Instant::now();
        while !self.dir.path().join("done").exists() {
            assert!(begun.elapsed() < PATIENCE, "the command never ended:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(20));
        }
        let read = |name: &str| std::fs::read_to_string(self.dir.path().join(name)).unwrap();
        assert_eq!(read("after"), read("before"), "what stty says of the terminal");
        assert_eq!((self.told("alternate_on"), self.told("cursor_flag")), ("0".to_owned(), "1".to_owned()));
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.command(&["kill-server"]);
    }
}
