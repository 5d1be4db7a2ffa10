//! Runs somebody's command when a finding begins, becomes worse or ends: mail, a pager, a chat, for those without Prometheus.

use crate::running::Running;
use crate::{LiveError, Turn};
use backwater_model::{Confidence, Meta, Severity};
use backwater_report::DatedFinding;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Turns that may wait while a command runs. More are not taken, which is logged.
const WAITING: usize = 16;
/// A command that takes longer is killed, so that the next one is heard.
const LONGEST: Duration = Duration::from_secs(60);
/// Once nobody tells of anything more, what still runs or waits has so long.
const LAST: Duration = Duration::from_secs(5);
/// How often a running command is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A turn, and what tells the time in it.
type Told = (Turn, Arc<Meta>);

/// A command that is told of findings, one at a time, on a thread of its own: nobody waits for it. Dropping it waits, five
/// seconds at most, for what was told of last.
#[derive(Debug)]
pub struct Hook {
    turns: Option<SyncSender<Told>>,
    thread: Option<JoinHandle<()>>,
    end: Arc<OnceLock<Instant>>,
    running: Running,
    /// Whether the last turn was not taken.
    slow: bool,
}

impl Hook {
    /// A hook that runs `sh -c COMMAND`. The finding is its standard input, as JSON; BACKWATER_STATE (begun, worse, ended),
    /// BACKWATER_RULE, BACKWATER_CAUSE, BACKWATER_SEVERITY, BACKWATER_CONFIDENCE, BACKWATER_QUEUE, BACKWATER_SERVER, BACKWATER_FROM and
    /// BACKWATER_TO (RFC 3339, UTC) and BACKWATER_SUMMARY are in its environment. What a recording holds is thus never part of a command line.
    ///
    /// Errors: no thread is to be had.
    pub fn start(command: &str) -> Result<Hook, LiveError> {
        Hook::bounded(command, LONGEST, LAST)
    }

    /// A hook whose command may take so long, and in the end so long.
    fn bounded(command: &str, longest: Duration, last: Duration) -> Result<Hook, LiveError> {
        let (turns, inbox) = sync_channel(WAITING);
        let end = Arc::new(OnceLock::new());
        let (command, running) = (command.to_owned(), Running::default());
        let runner = Runner { command, longest, last, ended: Arc::clone(&end), running: running.clone() };
        let thread = std::thread::Builder::new()
            .name("on-finding".into())
            .spawn(move || runner.each(&inbox))
            .map_err(LiveError::system("cannot start a thread"))?;
        Ok(Hook { turns: Some(turns), thread: Some(thread), end, running, slow: false })
    }

    /// What runs now, for whoever cannot wait until this is dropped.
    pub fn running(&self) -> Running {
        self.running.clone()
    }

    /// Tells of a turn; at once, whether or not the command is still busy with another. Says whether it was taken: while too many
    /// wait none is, and what is still so should be told again.
    pub fn tell(&mut self, turn: Turn, meta: &Arc<Meta>) -> bool {
        let Some(turns) = &self.turns else { return false };
        let told = turns.try_send((turn, Arc::clone(meta)));
        let was_slow = std::mem::replace(&mut self.slow, matches!(told, Err(TrySendError::Full(_))));
        match told {
            Ok(()) => true,
            Err(TrySendError::Full((turn, _))) => {
                // Once, and not at every look.
                if !was_slow {
                    tracing::warn!(
                        rule = turn.finding().rule,
                        "the command for findings is too slow: it is told of this and more only once it has caught up"
                    );
                }
                false
            }
            Err(TrySendError::Disconnected((turn, _))) => {
                tracing::error!(
                    rule = turn.finding().rule,
                    "the thread that runs the command for findings has ended: it is told of nothing more"
                );
                self.turns = None;
                false
            }
        }
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let _first = self.end.set(Instant::now());
        self.turns = None;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the thread that runs the command for findings panicked");
            }
        }
    }
}

struct Runner {
    command: String,
    longest: Duration,
    last: Duration,
    /// When nobody told of anything more.
    ended: Arc<OnceLock<Instant>>,
    running: Running,
}

