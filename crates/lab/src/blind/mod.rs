//! The blind test: runs with a cause injected at random, and healthy ones, each recorded by itself and diagnosed by
//! somebody who sees the recording and nothing else.
//!
//! What is drawn (`draw`, `setup`) is pure and seeded. What is done (`stage`, `act`) uses the same servers and
//! limits as scenarios do. Whether it really happened (`accept`) is settled on counters before a finding is looked at, and
//! which answers are right (`deed`) before the first run. The state on disk (`state`) lets it be run in pieces.

mod accept;
mod accept_engine;
mod act;
mod deed;
mod draw;
mod engine;
mod page;
#[cfg(test)]
mod real_tests;
mod setup;
mod setup_engine;
mod stage;
mod state;
mod tally;

use crate::LabError;
use crate::limits;
use crate::progress::Progress;
use crate::rig::RunOptions;
use crate::scenario::ServerKind;
use act::Acted;
use backwater_model::{Bytes, Finding};
use backwater_probe::session::this_host;
use backwater_record::Recording;
use setup::{Happening, Setup};
use stage::Staged;
use state::State;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub use deed::{Deed, Stage, not_tried};
pub use draw::{Dice, Draw, draws};
pub use tally::{Judged, Proportion, REQUIRED_SHARE, Summary, Verdict};

/// Somebody who diagnoses a recording and knows nothing else of the run.
pub trait Diagnoser {
    /// The findings of the stretch between two moments, in Unix microseconds, in the order in which they are told. The error
    /// says why there are none.
    fn diagnose(&self, recording: &Path, stretch_unix_us: [i64; 2]) -> Result<Vec<Finding>, String>;
}

/// How a blind test is to be run.
#[derive(Clone, Debug)]
pub struct BlindOptions {
    /// Where the state, the kept recordings and the summary go.
    pub out: PathBuf,
    /// Whose causes are injected.
    pub server: ServerKind,
    /// Runs with a cause injected.
    pub injected: usize,
    /// Healthy runs.
    pub healthy: usize,
    /// Where the dice begin; none for anywhere.
    pub seed: Option<u64>,
    /// Seconds of load of each run.
    pub seconds: f64,
    /// Go on with the test in `out`, as it was drawn.
    pub resume: bool,
    /// Begin no run that would end after so long; the rest is for another time.
    pub within: Option<Duration>,
    /// Keep every recording; else those of right runs are thrown away, but for one a cause.
    pub keep_all: bool,
    /// Major version of the server, where other than what is found.
    pub version: Option<u32>,
    /// Directory of the server's programs, where another than what is found.
    pub server_bin: Option<PathBuf>,
    /// Where journals of changes lie.
    pub state_dir: PathBuf,
    /// Raised when somebody wants the test to end.
    pub cancel: Arc<AtomicBool>,
}

/// What a run takes before one is done, in seconds.
const FIRST_GUESS_S: f64 = 45.0;
/// Runs that fail one after the other before the test is given up.
const FAILURES: usize = 3;

/// Runs the test, or what is left of it, and sums up all runs that are done. The host is put back before this returns,
/// whatever happens; runs that are done are kept.
///
/// # Errors
/// [`LabError::Cancelled`] once somebody wanted it to end; the run that was under way is made anew by `resume`.
pub fn run(options: &BlindOptions, diagnoser: &dyn Diagnoser, progress: &dyn Progress) -> Result<Summary, LabError> {
    let missing = limits::what_is_missing(false);
    if !missing.is_empty() {
        let list: Vec<_> = missing.iter().map(|(what, why, next)| format!("{what}: {why}. {next}")).collect();
        return Err(LabError::Refused(format!("this host does not allow the limits: {}", list.join("; "))));
    }
    if options.server == ServerKind::Postgres {
        limits::network::possible()?;
    }
    let mut state = if options.resume {
        State::resume(&options.out)?
    } else {
        let seed = options.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
        State::begin(&options.out, (seed, options.server, options.seconds), (options.injected, options.healthy))?
    };
    let aside = options.out.join("aside");
    let mut test = Test { options, diagnoser, progress, aside, staged: None, began: Instant::now() };
    let ran = test.all(&mut state);
    let ended = test.end_stage();
    let _gone = std::fs::remove_dir_all(&test.aside);
    let summary = sum_up(&state, &options.out);
    match (ran, ended) {
        (Err(LabError::Cancelled) | Ok(()), Err(left)) => Err(left),
        (ran, _) => ran.and(summary),
    }
}

