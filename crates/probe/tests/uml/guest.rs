//! A kernel of its own for a test: Debian's user-mode Linux, on this host's files, read-only.

use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// It takes half a minute; a machine with more work than processors may need many times that.
const PATIENCE: Duration = Duration::from_secs(600);
/// What user-mode Linux says where the processor's registers (AMX) take more room than it has for a process's.
const REGISTERS: &str = "ptrace set fp regs failed";

/// A running guest. Its kernel is several processes of one group, which ends with this.
struct Guest {
    kernel: Child,
    lines: Receiver<String>,
}

/// What a guest prints whose first process is `init`, with these words on the kernel's command line, up to the line that
/// says it is done. None, and it is said why, where no guest can run.
pub(crate) fn run(test: &str, init: &Path, words: &[String], done: impl Fn(&str) -> bool) -> Option<Vec<String>> {
    if !is_installed(test) {
        eprintln!("skipped: {test}: needs user-mode Linux (apt-get install user-mode-linux)");
        return None;
    }
    let lines = Guest::boot(init, words).output(done);
    if lines.iter().any(|line| line.contains(REGISTERS)) {
        eprintln!("cannot run on this machine: {test}: user-mode Linux has no room for this processor's registers");
        return None;
    }
    Some(lines)
}

impl Guest {
    fn boot(init: &Path, words: &[String]) -> Guest {
        let mut kernel = Command::new("linux.uml")
            .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"])
            .args(["con=null", "con0=null,fd:1"])
            .arg(format!("init={}", init.display()))
            .args(words)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = kernel.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(output).split(b'\n').map_while(Result::ok).for_each(|line| {
                let _ = sender.send(String::from_utf8_lossy(&line).trim().to_owned());
            });
        });
        Guest { kernel, lines }
    }

    /// Everything it prints until it is done, or its processor was too much for it.
    fn output(&self, done: impl Fn(&str) -> bool) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        let mut all: Vec<String> = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            let last = done(&line) || line.contains(REGISTERS);
            all.push(line);
            if last {
                return all;
            }
        }
        panic!("the guest did not get to its end:\n{}", all.join("\n"));
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.kernel), Signal::KILL);
        let _ = self.kernel.wait();
    }
}

/// Whether user-mode Linux is there, installed now if this user may.
fn is_installed(test: &str) -> bool {
    let there = || Command::new("linux.uml").arg("--version").output().is_ok();
    let install = || {
        eprintln!("installing user-mode-linux, which {test} needs");
        let update = Command::new("apt-get").args(["update", "-qq"]).status();
        let install = ["install", "-qq", "-y", "--no-install-recommends", "user-mode-linux"];
        update.and_then(|_| Command::new("apt-get").args(install).status()).is_ok_and(|status| status.success())
    };
    there() || (rustix::process::geteuid().is_root() && install() && there())
}
