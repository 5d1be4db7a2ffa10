//! The probe on real servers: the newest installed one, or those named by BACKWATER_PG_BINS=dir1:dir2.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs)]

#[path = "postgres/looks.rs"]
mod looks;
#[path = "postgres/server.rs"]
mod server;

use backwater_model::{EventKind, Moment, Sample};
use backwater_probe::ProbeError;
use backwater_probe::host::Roots;
use backwater_probe::postgres::{PostgresOptions, PostgresProbe, capabilities};
use looks::Looks;
use rustix::process::{Pid, Signal, kill_process};
use server::{Server, Session, conninfo, on_each};
use std::time::Duration;

#[test]
fn sessions_locks_and_counters() {
    on_each("sessions_locks_and_counters", |bin| {
        let mut settings = vec!["log_checkpoints=on", "track_io_timing=on", "archive_mode=on", "archive_command=true"];
        settings.extend(["track_wal_io_timing=on"].iter().filter(|_| Server::empty(bin).major >= 14));
        let server = Server::start(bin, &settings);
        server.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (42)");
        server.sql("CREATE DATABASE \"other one\"");
        let mut holder = Session::open(&server.info()).unwrap();
        holder.run("BEGIN; LOCK TABLE t").unwrap();
        let mut looks = Looks::connect(server.info());
        let waiter = Session::open(&server.info()).unwrap().spawn("SELECT a FROM t WHERE a = 42 AND 'secret' <> 'b'");
        let sleeper = Session::open(&conninfo(&format!("{} application_name=nap", server.socket()))).unwrap();
        let sleeper = sleeper.spawn("SELECT pg_sleep(3600)");
        looks.until("a sleeper and a lock waiter", |looks| {
            let events: Vec<_> = looks.samples.iter().filter_map(|sample| sample.wait_event.as_deref()).collect();
            events.contains(&"PgSleep") && events.contains(&"relation")
        });
        // Its text is sent while it is new, and remembered from then on.
        looks.until("a statement whose text is sent no more", |looks| {
            let old = |sample: &Sample| sample.query_age_ms.is_some_and(|age| age > 1_500);
            looks.samples.iter().any(|sample| old(sample) && sample.wait_event.as_deref() == Some("PgSleep"))
        });
        let naps = looks.samples.iter().filter(|sample| sample.wait_event.as_deref() == Some("PgSleep"));
        assert!(naps.into_iter().all(|nap| nap.query.as_deref() == Some("SELECT pg_sleep(?)")));
        looks.until("every counter", |looks| looks.of("pg.archiver.archived").len() >= 2);

        let find =
            |event: &str| looks.samples.iter().rfind(|sample| sample.wait_event.as_deref() == Some(event)).unwrap();
        let nap = find("PgSleep");
        assert_eq!(nap.target.as_ref(), "primary");
        assert_eq!(nap.application.as_deref(), Some("nap"));
        assert_eq!(nap.user.as_deref(), Some("postgres"));
        assert_eq!(nap.database.as_deref(), Some("postgres"));
        assert_eq!(nap.backend_type.as_deref(), Some("client backend"));
        assert_eq!((nap.state.as_deref(), nap.wait_event_type.as_deref()), (Some("active"), Some("Timeout")));
        assert_eq!(nap.query.as_deref(), Some("SELECT pg_sleep(?)"));
        // It sleeps on its latch, of which the kernel knows nothing more.
        assert_eq!(nap.kernel_state, None);
        assert!(nap.query_age_ms.is_some_and(|age| (0..60_000).contains(&age)));
        assert_eq!(nap.xact_age_ms, nap.query_age_ms, "its transaction began with it");
        assert_eq!(find("relation").query.as_deref(), Some("SELECT a FROM t WHERE a = ? AND ? <> ?"));
        // Idle sessions (the lock's holder) and the probe itself are no samples.
        assert!(looks.samples.iter().all(|sample| sample.state.as_deref() != Some("idle in transaction")));
        assert!(looks.samples.iter().all(|sample| sample.application.as_deref() != Some("backwater")));

        assert_eq!(looks.of("pg.sessions.active").last().unwrap().value, 2.0);
        assert_eq!(looks.of("pg.sessions.total").last().unwrap().value, 3.0);
        assert_counters(&looks, server.major);
        assert_facts(&looks, &server);
        end_others(&server);
        waiter.join().unwrap();
        sleeper.join().unwrap();
    });
}

