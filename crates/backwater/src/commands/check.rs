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
    let mut rows: Vec<CheckRow> = host::capabilities(&roots).into_iter().map(|able| row(None, able)).collect();
    let lab = |(what, why, next)| CheckRow {
        what: format!("lab: {what}"),
        costs: String::new(),
        why_not: Some(why),
        remedy: Some(next),
    };
    rows.extend(backwater_lab::limits::what_is_missing(false).into_iter().map(lab));
    let targets: Vec<&String> = arguments.targets.iter().filter(|target| *target != "host").collect();
    let mut unreached = Vec::new();
    for target in &targets {
        let asked = match mongodb::is_uri(target) {
            true => of_mongodb(target, targets.len() > 1, &roots),
            false => of_postgres(target, targets.len() > 1, &roots),
        };
        match asked {
            Ok(asked) => rows.extend(asked),
            Err(error) => unreached.push(error),
        }
    }
    if arguments.json {
        let list: Vec<_> = rows
            .iter()
            .map(|CheckRow { what, costs, why_not, remedy }| {
                serde_json::json!({"what": what, "allowed": why_not.is_none(), "why": why_not, "costs": costs, "remedy": remedy})
            })
            .collect();
        terminal::print_json(&list)?;
    } else {
        terminal::print(&backwater_report::check(&rows, &terminal::style()))?;
    }
    // What can be told of the host and of the other servers was told.
    let Some(last) = unreached.pop() else { return Ok(ExitCode::SUCCESS) };
    unreached.iter().for_each(terminal::error);
    Err(last)
}

/// What may be seen of something, a server by its name where there are several.
fn row(of: Option<&str>, able: Capability) -> CheckRow {
    let Capability { what, costs, missing, remedy } = able;
    let what = of.map_or_else(|| what.to_owned(), |server| format!("{server}: {what}"));
    CheckRow { what, costs: costs.to_owned(), why_not: missing, remedy }
}

fn of_postgres(target: &str, is_one_of_several: bool, roots: &Roots) -> anyhow::Result<Vec<CheckRow>> {
    let conninfo = ConnInfo::parse(target, &|name| std::env::var(name).ok())?;
    let list = postgres::capabilities(&conninfo, roots)?;
    let name = conninfo.label();
    let name = is_one_of_several.then_some(name.as_str());
    Ok(list.into_iter().map(|able| row(name, able)).collect())
}

/// Rows of each server of a connection string; with several, each says which it is about.
fn of_mongodb(target: &str, is_one_of_several: bool, roots: &Roots) -> anyhow::Result<Vec<CheckRow>> {
    let servers = mongodb::servers(target, &|name| std::env::var(name).ok())?;
    let mut rows = Vec::new();
    for server in &servers {
        let name = (is_one_of_several || servers.len() > 1).then_some(server.name.as_str());
        let list = match mongodb::capabilities(server, roots) {
            Ok(list) => list,
            // The others are told of all the same.
            Err(error) if servers.len() > 1 => {
                let why_not = Some(error.to_string());
                rows.push(CheckRow { what: format!("{}: the server", server.name), why_not, ..CheckRow::default() });
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        rows.extend(list.into_iter().map(|able| row(name, able)));
    }
    Ok(rows)
}
