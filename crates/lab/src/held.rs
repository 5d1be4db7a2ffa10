//! What holds the background back in an arm: this program's own proxy before the server, or its attach mode beside it, as
//! a process that a user would start; or nothing.

use crate::overload::{background_name, conninfo, rule};
use crate::rig::{Rig, RunOptions, work_dir};
use crate::scenario::{OverloadMode, OverloadPart};
use crate::servers::process;
use crate::{LabError, servers::ServerError};
use backwater_undo::{Entry, Journal, Stop};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The proxy's port, and the server's own.
const PROXY_PORT: u16 = 6432;
const SERVER_PORT: u16 = 5432;
/// How long it may take to begin, and to end: what it paced is put back first.
const BEGIN_WITHIN: Duration = Duration::from_secs(20);
const END_WITHIN: Duration = Duration::from_secs(20);
/// How often attach mode looks.
const INTERVAL: &str = "250ms";
/// More than any link carries: the low class is low, and nothing else.
const NO_BUCKET: &str = "100GB";

/// It runs. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Held {
    /// How clients reach the server.
    pub(crate) conninfo: String,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    entry: Entry,
    /// Statements that a rule acted on.
    acted: Arc<AtomicU64>,
    readers: Vec<JoinHandle<()>>,
}

impl Held {
    /// Starts what the mode asks for, and waits until it says that it is there.
    pub(crate) fn start(part: &OverloadPart, rig: &Rig, options: &RunOptions) -> Result<Held, LabError> {
        let Some(network) = &rig.network else {
            return Err(LabError::Refused("there is no network between server and clients".to_owned()));
        };
        let port = if part.mode.is_proxied() { PROXY_PORT } else { SERVER_PORT };
        let mut held = Held { conninfo: conninfo(network, port), running: None };
        if part.background_streams == 0 && !part.mode.is_proxied() {
            return Ok(held);
        }
        let (command, ready) = if part.mode.is_proxied() {
            (proxy(part, rig, &network.primary().address.to_string())?, "proxy on ")
        } else if part.mode.is_attached() {
            (attach(part, rig, options)?, "watching for ")
        } else {
            return Ok(held);
        };
        let namespace = Some(network.primary().namespace.as_str()).filter(|_| part.mode.is_proxied());
        held.running = Some(start(command, ready, namespace, &rig.journal)?);
        Ok(held)
    }

