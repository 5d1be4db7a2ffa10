//! `backwater attach`: slow a running query from outside, by the pacing rate of its server's own socket.

mod end;
mod held;
mod looked;
mod rules;
mod server;
mod sockets;
mod told;

use crate::{signals, terminal, when};
use anyhow::{Context, bail};
use backwater_flow::rule::{Action, Rule, Why};
use backwater_flow::{LowPriorityBandwidth, Priority, State};
use backwater_gate::attach::{
    self, AttachError, Bursts, ClassRate, FoundSockets, Guardian, Hold, Named, Paced, PutBack, Rates,
};
use backwater_gate::proxy::ProxyConfig;
use backwater_model::{Bytes, BytesPerSecond};
use clap::Args;
use end::End;
use rustix::thread::CapabilitySet;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use told::Told;

/// Slow a running query from outside: its server's own socket gets a pacing rate, and nothing stands in the data path
#[derive(Args)]
#[command(after_help = "\
Examples:
  backwater attach postgres:///shop --pid 4711 --rate 20MB               one session, until Ctrl-C or its end
  backwater attach postgres:///shop --pid 4711 --pid 4712 --class-rate 50MB     together no more than that
  backwater attach postgres:///shop --rule \"bandwidth=128, elapsedtime=60, action='penalty'\" --class-rate 64MB
  backwater attach postgres:///shop -c flow.toml                          rules, pools and users of a file, as the proxy's
  backwater attach --socket 10.0.0.7:51234 --rate 20MB                    any TCP server's connection with that client
  backwater attach postgres:///shop --pid 4711 --rate 20MB --dry-run      what would be done

Runs on the server's host and needs root there (CAP_SYS_PTRACE; --allow-host-changes, for a server
in namespaces of its own, also CAP_SYS_ADMIN and CAP_NET_ADMIN). All is put back at the end, also
when this program is killed. What it cannot slow: what clients send (bulk loads, big UPDATEs), which
`backwater proxy` does not slow either, and clients that came by a Unix socket, whose results the
proxy does slow.")]
pub(crate) struct Arguments {
    /// The PostgreSQL server whose sessions are meant: postgres://… or a libpq connection string
    #[arg(required_unless_present = "socket", conflicts_with = "socket")]
    target: Option<String>,
    /// A session's process id, as in pg_stat_activity; may be given again
    #[arg(long, value_name = "N", conflicts_with_all = ["rule", "socket", "config"])]
    pid: Vec<i32>,
    /// The client's address and port, of a connection with any TCP server on this host; may be given again
    #[arg(long, value_name = "CLIENT:PORT")]
    socket: Vec<SocketAddr>,
    /// Whom to slow: attributes as of CREATE EXCEPT RULE, with the action named, or the whole statement; may be given again
    #[arg(long, value_name = "RULE", value_parser = rules::parse)]
    rule: Vec<(String, Rule)>,
    /// Rules, pools, users and the rate of all held together (low_priority_bandwidth), written as for `backwater proxy`; read
    /// again on SIGHUP. With `[admin]` and its `listen`, SQL on a console changes them: `psql -h HOST -p PORT backwater`
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["rule", "socket", "rate", "class_rate", "user", "application"])]
    config: Option<PathBuf>,
    /// Rules look at this user's sessions only; may be given again
    #[arg(long, value_name = "NAME", requires = "rule")]
    user: Vec<String>,
    /// Rules look at sessions of this application_name only; may be given again
    #[arg(long, value_name = "NAME", requires = "rule")]
    application: Vec<String>,
    /// Bytes a second for each, such as 20MB
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    /// Bytes a second for all of them together, divided by what each has to send; or `auto`: as many as leave almost no
    /// queue on their way
    #[arg(long, value_name = "RATE|auto", value_parser = class_rate)]
    class_rate: Option<ClassRate>,
    /// How often to look, such as 250ms
    #[arg(long, value_name = "TIME", value_parser = when::some_seconds, default_value = "500ms")]
    interval: f64,
    /// How long [default: until Ctrl-C, or until all named connections have ended]
    #[arg(long = "for", value_name = "TIME", value_parser = when::some_seconds)]
    seconds: Option<f64>,
    /// While anything is held, let what is paced send in small bursts: net.ipv4.tcp_tso_rtt_log is 0 then, which every
    /// connection of the server's network namespace may feel. On 1 Gbit/s urgent work pays less for large results so
    #[arg(long)]
    allow_host_changes: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Record what rules decide, who is held and let go, and each second who is held at what rate, into this directory; `backwater serve DIR` and
    /// `backwater report DIR` show it
    #[arg(long, value_name = "DIR", conflicts_with = "dry_run")]
    record: Option<PathBuf>,
    /// What rules decide as JSON Lines
    #[arg(long)]
    json: bool,
}

