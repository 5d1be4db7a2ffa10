//! What this role may see on this server, for `backwater check`: each with why not, and the command that would change it.

use super::conninfo::ConnInfo;
use super::identity::Identity;
use super::link::Link;
use super::logs::Logs;
use super::probe::runtime;
use super::shmem::Memory;
use super::target::{self, Facts};
use super::tell;
use crate::ProbeError;
use crate::host::{Capability, Roots};

/// Connects, and judges each thing the probe would like to read. Blocks; not to be called from inside an async runtime.
///
/// # Errors
/// [`ProbeError::Connect`] where there is no server to ask.
pub fn capabilities(info: &ConnInfo, roots: &Roots) -> Result<Vec<Capability>, ProbeError> {
    runtime()?.block_on(async {
        let mut link = Link::open(info).await?;
        let facts = target::facts(&mut link, None, roots).await?;
        let list = judge(&mut link, &facts, roots).await?;
        link.close().await;
        Ok(list)
    })
}

async fn judge(link: &mut Link, facts: &Facts, roots: &Roots) -> Result<Vec<Capability>, ProbeError> {
    let privileges = &facts.privileges;
    let grant = privileges.grant();
    let no_member = |role: &str| format!("role {} is no member of {role}", privileges.role);
    let identity = Identity::read(link).await?;
    let system = identity.system.is_some();
    let directory = facts.target.data_directory.as_deref();
    let log = Logs::default().find(link, facts.local.as_ref(), directory, roots).await?.err();
    let statements: i64 = link.one("extensions", STATEMENTS).await?.get(0);
    let memory = of_memory(link, facts, roots).await?;
    let mut list = vec![
        item(
            "sessions and standbys of all roles",
            "who waits on what (ash), commit-too-small, and all rules about standbys",
            unless(privileges.all_stats, no_member("pg_read_all_stats")),
            &grant,
        ),
        item(
            "all settings",
            "where data and logs lie, and what is archived",
            unless(privileges.all_settings, no_member("pg_read_all_settings")),
            &grant,
        ),
        item(
            "the server's processes on this host",
            "kernel waits, I/O and processor time by session, and its devices",
            unless(facts.local.is_some(), NOT_HERE.to_owned()),
            RUN_THERE,
        ),
        memory,
        item(
            "data directory",
            "which device is the server's, and how much room is left for WAL",
            unless(directory.is_some(), no_member("pg_read_all_settings")),
            &grant,
        ),
        item(
            "device of the data directory",
            "which device is the server's: dirty-throttle, io-capped and device-saturated name it",
            unless(facts.target.data_device.is_some(), NOT_HERE.to_owned()),
            RUN_THERE,
        ),
        item(
            "system identifier and timeline",
            "that another server, or another timeline, is told from the same one started anew",
            unless(system, "pg_control_system() is not allowed".to_owned()),
            &privileges.grant_execute("pg_control_system(), pg_control_checkpoint()"),
        ),
        item(
            "the server's log",
            "checkpoints as they are logged, conflicts on standbys, standbys that were cut off",
            log.clone(),
            &log_remedy(log.as_deref(), facts),
        ),
        query_ids(link.major(), facts, statements > 0),
        item(
            "pg_stat_statements",
            "time, rows and WAL of each query",
            unless(statements > 0, "the extension is not in this database".to_owned()),
            if identity.in_recovery { EXTENSION_OF_A_STANDBY } else { EXTENSION },
        ),
    ];
    list.extend(of_times(link, facts).await?);
    Ok(list)
}

/// Whether sessions can be read in the server's memory.
async fn of_memory(link: &Link, facts: &Facts, roots: &Roots) -> Result<Capability, ProbeError> {
    let why = match &facts.local {
        Some(local) => Memory::find(link, local.postmaster_pid, &roots.proc).await?.err(),
        None => Some(NOT_HERE.to_owned()),
    };
    let words = [NOT_HERE, "denied", "not permitted"];
    let is_kept_out = why.as_ref().is_some_and(|why| words.iter().any(|word| why.contains(word)));
    Ok(item(
        "sessions in the server's shared memory",
        "looks at sessions that cost the server next to nothing: otherwise it is asked each time",
        why,
        if is_kept_out { RUN_THERE_AS_ROOT } else { ASKED_INSTEAD },
    ))
}

