//! The driver as a process: started as an ordinary user, told what to do, listened to, ended.

use super::program::NAME;
use crate::servers::process::{self, signal, tail, wait_for_end};
use crate::servers::{ServerError, place};
use backwater_undo::{Entry, Journal, Stop};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How often a wait for a reply looks whether the run is to end.
const LOOK: Duration = Duration::from_millis(50);
/// How long a database may take to close once nobody speaks with the driver any more.
const CLOSE_WITHIN: Duration = Duration::from_secs(60);
const KILL_WITHIN: Duration = Duration::from_secs(10);
/// Replies that wait at most: one command is asked at a time, and a stop beside it.
const REPLIES: usize = 16;

/// Who hears what the driver tells between replies.
pub trait EngineEvents: Send + Sync {
    /// One event, as README.md of the driver has it.
    fn event(&self, event: &Value);
}

/// What driver to start, and where.
#[derive(Clone, Debug)]
pub struct WiredTigerSpec {
    /// Its program.
    pub program: PathBuf,
    /// Where the database goes: absent, or a directory of an earlier one.
    pub home: PathBuf,
    /// Where the program's copy and its log go: absent, made for its user to read and run what is there, and to change nothing.
    pub run_dir: PathBuf,
}

/// The words that this program speaks: `VERSION` of wt-driver/src/protocol.rs.
const PROTOCOL: u64 = 4;

/// Refuses a driver of another day: it might take every word and load the engine otherwise.
fn speaks(told: &Value, program: &Path) -> Result<(), ServerError> {
    let spoken = told["protocol"].as_u64().unwrap_or(1);
    if spoken == PROTOCOL {
        return Ok(());
    }
    Err(ServerError::Engine(format!(
        "{} was built from another version of its source (it speaks protocol {spoken}, this program {PROTOCOL}): build it anew with \
         cargo build --release --manifest-path wt-driver/Cargo.toml, or unset BACKWATER_WT_DRIVER",
        program.display()
    )))
}

/// The driver, running.
#[derive(Debug)]
pub struct WiredTiger {
    child: Child,
    entry: Option<Entry>,
    input: Option<ChildStdin>,
    replies: Receiver<Value>,
    home: PathBuf,
    log: PathBuf,
    user: Option<(u32, u32)>,
    asked: u64,
    /// What the engine calls itself.
    pub engine: String,
    /// 30201 for 3.2.1.
    pub version_num: i32,
    /// How large a page of its tables may grow in the cache, as the engine is told (`10m`).
    pub memory_page_max: String,
}

impl WiredTiger {
    /// Its major version: 3 for 3.2.1.
    pub fn major(&self) -> u32 {
        u32::try_from(self.version_num / 10_000).unwrap_or(0)
    }

