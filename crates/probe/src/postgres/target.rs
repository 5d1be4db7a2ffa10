//! What is to be known of a server once, when it is met: version, place, settings.

use super::identity::Privileges;
use super::link::{Link, QueryError};
use super::local::{self, Backend, LocalServer};
use super::settings;
use crate::ProbeError;
use crate::host::{self, Roots};
use backwater_model::Target;
use std::path::Path;

const BACKEND: &str = "SELECT pid, date_part('epoch', backend_start)::float8, \
     (SELECT setting FROM pg_settings WHERE name = 'data_directory') FROM pg_stat_get_activity(pg_backend_pid())";

/// A server's facts, and where its processes are when they are on this host.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) target: Target,
    pub(super) local: Option<LocalServer>,
    pub(super) privileges: Privileges,
}

/// Asks the server and this host.
pub(super) async fn facts(link: &mut Link, name: Option<&str>, roots: &Roots) -> Result<Facts, ProbeError> {
    let privileges = Privileges::read(link).await?;
    let (backend, told_directory) = backend(link).await?;
    let ticks = rustix::param::clock_ticks_per_second();
    let local = local::find(roots, &backend, told_directory.as_deref(), crate::anchor(), ticks);
    let seen_directory = local.as_ref().and_then(|local| local.directory.clone());
    let data_directory = told_directory.or(seen_directory);
    let mut target = Target {
        name: name.unwrap_or(&link.server).to_owned(),
        kind: "postgres".to_owned(),
        version_num: Some(link.version),
        local: local.is_some(),
        data_directory,
        postmaster_pid: local.as_ref().map(|local| local.postmaster_pid),
        settings: settings::read(link).await?,
        ..Target::default()
    };
    add_host_facts(&mut target, roots);
    Ok(Facts { target, local, privileges })
}

async fn backend(link: &mut Link) -> Result<(Backend, Option<String>), QueryError> {
    let row = link.one("own backend", BACKEND).await?;
    Ok((Backend { pid: row.get(0), started_unix_s: row.get(1) }, row.get(2)))
}

/// Devices of the data directory and of pg_wal, and the control groups, as far as this host and user can see them.
fn add_host_facts(target: &mut Target, roots: &Roots) {
    let Some(pid) = target.postmaster_pid else { return };
    if let Some(directory) = target.data_directory.as_deref().map(Path::new) {
        let device = |path: &Path| host::locate_in(roots, pid, path).ok().map(|device| device.dev);
        target.data_device = device(directory);
        target.wal_device = device(&directory.join("pg_wal"));
    }
    if let Ok(groups) = host::cgroups_of(roots, pid) {
        target.memory_cgroup = groups.memory.filter(|group| !group.is_root()).map(|group| group.path);
        target.io_cgroup = groups.io.map(|group| group.path);
    }
}