impl Runner {
    fn each(&self, turns: &Receiver<Told>) {
        while let Ok((turn, meta)) = turns.recv() {
            if self.is_over(Instant::now()) {
                tracing::warn!(rule = turn.finding().rule, "the command for findings is not told of this one any more");
                continue;
            }
            match self.run(&turn, &meta) {
                Ok(None) => {}
                Ok(Some(why)) => tracing::warn!("the command for findings {why}: {}", self.command),
                Err(error) => tracing::warn!("the command for findings cannot be run: {error}: {}", self.command),
            }
        }
    }

    /// Whether even what was told of last has had its time.
    fn is_over(&self, now: Instant) -> bool {
        self.ended.get().is_some_and(|ended| now.saturating_duration_since(*ended) > self.last)
    }

    /// Runs it to its end; what was wrong with it, if anything.
    fn run(&self, turn: &Turn, meta: &Meta) -> std::io::Result<Option<String>> {
        let finding = turn.finding();
        let dated = DatedFinding::of(finding, meta);
        let mut command = Command::new("sh");
        command
            .args(["-c", &self.command])
            .env("BACKWATER_STATE", turn.word())
            .env("BACKWATER_RULE", &finding.rule)
            .env("BACKWATER_CAUSE", &finding.cause)
            .env("BACKWATER_SEVERITY", severity(finding.severity))
            .env("BACKWATER_CONFIDENCE", confidence(finding.confidence))
            .env("BACKWATER_QUEUE", plain(&finding.queue))
            .env("BACKWATER_SERVER", plain(finding.server.as_deref().unwrap_or_default()))
            .env("BACKWATER_FROM", dated.from_utc.as_deref().unwrap_or_default())
            .env("BACKWATER_TO", dated.to_utc.as_deref().unwrap_or_default())
            .env("BACKWATER_SUMMARY", plain(&finding.summary))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // What the command starts is ended with it, and Ctrl-C for the recorder is none for a message on its way.
            .process_group(0);
        let Some(mut child) = self.running.start(|| command.spawn())? else { return Ok(None) };
        if let Some(mut stdin) = child.stdin.take() {
            let text = serde_json::to_vec(&dated).unwrap_or_default();
            // On a thread of its own: a command that does not read is no fault, and must not be waited for longer than it may
            // run.
            let writer = std::thread::Builder::new().name("on-finding-input".into());
            if let Err(error) = writer.spawn(move || stdin.write_all(&text)) {
                tracing::warn!("the command for findings gets nothing on its input: cannot start a thread: {error}");
            }
        }
        self.wait(&mut child)
    }