/// Slower than this a session would seem dead.
const LEAST_RATE: u64 = 16 << 10;

/// `20MB`, `20MB/s`, in powers of 1024, as in statements.
fn rate(text: &str) -> Result<u64, String> {
    let bytes: Bytes = text.trim().trim_end_matches("/s").parse().map_err(|error| format!("{error}"))?;
    if bytes.0 < LEAST_RATE {
        Err("the least is 16KB: below, a session would seem dead".to_owned())
    } else {
        Ok(bytes.0)
    }
}

fn class_rate(text: &str) -> Result<ClassRate, String> {
    match text.trim() {
        auto if auto.eq_ignore_ascii_case("auto") => Ok(ClassRate::Auto),
        fixed => rate(fixed).map(ClassRate::Fixed).map_err(|error| format!("{error}; or 'auto'")),
    }
}

/// The helper of `attach`; started by it.
#[derive(Args)]
pub(crate) struct GuardianArguments {
    /// As of `attach`
    #[arg(long)]
    allow_host_changes: bool,
}

fn bursts(allow_host_changes: bool) -> Bursts {
    if allow_host_changes { Bursts::Small } else { Bursts::AsTheyAre }
}

/// Serves the master at the other end of standard input.
pub(crate) fn guardian(arguments: &GuardianArguments) -> anyhow::Result<ExitCode> {
    let input = std::io::stdin().as_fd().try_clone_to_owned().context("cannot use standard input")?;
    rustix::net::getsockname(&input).context("this is started by `backwater attach`, not by hand")?;
    attach::guard(UnixStream::from(input), &state_dir()?, bursts(arguments.allow_host_changes))?;
    Ok(ExitCode::SUCCESS)
}

