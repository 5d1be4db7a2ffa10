//! `backwater ash`: the active-session history: who waited on what, live or over a recording.

use super::source;
use crate::args::Looked;
use crate::terminal;
use anyhow::bail;
use backwater_diagnose::blind;
use backwater_diagnose::commit::{
    CommitQueue, GroupBy, OnProcessors, Tally, commit_queue, flavour_label, looks, on_processors, over_time, tally,
};
use backwater_model::{Unit, Window};
use backwater_report::{ash, ash_over_time, no_sessions};
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Pieces of time that the plot is made of at most.
const PIECES: usize = 100;
/// Groups shown of each sort, and of combinations, where nothing else is asked for.
const SHORT: usize = 5;

/// Who waits on what: active sessions by wait, query, user, application and kernel wait
#[derive(Args)]
#[command(after_help = "\
Shares are of the time of all active sessions and, beside them, of the waits alone. Idle sessions, and processes that wait
for work or carry WAL, are left out. This host alone has none: a server is named, or a recording.

Examples:
  backwater ash postgres://localhost/app --for 60         a live server, watched for a minute
  backwater ash rec --from 03:05 --to 03:15               what sessions did at 03:10
  backwater ash rec --by wait,query                       combinations of wait and query
  backwater ash rec --json                                the same figures for programs")]
pub(crate) struct Arguments {
    #[command(flatten)]
    looked: Looked,
    /// What to count by; several are combined
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    by: Vec<By>,
    /// Groups shown
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// What sessions are counted by.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// Wait event
    Wait,
    /// Class of wait event
    Class,
    /// Query
    Query,
    /// User
    User,
    /// application_name
    Application,
    /// Kernel function
    Kernel,
    /// Queue
    Queue,
    /// State
    State,
}

impl From<By> for GroupBy {
    fn from(by: By) -> Self {
        match by {
            By::Wait => GroupBy::WaitEvent,
            By::Class => GroupBy::WaitClass,
            By::Query => GroupBy::Query,
            By::User => GroupBy::User,
            By::Application => GroupBy::Application,
            By::Kernel => GroupBy::KernelWait,
            By::Queue => GroupBy::Queue,
            By::State => GroupBy::State,
        }
    }
}

/// All that tells one session from another, for combinations.
const ALL: [GroupBy; 5] =
    [GroupBy::WaitEvent, GroupBy::Query, GroupBy::User, GroupBy::Application, GroupBy::KernelWait];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    refuse_host_alone(&arguments.looked.targets)?;
    let window = source::window(&arguments.looked)?;
    let asked: Vec<GroupBy> = arguments.by.iter().map(|by| GroupBy::from(*by)).collect();
    let sorts: Vec<Vec<GroupBy>> = if asked.is_empty() {
        let single = [GroupBy::Query, GroupBy::User, GroupBy::Application];
        [vec![GroupBy::WaitEvent], ALL.to_vec()].into_iter().chain(single.map(|by| vec![by])).collect()
    } else {
        vec![asked]
    };
    let counted: Vec<Tally> = sorts.iter().map(|by| count(&window, by)).collect();
    let commits: Vec<CommitQueue> =
        window.meta.targets.iter().filter_map(|target| commit_queue(&window, &target.name)).collect();
    let slices = over_time(&window, PIECES.min((window.seconds() as usize).max(1)));
    if arguments.json {
        let from = window.meta.unix_us(window.from);
        terminal::print_json(&serde_json::json!({
            "from_unix_us": from, "seconds": window.seconds(), "tallies": counted, "over_time": slices, "commit": commits,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let style = terminal::style();
    for spot in blind(&window) {
        terminal::note(&format!("{}: what follows is of what was seen", spot.why));
    }
    if counted.iter().all(|tally| tally.looks == 0) {
        terminal::print(&no_sessions(&window, &style))?;
        return Ok(ExitCode::SUCCESS);
    }
    terminal::print(&ash_over_time(&slices, &style))?;
    for (place, tally) in counted.iter().enumerate() {
        let most = if place == 0 { arguments.top } else { arguments.top.min(SHORT) };
        terminal::print(&ash(tally, most, &style))?;
        // Nobody was active: once is enough.
        if tally.samples == 0 {
            break;
        }
    }
    for text in [in_commits(&commits), beside_accounts(&window)].iter().filter(|text| !text.is_empty()) {
        terminal::print(text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses to watch for what cannot come.
fn refuse_host_alone(targets: &[String]) -> anyhow::Result<()> {
    if targets.iter().any(|target| target != "host" || source::is_recording(target)) {
        return Ok(());
    }
    bail!(
        "sessions are of servers, and no server was named, so that this host alone would be watched. Name one, as with: backwater ash \
         postgres:///postgres; or the directory of a recording (see backwater ash --help)"
    )
}

/// All targets' sessions together; a look at one is a look at all.
fn count(window: &Window, by: &[GroupBy]) -> Tally {
    let most = window.meta.targets.iter().filter_map(|target| looks(window, &target.name)).max();
    tally(window.samples().iter(), most, by)
}

/// Processors from which on it is said that samples and accounts are apart, and how far apart they must be.
const APART: f64 = 0.1;
const TIMES: f64 = 1.5;

/// A line for each server whose sessions computed much more than samples show.
fn beside_accounts(window: &Window) -> String {
    let of = |name: &str| {
        let OnProcessors { sampled, accounted } = on_processors(window, name)?;
        (accounted - sampled >= APART && accounted >= TIMES * sampled).then(|| {
            format!(
                "On {name} the kernel accounts for {} processors computing where samples show {}: waits are fewer than these \
                 shares. Looks came when sessions slept, probably because a look needs a processor too.\n",
                Unit::Count.show(accounted),
                Unit::Count.show(sampled),
            )
        })
    };
    window.meta.targets.iter().filter_map(|target| of(&target.name)).collect()
}

/// The commit queue in a line each, where somebody waited in it.
fn in_commits(queues: &[CommitQueue]) -> String {
    let mut text = String::new();
    for queue in queues.iter().filter(|queue| queue.waiting > 0.0) {
        let flavours: Vec<String> = queue
            .flavours
            .iter()
            .map(|share| format!("{} {}", flavour_label(share.wait), Unit::Ratio.show(share.session_time_ratio)))
            .collect();
        let each = queue
            .residence_ms
            .map_or(String::new(), |ms| format!("; each waits {} by Little's law", Unit::Milliseconds.show(ms)));
        text.push_str(&format!(
            "Commits on {}: {} sessions on average, {} of session time ({}){each}\n",
            queue.target,
            Unit::Count.show(queue.waiting),
            Unit::Ratio.show(queue.session_time_ratio),
            flavours.join(", "),
        ));
    }
    text
}
