//! `backwater lab blind`: how often the diagnosis is right, on runs whose cause it does not know.

use super::lab::{Bar, put_right, state_dir};
use crate::{signals, terminal, when};
use anyhow::{Context, bail};
use backwater_lab::blind::{BlindOptions, Diagnoser, Summary, run as run_blind};
use backwater_lab::scenario::ServerKind;
use backwater_model::Finding;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// How to run the blind test.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Each run injects a cause at random (or none), is recorded by itself, and is diagnosed by a process of its own that is given
the recording and two moments. Only the first finding counts, and the right answers are fixed beforehand. Sixty runs take
about three quarters of an hour; they can be made in pieces.

Examples:
  backwater lab blind --out blind                      the whole test
  backwater lab blind --out blind --for 5min           as much of it as fits
  backwater lab blind --out blind --resume --for 5min  the next piece
  backwater lab blind --out wt --engine wiredtiger --runs 30 --healthy 10
  backwater lab blind --out few --runs 6 --healthy 2 --seed 7")]
pub(crate) struct BlindArguments {
    /// Whose causes: postgres, or wiredtiger (the engine of MongoDB)
    #[arg(long, value_name = "SERVER", default_value = "postgres", value_parser = server)]
    engine: ServerKind,
    /// Runs with a cause injected
    #[arg(long, value_name = "N", default_value = "40", value_parser = some_runs)]
    runs: usize,
    /// Healthy runs, some with harmless bursts
    #[arg(long, value_name = "N", default_value = "20", value_parser = some_runs)]
    healthy: usize,
    /// Where the dice begin; the same seed draws the same runs
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Seconds of load of each run
    #[arg(long, value_name = "SECONDS", default_value = "24", value_parser = enough_seconds)]
    seconds: f64,
    /// Go on with the test in --out, as it was drawn
    #[arg(long, conflicts_with_all = ["engine", "runs", "healthy", "seed", "seconds"])]
    resume: bool,
    /// Begin no run that would end after so long; the rest is for --resume
    #[arg(long = "for", value_name = "TIME", value_parser = when::some_seconds)]
    within: Option<f64>,
    /// Keep every recording; else only those of wrong runs, and one of each cause
    #[arg(long)]
    keep: bool,
    /// Major version of the server
    #[arg(long, value_name = "N")]
    version: Option<u32>,
    /// Directory of the server's programs (postgres, initdb), where another than what is found
    #[arg(long, value_name = "DIR")]
    server_bin: Option<PathBuf>,
    /// Where the state, the recordings and the summary go
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print the summary as one JSON document
    #[arg(long)]
    json: bool,
}

fn server(text: &str) -> Result<ServerKind, String> {
    match text {
        "postgres" => Ok(ServerKind::Postgres),
        "wiredtiger" => Ok(ServerKind::WiredTiger),
        _ => Err("give postgres or wiredtiger".to_owned()),
    }
}

fn some_runs(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number <= 10_000).ok_or_else(|| "give 0 to 10000".to_owned())
}

/// Rules look at stretches of up to ten seconds: a shorter load would be no test of them.
fn enough_seconds(text: &str) -> Result<f64, String> {
    let seconds = when::some_seconds(text)?;
    if (15.0..=600.0).contains(&seconds) { Ok(seconds) } else { Err("give 15 seconds to ten minutes".to_owned()) }
}

pub(crate) fn run(arguments: &BlindArguments) -> anyhow::Result<ExitCode> {
    if !arguments.resume && arguments.runs + arguments.healthy == 0 {
        bail!("--runs 0 --healthy 0 leaves nothing to test: give at least one run");
    }
    let state_dir = state_dir()?;
    put_right(&state_dir)?;
    let options = BlindOptions {
        out: arguments.out.clone(),
        server: arguments.engine,
        injected: arguments.runs,
        healthy: arguments.healthy,
        seed: arguments.seed,
        seconds: arguments.seconds,
        resume: arguments.resume,
        within: arguments.within.map(Duration::from_secs_f64),
        keep_all: arguments.keep,
        version: arguments.version,
        server_bin: arguments.server_bin.clone(),
        state_dir,
        cancel: signals::cancel_flag()?,
    };
    let diagnoser = Apart { program: std::env::current_exe().context("cannot find this program")? };
    let summary = run_blind(&options, &diagnoser, &Bar::default())?;
    if arguments.json {
        terminal::print_json(&summary)?;
    } else {
        let page = arguments.out.join("summary.md");
        let text = std::fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
        terminal::print(&text)?;
    }
    Ok(code(&summary))
}

/// 1 where the test was not passed. A piece of it is no failure while nothing in it was wrong.
fn code(summary: &Summary) -> ExitCode {
    let piece = summary.done < summary.planned && summary.wrong.is_empty();
    ExitCode::from(u8::from(!summary.passed && !piece))
}

/// `backwater diagnose` in a process of its own: it is given the recording and two moments.
struct Apart {
    program: PathBuf,
}

impl Diagnoser for Apart {
    fn diagnose(&self, recording: &Path, stretch_unix_us: [i64; 2]) -> Result<Vec<Finding>, String> {
        let at = |unix_us| jiff::Timestamp::from_microsecond(unix_us).map(|time| time.to_string());
        let [from, to] = stretch_unix_us.map(at);
        let (from, to) = (from.map_err(|error| error.to_string())?, to.map_err(|error| error.to_string())?);
        let mut command = Command::new(&self.program);
        command.arg("diagnose").arg(recording).args(["--from", &from, "--to", &to, "--json"]);
        // Nothing of this run reaches it by its environment or its standard input.
        let output = command.env_clear().stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        let told = String::from_utf8_lossy(&output.stderr);
        if !matches!(output.status.code(), Some(0 | 1)) {
            return Err(format!("backwater diagnose ended with {}: {told}", output.status));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("backwater diagnose told no findings: {error}"))
    }
}
