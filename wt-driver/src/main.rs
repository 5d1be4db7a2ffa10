//! Drives the WiredTiger engine as a process of its own: commands come in as lines of JSON, replies and readings go out
//! as lines of JSON. README.md has the words. It ends when its input ends, and closes the database before.

mod database;
mod engine;
mod expiry;
mod ffi;
mod journal;
mod load;
mod operation;
mod protocol;
mod replication;
mod schedule;
mod statistics;
mod tally;

use database::Database;
use protocol::{Command, Output, Request};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const HELP: &str = "backwater-wt-driver: drives the WiredTiger engine; reads commands as lines of JSON from its \
                    standard input and answers on its standard output. See README.md.\n\nOptions: --version, --help";

fn main() -> ExitCode {
    let (text, [major, minor, patch]) = engine::version();
    match std::env::args().nth(1).as_deref() {
        None => {}
        Some("--version") => {
            println!("backwater-wt-driver {} with {text}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Some("--help" | "-h") => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some(other) => {
            eprintln!("there is no option {other}\n\n{HELP}");
            return ExitCode::from(2);
        }
    }
    let engine = json!({
        "engine": text,
        "version": [major, minor, patch],
        "protocol": protocol::VERSION,
        // Of its tables: no word of what a database is opened with tells it.
        "memory_page_max": database::MEMORY_PAGE_MAX,
    });
    let output = Arc::new(Output::new(Box::new(std::io::stdout())));
    let flag = || Arc::new(AtomicBool::new(false));
    let driver = Driver { output, database: None, job: None, busy: flag(), cancel: flag(), engine };
    match driver.serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What the process has: one database at most, and one load or fill at most.
struct Driver {
    output: Arc<Output>,
    database: Option<Arc<Database>>,
    job: Option<JoinHandle<()>>,
    /// Whether the job has not replied yet.
    busy: Arc<AtomicBool>,
    cancel: Arc<AtomicBool>,
    engine: Value,
}

impl Driver {
    /// Does what it is told until the input ends or it is told to quit.
    fn serve(mut self) -> Result<(), String> {
        let mut input = std::io::stdin().lock();
        while let Some(line) = protocol::next_line(&mut input).map_err(|error| format!("cannot read: {error}"))? {
            let request = match line {
                Ok(line) if line.trim_ascii().is_empty() => continue,
                Ok(line) => protocol::parse(&line),
                Err(error) => Err((Value::Null, error)),
            };
            match request {
                Ok(Request { id, command: Command::Quit }) => {
                    let ended = self.end();
                    self.output.reply(&id, ended.clone().map(|()| Value::Null));
                    return ended;
                }
                Ok(Request { id, command }) => self.obey(id, command),
                Err((id, error)) => self.output.reply(&id, Err(error)),
            }
        }
        self.end()
    }

    fn obey(&mut self, id: Value, command: Command) {
        // Whoever has the reply may go on at once, though the job's thread is still on its way out.
        if !self.busy.load(Ordering::SeqCst) {
            self.wait();
        }
        let outcome = match command {
            Command::Version => Ok(self.engine.clone()),
            Command::Stop => self.stop(),
            _ if self.job.is_some() => Err("a load is under way: only stop and version are heard".to_owned()),
            Command::Open(how) => self.open(&how),
            Command::Close => self.close().map(|()| Value::Null),
            Command::Quit => Ok(Value::Null),
            Command::Reconfigure { config } => self.with(|database| {
                let done = database.connection.reconfigure(&config);
                done.map(|()| Value::Null).map_err(|error| error.to_string())
            }),
            Command::Checkpoint => self.with(checkpoint),
            Command::Fill(how) => {
                let job = move |database: &Database, _: &Output, cancel: &AtomicBool| {
                    how.check()?;
                    let filled = database.fill(&how, cancel).map_err(|error| error.to_string())?;
                    Ok(json!({ "documents": filled }))
                };
                return self.begin(id, job);
            }
            Command::Run(load) => {
                return self.begin(id, move |database, output, cancel| load::drive(database, &load, output, cancel));
            }
        };
        self.output.reply(&id, outcome);
    }

    /// Begins what takes long; its reply comes when it is done.
    fn begin<F>(&mut self, id: Value, job: F)
    where
        F: FnOnce(&Database, &Output, &AtomicBool) -> Result<Value, String> + Send + 'static,
    {
        let Some(database) = self.database.clone() else {
            return self.output.reply(&id, Err(NOT_OPEN.to_owned()));
        };
        self.cancel.store(false, Ordering::SeqCst);
        self.busy.store(true, Ordering::SeqCst);
        let (output, cancel, busy) = (Arc::clone(&self.output), Arc::clone(&self.cancel), Arc::clone(&self.busy));
        self.job = Some(std::thread::spawn(move || {
            let outcome = job(&database, &output, &cancel);
            drop(database);
            busy.store(false, Ordering::SeqCst);
            output.reply(&id, outcome);
        }));
    }

    fn stop(&mut self) -> Result<Value, String> {
        self.cancel.store(true, Ordering::SeqCst);
        Ok(Value::Null)
    }

    fn wait(&mut self) {
        if let Some(job) = self.job.take() {
            let _ = job.join();
        }
    }

    fn open(&mut self, how: &protocol::Open) -> Result<Value, String> {
        if let Some(database) = &self.database {
            return Err(format!("{} is open: close it first", database.home.display()));
        }
        let database = Database::open(how)?;
        let mut told = self.engine.clone();
        told["config"] = json!(database.config);
        told["cache_bytes"] = json!(database.statistic("cache: maximum bytes configured"));
        told["next_id"] = json!(database.next_id.load(Ordering::Relaxed));
        self.database = Some(Arc::new(database));
        Ok(told)
    }

    fn close(&mut self) -> Result<(), String> {
        let database = self.database.take().ok_or(NOT_OPEN)?;
        match Arc::try_unwrap(database) {
            Ok(database) => database.connection.close().map_err(|error| error.to_string()),
            Err(database) => {
                self.database = Some(database);
                Err("it is still in use".to_owned())
            }
        }
    }

    fn with(&self, act: impl Fn(&Database) -> Result<Value, String>) -> Result<Value, String> {
        self.database.as_ref().map_or_else(|| Err(NOT_OPEN.to_owned()), |database| act(database))
    }

    /// Ends a load, closes the database.
    fn end(&mut self) -> Result<(), String> {
        self.cancel.store(true, Ordering::SeqCst);
        self.wait();
        if self.database.is_some() { self.close() } else { Ok(()) }
    }
}

const NOT_OPEN: &str = "no database is open";

fn checkpoint(database: &Database) -> Result<Value, String> {
    let began = std::time::Instant::now();
    let done = database.connection.session().and_then(|session| session.checkpoint());
    done.map_err(|error| error.to_string())?;
    Ok(json!({ "seconds": began.elapsed().as_secs_f64() }))
}