#[test]
fn a_look_tells_the_same_by_the_socket_and_by_the_network() {
    const SESSIONS: usize = 60;
    on_each("a_look_tells_the_same_by_the_socket_and_by_the_network", |bin| {
        let server = Server::start(bin, &["max_connections=80"]);
        server.sql("ALTER ROLE postgres PASSWORD 'right'");
        let asleep = |number: usize| {
            let info = conninfo(&format!("{} application_name='nap {number}'", server.socket()));
            let columns = vec![format!("größe_{number}"); 80].join(", ");
            let sql = format!("SELECT pg_sleep(3600), {columns} FROM (SELECT 1 AS größe_{number}) AS one");
            Session::open(&info).unwrap().spawn(sql)
        };
        let sleepers: Vec<_> = (0..SESSIONS).map(asleep).collect();
        let told = |info| {
            let mut looks = Looks::connect(info);
            looks.until("all that sleep", |looks| {
                looks.of("pg.sessions.active").last().is_some_and(|count| count.value == SESSIONS as f64)
            });
            let at = looks.samples.last().unwrap().at;
            let is_client =
                |sample: &&Sample| sample.at == at && sample.backend_type.as_deref() == Some("client backend");
            let ageless = |sample: &Sample| Sample {
                at: Moment::default(),
                query_age_ms: None,
                xact_age_ms: None,
                ..sample.clone()
            };
            let mut told: Vec<Sample> = looks.samples.iter().filter(is_client).map(ageless).collect();
            told.sort_by_key(|sample| sample.pid);
            told
        };
        let (socket, network) = (told(server.info()), told(conninfo(&server.tcp("password=right"))));
        assert_eq!(socket.len(), SESSIONS);
        // More than the server sends at once, and than is read at once where rows are kept as they come.
        assert!(socket.iter().map(|sample| sample.query.as_ref().unwrap().len()).sum::<usize>() > 40 << 10);
        assert!(socket.iter().all(|sample| sample.application.as_ref().unwrap().starts_with("nap")));
        assert_eq!(socket, network);
        end_others(&server);
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    });
}

#[test]
fn the_beginning_is_kept_of_a_long_text_and_a_transaction_may_be_older_than_its_statement() {
    on_each("the_beginning_is_kept_of_a_long_text", |bin| {
        let server = Server::start(bin, &["track_activity_query_size=4kB"]);
        let mut session = Session::open(&server.info()).unwrap();
        session.run("BEGIN").unwrap();
        server.sql("SELECT pg_sleep(0.3)");
        let columns: Vec<String> = (0..200).map(|number| format!("1 AS column_{number}")).collect();
        let running = session.spawn(format!("SELECT pg_sleep(3600), {}", columns.join(", ")));
        let mut looks = Looks::connect(server.info());
        let is_nap = |sample: &&Sample| sample.wait_event.as_deref() == Some("PgSleep");
        looks.until("a sleeper", |looks| looks.samples.iter().any(|sample| is_nap(&sample)));
        let nap = looks.samples.iter().find(is_nap).unwrap();
        let text = nap.query.as_deref().unwrap();
        assert!(text.starts_with("SELECT pg_sleep(?), ? AS column_0"), "{text}");
        assert!((500..=1_024).contains(&text.len()), "{} of {text}", text.len());
        assert!(nap.xact_age_ms.unwrap() - nap.query_age_ms.unwrap() >= 300, "{nap:?}");
        end_others(&server);
        running.join().unwrap();
    });
}

fn end_others(server: &Server) {
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()");
}