/// Where journals of changes lie: BACKWATER_STATE_DIR, or the usual place.
fn state_dir() -> anyhow::Result<PathBuf> {
    match std::env::var_os("BACKWATER_STATE_DIR") {
        Some(dir) => Ok(PathBuf::from(dir)),
        None => Ok(backwater_undo::default_state_dir()?),
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut config = arguments.config.as_deref().map(read_config).transpose()?;
    if let Some(config) = config.as_mut().filter(|_| arguments.dry_run) {
        // Nothing is done: nobody changes what governs, and nothing is kept.
        (config.admin, config.state_file) = (None, None);
    }
    let state = match &config {
        Some(config) => Some(config.state.clone()),
        None => arguments.state()?,
    };
    let rates = arguments.rates(state.as_ref())?;
    let guardian = start_guardian(arguments.allow_host_changes && !arguments.dry_run)?;
    tell(guardian.put_right(), "of an earlier run");
    // Before the first thread: rights belong to threads. What needs them is the guardian's.
    attach::drop_rights(CapabilitySet::empty()).context("cannot give up rights")?;
    if arguments.allow_host_changes {
        let sets = if arguments.dry_run { "would set" } else { "sets" };
        terminal::note(&format!(
            "{sets} net.ipv4.tcp_tso_rtt_log to 0, where the kernel has it (Linux 5.18), while anything is held: every \
             connection of the server's network namespace may feel it"
        ));
    }
    let end = End::when_wanted(signals::cancel_flag()?);
    let mut told = Told::start(arguments, state.as_ref(), rates.class)?;
    let mut hold = Hold::new(guardian, rates);
    let done = match state {
        None => by_name(arguments, &mut hold, &end, &mut told),
        Some(state) => rules::run(arguments, config.as_ref(), state, &mut hold, &end, &mut told),
    };
    let done = match done {
        Err(error) if server::is_ended(&error) => Ok(ExitCode::SUCCESS),
        done => done,
    };
    let put_back = match put_back(&done, hold) {
        Ok(put_back) => put_back,
        Err(error) if error.is_end() => {
            // A new one puts right what the old one left.
            tell(start_guardian(false)?.put_right(), "that the guardian left");
            told.stop();
            return done.and(Err(error.into()));
        }
        Err(error) => return Err(error.into()),
    };
    told.stop();
    tell(&put_back, "");
    let done = match done {
        // The processes of a service are asked to end together: the guardian did what it would have been asked for here.
        Err(error) if server::guardian_ended(&error) && end.is_near() => Ok(ExitCode::SUCCESS),
        done => done,
    };
    if put_back.left.is_empty() { done } else { done.and(Ok(ExitCode::from(2))) }
}

/// Gives everything back what it had, where the guardian has not done so already.
fn put_back(done: &anyhow::Result<ExitCode>, hold: Hold) -> Result<PutBack, AttachError> {
    match done.as_ref().err().and_then(|error| error.downcast_ref()) {
        Some(AttachError::Finished(put_back)) => Ok(put_back.clone()),
        Some(AttachError::Ended(why)) => Err(AttachError::Ended(why.clone())),
        _ => {
            hold.paced().iter().for_each(|paced| note(&let_go(paced)));
            hold.finish()
        }
    }
}

/// A line about what is done to somebody's session, with its time: these are looked for afterwards.
fn note(text: &str) {
    terminal::note(&format!("{} {text}", stamp()));
}

/// The time of day, as the host has it.
fn stamp() -> String {
    jiff::Zoned::now().strftime("%F %H:%M:%S").to_string()
}

/// Reads a file of rules; one that would hold nobody, now or later, is a mistake.
fn read_config(path: &Path) -> anyhow::Result<ProxyConfig> {
    let config = ProxyConfig::load_outside(path)?;
    let mut pools = config.state.pools().values();
    let acts = pools.any(|pool| pool.priority == Priority::Low || !pool.except_rules.is_empty());
    if !acts && config.admin.is_none() {
        bail!("{} holds nobody: no pool has priority = 'low' or an except_rule", path.display());
    }
    for what in attach::not_enforced(&config.state) {
        terminal::note(&format!("not enforced from outside, only by `backwater proxy`: {what}"));
    }
    Ok(config)
}

fn start_guardian(allow_host_changes: bool) -> anyhow::Result<Guardian> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.arg("attach-guardian");
    if allow_host_changes {
        command.arg("--allow-host-changes");
    }
    Ok(Guardian::start(command)?)
}