    fn wait(&self, child: &mut Child) -> std::io::Result<Option<String>> {
        let (begun, mut killed_s) = (Instant::now(), None);
        loop {
            if let Some(status) = self.running.ended(child)? {
                return Ok(match killed_s {
                    Some(ran_s) => Some(format!("was ended after {ran_s:.0} s")),
                    None => (!status.success()).then(|| format!("failed ({status})")),
                });
            }
            if killed_s.is_none() && (begun.elapsed() > self.longest || self.is_over(Instant::now())) {
                killed_s = Some(begun.elapsed().as_secs_f64());
                self.running.kill();
            }
            std::thread::park_timeout(LOOK);
        }
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
    use backwater_model::{ClockAnchor, Finding, Moment};
    use serde_json::json;
    use std::path::Path;

    fn finding(summary: &str) -> Finding {
        let value = json!({
            "rule": "dirty-throttle", "cause": "device-limit", "severity": "critical", "queue": "host.dirty@7:0", "from": 0,
            "to": 1, "foreground_lost": 0.5, "summary": summary, "evidence": [], "ruled_out": [], "unseen": [],
            "confidence": "high", "victims": [], "remedies": [],
        });
        serde_json::from_value(value).unwrap()
    }

    fn runner(command: &str, longest: Duration) -> Runner {
        Runner { command: command.to_owned(), longest, last: LAST, ended: Arc::default(), running: Running::default() }
    }

    /// The number that a command wrote, once it is there.
    fn number_in(file: &Path) -> i32 {
        let begun = Instant::now();
        loop {
            let told = std::fs::read_to_string(file).ok().filter(|text| text.ends_with('\n'));
            if let Some(text) = told {
                return text.trim().parse().unwrap();
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing in {}", file.display());
            std::thread::yield_now();
        }
    }

    /// Waits until this process is gone.
    fn is_gone(pid: i32) {
        let begun = Instant::now();
        let lives = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        while lives() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{pid} lives on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_a_recording_holds_is_input_and_never_command() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("told");
        let hostile = "$(touch ran); `touch ran`\n' \" \0 &";
        let command = format!(
            "printf '%s %s %s %s\\n' $BACKWATER_FROM \"$BACKWATER_STATE\" \"$BACKWATER_RULE\" \"$BACKWATER_SUMMARY\" > {0}; \
             cat >> {0}",
            file.display()
        );
        let anchor = ClockAnchor { boot: Moment(0), unix_us: 1_795_262_400_000_000 };
        let meta = Meta { anchors: vec![anchor], ..Meta::default() };
        let run = |command: &str, turn: &Turn| runner(command, LONGEST).run(turn, &meta).unwrap();
        assert_eq!(run(&command, &Turn::Begun(finding(hostile))), None);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            text.starts_with("2026-11-21T12:00:00.000Z begun dirty-throttle $(touch ran); `touch ran`\n"),
            "{text}"
        );
        let input = text.split_once('{').unwrap().1;
        let read: Finding = serde_json::from_str(&format!("{{{input}")).unwrap();
        assert_eq!(read.summary, hostile);
        assert!(input.contains("\"to_utc\":\"2026-11-21T12:00:00.000Z\""), "{input}");
        assert_eq!(run("exit 3", &Turn::Ended(finding(""))).unwrap(), "failed (exit status: 3)");
        assert_eq!(run("/no/such/command", &Turn::Ended(finding(""))).unwrap(), "failed (exit status: 127)");
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        // It never reads its input, and what it started holds that open.
        let command = format!("sleep 100 & echo $! > {}; wait", file.display());
        let why =
            runner(&command, Duration::from_millis(300)).run(&Turn::Begun(finding("")), &Meta::default()).unwrap();
        assert!(why.unwrap().starts_with("was ended after"));
        is_gone(number_in(&file));
    }

    #[test]
    fn who_cannot_wait_ends_it_at_once_and_none_is_started_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let command = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let mut hook = Hook::bounded(&command, Duration::from_secs(1_000), Duration::from_secs(1_000)).unwrap();
        assert!(hook.tell(Turn::Begun(finding("")), &Arc::default()));
        let pid = number_in(&file);
        std::fs::remove_file(&file).unwrap();
        assert!(hook.tell(Turn::Ended(finding("")), &Arc::default()));
        hook.running().end();
        is_gone(pid);
        drop(hook);
        assert!(!file.exists(), "the one that waited was started");
    }

    #[test]
    fn in_the_end_nobody_waits_long_for_a_command() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let command = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let mut hook = Hook::bounded(&command, Duration::from_secs(1_000), Duration::from_millis(300)).unwrap();
        assert!(hook.tell(Turn::Begun(finding("")), &Arc::default()));
        assert!(hook.tell(Turn::Ended(finding("")), &Arc::default()));
        let pid = number_in(&file);
        let begun = Instant::now();
        drop(hook);
        assert!(begun.elapsed() < Duration::from_secs(500), "no longer than it was given: {:?}", begun.elapsed());
        is_gone(pid);
    }

    #[test]
    fn what_was_told_of_last_is_still_heard() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("told");
        let command = format!("sleep 0.3; echo $BACKWATER_STATE >> {}", file.display());
        let mut hook = Hook::bounded(&command, LONGEST, LONGEST).unwrap();
        assert!(hook.tell(Turn::Begun(finding("")), &Arc::default()));
        assert!(hook.tell(Turn::Ended(finding("")), &Arc::default()));
        drop(hook);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "begun\nended\n");
    }
    #[test]
    fn a_turn_for_which_there_is_no_room_is_not_taken() {
        let mut hook = Hook::bounded("sleep 1000", Duration::from_secs(1_000), Duration::ZERO).unwrap();
        let taken = (0..2 * WAITING).take_while(|_| hook.tell(Turn::Begun(finding("")), &Arc::default())).count();
        // One more where the first was taken out of the queue meanwhile.
        assert!((WAITING..=WAITING + 1).contains(&taken), "{taken}");
        hook.running().end();
    }

    #[test]
    fn a_thread_that_has_ended_takes_nothing() {
        let (turns, _) = sync_channel(1);
        let mut hook =
            Hook { turns: Some(turns), thread: None, end: Arc::default(), running: Running::default(), slow: false };
        assert!(!hook.tell(Turn::Begun(finding("")), &Arc::default()) && hook.turns.is_none());
    }
}