/// Times that the server measures, and the files of WAL.
async fn of_times(link: &mut Link, facts: &Facts) -> Result<Vec<Capability>, ProbeError> {
    let off = |name: &str| facts.target.settings.get(name).is_none_or(|value| value == "off");
    let may_list = "SELECT has_function_privilege('pg_catalog.pg_ls_waldir()', 'execute')";
    let waldir: bool = link.one("right to list WAL", may_list).await?.get(0);
    Ok(vec![
        item(
            "times of reads and writes",
            "how long they took by the server's own clock",
            unless(!off("track_io_timing"), is_off("track_io_timing")),
            IO_TIMING,
        ),
        item(
            "times of writes and syncs of WAL",
            "how long they took by the server's own clock",
            unless(link.major() < 14 || !off("track_wal_io_timing"), is_off("track_wal_io_timing")),
            WAL_TIMING,
        ),
        item(
            "files of WAL (pg_ls_waldir)",
            "how much room WAL takes, and for how long what standbys need is kept",
            unless(waldir, "pg_ls_waldir() is not allowed".to_owned()),
            &facts.privileges.grant_execute("pg_ls_waldir()"),
        ),
    ])
}

fn item(what: &'static str, costs: &'static str, missing: Option<String>, remedy: &str) -> Capability {
    let remedy = Some(remedy.to_owned()).filter(|_| missing.is_some());
    Capability { what, costs, missing, remedy }
}

fn unless(fine: bool, why: String) -> Option<String> {
    (!fine).then_some(why)
}

const NOT_HERE: &str = "the server's processes are not among those of this host, or may not be looked at";
const RUN_THERE: &str = "run backwater on the server's host, as root or as the server's own user";
const STATEMENTS: &str = "SELECT count(*) FROM pg_extension WHERE extname = 'pg_stat_statements'";
const ASKED_INSTEAD: &str = "none is needed: the server is asked at every look instead";
const RUN_THERE_AS_ROOT: &str = "run backwater on the server's host as root; PostgreSQL 13 to 18";
const IO_TIMING: &str = "ALTER SYSTEM SET track_io_timing = on; SELECT pg_reload_conf()";
const WAL_TIMING: &str = "ALTER SYSTEM SET track_wal_io_timing = on; SELECT pg_reload_conf()";
const QUERY_ID: &str = "ALTER SYSTEM SET compute_query_id = on; SELECT pg_reload_conf()";
const EXTENSION: &str =
    "add pg_stat_statements to shared_preload_libraries, restart, then CREATE EXTENSION pg_stat_statements";
/// What is created on the primary comes to the standby by itself, but for the library.
const EXTENSION_OF_A_STANDBY: &str = "add pg_stat_statements to shared_preload_libraries, restart, and on the primary CREATE EXTENSION \
                                      pg_stat_statements";

fn log_remedy(why: Option<&str>, facts: &Facts) -> String {
    why.and_then(|why| tell::log_remedy(why, facts)).unwrap_or_default()
}

fn is_off(name: &str) -> String {
    format!("{name} is off")
}

/// Computed since 14: where told to, or where an extension asks for it.
fn query_ids(major: i32, facts: &Facts, statements: bool) -> Capability {
    let setting = facts.target.settings.get("compute_query_id").map(String::as_str);
    let preloaded =
        facts.target.settings.get("shared_preload_libraries").is_some_and(|list| list.contains("pg_stat_statements"));
    let missing = match setting {
        _ if major < 14 => Some("PostgreSQL computes them since 14".to_owned()),
        Some("on" | "regress") => None,
        Some("auto") if statements || preloaded => None,
        _ => Some("compute_query_id is off or waits for an extension".to_owned()),
    };
    let remedy = if major < 14 { "upgrade to 14 or newer" } else { QUERY_ID };
    let costs = "waits by query (ash --by query)";
    Capability {
        what: "query identifiers",
        costs,
        remedy: Some(remedy.to_owned()).filter(|_| missing.is_some()),
        missing,
    }
}
