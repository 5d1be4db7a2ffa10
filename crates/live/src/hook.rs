//! Runs somebody's command when a finding begins, becomes worse or ends: mail, a pager, a chat, for those without Prometheus.

use crate::{LiveError, Turn};
use backwater_model::{Confidence, Severity};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Turns that may wait while a command runs. More are left out, which is logged.
const WAITING: usize = 16;
/// A command that takes longer is killed, so that the next one is heard.
const LONGEST: Duration = Duration::from_secs(60);
/// How often a running command is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A command that is told of findings, one at a time, on a thread of its own: nobody waits for it.
#[derive(Debug)]
pub struct Hook {
    turns: SyncSender<Turn>,
}

impl Hook {
    /// A hook that runs `sh -c COMMAND`. The finding is its standard input, as JSON; BACKWATER_STATE (begun, worse, ended),
    /// BACKWATER_RULE, BACKWATER_CAUSE, BACKWATER_SEVERITY, BACKWATER_CONFIDENCE, BACKWATER_QUEUE and BACKWATER_SUMMARY are in its
    /// environment. What a recording holds is thus never part of a command line.
    ///
    /// Errors: no thread is to be had.
    pub fn start(command: &str) -> Result<Hook, LiveError> {
        let (turns, inbox) = sync_channel(WAITING);
        let command = command.to_owned();
        let run = move || each(&command, &inbox);
        std::thread::Builder::new()
            .name("on-finding".into())
            .spawn(run)
            .map_err(LiveError::system("cannot start a thread"))?;
        Ok(Hook { turns })
    }

    /// Tells of a turn; at once, whether or not the command is still busy with another.
    pub fn tell(&self, turn: Turn) {
        if let Err(TrySendError::Full(turn)) = self.turns.try_send(turn) {
            tracing::warn!(
                rule = turn.finding().rule,
                "the command for findings is too slow: it is not told of this one"
            );
        }
    }
}

fn each(command: &str, turns: &Receiver<Turn>) {
    while let Ok(turn) = turns.recv() {
        match run(command, &turn) {
            Ok(None) => {}
            Ok(Some(why)) => tracing::warn!("the command for findings {why}: {command}"),
            Err(error) => tracing::warn!("the command for findings cannot be run: {error}: {command}"),
        }
    }
}

/// Runs it to its end; what was wrong with it, if anything.
fn run(command: &str, turn: &Turn) -> std::io::Result<Option<String>> {
    let finding = turn.finding();
    let mut child = Command::new("sh")
        .args(["-c", command])
        .env("BACKWATER_STATE", turn.word())
        .env("BACKWATER_RULE", &finding.rule)
        .env("BACKWATER_CAUSE", &finding.cause)
        .env("BACKWATER_SEVERITY", severity(finding.severity))
        .env("BACKWATER_CONFIDENCE", confidence(finding.confidence))
        .env("BACKWATER_QUEUE", plain(&finding.queue))
        .env("BACKWATER_SUMMARY", plain(&finding.summary))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        let text = serde_json::to_vec(finding).unwrap_or_default();
        // On a thread of its own: a command that does not read is no fault, and must not be waited for longer than it may run.
        std::thread::spawn(move || stdin.write_all(&text));
    }
    wait(&mut child)
}

fn wait(child: &mut Child) -> std::io::Result<Option<String>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((!status.success()).then(|| format!("failed ({status})")));
        }
        if begun.elapsed() > LONGEST {
            child.kill()?;
            child.wait()?;
            return Ok(Some(format!("took longer than {} s and was ended", LONGEST.as_secs())));
        }
        std::thread::park_timeout(LOOK);
    }
}

/// The environment holds no NUL.
fn plain(text: &str) -> String {
    text.replace('\0', " ")
}

/// A severity as JSON spells it.
pub(crate) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Low => "low",
        Confidence::Medium => "medium",
        Confidence::High => "high",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::Finding;
    use serde_json::json;

    fn finding(summary: &str) -> Finding {
        let value = json!({
            "rule": "dirty-throttle", "cause": "device-limit", "severity": "critical", "queue": "host.dirty@7:0", "from": 0, "to": 1,
            "foreground_lost": null, "summary": summary, "evidence": [], "ruled_out": [], "unseen": [], "confidence": "high",
            "victims": [], "remedies": [],
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_command_is_told_in_its_environment_and_on_its_input() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("told");
        let hostile = "$(touch ran); `touch ran`\n' \" \0 &";
        let command = format!(
            "printf '%s %s %s\\n' \"$BACKWATER_STATE\" \"$BACKWATER_RULE\" \"$BACKWATER_SUMMARY\" > {0}; cat >> {0}",
            file.display()
        );
        assert_eq!(run(&command, &Turn::Begun(finding(hostile))).unwrap(), None);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("begun dirty-throttle $(touch ran); `touch ran`\n"), "{text}");
        let input = text.split_once('{').unwrap().1;
        let read: Finding = serde_json::from_str(&format!("{{{input}")).unwrap();
        assert_eq!(read.summary, hostile);
        assert_eq!(run("exit 3", &Turn::Ended(finding(""))).unwrap().unwrap(), "failed (exit status: 3)");
    }
}