/// Everything that is known so far, written beside the state as JSON and as a page.
fn sum_up(state: &State, out: &Path) -> Result<Summary, LabError> {
    let plan = &state.plan;
    let summary = Summary::of((plan.seed, plan.server, plan.seconds), plan.draws.len(), &state.done);
    state::write_whole(&out.join("summary.json"), &serde_json::to_string_pretty(&summary).unwrap_or_default())?;
    state::write_whole(&out.join("summary.md"), &page::page(&summary, &state.done, &this_host()))?;
    Ok(summary)
}

struct Test<'a> {
    options: &'a BlindOptions,
    diagnoser: &'a dyn Diagnoser,
    progress: &'a dyn Progress,
    /// Recordings that nobody reads.
    aside: PathBuf,
    /// The servers that run now.
    staged: Option<Staged>,
    began: Instant,
}

impl Test<'_> {
    fn all(&mut self, state: &mut State) -> Result<(), LabError> {
        let mut failures = 0;
        for draw in state.left() {
            let usual_s = usual_s(&state.done);
            if self
                .options
                .within
                .is_some_and(|within| self.began.elapsed().as_secs_f64() + usual_s > within.as_secs_f64())
            {
                let left = state.left().len();
                self.progress.say(&format!("the time is over; {left} runs are left: go on with --resume"));
                break;
            }
            let began = Instant::now();
            let judged = match self.one(&draw, state) {
                Err(LabError::Cancelled) => return Err(LabError::Cancelled),
                Ok(judged) => {
                    failures = 0;
                    judged
                }
                Err(error) => {
                    failures += 1;
                    // What failed may be the servers: the next run gets new ones.
                    self.end_stage()?;
                    let _partly = std::fs::remove_dir_all(state.recording(draw.number));
                    if failures == FAILURES {
                        return Err(error);
                    }
                    failed(&draw, &error)
                }
            };
            let judged = Judged { took_s: began.elapsed().as_secs_f64(), ..judged };
            let judged = self.prune(judged, state);
            state.keep(judged.clone())?;
            self.tell(&judged, state);
            sum_up(state, &self.options.out)?;
        }
        Ok(())
    }

    /// One run: done, accepted or not, and only then diagnosed.
    fn one(&mut self, draw: &Draw, state: &State) -> Result<Judged, LabError> {
        let options = self.run_options();
        let (progress, diagnoser) = (self.progress, self.diagnoser);
        let (dir, aside) = (state.recording(draw.number), self.aside.join(draw.number.to_string()));
        let _cut_off = std::fs::remove_dir_all(&dir);
        let staged = self.stage(draw.deed.stage(), &options)?;
        let setup = staged.prepare(draw, state.plan.seconds, &options, progress)?;
        let acted = act::perform(staged, &setup, (&dir, &aside), &options, progress)?;
        let recording = Recording::open(&dir)?;
        let window = recording.window(Some(acted.from), Some(acted.to))?;
        let accepted = accept::accept(draw.deed, &setup, &acted, &window);
        drop(window);
        let stretch = stretch(&recording, &acted)?;
        let findings = diagnoser.diagnose(&dir, stretch).map_err(LabError::Refused)?;
        let [found, noted] = tally::named(&findings);
        Ok(Judged {
            number: draw.number,
            deed: draw.deed,
            set: words(draw.deed, &setup),
            reproduced: accepted.happened,
            because: accepted.because,
            found,
            noted,
            recording: Some(State::recording_name(draw.number)),
            stretch_unix_us: Some(stretch),
            took_s: 0.0,
        })
    }

    /// The servers of a stage; those of another one are ended first.
    fn stage(&mut self, stage: Stage, options: &RunOptions) -> Result<&mut Staged, LabError> {
        if self.staged.as_ref().is_none_or(|staged| staged.stage != stage) {
            self.end_stage()?;
            let _before = std::fs::remove_dir_all(&self.aside);
            self.staged = Some(Staged::start(stage, options, self.progress)?);
        }
        self.staged.as_mut().ok_or(LabError::Cancelled)
    }

    fn end_stage(&mut self) -> Result<(), LabError> {
        self.staged.take().map_or(Ok(()), |staged| staged.servers.end())
    }

    fn run_options(&self) -> RunOptions {
        RunOptions {
            out: self.aside.join("stage"),
            quick: false,
            repeats: None,
            arms: Vec::new(),
            version: self.options.version,
            server_bin: self.options.server_bin.clone(),
            allow_host_changes: false,
            without_limits: false,
            state_dir: self.options.state_dir.clone(),
            cancel: Arc::clone(&self.options.cancel),
        }
    }

    /// Throws the recording of a right run away, unless it is the first of its cause, or all are to be kept.
    fn prune(&self, mut run: Judged, state: &State) -> Judged {
        let same = |other: &&Judged| other.deed == run.deed && other.verdict() == Verdict::Right;
        let spare = run.deed.is_harmless() || state.done.iter().filter(same).any(|other| other.recording.is_some());
        if run.verdict() == Verdict::Right && spare && !self.options.keep_all {
            let gone = std::fs::remove_dir_all(state.recording(run.number));
            if gone.is_ok() {
                run.recording = None;
            }
        }
        run
    }

    fn tell(&self, run: &Judged, state: &State) {
        let left = state.left().len();
        let left_min = left as f64 * usual_s(&state.done) / 60.0;
        self.progress.say(&format!(
            "{:>3}/{} {:<20} {:<14} {:<34} {}; {:.0} s, {left} left: {left_min:.0} min",
            run.number,
            state.plan.draws.len(),
            run.deed.name(),
            page::word(run.verdict()),
            run.answer(),
            run.because,
            run.took_s,
        ));
    }
}

