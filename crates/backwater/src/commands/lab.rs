//! `backwater lab`: experiments on real servers.

use super::lab_blind::{self, BlindArguments};
use super::lab_search::{self, SearchArguments};
use super::seen::{Seen, conclusion};
use crate::{signals, terminal};
use anyhow::{Context, anyhow, bail};
use backwater_lab::progress::Progress;
use backwater_lab::scenario::{BUILT_IN, LoadKind, Scenario, Sweep};
use backwater_lab::{RunOptions, run as run_scenario, run_attached};
use backwater_model::Outcome;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

/// Experiments on real servers that it starts itself
#[derive(Args)]
#[command(after_help = "\
Examples:
  backwater lab list
  backwater lab run stampede --quick --out run1
  backwater lab run ./my-scenario.toml --arm default --repeats 5
  backwater lab compare run1 run2
  backwater lab search wt-stall --quick      settings with less latency than the defaults
  backwater lab blind --out blind            how often the diagnosis is right
  backwater lab clean                        put right what a killed run left")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Scenarios that come with the program
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// What a scenario does, shows and does not show
    Show {
        /// Name, or path of a .toml file
        name: String,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a scenario
    Run(RunArguments),
    /// Turn one setting after another as far as it lowers latency, and measure what is found again
    Search(SearchArguments),
    /// Two runs side by side
    Compare {
        /// Directory of the first run
        before: PathBuf,
        /// Directory of the second run
        after: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// How often the diagnosis is right: random causes and healthy runs, diagnosed without knowing which
    Blind(BlindArguments),
    /// Put right what a killed run left on this host
    Clean {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

/// How to run a scenario.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArguments {
    /// Name, or path of a .toml file
    pub(crate) name: String,
    /// Only the arms that matter, shortened; ends in 90 seconds
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only this arm (may be given several times)
    #[arg(long = "arm", value_name = "NAME")]
    pub(crate) arms: Vec<String>,
    /// Repeats of every arm
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) repeats: Option<usize>,
    /// Major version of the server
    #[arg(long, value_name = "N")]
    pub(crate) version: Option<u32>,
    /// Directory of the server's programs (postgres, initdb), where another than what is found
    #[arg(long, value_name = "DIR")]
    pub(crate) server_bin: Option<PathBuf>,
    /// Where the recording and the outcome go
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Set host-wide limits (vm.dirty_bytes) instead of the device's own: everything on this host feels it
    #[arg(long)]
    pub(crate) allow_host_changes: bool,
    /// commit-wait: rows in all
    #[arg(long, value_name = "N")]
    pub(crate) rows: Option<u64>,
    /// commit-wait: rows a commit, an arm for each: 1,10,100
    #[arg(long, value_name = "N,N…", value_delimiter = ',')]
    pub(crate) batches: Vec<u64>,
    /// commit-wait: run on this server instead of one of the lab's own. Passwords belong into PGPASSWORD or a password file
    #[arg(long, value_name = "DSN", requires = "allow_writes")]
    pub(crate) dsn: Option<String>,
    /// Let --dsn make a schema of its own on that server, insert rows into it, and drop it; nothing else is touched
    #[arg(long)]
    pub(crate) allow_writes: bool,
    /// Print the outcome as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| (1..=1_000).contains(number)).ok_or_else(|| "give 1 to 1000".to_owned())
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.action {
        Action::List { json } => list(json),
        Action::Show { name, json } => show(&name, json),
        Action::Run(run) => Ok(run_one(&run, false)?.0),
        Action::Search(search) => lab_search::run(&search),
        Action::Compare { before, after, json } => compare(&before, &after, json),
        Action::Blind(blind) => lab_blind::run(&blind),
        Action::Clean { json } => clean(json),
    }
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let scenarios = BUILT_IN.iter().map(|(name, _)| Scenario::load(name)).collect::<Result<Vec<_>, _>>()?;
    if json {
        let row = |scenario: &Scenario| serde_json::json!({"name": scenario.name, "case": scenario.case, "title": scenario.title});
        terminal::print_json(&scenarios.iter().map(row).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or_default();
    for scenario in scenarios {
        let name = &scenario.name;
        terminal::print(&format!("{name:<width$}  case {}: {}", scenario.case, scenario.title))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(name: &str, json: bool) -> anyhow::Result<ExitCode> {
    let scenario = Scenario::load(name)?;
    if json {
        terminal::print_json(&scenario.source)?;
    } else {
        terminal::print(&backwater_lab::describe(&scenario))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a scenario; without root only when `without_limits_allowed`, and then says what root would add. Gives the exit
/// code and the directory of the recording.
pub(crate) fn run_one(arguments: &RunArguments, without_limits_allowed: bool) -> anyhow::Result<(ExitCode, PathBuf)> {
    let sweep = Sweep { rows: arguments.rows, batches: arguments.batches.clone() };
    let scenario = Scenario::load(&arguments.name)?.with_sweep(&sweep)?;
    let state_dir = state_dir()?;
    put_right(&state_dir)?;
    // A server that is given gets no limits, so nothing is missing for them.
    let missing = match &arguments.dsn {
        Some(_) => Vec::new(),
        None => backwater_lab::limits::what_is_missing(arguments.allow_host_changes),
    };
    let without_limits = !missing.is_empty();
    if without_limits {
        let list: Vec<_> = missing.iter().map(|(what, why, next)| format!("  {what}: {why}. {next}")).collect();
        let list = list.join("\n");
        if !without_limits_allowed && !scenario.runs_without_limits() {
            bail!("this host does not allow the limits that the scenario sets:\n{list}");
        }
        let so = if scenario.runs_without_limits() {
            "arms that need them are skipped"
        } else {
            "the cliff itself cannot be shown"
        };
        terminal::note(&format!("Running without limits, so {so}. What is missing:\n{list}"));
    }
    // Made last, so that what is refused leaves nothing behind.
    let out = out_dir(arguments.out.as_deref(), &scenario.name)?;
    let options = RunOptions {
        out: out.clone(),
        quick: arguments.quick,
        repeats: arguments.repeats,
        arms: if without_limits && !scenario.runs_without_limits() { Vec::new() } else { arguments.arms.clone() },
        version: arguments.version,
        server_bin: arguments.server_bin.clone(),
        allow_host_changes: arguments.allow_host_changes,
        without_limits,
        state_dir,
        cancel: signals::cancel_flag()?,
    };
    let result = match &arguments.dsn {
        Some(dsn) => run_attached(&scenario, &options, dsn, &Bar::default()),
        None => run_scenario(&scenario, &options, &Bar::default()),
    };
    let outcome = result.inspect_err(|_| {
        // Only if nothing was recorded: a directory that holds something is not removed.
        let _kept = std::fs::remove_dir(&out);
    })?;
    if arguments.json {
        terminal::print_json(&outcome)?;
    } else {
        print_outcome(&scenario, &outcome, &out, without_limits)?;
    }
    Ok((ExitCode::from(u8::from(!outcome.expected.met)), out))
}

fn print_outcome(scenario: &Scenario, outcome: &Outcome, out: &Path, without_limits: bool) -> anyhow::Result<()> {
    let style = terminal::style();
    let seen = Seen::open(out)?;
    // A run that ends with its rows has no curve to show; who waited on what is in its table. A standby's lag is plotted
    // with its own table.
    if scenario.load.kind != LoadKind::CommitBatches && scenario.standby.is_none() {
        terminal::print(&seen.plots(scenario, outcome, &style))?;
    }
    terminal::print(&seen.findings(outcome, &style))?;
    if let Some(advice) = seen.advice(scenario, outcome) {
        terminal::print(&backwater_report::advice(&advice, &style))?;
    }
    terminal::print(&backwater_report::outcome(outcome, &style))?;
    terminal::print(&conclusion(scenario, outcome))?;
    terminal::print(&format!("The recording lies in {0}; look again with: backwater diagnose {0}", out.display()))?;
    if !outcome.skipped.is_empty() {
        terminal::print(
            "As root, where everything that is named above is installed, the same command runs the skipped arms too.",
        )?;
    } else if without_limits && rustix::process::geteuid().is_root() {
        terminal::print(
            "Where what is missing (named above) is there, the same command sets the limits and shows the cliff.",
        )?;
    } else if without_limits {
        terminal::print(
            "As root the same command sets the limits and shows the cliff: sudo -E env PATH=\"$PATH\" cargo run --release -- demo",
        )?;
    }
    Ok(())
}

pub(crate) fn out_dir(given: Option<&Path>, scenario: &str) -> anyhow::Result<PathBuf> {
    let out = match given {
        Some(path) => path.to_path_buf(),
        None => {
            let stamp = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
            backwater_lab::servers::temporary_dir().join(format!("backwater-{scenario}-{stamp}"))
        }
    };
    if out.join("meta.json").exists() {
        bail!("{} holds a recording already; give --out a directory of its own", out.display());
    }
    // Told now, and not after servers and data have been made.
    if std::fs::read_dir(&out).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty; give --out a directory of its own", out.display());
    }
    std::fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    Ok(out)
}

/// Where journals of changes lie: BACKWATER_STATE_DIR, or the usual place.
pub(crate) fn state_dir() -> anyhow::Result<PathBuf> {
    match std::env::var_os("BACKWATER_STATE_DIR") {
        Some(dir) => Ok(PathBuf::from(dir)),
        None => Ok(backwater_undo::default_state_dir()?),
    }
}

/// Undoes what killed runs left; every run does this first. Whether all of it could be put back, and how many runs
/// there were.
pub(crate) fn put_right(state_dir: &Path) -> anyhow::Result<(bool, usize)> {
    let recovered = backwater_undo::recover(state_dir)?;
    for run in &recovered {
        let what = if run.what.is_empty() { "a run" } else { &run.what };
        terminal::note(&format!("{what} did not end well; changes put back now: {}", run.undone.len()));
        for change in &run.undone {
            tracing::info!("put back: {change}");
        }
        for left in run.not_put_back() {
            terminal::note(&format!("could not be put back: {left}"));
        }
    }
    Ok((recovered.iter().all(backwater_undo::Recovered::is_complete), recovered.len()))
}

fn clean(json: bool) -> anyhow::Result<ExitCode> {
    let (complete, runs) = put_right(&state_dir()?)?;
    if json {
        terminal::print_json(&serde_json::json!({"runs": runs, "complete": complete}))?;
    }
    if runs == 0 {
        terminal::note("nothing was left to put right");
    }
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

fn compare(before: &Path, after: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let read = |dir: &Path| -> anyhow::Result<Outcome> {
        const NEXT: &str = "give the --out directory of a `backwater lab run` that ended";
        let path = dir.join("outcome.json");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| anyhow!("{} holds no finished run: {}: {error}; {NEXT}", dir.display(), path.display()))?;
        serde_json::from_str(&text)
            .map_err(|error| anyhow!("{} is no outcome of a run: {error}; {NEXT}", path.display()))
    };
    let (before, after) = (read(before)?, read(after)?);
    if json {
        terminal::print_json(&serde_json::json!({"before": before, "after": after}))?;
    } else {
        terminal::print(&backwater_report::outcomes_side_by_side(&before, &after, &terminal::style()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A progress bar on stderr: drawn on a terminal, lines otherwise.
#[derive(Default)]
pub(crate) struct Bar {
    bar: Mutex<Option<ProgressBar>>,
}

impl Bar {
    fn with(&self, act: impl FnOnce(&mut Option<ProgressBar>)) {
        act(&mut self.bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

impl Progress for Bar {
    fn say(&self, line: &str) {
        self.with(|bar| match bar {
            Some(bar) => bar.suspend(|| terminal::note(line)),
            None => terminal::note(line),
        });
    }

    fn begin(&self, what: &str, steps: u64) {
        let style = ProgressStyle::with_template("{msg:<24} [{bar:30}] {percent:>3} % {elapsed}").ok();
        let bar = ProgressBar::new(steps).with_message(what.to_owned());
        let bar = style.map_or(bar.clone(), |style| bar.with_style(style.progress_chars("=> ")));
        self.with(|slot| *slot = Some(bar));
    }

    fn at(&self, done: u64) {
        self.with(|bar| bar.iter().for_each(|bar| bar.set_position(done)));
    }

    fn end(&self) {
        self.with(|slot| {
            if let Some(bar) = slot.take() {
                bar.finish_and_clear();
            }
        });
    }
}
