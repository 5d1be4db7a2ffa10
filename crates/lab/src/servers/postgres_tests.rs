//! The server's life on real PostgreSQL.

#![allow(clippy::unwrap_used)]

use super::*;
use backwater_undo::Journal;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A journal and a place for data that the server's user can get to, both gone in the end.
pub(crate) struct Lab {
    pub(crate) journal: Journal,
    pub(crate) dir: tempfile::TempDir,
    _state: Arc<tempfile::TempDir>,
}

/// One state directory for all tests that run side by side, as for all runs of one host: it gives each its own name.
fn state_dir() -> Arc<tempfile::TempDir> {
    static SHARED: Mutex<Weak<tempfile::TempDir>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let made = Arc::new(tempfile::tempdir().unwrap());
        *shared = Arc::downgrade(&made);
        made
    })
}

impl Lab {
    pub(crate) fn new() -> Lab {
        let state = state_dir();
        let dir = tempfile::Builder::new().prefix("backwater-test-").tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Lab { journal: Journal::begin(state.path(), "test").unwrap(), dir, _state: state }
    }

    /// What to make, on the newest server found. None, and said so, where there is no server.
    pub(crate) fn spec(&self, test: &str) -> Option<PostgresSpec> {
        let found = find(None).into_iter().next().or_else(|| cached(&cache_dir(), None));
        let Some(installed) = found else {
            skipped(test, "PostgreSQL (apt-get install postgresql)");
            return None;
        };
        let settings = BTreeMap::from([("fsync".to_owned(), "off".to_owned())]);
        let data_dir = self.dir.path().join("data");
        Some(PostgresSpec {
            installed,
            data_dir,
            wal_dir: None,
            user: None,
            settings,
            port: None,
            socket_port: None,
            network: None,
        })
    }

    pub(crate) fn started(&self, test: &str) -> Option<Postgres> {
        let mut server = Postgres::create(&self.journal, self.spec(test)?).unwrap();
        server.start(&self.journal).unwrap();
        Some(server)
    }
}

/// Says that a test did nothing, by name and reason.
#[allow(clippy::print_stderr)]
pub(crate) fn skipped(test: &str, needs: &str) {
    eprintln!("skipped: {test}: needs {needs}");
}

/// One value out of the server.
fn ask(conninfo: &str, query: &str) -> Result<String, tokio_postgres::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(conninfo, tokio_postgres::NoTls).await?;
        let connection = tokio::spawn(connection);
        let row = client.query_one(query, &[]).await?;
        drop(client);
        connection.await.unwrap()?;
        Ok(row.get(0))
    })
}

#[test]
fn a_server_starts_answers_restarts_with_other_settings_and_stops() {
    let lab = Lab::new();
    let Some(mut spec) = lab.spec("servers::a_server_starts") else { return };
    spec.wal_dir = Some(lab.dir.path().join("wal"));
    let version = spec.installed.version;
    let mut server = Postgres::create(&lab.journal, spec.clone()).unwrap();
    server.start(&lab.journal).unwrap();
    let setting = |name: &str| ask(&server.conninfo(), &format!("select current_setting('{name}')")).unwrap();
    assert_eq!(setting("server_version_num")[..2], version.to_string());
    assert_eq!((setting("fsync").as_str(), setting("listen_addresses").as_str()), ("off", ""));
    assert!(lab.dir.path().join("wal").read_dir().unwrap().count() > 0);
    assert!(server.read_into_page_cache().unwrap() > 1 << 20);
    let first = server.pid();

    let settings = BTreeMap::from([("work_mem".to_owned(), "7MB".to_owned())]);
    server.configure(&lab.journal, &settings).unwrap();
    let second = server.pid();
    assert_ne!(first, second);
    server.configure(&lab.journal, &settings).unwrap();
    assert_eq!(server.pid(), second);
    assert_eq!(ask(&server.conninfo(), "select current_setting('work_mem')").unwrap(), "7MB");

    let run_dir = server.log_path().parent().unwrap().to_path_buf();
    server.stop().unwrap();
    assert!(!server.is_running());
    assert!(!spec.data_dir.join("postmaster.pid").exists());
    lab.journal.finish().unwrap();
    assert!(!run_dir.exists() && !spec.data_dir.exists());
}