/// How long a run usually takes, in seconds.
fn usual_s(done: &[Judged]) -> f64 {
    if done.is_empty() { FIRST_GUESS_S } else { done.iter().map(|run| run.took_s).sum::<f64>() / done.len() as f64 }
}

fn failed(draw: &Draw, error: &LabError) -> Judged {
    Judged {
        number: draw.number,
        deed: draw.deed,
        set: Vec::new(),
        reproduced: false,
        because: format!("could not be done: {error}"),
        found: Vec::new(),
        noted: Vec::new(),
        recording: None,
        stretch_unix_us: None,
        took_s: 0.0,
    }
}

fn stretch(recording: &Recording, acted: &Acted) -> Result<[i64; 2], LabError> {
    let unix_us = |at| {
        let anchored = recording.meta().unix_us(at);
        anchored.ok_or_else(|| LabError::Refused("the recording has no clock anchor".to_owned()))
    };
    Ok([unix_us(acted.from)?, unix_us(acted.to)?])
}

/// What a run sets, in words for people.
fn words(deed: Deed, setup: &Setup) -> Vec<String> {
    use crate::scenario::LoadKind;
    let load = &setup.load;
    let clients = if load.clients == 1 { "1 client".to_owned() } else { format!("{} clients", load.clients) };
    let rate = load.rate_per_s.map_or("as fast as answered".to_owned(), |rate| format!("{rate:.2} a second"));
    let driven = match load.kind {
        LoadKind::CommitBatches => format!("{} rows, {} a commit", load.batches.rows, load.batches.rows_per_commit),
        LoadKind::WalStorm => format!("storm {rate}, {clients}, {}/s of WAL", Bytes(setup.wal_bytes_per_s as u64)),
        LoadKind::WiredTiger => setup_engine::words(setup),
        _ => format!("transactions {rate}, {clients}"),
    };
    let dirty = setup.dirty_limit_bytes.map(|bytes| format!("dirty limit {}", Bytes(bytes)));
    let slot = setup.slot_left.then(|| "a slot that nobody reads".to_owned());
    let happening = setup.happening.map(|(what, at_s)| match what {
        Happening::Checkpoint => format!("a checkpoint after {at_s:.0} s"),
        Happening::Burst(calls) => format!("{calls} calls of the storm after {at_s:.0} s"),
        Happening::StandbyRestart => format!("the standby restarted after {at_s:.0} s"),
    });
    let mut arm = setup.arm.clone();
    // An arm's standby is away until it lacks WAL; here it may just be stopped.
    arm.standby.away &= deed == Deed::RetentionExceeded;
    let stopped = (setup.arm.standby.away && !arm.standby.away).then(|| "the standby stopped".to_owned());
    [driven].into_iter().chain(arm.words()).chain([stopped, dirty, slot, happening].into_iter().flatten()).collect()
}
