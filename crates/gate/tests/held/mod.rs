//! A proxy that is held by a test, what it tells, and a session through it.
#![allow(clippy::unwrap_used, unreachable_pub, dead_code)]

use crate::server::{PASSWORD, Server, psql, text};
use backwater_gate::proxy::{Proxy, ProxyConfig};
use backwater_model::{Event, EventKind};
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

pub const PATIENCE: Duration = Duration::from_secs(60);
/// The console's user, in a configuration.
pub const CONSOLE: &str = "[admin]\nusers = { dba = 'open sesame' }\n";

pub struct Held {
    pub port: u16,
    pub events: Receiver<Event>,
    pub proxy: Proxy,
}

/// A proxy before this server, with this after its addresses.
pub fn proxy(server: &Server, more: &str) -> Held {
    before(&server.address(), more)
}

/// A proxy before whoever listens there.
pub fn before(address: &str, more: &str) -> Held {
    let written = format!("listen = '127.0.0.1:0'\nserver = '{address}'\n{more}");
    let (tell, events) = std::sync::mpsc::channel();
    let tell = Mutex::new(tell);
    let tell = Arc::new(move |event| drop(tell.lock().unwrap().send(event)));
    let config = ProxyConfig::parse(&written, Path::new("test.toml")).unwrap();
    let proxy = Proxy::start_telling(&config, tell).unwrap();
    let port = proxy.addresses()[0].to_string().rsplit(':').next().unwrap().parse().unwrap();
    Held { port, events, proxy }
}

impl Held {
    /// The next decision.
    pub fn decision(&self) -> Event {
        let event = self.events.recv_timeout(PATIENCE).unwrap();
        assert_eq!(event.kind, EventKind::Decision);
        event
    }

    /// The next decision of this step; changes of settings are passed over.
    pub fn decision_of(&self, step: &str) -> Event {
        let mut events = std::iter::from_fn(|| self.events.recv_timeout(PATIENCE).ok());
        events.find(|event| event.kind == EventKind::Decision && event.fields["step"] == step).unwrap()
    }
}

/// What the console of a proxy with that user answers.
pub fn console(port: u16, sql: &str) -> String {
    let mut command = psql("127.0.0.1", port, sql);
    command.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "open sesame");
    text(&command.output().unwrap())
}

/// Waits until it is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A session of a client that can say several things before it hears an answer.
pub struct Session {
    pub client: Client,
    pub runtime: tokio::runtime::Runtime,
}

impl Session {
    pub fn open(port: u16) -> Session {
        Session::open_with(port, "")
    }

    /// With these options, as a client says them.
    pub fn open_with(port: u16, options: &str) -> Session {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(port).user("postgres").password(PASSWORD).options(options);
        let (client, connection) = runtime.block_on(config.connect(NoTls)).unwrap();
        runtime.spawn(connection);
        Session { client, runtime }
    }

    /// What comes of it, which it must in time.
    pub fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, what).await }).unwrap()
    }

    /// The server's process.
    pub fn pid(&self) -> i32 {
        self.wait(self.client.query_one("SELECT pg_backend_pid()", &[])).unwrap().get(0)
    }
}
