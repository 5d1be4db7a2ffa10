//! What rules of attach mode decide, as `backwater attach --json` tells it.
#![allow(unreachable_pub, dead_code)]

use crate::attach_help::{command, until};
use crate::server::Running;
use backwater_model::Event;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

/// Lines of a program, as they come.
type Lines = Arc<Mutex<Vec<String>>>;

/// `backwater attach`, with all that it decided and said so far.
pub struct Deciding {
    pub attach: Running,
    decided: Lines,
    said: Lines,
}

impl Deciding {
    /// Starts it, and waits until it watches.
    pub fn start(state: &Path, arguments: &[&str]) -> Deciding {
        let mut command = command(state, arguments);
        command.arg("--json").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (decided, said) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
        let mut deciding = Deciding { attach: Running(child), decided, said };
        until("it watches", || {
            let watches = deciding.said().iter().any(|line| line.contains("watching for"));
            let ended = deciding.attach.0.try_wait().unwrap();
            assert!(watches || ended.is_none(), "it ended: {:?}", deciding.said());
            watches
        });
        deciding
    }

    /// What it decided so far, in order.
    pub fn events(&self) -> Vec<Event> {
        self.decided.lock().unwrap().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until it has decided enough.
    pub fn until(&self, what: &str, enough: impl Fn(&[Event]) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        until(what, || {
            events = self.events();
            enough(&events)
        });
        events
    }

    /// The steps of what it did to one session, in order.
    pub fn steps_of(&self, pid: &str) -> Vec<String> {
        let events = self.events();
        events.iter().filter(|event| event.fields["session"] == pid).map(|event| event.fields["step"].clone()).collect()
    }

    /// What it said beside its decisions.
    pub fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }
}

fn lines(from: impl Read + Send + 'static) -> Lines {
    let lines = Lines::default();
    let into = Arc::clone(&lines);
    // Somebody must read on, or it would be stopped by a full pipe.
    std::thread::spawn(move || {
        BufReader::new(from).lines().map_while(Result::ok).for_each(|line| into.lock().unwrap().push(line));
    });
    lines
}
