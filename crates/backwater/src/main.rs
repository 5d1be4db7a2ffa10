//! The `backwater` command: arguments in, calls to the libraries, exit code out. One file a subcommand.

mod args;
mod commands;
mod signals;
mod terminal;
mod when;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Find where a database's writes are backing up, prove it by experiment, and hold the flow.
#[derive(Parser)]
#[command(name = "backwater", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Say more on stderr (-v what it does, -vv every detail)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

const EXAMPLES: &str = "\
Examples:
  backwater demo                                   see a real PostgreSQL fall off a cliff
  backwater check postgres://localhost/postgres    what host and role allow
  backwater top --sort net                         who reads, writes and sends here
  backwater record postgres:///postgres -o rec     write down all that is seen
  backwater diagnose rec --from 03:05 --to 03:15   what happened at 03:10?
  backwater report rec -o report.html              all of it on one page
  backwater serve postgres:///postgres             the same page, live
  backwater advise rec --drain-target 30           the dirty limit to set

Exit codes:
  0  done: healthy, or every expectation met
  1  done: findings of warning or worse, or an expectation not met
  2  could not do it; diagnose: nothing was found, but a server was not seen";

#[derive(Subcommand)]
enum Command {
    /// One case, short, on a server it starts itself; ends with the report
    Demo(commands::demo::Arguments),
    /// Watch servers and this host and write everything down
    Record(commands::record::Arguments),
    /// Name what backs up, with evidence, in a recording or a live system
    Diagnose(commands::diagnose::Arguments),
    /// A recording as one page that opens from disk
    Report(commands::report::Arguments),
    /// The page live in a browser, and figures for Prometheus
    Serve(commands::serve::Arguments),
    /// Path, curves, sessions and findings on this terminal, live or over a recording
    Watch(commands::watch::Arguments),
    /// What a remedy changed: two recordings, or two stretches of one
    Compare(commands::compare::Arguments),
    /// Settings with their predicted effect, as commands
    Advise(commands::advise::Arguments),
    /// Who reads, writes, sends and computes, process by process
    Top(commands::top::Arguments),
    /// Who waits on what: active sessions, live or over a recording
    Ash(commands::ash::Arguments),
    /// Stand between clients and a PostgreSQL server, and hold low-priority work
    Proxy(commands::proxy::Arguments),
    /// Slow a running query from outside, by its server's own socket
    Attach(commands::attach::Arguments),
    /// The helper of `attach`
    #[command(hide = true)]
    AttachGuardian(commands::attach::GuardianArguments),
    /// Experiments on real servers: list, show, run, compare, blind, search, clean
    Lab(commands::lab::Arguments),
    /// What this host and this role allow, and what each missing privilege costs
    Check(commands::check::Arguments),
    /// A recording's readings as JSON Lines
    Export(commands::export::Arguments),
    /// What MongoDB's flight recorder wrote (diagnostic.data): summed up, listed, exported
    Ftdc(commands::ftdc::Arguments),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return terminal::usage(&error),
    };
    let governs = matches!(cli.command, Command::Proxy(_) | Command::Attach(_));
    terminal::log_to_stderr(cli.verbose, governs);
    let result = match cli.command {
        Command::Demo(arguments) => commands::demo::run(&arguments),
        Command::Record(arguments) => commands::record::run(&arguments),
        Command::Diagnose(arguments) => commands::diagnose::run(&arguments),
        Command::Report(arguments) => commands::report::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Watch(arguments) => commands::watch::run(&arguments),
        Command::Compare(arguments) => commands::compare::run(&arguments),
        Command::Advise(arguments) => commands::advise::run(&arguments),
        Command::Top(arguments) => commands::top::run(&arguments),
        Command::Ash(arguments) => commands::ash::run(&arguments),
        Command::Proxy(arguments) => commands::proxy::run(&arguments),
        Command::Attach(arguments) => commands::attach::run(&arguments),
        Command::AttachGuardian(arguments) => commands::attach::guardian(&arguments),
        Command::Lab(arguments) => commands::lab::run(arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Export(arguments) => commands::export::run(&arguments),
        Command::Ftdc(arguments) => commands::ftdc::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            terminal::error(&error);
            ExitCode::from(2)
        }
    }
}
