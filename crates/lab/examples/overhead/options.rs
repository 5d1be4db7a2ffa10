//! What is to be measured, and for how long.

use crate::Result;
use crate::cost::Load;
use std::path::PathBuf;
use std::time::Duration;

/// The command line.
pub(crate) struct Options {
    /// Whether the recorder's own cost is measured, and a load's loss.
    pub(crate) cost: bool,
    pub(crate) loss: bool,
    /// With how many sessions the cost is measured, one after the other.
    pub(crate) sessions: Vec<usize>,
    /// Beside what the server does.
    pub(crate) loads: Vec<Load>,
    /// How often sessions are looked at; none for ten times a second, and once a hundred times with few sessions.
    pub(crate) sessions_every: Option<Duration>,
    /// Of the look at the recorder's own cost.
    pub(crate) cost_length: Duration,
    /// Blocks of three runs for each load.
    pub(crate) blocks: usize,
    /// Of a run's measured part.
    pub(crate) run_length: Duration,
    /// Whether the load's clients connect by TCP, each with a connection that the recorder reads.
    pub(crate) by_tcp: bool,
    /// What more the recorder that is measured is told.
    pub(crate) with: Vec<String>,
    /// Another build, measured at the same time, and what more it is told.
    pub(crate) beside: Option<PathBuf>,
    pub(crate) beside_with: Vec<String>,
}

impl Options {
    /// The command line without the program's name.
    pub(crate) fn of(mut words: impl Iterator<Item = String>) -> Result<Options> {
        let mut options = Options {
            cost: true,
            loss: true,
            sessions: vec![50, 200],
            loads: Load::ALL.to_vec(),
            sessions_every: None,
            cost_length: Duration::from_secs(60),
            blocks: 8,
            run_length: Duration::from_secs(8),
            by_tcp: false,
            with: Vec::new(),
            beside: None,
            beside_with: Vec::new(),
        };
        let split = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect();
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--only" => (options.cost, options.loss) = (value == "cost", value == "loss"),
                "--sessions" => {
                    options.sessions = value.split(',').map(|number| Ok(number.parse()?)).collect::<Result<_>>()?;
                }
                "--loads" => options.loads = value.split(',').map(Load::named).collect::<Result<_>>()?,
                "--sessions-every" => options.sessions_every = Some(milliseconds(&value)?),
                "--cost-seconds" => options.cost_length = seconds(&value)?,
                "--blocks" => options.blocks = value.parse::<usize>()?.clamp(2, 100),
                "--seconds" => options.run_length = seconds(&value)?,
                "--clients" => {
                    options.by_tcp = match value.as_str() {
                        "tcp" => true,
                        "socket" => false,
                        _ => return Err("say --clients tcp, or --clients socket".into()),
                    }
                }
                "--with" => options.with = split(&value),
                "--beside" => options.beside = Some(value.into()),
                "--beside-with" => options.beside_with = split(&value),
                _ => return Err(format!("{name} is not known; see the head of examples/overhead/main.rs").into()),
            }
        }
        Ok(options)
    }
}

fn seconds(text: &str) -> Result<Duration> {
    Ok(Duration::from_secs(text.parse::<u64>()?.clamp(1, 600)))
}

/// `10ms`, as the program takes it.
fn milliseconds(text: &str) -> Result<Duration> {
    let number = text.strip_suffix("ms").ok_or("say --sessions-every 10ms")?;
    Ok(Duration::from_millis(number.parse::<u64>()?.clamp(10, 1_000)))
}
