//! `backwater check`: what this host and this role allow.

use super::source;
use crate::terminal;
use backwater_probe::host::{self, Capability, Roots};
use backwater_probe::mongodb;
use backwater_probe::postgres::{self, ConnInfo};
use backwater_report::CheckRow;
use clap::Args;
use std::process::ExitCode;

/// What this host and this role allow, and what each missing privilege costs
#[derive(Args)]
#[command(after_help = "\
Examples:
  backwater check
  backwater check postgres://monitor@db1/postgres      prints the GRANT that would add the rest
  backwater check mongodb://monitor@db1/               for MongoDB, the role (the password in MONGODB_PASSWORD)")]
pub(crate) struct Arguments {
    /// Servers to ask, beside this host
    targets: Vec<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    source::servers_only(&arguments.targets)?;
    let roots = Roots::default();
    let row = |able: Capability| (able.what.to_string(), able.missing, able.remedy);
    let mut rows: Vec<CheckRow> = host::capabilities(&roots).into_iter().map(row).collect();
    rows.extend(
        backwater_lab::limits::what_is_missing(false)
            .into_iter()
            .map(|(what, why, next)| (format!("lab: {what}"), Some(why), Some(next))),
    );
    for target in arguments.targets.iter().filter(|target| *target != "host") {
        if mongodb::is_uri(target) {
            rows.extend(of_mongodb(target, &roots)?);
            continue;
        }
        let conninfo = ConnInfo::parse(target, &|name| std::env::var(name).ok())?;
        rows.extend(postgres::capabilities(&conninfo, &roots)?.into_iter().map(row));
    }
    if arguments.json {
        let list: Vec<_> = rows
            .iter()
            .map(|(what, why, remedy)| serde_json::json!({"what": what, "allowed": why.is_none(), "why": why, "remedy": remedy}))
            .collect();
        terminal::print_json(&list)?;
    } else {
        terminal::print(&backwater_report::check(&rows, &terminal::style()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Rows of each server of a connection string; with several, each says which it is about.
fn of_mongodb(target: &str, roots: &Roots) -> anyhow::Result<Vec<CheckRow>> {
    let servers = mongodb::servers(target, &|name| std::env::var(name).ok())?;
    let mut rows = Vec::new();
    for server in &servers {
        let named = |what: &str| if servers.len() > 1 { format!("{}: {what}", server.name) } else { what.to_owned() };
        let list = match mongodb::capabilities(server, roots) {
            Ok(list) => list,
            // The others are told of all the same.
            Err(error) if servers.len() > 1 => {
                rows.push((named("the server"), Some(error.to_string()), None));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        rows.extend(list.into_iter().map(|able| (named(able.what), able.missing, able.remedy)));
    }
    Ok(rows)
}
