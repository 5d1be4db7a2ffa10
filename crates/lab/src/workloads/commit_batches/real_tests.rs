//! Commits in batches on real PostgreSQL.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::servers::Postgres;
use crate::servers::postgres_tests::Lab;
use backwater_probe::postgres::ConnInfo;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

fn info(server: &Postgres, user: &str) -> ConnInfo {
    ConnInfo::parse(&server.conninfo().replace("user=postgres", &format!("user={user}")), &|_| None).unwrap()
}

fn ask(server: &Postgres, query: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&server.conninfo(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let rows = client.simple_query(query).await.unwrap();
        let first = rows.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        first.unwrap_or_default()
    })
}

const SCHEMAS: &str = "select count(*) from pg_namespace where nspname like 'backwater%'";

#[test]
fn both_sides_insert_and_commit_what_they_say_and_leave_nothing() {
    let lab = Lab::new();
    let Some(server) = lab.started("commit_batches::both_sides") else { return };
    let mut bench = Bench::create(info(&server, "postgres")).unwrap();
    assert_eq!(bench.refused(), None);
    for (side, clients, rows_per_commit, commits) in [
        (Side::Server, 1, 10, 300),
        (Side::Server, 1, 7, 429),
        (Side::Client, 1, 100, 30),
        (Side::Server, 3, 10_000, 3),
    ] {
        let counters = Counters::default();
        let spec = BatchSpec { rows: 3_000, rows_per_commit, clients, side, least: Duration::ZERO };
        let run = bench.run(&spec, &counters, &NEVER, &|_| ()).unwrap();
        assert_eq!((run.rows, run.commits), (3_000, commits), "{spec:?}");
        assert_eq!((counters.rows.into_inner(), counters.completed.into_inner()), (3_000, commits));
        assert!(run.commit_latency_ms().unwrap() > 0.0 && run.commit_s < run.elapsed_s * clients as f64, "{run:?}");
        // The server's own word: rows to the last one, commits at least as many (those that read are in it too).
        // Rows of the catalogue, when the schema was made, are in it too.
        assert!((3_000.0..3_200.0).contains(&run.proof.rows.unwrap()), "{run:?}");
        assert!(run.proof.commits.unwrap() >= commits as f64, "{run:?}");
        assert!(run.proof.wal_bytes.unwrap() > 3_000.0 * 50.0, "{run:?}");
        assert_eq!(run.load.latency.count(), if side == Side::Client { commits } else { 0 });
    }
    for (side, clients) in [(Side::Server, 2), (Side::Client, 1)] {
        let (counters, told) = (Counters::default(), Mutex::new(Vec::new()));
        let least = Duration::from_millis(400);
        let spec = BatchSpec { rows: 500, rows_per_commit: 50, clients, side, least };
        let run = bench.run(&spec, &counters, &NEVER, &|done| told.lock().unwrap().push(done)).unwrap();
        let told = told.into_inner().unwrap();
        let in_between = told.iter().filter(|done| (1..run.rows).contains(done)).count();
        assert!(told.is_sorted() && in_between >= 2, "{told:?}");
        assert!(run.elapsed_s >= least.as_secs_f64() && run.rounds > 1.0 && run.rows.is_multiple_of(250), "{run:?}");
        assert_eq!((counters.rows.into_inner(), counters.completed.into_inner()), (run.rows, run.commits));
        let once = run.batch_run(50);
        assert_eq!((once.rows, once.commits), (500, 10));
        assert!((once.elapsed_s * run.rounds - run.elapsed_s).abs() < 1e-9, "{run:?}");
    }
    bench.end().unwrap();
    assert_eq!(ask(&server, SCHEMAS), "0");
}

#[test]
fn a_run_can_be_cancelled_and_the_schema_goes_all_the_same() {
    let lab = Lab::new();
    let Some(server) = lab.started("commit_batches::cancelled") else { return };
    for side in [Side::Server, Side::Client] {
        let mut bench = Bench::create(info(&server, "postgres")).unwrap();
        let (counters, cancel) = (Counters::default(), AtomicBool::new(false));
        let spec = BatchSpec { rows: 500_000_000, rows_per_commit: 1_000_000, clients: 2, side, least: Duration::ZERO };
        let stop = |_| cancel.store(true, Relaxed);
        assert!(matches!(bench.run(&spec, &counters, &cancel, &stop), Err(WorkloadError::Cancelled)));
        drop(bench);
        assert_eq!(ask(&server, SCHEMAS), "0", "{side:?}");
    }
}

#[test]
fn a_role_that_may_not_make_the_procedure_is_told_and_its_client_side_works() {
    let lab = Lab::new();
    let Some(server) = lab.started("commit_batches::limited_role") else { return };
    let _made = ask(&server, "create role limited login; revoke usage on language plpgsql from public");
    let refused = Bench::create(info(&server, "limited")).unwrap_err().to_string();
    assert!(refused.contains("GRANT CREATE ON DATABASE postgres TO limited"), "{refused}");
    let _granted = ask(&server, "grant create on database postgres to limited");
    let mut bench = Bench::create(info(&server, "limited")).unwrap();
    assert!(bench.refused().unwrap().contains("plpgsql"), "{:?}", bench.refused());
    let spec = BatchSpec { rows: 200, rows_per_commit: 10, clients: 1, side: Side::Server, least: Duration::ZERO };
    let counters = Counters::default();
    let why = bench.run(&spec, &counters, &NEVER, &|_| ()).unwrap_err().to_string();
    assert!(why.contains("may not make the procedure") && why.contains("client"), "{why}");
    let run = bench.run(&BatchSpec { side: Side::Client, ..spec }, &counters, &NEVER, &|_| ()).unwrap();
    assert_eq!(run.commits, 20);
}