fn assert_counters(looks: &Looks, major: i32) {
    let mut names = vec![
        "pg.wal.insert_bytes",
        "pg.wal.write_bytes",
        "pg.wal.flush_bytes",
        "pg.db.commits",
        "pg.db.conflicts",
        "pg.checkpoint.timed",
        "pg.checkpoint.requested",
        "pg.checkpoint.write_ms",
        "pg.checkpoint.sync_ms",
        "pg.checkpoint.buffers_written",
        "pg.checkpoint.redo_bytes",
        "pg.wal.timeline",
        "pg.wal.oldest_kept_bytes",
        "pg.wal.directory_bytes",
        "pg.bgwriter.buffers_written",
        "pg.backend.buffers_written",
        "pg.backend.fsyncs",
        "pg.buffers.allocated",
        "pg.archiver.failed",
        "pg.probe.response_us",
    ];
    if major >= 14 {
        names.extend(["pg.wal.records", "pg.wal.full_page_images", "pg.wal.buffers_full"]);
        names.extend(["pg.wal.writes", "pg.wal.syncs", "pg.wal.write_ms", "pg.wal.sync_ms"]);
    }
    if major >= 16 {
        names.extend(["pg.io.reads", "pg.io.write_bytes", "pg.io.fsyncs", "pg.io.write_ms"]);
    }
    for name in names {
        assert!(!looks.of(name).is_empty(), "{name} is missing in {major}");
    }
    assert!(looks.labels("pg.db.commits", "database").contains(&"other one".to_owned()));
    let last = |name: &str| looks.of(name).last().unwrap().value;
    assert!(last("pg.wal.insert_bytes") >= last("pg.wal.write_bytes"));
    assert!(last("pg.wal.write_bytes") >= last("pg.wal.flush_bytes"));
    assert!(last("pg.checkpoint.redo_bytes") <= last("pg.wal.insert_bytes"));
    let failing: Vec<_> = looks.events.iter().filter(|event| event.kind == EventKind::Gap).collect();
    assert!(failing.is_empty(), "{failing:#?}");
    let absent: Vec<_> = looks.events.iter().filter(|event| event.kind == EventKind::Absent).collect();
    assert!(absent.is_empty(), "{absent:#?}");
}

fn assert_facts(looks: &Looks, server: &Server) {
    let target = &looks.target;
    assert_eq!((target.name.as_str(), target.kind.as_str()), ("primary", "postgres"));
    assert_eq!(target.version_num.unwrap() / 10_000, server.major);
    assert!(target.local);
    assert_eq!(target.postmaster_pid, Some(server.pid()));
    assert_eq!(target.data_directory.as_deref(), server.data().to_str());
    assert!(target.data_device.is_some() && target.wal_device.is_some());
    let setting = |name: &str| target.settings.get(name).map(String::as_str);
    assert_eq!(setting("shared_buffers"), Some("16MB"));
    assert_eq!(setting("max_wal_size"), Some("1GB"));
    assert_eq!(setting("checkpoint_timeout"), Some("5min"));
    assert_eq!(setting("checkpoint_flush_after"), Some("256kB"));
    assert_eq!(setting("fsync"), Some("off"));
}

#[test]
fn log_lines_become_events() {
    on_each("log_lines_become_events", |bin| {
        let server = Server::start(bin, &["log_checkpoints=on", "log_statement=all"]);
        let mut looks = Looks::connect(server.info());
        looks.until("the log is followed", |looks| looks.of("pg.wal.insert_bytes").len() > 4);
        server.sql("CREATE TABLE t AS SELECT 'secret' AS a; CHECKPOINT");
        looks.until("a checkpoint in the log", |looks| looks.event(EventKind::Log, "checkpoint complete").is_some());
        let event = looks.event(EventKind::Log, "checkpoint complete").unwrap();
        for name in ["write_s", "sync_s", "total_s", "longest_sync_s", "buffers"] {
            assert!(event.fields[name].parse::<f64>().is_ok(), "{name}: {:?}", event.fields);
        }
        assert_eq!(event.fields["what"], "checkpoint_complete");
        assert!(looks.events.iter().all(|event| !event.message.contains("secret")));
    });
}

#[test]
fn the_collectors_files_are_followed_in_each_format() {
    on_each("the_collectors_files_are_followed_in_each_format", |bin| {
        for format in ["stderr", "csvlog", "jsonlog"] {
            let destination = format!("log_destination={format}");
            let major = Server::empty(bin).major;
            if format == "jsonlog" && major < 15 {
                continue;
            }
            let server = Server::start(bin, &["log_checkpoints=on", "logging_collector=on", &destination]);
            let mut looks = Looks::connect(server.info());
            looks.until("the log is followed", |looks| looks.of("pg.wal.insert_bytes").len() > 4);
            server.sql("CREATE TABLE t (a int); CHECKPOINT");
            looks.until(format, |looks| looks.event(EventKind::Log, "checkpoint complete").is_some());
        }
    });
}