#[test]
fn it_runs_as_an_ordinary_user_in_a_group_of_its_own_and_shuts_others_out() {
    let lab = Lab::new();
    let Some(server) = lab.started("servers::it_runs_as_an_ordinary_user") else { return };
    let pid = server.pid().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let uid = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    assert!(!uid.contains("\t0\t"), "{uid}");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let group = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(2).unwrap().to_owned();
    assert_eq!(group, pid.to_string());
    let run_dir = server.log_path().parent().unwrap().to_path_buf();
    assert_eq!(std::fs::metadata(run_dir).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_port_asks_for_the_password_and_a_taken_one_is_named() {
    let lab = Lab::new();
    let Some(mut spec) = lab.spec("servers::a_port_asks_for_the_password") else { return };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    spec.port = Some(port);
    let mut server = Postgres::create(&lab.journal, spec).unwrap();
    let error = server.start(&lab.journal).unwrap_err();
    assert!(matches!(error, ServerError::PortInUse { port: named } if named == port), "{error}");
    drop(taken);
    server.start(&lab.journal).unwrap();
    let tcp = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
    assert!(ask(&tcp, "select 'in'").is_err());
    let with = format!("{tcp} password={}", server.password().unwrap());
    assert_eq!(ask(&with, "select 'in'").unwrap(), "in");
    assert_eq!(ask(&server.conninfo(), "select 'in'").unwrap(), "in");
}

#[test]
fn a_wrong_setting_shows_the_end_of_the_log() {
    let lab = Lab::new();
    let Some(mut spec) = lab.spec("servers::a_wrong_setting") else { return };
    spec.settings.insert("shared_bufers".to_owned(), "1GB".to_owned());
    let mut server = Postgres::create(&lab.journal, spec).unwrap();
    let error = server.start(&lab.journal).unwrap_err().to_string();
    assert!(error.contains("shared_bufers") && error.contains("postgres.log"), "{error}");
    assert_eq!(server.pid(), None);
}

#[test]
fn a_data_directory_in_use_is_told_by_initdb() {
    let lab = Lab::new();
    let Some(spec) = lab.spec("servers::a_data_directory_in_use") else { return };
    std::fs::create_dir(&spec.data_dir).unwrap();
    std::fs::write(spec.data_dir.join("mine"), "").unwrap();
    let error = Postgres::create(&lab.journal, spec).unwrap_err().to_string();
    assert!(error.contains("not empty"), "{error}");
}

#[test]
fn a_server_killed_while_it_starts_is_told_and_can_be_started_again() {
    let lab = Lab::new();
    let Some(spec) = lab.spec("servers::a_server_killed_while_it_starts") else { return };
    let pid_file = spec.data_dir.join("postmaster.pid");
    let mut server = Postgres::create(&lab.journal, spec).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| kill_when_there(&pid_file));
        if let Err(error) = server.start(&lab.journal) {
            assert!(matches!(&error, ServerError::Died { status, .. } if status.contains('9')), "{error}");
        }
    });
    // Killed just after it was ready it is found dead here.
    server.start(&lab.journal).unwrap();
    assert_eq!(ask(&server.conninfo(), "select 'up'").unwrap(), "up");
}

