//! Developer commands: `cargo xtask ci` is what CI runs and what a newcomer runs to see every test pass.

mod bench;
mod bench_ftdc;
mod bench_week;
mod ci;
mod driver;
mod fuzz;
mod nightly;
mod page;
mod promtool;
mod run;
mod suites;
mod tidy;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands of Backwater")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything CI checks: format, lints, style, every test. Installs or downloads what the tests need and says so
    Ci,
    /// Only the tests, with what they need
    Test,
    /// Only style: arrows between crates, long functions and long files of Rust
    Tidy,
    /// What takes long: whole scenarios, repeated and shuffled, the blind test, other people's test suites through the
    /// proxy, and every fuzz target; run before an issue is resolved. What the last run of each came to is kept under docs/nightly/
    Nightly {
        /// Only this one: stampede, wal-lag, commit-wait, commit-standby, net-overload, wt-stall, wt-search, blind,
        /// blind-wiredtiger, suites, fuzz
        name: Option<String>,
        /// How long each fuzz target
        #[arg(long, default_value_t = 900)]
        seconds: u64,
        /// Run nothing, but keep the table of a blind test that was run in pieces (`backwater lab blind --for`) in this
        /// directory
        #[arg(long, value_name = "DIR")]
        keep_blind: Option<PathBuf>,
    },
    /// Throw bytes at everything that reads foreign ones, guided by the code they reach
    Fuzz {
        /// Only this one: a file of fuzz/src/targets
        target: Option<String>,
        /// How long each
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Measure what Backwater costs and how well it predicts; writes docs/bench/
    Bench {
        /// Only this one: overhead, prediction, retention, size, ftdc, page, viewers, pacing, proxy (beside pgbouncer and HAProxy, where those are
        /// installed)
        name: Option<String>,
        /// For overhead and proxy: measure only a part, and show it without keeping it, such as --only cost --sessions 200
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> anyhow::Result<()> {
    if let Some((compiler, arguments)) = fuzz::called_as_compiler() {
        return Err(fuzz::compile(&compiler, &arguments));
    }
    match Cli::parse().command {
        Command::Ci => ci::all(),
        Command::Test => ci::tests(),
        Command::Tidy => tidy::check(),
        Command::Fuzz { target, seconds } => fuzz::run(target.as_deref(), seconds),
        Command::Nightly { keep_blind: Some(dir), .. } => nightly::keep_blind(&dir),
        Command::Nightly { name, seconds, .. } => nightly::run(name.as_deref(), seconds),
        Command::Bench { name, arguments } => bench::run(name.as_deref(), &arguments),
    }
}
