//! Loads on real PostgreSQL.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::servers::Postgres;
use crate::servers::postgres_tests::{Lab, skipped};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Loads measure time: one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

static NEVER: AtomicBool = AtomicBool::new(false);

fn spec(clients: usize, rate_per_s: Option<f64>, seconds: f64) -> LoadSpec {
    let (warmup, duration) = (Duration::from_millis(500), Duration::from_secs_f64(seconds));
    LoadSpec { clients, rate_per_s, arrivals: Arrivals::Even, warmup, duration, seed: 1 }
}

fn with_data(server: &Postgres) {
    let (most, spec) = (AtomicU64::new(0), TpcbSpec { scale: 2, fillfactor: 90 });
    initialise(&server.conninfo(), &spec, &NEVER, &|done| {
        most.fetch_max(done, Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!(most.into_inner(), 200_000);
}

fn ask(server: &Postgres, query: &str) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&server.conninfo(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.query_one(query, &[]).await.unwrap().get(0)
    })
}

fn script(text: &str, protocol: Protocol) -> Script {
    Script::parse("test.sql", text, protocol, 1).unwrap()
}

#[test]
fn tpcb_keeps_its_rate_and_its_books() {
    let _alone = ONE_AT_A_TIME.lock();
    let lab = Lab::new();
    let Some(server) = lab.started("workloads::tpcb_keeps_its_rate") else { return };
    with_data(&server);
    let counters = Counters::default();
    let result =
        run(&server.conninfo(), &Tpcb::new(2).unwrap(), &spec(4, Some(200.0), 2.0), &counters, &NEVER).unwrap();
    assert_eq!(result.failed, 0, "{:?}", result.first_failure);
    assert!((result.tps() - 200.0).abs() < 20.0, "{result:?}");
    assert_eq!(result.per_second.len(), 2);
    assert_eq!(result.latency.count(), result.completed + result.cancelled);
    assert_eq!(counters.in_flight.into_inner(), 0);
    // What was completed is in the tables, once in each; what was cancelled may be too.
    let history = ask(&server, "select count(*) from pgbench_history") as u64;
    let completed = counters.completed.into_inner();
    assert!((completed..=completed + result.cancelled).contains(&history), "{completed} {history}");
    for table in ["pgbench_accounts", "pgbench_tellers", "pgbench_branches"] {
        let column = &table[8..9];
        let sums = format!(
            "select sum({column}balance)::bigint - (select coalesce(sum(delta), 0) from pgbench_history) from {table}"
        );
        assert_eq!(ask(&server, &sums), 0, "{table}");
    }
}

/// Starts of an idle load are late by what the kernel's timer is late: well under a millisecond where the machine is
/// quiet. Other tests may run beside this one, so the median is held to account and not the worst.
#[test]
fn starts_are_on_time() {
    let _alone = ONE_AT_A_TIME.lock();
    let lab = Lab::new();
    let Some(server) = lab.started("workloads::starts_are_on_time") else { return };
    let load = script("select 1", Protocol::Prepared);
    let result = run(&server.conninfo(), &load, &spec(8, Some(1_000.0), 2.0), &Counters::default(), &NEVER).unwrap();
    let late_ms = result.latency.quantile_ms(0.5) - result.service.quantile_ms(0.5);
    assert!(late_ms < 1.0, "late by {late_ms} ms");
    assert!((result.tps() - 1_000.0).abs() < 50.0, "{}", result.tps());
}

#[test]
fn a_slow_server_cannot_thin_out_its_load() {
    let _alone = ONE_AT_A_TIME.lock();
    let lab = Lab::new();
    let Some(server) = lab.started("workloads::a_slow_server") else { return };
    // Two clients of 20 ms each do 100 a second; 200 are asked for: after 2.5 s the queue is 1.25 s long.
    let load = script("select pg_sleep(0.02)", Protocol::Simple);
    let result = run(&server.conninfo(), &load, &spec(2, Some(200.0), 2.0), &Counters::default(), &NEVER).unwrap();
    assert!(result.latency_ms(0.99) > 800.0, "{:?}", result.latency.summary());
    assert!(result.service_ms(0.5) < 60.0, "{:?}", result.service.summary());
    assert!(result.never_started > 200, "{}", result.never_started);
}

#[test]
fn the_end_and_a_cancellation_come_at_once_and_leave_no_session() {
    let _alone = ONE_AT_A_TIME.lock();
    let lab = Lab::new();
    let Some(server) = lab.started("workloads::the_end_and_a_cancellation") else { return };
    let load = script("select pg_sleep(60)", Protocol::Prepared);
    let began = Instant::now();
    let result = run(&server.conninfo(), &load, &spec(3, None, 0.5), &Counters::default(), &NEVER).unwrap();
    assert_eq!((result.completed, result.cancelled, result.failed), (0, 3, 0));
    let cancel = AtomicBool::new(false);
    let cancelled = std::thread::scope(|scope| {
        let running =
            scope.spawn(|| run(&server.conninfo(), &load, &spec(3, None, 60.0), &Counters::default(), &cancel));
        cancel.store(true, Ordering::Relaxed);
        running.join().unwrap()
    });
    assert!(matches!(cancelled, Err(WorkloadError::Cancelled)), "{cancelled:?}");
    assert!(began.elapsed() < Duration::from_secs(45), "{:?}", began.elapsed());
    let sessions =
        "select count(*) from pg_stat_activity where application_name = 'backwater-load' and state = 'active'";
    assert_eq!(ask(&server, sessions), 0);
}

#[test]
fn refused_statements_are_counted_and_lost_connections_are_told() {
    let _alone = ONE_AT_A_TIME.lock();
    let lab = Lab::new();
    let Some(server) = lab.started("workloads::refused_statements") else { return };
    let load = script("\\set a random(0, 1)\nbegin;\nselect 1 / :a;\nend;", Protocol::Prepared);
    let result = run(&server.conninfo(), &load, &spec(2, Some(100.0), 1.0), &Counters::default(), &NEVER).unwrap();
    assert!(result.completed > 10 && result.failed > 10, "{result:?}");
    assert!(result.first_failure.unwrap().contains("division by zero"));

    let load = script("select pg_terminate_backend(pg_backend_pid())", Protocol::Simple);
    let error = run(&server.conninfo(), &load, &spec(2, None, 30.0), &Counters::default(), &NEVER).unwrap_err();
    assert!(matches!(error, WorkloadError::Lost { .. }) && error.to_string().contains("terminating"), "{error}");
    let load = script("select 1;\nselect nothing from nowhere", Protocol::Prepared);
    let error = run(&server.conninfo(), &load, &spec(1, None, 30.0), &Counters::default(), &NEVER).unwrap_err();
    assert!(error.to_string().starts_with("test.sql, line 2: the server refuses it"), "{error}");
    let error = run("host=/nonexistent user=x", &load, &spec(1, None, 1.0), &Counters::default(), &NEVER).unwrap_err();
    assert!(matches!(error, WorkloadError::Connect { client: 0, .. }), "{error}");
}

#[test]
fn both_protocols_send_the_same_values() {
    let _alone = ONE_AT_A_TIME.lock();
    let lab = Lab::new();
    let Some(server) = lab.started("workloads::both_protocols") else { return };
    let make = script("create table if not exists t (a bigint, b text, c double precision)", Protocol::Simple);
    let once = LoadSpec { warmup: Duration::ZERO, ..spec(1, Some(10.0), 0.05) };
    run(&server.conninfo(), &make, &once, &Counters::default(), &NEVER).unwrap();
    let text =
        "\\set a random(5, 5) * -:scale\n\\set c :a / 2.0\ninsert into t values (:a, (:a)::int::text || 'x', :c)";
    for protocol in [Protocol::Simple, Protocol::Prepared] {
        let result = run(&server.conninfo(), &script(text, protocol), &once, &Counters::default(), &NEVER).unwrap();
        assert_eq!(result.first_failure, None);
    }
    let same = "select count(*) from t where a = -5 and b = '-5x' and c = -2.5";
    assert!(ask(&server, same) >= 2);
    assert_eq!(ask(&server, same), ask(&server, "select count(*) from t"));
}

#[test]
fn pgbench_runs_on_the_same_data() {
    let _alone = ONE_AT_A_TIME.lock();
    let lab = Lab::new();
    let Some(server) = lab.started("workloads::pgbench_runs") else { return };
    let Ok(pgbench) = Pgbench::find(server.installed()) else {
        return skipped("workloads::pgbench_runs", "pgbench (apt-get install postgresql)");
    };
    let pgbench = pgbench.work_in(lab.dir.path().to_path_buf());
    with_data(&server);
    let counters = Counters::default();
    let spec_of = spec(2, Some(100.0), 2.0);
    let result = pgbench.run(&server.conninfo(), None, 2, &spec_of, &counters, &NEVER).unwrap();
    assert!((result.tps() - 100.0).abs() < 40.0, "{result:?}");
    assert!(result.latency_ms(0.5) >= result.service_ms(0.5));
    assert!(counters.completed.into_inner() > 100);
    let file = lab.dir.path().join("x.sql");
    std::fs::write(&file, "select 1 / (:scale - 7);").unwrap();
    let once = spec(1, Some(50.0), 1.0);
    let error = pgbench.run(&server.conninfo(), Some(&file), 7, &once, &Counters::default(), &NEVER).unwrap_err();
    assert!(error.to_string().contains("division by zero"), "{error}");
    let left = std::fs::read_dir(lab.dir.path()).unwrap().flatten();
    assert!(!left.into_iter().any(|entry| entry.file_name().to_string_lossy().contains("pgbench")));
}

#[test]
fn making_data_can_be_stopped_and_refuses_what_cannot_be() {
    let _alone = ONE_AT_A_TIME.lock();
    let lab = Lab::new();
    let Some(server) = lab.started("workloads::making_data") else { return };
    let error = run(&server.conninfo(), &Tpcb::new(1).unwrap(), &spec(1, None, 1.0), &Counters::default(), &NEVER);
    assert!(error.unwrap_err().to_string().contains("make the data first"));
    let cancel = AtomicBool::new(false);
    let stop_early = |_| cancel.store(true, Ordering::Relaxed);
    let big = TpcbSpec { scale: 200, fillfactor: 10 };
    let began = Instant::now();
    let error = initialise(&server.conninfo(), &big, &cancel, &stop_early).unwrap_err();
    assert!(matches!(error, WorkloadError::Cancelled), "{error}");
    assert!(began.elapsed() < Duration::from_secs(30));
    let error = run(&server.conninfo(), &Tpcb::new(1).unwrap(), &spec(1, None, 1.0), &Counters::default(), &NEVER);
    assert!(error.unwrap_err().to_string().contains("the data have scale 200"));
    for (scale, fillfactor) in [(0, 100), (20_001, 100), (1, 9)] {
        let error = initialise(&server.conninfo(), &TpcbSpec { scale, fillfactor }, &NEVER, &|_| ()).unwrap_err();
        assert!(matches!(error, WorkloadError::Impossible { .. }), "{error}");
    }
}