    /// Starts it. As root it runs as an ordinary user.
    pub fn start(
        journal: &Journal,
        spec: &WiredTigerSpec,
        events: Arc<dyn EngineEvents>,
    ) -> Result<WiredTiger, ServerError> {
        let user = process::ordinary_user()?;
        // The database alone is given to its user: nothing that this process writes may lie where that user could put a link.
        place::readable(journal, &spec.run_dir)?;
        place::reachable(&spec.home, user)?;
        let program = own_copy(spec)?;
        place::reachable(&program, user)?;
        let log = spec.run_dir.join("driver.log");
        let errors =
            OpenOptions::new().create_new(true).append(true).open(&log).map_err(ServerError::file("make", &log))?;
        let mut command = process::clean(&program);
        process::as_user(&mut command, user);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let spawned = journal.spawn(&mut command, "the lab's driver of WiredTiger", Stop::Terminate);
        let (mut child, entry) = spawned.map_err(|error| ServerError::Engine(error.to_string()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (send, replies) = sync_channel(REPLIES);
        if let Some(output) = output {
            std::thread::spawn(move || listen(output, &send, &*events));
        }
        let mut driver = WiredTiger {
            child,
            entry: Some(entry),
            input,
            replies,
            home: spec.home.clone(),
            log,
            user,
            asked: 0,
            engine: String::new(),
            version_num: 0,
            memory_page_max: String::new(),
        };
        let told = driver.ask(&json!({"cmd": "version"}), None)?;
        speaks(&told, &spec.program)?;
        driver.engine = told["engine"].as_str().unwrap_or_default().to_owned();
        driver.memory_page_max = told["memory_page_max"].as_str().unwrap_or_default().to_owned();
        let part = |place: usize| told["version"][place].as_i64().unwrap_or(0) as i32;
        driver.version_num = part(0) * 10_000 + part(1) * 100 + part(2);
        Ok(driver)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its database lies.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Opens a new database in place of the one before, as a member of a replica set has it or as a single server has.
    pub fn renew(
        &mut self,
        journal: &Journal,
        config: &str,
        sessions: u32,
        replicated: bool,
    ) -> Result<Value, ServerError> {
        // There may be none open: that is as good.
        let _ = self.ask(&json!({"cmd": "close"}), None);
        if self.home.exists() {
            std::fs::remove_dir_all(&self.home).map_err(ServerError::file("remove", &self.home))?;
        }
        place::private(journal, &self.home, self.user)?;
        let open = json!({
            "cmd": "open",
            "home": self.home,
            "checkpoint_s": 60,
            "sessions": sessions,
            "replicated": replicated,
            "config": config,
        });
        self.ask(&open, None)
    }

    /// Asks, and waits for the reply; once `cancel` is raised the load is stopped first.
    ///
    /// # Errors
    /// What the driver answers instead of doing it, or how it ended.
    pub fn ask(&mut self, command: &Value, cancel: Option<&AtomicBool>) -> Result<Value, ServerError> {
        let id = self.say(command)?;
        let mut stopping = false;
        loop {
            match self.replies.recv_timeout(LOOK) {
                Ok(reply) if reply["id"] == id => return answer(command, reply),
                // Of an earlier command that was given up, or of `stop`.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
            if !stopping && cancel.is_some_and(|cancel| cancel.load(Ordering::SeqCst)) {
                stopping = true;
                self.say(&json!({"cmd": "stop"}))?;
            }
        }
    }

    fn say(&mut self, command: &Value) -> Result<u64, ServerError> {
        self.asked += 1;
        let mut line = command.clone();
        line["id"] = json!(self.asked);
        let said = self.input.as_mut().map(|input| writeln!(input, "{line}").and_then(|()| input.flush()));
        match said {
            Some(Ok(())) => Ok(self.asked),
            _ => Err(self.ended()),
        }
    }

    fn ended(&mut self) -> ServerError {
        let status = match wait_for_end(&mut self.child, KILL_WITHIN) {
            Ok(Some(status)) => status.to_string(),
            _ => "it does not answer any more".to_owned(),
        };
        let log = tail(&self.log, 0);
        ServerError::Engine(format!("the driver has ended ({status}); its log says:\n{log}"))
    }

    /// Closes the database and ends the process.
    pub fn stop(&mut self, journal: &Journal) -> Result<(), ServerError> {
        drop(self.input.take());
        let ended = wait_for_end(&mut self.child, CLOSE_WITHIN)?;
        if ended.is_none() {
            tracing::warn!("the driver of WiredTiger does not end: it is killed");
            self.kill();
        }
        match self.entry.take().map(|entry| journal.undo(entry)) {
            Some(Err(error)) => Err(ServerError::Engine(error.to_string())),
            _ => Ok(()),
        }
    }

    fn kill(&mut self) {
        signal(&self.child, Signal::KILL);
        if let Err(error) = wait_for_end(&mut self.child, KILL_WITHIN) {
            tracing::warn!(%error, "cannot wait for the driver of WiredTiger to end");
        }
    }
}

impl Drop for WiredTiger {
    fn drop(&mut self) {
        drop(self.input.take());
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.kill();
        }
    }
}

fn answer(command: &Value, reply: Value) -> Result<Value, ServerError> {
    if reply["ok"] == true {
        return Ok(reply);
    }
    let (what, why) = (command["cmd"].as_str().unwrap_or_default(), reply["error"].as_str().unwrap_or_default());
    Err(ServerError::Engine(format!("{what}: {why}")))
}

/// A copy that the driver's user can run wherever the program itself lies.
fn own_copy(spec: &WiredTigerSpec) -> Result<PathBuf, ServerError> {
    let copy = spec.run_dir.join(NAME);
    let mut from = File::open(&spec.program).map_err(ServerError::file("open", &spec.program))?;
    let made = OpenOptions::new().write(true).create_new(true).open(&copy);
    let mut to = made.map_err(ServerError::file("make", &copy))?;
    std::io::copy(&mut from, &mut to).map_err(ServerError::file("copy the driver to", &copy))?;
    let executable = std::fs::Permissions::from_mode(0o755);
    to.set_permissions(executable).map_err(ServerError::file("make executable", &copy))?;
    Ok(copy)
}

/// Passes events and replies on until the driver ends. What is no JSON is nobody's.
fn listen(output: ChildStdout, replies: &SyncSender<Value>, events: &dyn EngineEvents) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { return };
        match serde_json::from_str::<Value>(&line) {
            Ok(value) if value.get("event").is_some() => events.event(&value),
            Ok(value) => {
                if replies.send(value).is_err() {
                    return;
                }
            }
            Err(error) => tracing::warn!(%error, "the driver of WiredTiger said what is no JSON"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_link_where_the_program_is_to_go_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let [program, precious, run_dir] = ["program", "precious", "run"].map(|name| dir.path().join(name));
        std::fs::write(&program, "#!").unwrap();
        std::fs::write(&precious, "kept").unwrap();
        std::fs::create_dir(&run_dir).unwrap();
        let spec = WiredTigerSpec { program, home: dir.path().join("home"), run_dir };
        let copy = own_copy(&spec).unwrap();
        assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o755);
        std::fs::remove_file(&copy).unwrap();
        std::os::unix::fs::symlink(&precious, &copy).unwrap();
        let error = own_copy(&spec).unwrap_err().to_string();
        assert!(error.contains(NAME) && std::fs::read_to_string(&precious).unwrap() == "kept", "{error}");
    }

    #[test]
    fn a_driver_of_another_day_is_refused() {
        let program = Path::new("/opt/backwater-wt-driver");
        assert!(speaks(&json!({"engine": "WiredTiger", "protocol": PROTOCOL}), program).is_ok());
        let old = speaks(&json!({"engine": "WiredTiger"}), program).unwrap_err().to_string();
        assert!(
            old.contains("/opt/backwater-wt-driver was built from another version") && old.contains("unset"),
            "{old}"
        );
    }
}