#[test]
fn a_role_without_pg_monitor_sees_less_and_is_told_so() {
    on_each("a_role_without_pg_monitor_sees_less_and_is_told_so", |bin| {
        let server = Server::start(bin, &[]);
        server.sql("CREATE ROLE plain LOGIN");
        let sleeper = Session::open(&server.info()).unwrap().spawn("SELECT pg_sleep(3600)");
        let mut looks = Looks::connect(conninfo(&server.socket_as("plain")));
        // The name of the log is refused in one of these looks, and the next one is none the worse for it.
        for look in 0..15 {
            let looked = looks.look();
            assert!(matches!(looked, Ok(()) | Err(ProbeError::Timeout { .. })), "look {look}: {looked:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(looks.event(EventKind::Absent, "log").is_some());
        looks.until("counters", |looks| looks.of("pg.db.commits").len() >= 2);
        assert!(looks.of("pg.archiver.archived").is_empty(), "one that archives nothing is not asked");
        assert!(looks.samples.iter().all(|sample| sample.backend_type.as_deref() != Some("client backend")));
        assert!(looks.of("pg.sessions.active").is_empty() && looks.of("pg.sessions.total").is_empty());
        assert!(!looks.of("pg.wal.insert_bytes").is_empty() && !looks.of("pg.db.commits").is_empty());
        let absent = looks.event(EventKind::Absent, "sessions of other roles").unwrap();
        assert_eq!(absent.fields["remedy"], "GRANT pg_monitor TO \"plain\"");
        let list = capabilities(&conninfo(&server.socket_as("plain")), &Roots::default()).unwrap();
        assert!(list.iter().any(|item| item.remedy.as_deref() == Some("GRANT pg_monitor TO \"plain\"")));
        server.sql("GRANT pg_monitor TO plain");
        let list = capabilities(&conninfo(&server.socket_as("plain")), &Roots::default()).unwrap();
        assert!(list.iter().all(|item| item.remedy.as_deref() != Some("GRANT pg_monitor TO \"plain\"")), "{list:#?}");
        the_log_can_be_read_once_its_remedy_is_applied(&server);
        end_others(&server);
        sleeper.join().unwrap();
    });
}

/// A member of pg_monitor may ask for the log's name since 17; before that the remedy grants just that function.
fn the_log_can_be_read_once_its_remedy_is_applied(server: &Server) {
    let log = || {
        let list = capabilities(&conninfo(&server.socket_as("plain")), &Roots::default()).unwrap();
        list.into_iter().find(|item| item.what.contains("log")).unwrap()
    };
    let first = log();
    if server.major < 17 {
        assert!(first.missing.unwrap().contains("pg_current_logfile"));
        let remedy = first.remedy.unwrap();
        assert!(remedy.starts_with("GRANT EXECUTE ON FUNCTION pg_current_logfile() TO \"plain\";"), "{remedy}");
        assert!(remedy.ends_with("-- in the database \"postgres\""), "{remedy}");
        server.sql(&remedy);
    }
    let last = log();
    assert!(last.missing.is_none() && last.remedy.is_none(), "{last:?}");
}

#[test]
fn a_server_that_goes_and_comes_back_is_another_life() {
    on_each("a_server_that_goes_and_comes_back_is_another_life", |bin| {
        // Abbreviated as IST, which three countries do and mean something else each.
        let mut server = Server::start(bin, &["log_timezone=Asia/Kolkata"]);
        let mut looks = Looks::connect(server.info());
        looks.until("the log is followed", |looks| looks.of("pg.wal.insert_bytes").len() > 4);
        let before = looks.of("pg.wal.insert_bytes").last().unwrap().epoch;
        server.stop();
        let stopped = backwater_probe::now();
        assert!(looks.look().is_err());
        let error = looks.look().unwrap_err().to_string();
        assert!(error.contains("cannot connect to PostgreSQL at the socket") && error.contains("Start it"), "{error}");
        server.start_again(&["max_wal_size=2GB"]);
        looks.until("positions in another epoch", |looks| {
            looks.of("pg.wal.insert_bytes").last().is_some_and(|point| point.epoch != before)
        });
        let restart = looks.event(EventKind::Restart, "restarted").unwrap();
        assert_eq!(restart.source, "primary");
        looks.until("its log", |looks| looks.event(EventKind::Log, "database system is ready").is_some());
        let told = |what: &str| looks.event(EventKind::Log, what).unwrap().at;
        assert!(told("shut down") <= stopped && stopped < told("database system is ready"), "each when it was");
        let setting = looks.event(EventKind::Setting, "max_wal_size").unwrap();
        assert_eq!((setting.fields["before"].as_str(), setting.fields["after"].as_str()), ("1GB", "2GB"));
        // The kernel's side is read of the new processes.
        let worker =
            Session::open(&server.info()).unwrap().spawn("SELECT count(*) FROM generate_series(1, 1e12::bigint)");
        looks.until("a worker", |looks| looks.samples.iter().any(|sample| sample.kernel_state.is_some()));
        end_others(&server);
        worker.join().unwrap();
    });
}

#[test]
fn a_backend_that_hangs_is_left_behind() {
    on_each("a_backend_that_hangs_is_left_behind", |bin| {
        let server = Server::start(bin, &[]);
        let mut looks = Looks::connect(server.info());
        looks.look().unwrap();
        let mut session = Session::open(&server.info()).unwrap();
        let pid =
            session.run("SELECT pid FROM pg_stat_activity WHERE application_name = 'backwater'").unwrap().unwrap();
        let signal = |signal| kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), signal).unwrap();
        signal(Signal::STOP);
        let begun = std::time::Instant::now();
        let error = looks.look().unwrap_err().to_string();
        signal(Signal::CONT);
        assert!(error.contains("sessions: no answer within 5 s"), "{error}");
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
        looks.look().unwrap();
        // The hung one ends by itself; only the new connection stays.
        let left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'backwater'";
        looks.until("one connection", |_| session.run(left).unwrap().as_deref() == Some("1"));
    });
}