/// Kills the process named in a server's `postmaster.pid` as soon as that is there.
fn kill_when_there(pid_file: &Path) {
    loop {
        let text = std::fs::read_to_string(pid_file).unwrap_or_default();
        let first =
            text.split_once('\n').and_then(|(line, _)| line.parse().ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = first {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn the_journal_ends_a_server_that_was_left_running() {
    let lab = Lab::new();
    let Some(server) = lab.started("servers::the_journal_ends_a_server") else { return };
    let (pid, data_dir) = (server.pid().unwrap(), server.data_dir().to_path_buf());
    lab.journal.finish().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    assert!(!data_dir.exists());
    drop(server);
}

#[test]
fn stopping_is_quick_even_with_sessions_open() {
    let lab = Lab::new();
    let Some(mut server) = lab.started("servers::stopping_is_quick") else { return };
    let conninfo = server.conninfo();
    let session = std::thread::spawn(move || ask(&conninfo, "select pg_sleep(60)::text"));
    let began = std::time::Instant::now();
    server.stop().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    assert!(session.join().unwrap().is_err());
}

/// Downloads into the real cache, so that only the first run of all tests waits for it.
#[test]
fn every_pinned_version_starts() {
    if fetch::Source::from_environment().is_none() {
        return skipped("servers::every_pinned_version_starts", "Maven (apt-get install maven) or BACKWATER_MAVEN_URL");
    }
    for major in (12..=DEFAULT_MAJOR).filter(|major| builds::pinned(*major).is_ok()) {
        let lab = Lab::new();
        let installed = download(major, &cache_dir(), &|_| true).unwrap();
        assert_eq!(installed.version, major);
        let data_dir = lab.dir.path().join("data");
        let spec = PostgresSpec {
            installed,
            data_dir,
            wal_dir: None,
            user: None,
            settings: BTreeMap::new(),
            port: None,
            socket_port: None,
            network: None,
        };
        let mut server = Postgres::create(&lab.journal, spec).unwrap();
        server.start(&lab.journal).unwrap();
        let version = ask(&server.conninfo(), "select current_setting('server_version')").unwrap();
        assert!(version.starts_with(&major.to_string()), "{version}");
        server.stop().unwrap();
    }
}

/// Starts a primary and a standby made of it, and waits until the standby has replayed a table.
fn follows(test: &str, network: Option<&crate::limits::Network>, lab: &Lab) {
    let Some(mut spec) = lab.spec(test) else { return };
    let waits = ("wal_receiver_status_interval".to_owned(), "1s".to_owned());
    spec.settings.insert("wal_level".to_owned(), "replica".to_owned());
    spec.network = network.map(|network| network.primary().clone());
    let mut primary = Postgres::create(&lab.journal, spec.clone()).unwrap();
    primary.start(&lab.journal).unwrap();
    ask(&primary.conninfo(), "select pg_create_physical_replication_slot('kept')::text").unwrap();
    primary.stop().unwrap();

    let conninfo = format!("{} application_name=follower", primary.address_for_standby());
    let settings =
        [("primary_conninfo".to_owned(), conninfo), waits].into_iter().chain(spec.settings.clone()).collect();
    let standby = PostgresSpec {
        data_dir: lab.dir.path().join("standby"),
        socket_port: Some(5433),
        network: network.map(|network| network.standby().clone()),
        settings,
        ..spec
    };
    let mut standby = Postgres::standby_of(&primary, &lab.journal, standby).unwrap();
    assert_ne!(primary.conninfo(), standby.conninfo());
    for again in [false, true] {
        if again {
            standby.stop().unwrap();
            primary.stop().unwrap();
            standby.copy_again(&primary).unwrap();
        }
        primary.start(&lab.journal).unwrap();
        standby.start(&lab.journal).unwrap();
        let at = ask(&primary.conninfo(), "select pg_current_wal_lsn()::text").unwrap();
        let replayed = format!("select (pg_last_wal_replay_lsn() >= '{at}')::text");
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while ask(&standby.conninfo(), &replayed).unwrap() != "true" {
            assert!(std::time::Instant::now() < deadline, "it does not follow");
            std::thread::sleep(Duration::from_millis(50));
        }
        let name = ask(&primary.conninfo(), "select application_name from pg_stat_replication").unwrap();
        assert_eq!(name, "follower");
        // Slots are the primary's alone.
        assert_eq!(ask(&standby.conninfo(), "select count(*)::text from pg_replication_slots").unwrap(), "0");
    }
    standby.stop().unwrap();
    primary.stop().unwrap();
    lab.journal.finish().unwrap();
}

#[test]
fn a_standby_is_a_copy_that_follows() {
    follows("servers::a_standby_is_a_copy_that_follows", None, &Lab::new());
}

#[test]
fn a_standby_follows_through_a_network_of_its_own() {
    let lab = Lab::new();
    match crate::limits::Network::create(&lab.journal) {
        Ok(network) => follows("servers::a_standby_follows_through_a_network", Some(&network), &lab),
        Err(error) => skipped("servers::a_standby_follows_through_a_network", &error.to_string()),
    }
}