    /// Ends it and says how many statements its rule acted on.
    pub(crate) fn end(mut self, journal: &Journal) -> Result<u64, LabError> {
        let Some(mut running) = self.running.take() else { return Ok(0) };
        let status = running.end();
        journal.undo(running.entry)?;
        match status? {
            Some(status) if status.success() => Ok(running.acted.load(Ordering::SeqCst)),
            Some(status) => Err(LabError::Refused(format!("what held the background back ended with {status}"))),
            None => Err(LabError::Refused("what held the background back did not end and was killed".to_owned())),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running
            && let Err(error) = running.end()
        {
            tracing::warn!(%error, "cannot end what holds the background back");
        }
    }
}

impl Running {
    /// How it ended; none where it had to be killed.
    fn end(&mut self) -> Result<Option<std::process::ExitStatus>, ServerError> {
        process::signal(&self.child, Signal::TERM);
        let status = process::wait_for_end(&mut self.child, END_WITHIN)?;
        if status.is_none() {
            process::signal(&self.child, Signal::KILL);
            process::wait_for_end(&mut self.child, END_WITHIN)?;
        }
        for reader in self.readers.drain(..) {
            // It ends with the program's output.
            let _ = reader.join();
        }
        Ok(status)
    }
}

/// This program, with its log on stderr and nothing from outside but where journals lie.
fn program(options_dir: Option<&std::path::Path>) -> Result<Command, LabError> {
    let own = std::env::current_exe().map_err(LabError::file("find", "/proc/self/exe"))?;
    let mut command = process::clean(own);
    if let Some(dir) = options_dir {
        command.env("BACKWATER_STATE_DIR", dir);
    }
    Ok(command)
}

fn proxy(part: &OverloadPart, rig: &Rig, address: &str) -> Result<Command, LabError> {
    let path = work_dir(&rig.journal).join("proxy.toml");
    let text = proxy_config(part, address, &rig.server.socket().display().to_string());
    std::fs::write(&path, text).map_err(LabError::file("write", &path))?;
    let mut command = program(None)?;
    command.arg("-v").arg("proxy").arg("-c").arg(&path);
    Ok(command)
}

fn proxy_config(part: &OverloadPart, address: &str, server: &str) -> String {
    let bandwidth = match part.mode {
        OverloadMode::ProxyFixed => format!("{}B", part.low_bytes_per_s.0),
        OverloadMode::ProxyAuto => "auto".to_owned(),
        _ => NO_BUCKET.to_owned(),
    };
    let action = if part.mode == OverloadMode::Abort { "abort" } else { "penalty" };
    let attributes: String = rule(part).iter().map(|(name, value)| format!("{name} = {value:?}\n")).collect();
    format!(
        "listen = \"{address}:{PROXY_PORT}\"\nserver = \"{server}\"\nlow_priority_bandwidth = \"{bandwidth}\"\n\
         [rules.heavy]\n{attributes}action = \"{action}\"\n[pools.default]\nexcept_rule = \"heavy\"\n"
    )
}

fn attach(part: &OverloadPart, rig: &Rig, options: &RunOptions) -> Result<Command, LabError> {
    let attributes: Vec<String> = rule(part).iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    let rate = match part.mode {
        OverloadMode::AttachAuto => "auto".to_owned(),
        _ => format!("{}B", part.low_bytes_per_s.0),
    };
    let mut command = program(Some(&options.state_dir))?;
    command.arg("-v").arg("attach").arg(rig.server.conninfo()).args(["--interval", INTERVAL, "--class-rate", &rate]);
    if part.small_bursts {
        command.arg("--allow-host-changes");
    }
    command.args(["--application", background_name(), "--rule"]);
    command.arg(format!("{}, action='penalty'", attributes.join(", ")));
    Ok(command)
}

/// Starts it, and waits until a line on its stderr begins like this.
fn start(
    mut command: Command,
    ready: &'static str,
    namespace: Option<&str>,
    journal: &Journal,
) -> Result<Running, LabError> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let spawn = || journal.spawn(&mut command, "the lab's proxy or attach mode", Stop::Terminate);
    let (mut child, entry) = process::within(namespace, spawn)??;
    let acted = Arc::new(AtomicU64::new(0));
    let (told, lines) = channel();
    let mut readers = Vec::new();
    let outputs: [Option<Box<dyn Read + Send>>; 2] =
        [child.stdout.take().map(|out| Box::new(out) as _), child.stderr.take().map(|err| Box::new(err) as _)];
    for output in outputs.into_iter().flatten() {
        let (acted, told) = (Arc::clone(&acted), told.clone());
        readers.push(std::thread::spawn(move || follow(output, &acted, &told)));
    }
    drop(told);
    let mut running = Running { child, entry, acted, readers };
    match wait_for(&lines, ready) {
        Ok(()) => Ok(running),
        Err(said) => {
            running.end()?;
            journal.undo(running.entry)?;
            Err(LabError::Refused(format!("what is to hold the background back did not begin: {said}")))
        }
    }
}

/// Reads all that it says, and counts what its rule does. Somebody must read, or it would stop at a full pipe.
fn follow(output: impl Read, acted: &AtomicU64, told: &Sender<String>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line.contains(" demotes session ") || line.contains(" cancels the statement of session ") {
            acted.fetch_add(1, Ordering::SeqCst);
        }
        // Nobody listens any more once it has begun.
        let _ = told.send(line);
    }
}

/// Until a line begins like this; as an error what was said instead.
fn wait_for(lines: &Receiver<String>, ready: &str) -> Result<(), String> {
    let deadline = std::time::Instant::now() + BEGIN_WITHIN;
    let mut said = Vec::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(std::time::Instant::now())) {
            Ok(line) if line.starts_with(ready) => return Ok(()),
            Ok(line) => said.push(line),
            Err(_) => return Err(process::last_lines(&said.join("\n"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxys_configuration_is_the_modes() {
        let text = |mode| proxy_config(&OverloadPart { mode, ..OverloadPart::default() }, "10.0.0.1", "/run/s");
        assert!(text(OverloadMode::ProxyAuto).contains("low_priority_bandwidth = \"auto\""));
        assert!(text(OverloadMode::ProxyFixed).contains("low_priority_bandwidth = \"22020096B\""));
        assert!(
            text(OverloadMode::DemotedOnly).contains("\"100GB\"\n[rules.heavy]\nelapsedtime = 1.0\nbandwidth = 0.25\n")
        );
        assert!(text(OverloadMode::Abort).contains("action = \"abort\""));
    }

    #[test]
    fn what_a_rule_does_is_counted_and_readiness_is_heard() {
        let (told, lines) = channel();
        let acted = AtomicU64::new(0);
        let said = "proxy on 10.0.0.1:6432\nINFO rule heavy demotes session 3 (user u, pool default): x\n";
        follow(said.as_bytes(), &acted, &told);
        drop(told);
        assert_eq!(acted.load(Ordering::SeqCst), 1);
        assert_eq!(wait_for(&lines, "proxy on "), Ok(()));
        assert!(wait_for(&lines, "proxy on ").is_err_and(|said| said.contains("demotes")));
    }
}