#[test]
fn resets_begin_an_epoch_of_their_view_alone() {
    on_each("resets_begin_an_epoch_of_their_view_alone", |bin| {
        let server = Server::start(bin, &[]);
        let mut looks = Looks::connect(server.info());
        looks.until("counters", |looks| looks.of("pg.bgwriter.buffers_written").len() >= 2);
        let (before, wal) =
            (looks.of("pg.bgwriter.buffers_written")[0].epoch, looks.of("pg.wal.insert_bytes")[0].epoch);
        server.sql("SELECT pg_stat_reset_shared('bgwriter')");
        looks.until("another epoch", |looks| {
            looks.of("pg.bgwriter.buffers_written").last().is_some_and(|point| point.epoch != before)
        });
        assert_eq!(looks.of("pg.wal.insert_bytes").last().unwrap().epoch, wal);
        assert!(looks.event(EventKind::Restart, "").is_none());
    });
}

#[test]
fn refusals_say_what_to_do() {
    on_each("refusals_say_what_to_do", |bin| {
        let server = Server::start(bin, &[]);
        let refusal = |target: &str| {
            PostgresProbe::connect(conninfo(target), PostgresOptions::default()).unwrap_err().to_string()
        };
        let error = refusal(&server.tcp("password=wrong"));
        assert!(error.contains(&format!("127.0.0.1:{}", server.port)), "{error}");
        assert!(error.contains("password authentication failed") && error.contains("came from the address"), "{error}");
        assert!(!error.contains("wrong"), "{error}");
        let error = refusal(&server.tcp(""));
        assert!(error.contains("needs a password") && error.contains("~/.pgpass"), "{error}");
        let error = refusal(&format!("{} dbname=nothere", server.socket()));
        assert!(error.contains("\"nothere\" does not exist") && error.contains("/postgres"), "{error}");
        let error = refusal(&server.socket_as("nobody_here"));
        assert!(error.contains("CREATE ROLE \"nobody_here\""), "{error}");
        let error = refusal("host=127.0.0.1 port=1 user=u connect_timeout=5");
        assert!(error.contains("127.0.0.1:1") && error.contains("refused"), "{error}");
        let error = refusal(&server.tcp("password=right sslmode=require"));
        assert!(error.contains("sslmode"), "{error}");
        let error = refusal(&server.tcp("password=right target_session_attrs=standby"));
        assert!(error.contains("it is a primary"), "{error}");
        // The right one of several hosts is found.
        let several =
            format!("host=127.0.0.1,127.0.0.1 port=1,{} user=postgres dbname=postgres password=right", server.port);
        let (_, target) = PostgresProbe::connect(conninfo(&several), PostgresOptions::default()).unwrap();
        assert_eq!((target.name, target.local), (format!("127.0.0.1:{}", server.port), true));
    });
}