fn tell(put_back: &PutBack, whose: &str) {
    if put_back.count > 0 {
        terminal::note(&format!("put back: {} {whose}", counted(put_back.count, "change")));
    }
    for left in &put_back.left {
        terminal::note(&format!("could not be put back: {left}"));
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The class's rate as a file or a statement says it.
fn class_of(state: &State) -> ClassRate {
    match state.low_priority_bandwidth() {
        LowPriorityBandwidth::Fixed(bytes_per_s) => ClassRate::Fixed(bytes_per_s),
        LowPriorityBandwidth::Auto => ClassRate::Auto,
    }
}

impl Arguments {
    /// The rules of the command line; None where there are none.
    fn state(&self) -> anyhow::Result<Option<State>> {
        let names: HashSet<_> = self.rule.iter().map(|(name, _)| name).collect();
        if names.len() < self.rule.len() {
            bail!("two rules have the same name: give each as a whole CREATE EXCEPT RULE statement with its own");
        }
        Ok((!self.rule.is_empty()).then(|| State::of_rules(self.rule.iter().cloned())))
    }

    fn rates(&self, state: Option<&State>) -> anyhow::Result<Rates> {
        let configured = state.filter(|_| self.config.is_some()).map(class_of);
        let rates = Rates { each_bps: self.rate, class: self.class_rate.or(configured) };
        let slows = state.is_none_or(|state| state.rules().values().any(|rule| rule.action == Action::Penalty));
        if slows && rates.each_bps.is_none() && rates.class.is_none() {
            bail!("how fast may they send? give --rate for each of them, or --class-rate for all together");
        }
        if self.socket.is_empty() && self.pid.is_empty() && state.is_none() {
            bail!(
                "whom to slow? give --pid for a session, --rule for whoever it matches, or --config for a file of rules"
            );
        }
        Ok(rates)
    }
}

/// Sockets that were named, until all of them or the time have ended, or somebody wants to end.
fn by_name(arguments: &Arguments, hold: &mut Hold, end: &End, told: &mut Told) -> anyhow::Result<ExitCode> {
    let named = named_sockets(arguments, hold.guardian(), end)?;
    for socket in named {
        if arguments.dry_run {
            terminal::note(&format!("would hold {}", described(&socket)));
            continue;
        }
        hold.add(now(), socket)?;
    }
    if arguments.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    for paced in hold.paced() {
        let rate = BytesPerSecond(paced.granted_bps as f64);
        note(&format!("holding {} at {rate}; Ctrl-C puts it back", described(&paced.named)));
        told.holding(paced);
    }
    let looked = look_until(&end.within(arguments.seconds), arguments, hold, told);
    hold.paced().iter().for_each(|paced| told.let_go(paced, Why::Ended.word()));
    looked.map(|()| ExitCode::SUCCESS)
}

/// Looks at what is held until it has ended, or the end.
fn look_until(end: &End, arguments: &Arguments, hold: &mut Hold, told: &mut Told) -> anyhow::Result<()> {
    // There is nothing else to look at than what is held: a longer interval would only tell later that the last one has ended.
    while let Some(every) = hold.look_every() {
        for gone in look(hold)? {
            told.let_go(&gone, "its connection has ended");
        }
        told.see(hold);
        // After a last look: what is told at the end is what was sent until then.
        if end.is_here() {
            break;
        }
        end.pause(every.seconds().min(arguments.interval));
    }
    Ok(())
}

fn named_sockets(arguments: &Arguments, guardian: &mut Guardian, end: &End) -> anyhow::Result<Vec<Named>> {
    let mut named = Vec::new();
    for peer in &arguments.socket {
        let FoundSockets { tcp, .. } = guardian.find_peer(*peer)?;
        if tcp.is_empty() {
            bail!(
                "no process on this host has a connection with {peer}; it must be the client's own address and port as \
                 the server sees them (`ss -tnp` lists them)"
            );
        }
        named.extend(tcp);
    }
    if let (Some(target), false) = (&arguments.target, arguments.pid.is_empty()) {
        let mut server = server::Server::connect(target, end)?;
        for pid in &arguments.pid {
            named.push(server.socket_of(*pid, guardian)?);
        }
    }
    Ok(named)
}

/// `postgres: etl shop 10.0.0.7(51234) SELECT (process 4711, client 10.0.0.7:51234)`.
fn described(named: &Named) -> String {
    format!("{} (process {}, client {})", named.title, named.socket.pid, named.socket.peer)
}

fn let_go(paced: &Paced) -> String {
    let sent = Bytes(paced.sent_bytes);
    let mean = paced.mean_bps().map_or_else(String::new, |bps| format!(", {} in the mean", BytesPerSecond(bps)));
    let failed = match usize::try_from(paced.failures()).unwrap_or(usize::MAX) {
        0 => String::new(),
        failures => format!("; it could not be reached {}", counted(failures, "time")),
    };
    format!("let go {}: {sent} sent while held{mean}{failed}", described(&paced.named))
}

/// CLOCK_BOOTTIME, as everywhere.
fn now() -> backwater_model::Moment {
    backwater_probe::now()
}

/// Looks at what is held, and tells who is gone.
fn look(hold: &mut Hold) -> anyhow::Result<Vec<Paced>> {
    let gone = hold.look(now())?;
    gone.iter().for_each(|gone| note(&let_go(gone)));
    Ok(gone)
}

/// Waits for the next look at the sessions, and looks meanwhile at what is held as often as its rate needs it.
fn pause_looking(seconds: f64, hold: &mut Hold, end: &End) -> anyhow::Result<()> {
    let Some(every) = hold.look_every().map(|every| every.seconds()) else {
        end.pause(seconds);
        return Ok(());
    };
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while !end.is_here() {
        let left = until.saturating_duration_since(Instant::now()).as_secs_f64();
        end.pause(left.min(every));
        if left <= every {
            return Ok(());
        }
        look(hold)?;
    }
    Ok(())
}
