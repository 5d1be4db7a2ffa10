//! What a commit waits for, on real servers: a synchronous standby that is away, commit_delay, and a hundred looks a
//! second at it.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "postgres/looks.rs"]
mod looks;
#[path = "postgres/server.rs"]
mod server;

use backwater_model::{CommitWait, Point, Registry};
use backwater_probe::Observer;
use backwater_probe::postgres::{PostgresOptions, PostgresProbe};
use looks::Looks;
use server::{Server, Session, on_each};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Looks that are held against the clock.
const LOOKS: usize = 100;

#[test]
fn a_commit_that_waits_for_a_standby() {
    on_each("a_commit_that_waits_for_a_standby", |bin| {
        let server = Server::start(bin, &["synchronous_standby_names=nobody", "synchronous_commit=local"]);
        server.sql("CREATE TABLE t (a int)");
        let writer =
            Session::open(&server.info()).unwrap().spawn("SET synchronous_commit = on; INSERT INTO t VALUES (1)");
        let mut looks = Looks::connect(server.info());
        looks.until("a commit that waits", |looks| {
            looks.samples.iter().any(|sample| CommitWait::of(sample) == Some(CommitWait::SynchronousStandby))
        });
        let sample = looks.samples.iter().rfind(|sample| CommitWait::of(sample).is_some()).unwrap();
        assert_eq!((sample.queue.as_deref(), sample.wait_event.as_deref()), (Some("pg.commit"), Some("SyncRep")));
        assert_eq!(looks.labels("pg.sessions.waiting", "queue").last().map(String::as_str), Some("pg.commit"));
        server.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
        writer.join().unwrap();
    });
}

#[test]
fn a_commit_that_is_delayed_on_purpose() {
    on_each("a_commit_that_is_delayed_on_purpose", |bin| {
        let server = Server::start(bin, &["fsync=on", "commit_delay=100000", "commit_siblings=0"]);
        server.sql("CREATE TABLE t (a int)");
        let loops = "DO $$ BEGIN FOR i IN 1..100000 LOOP INSERT INTO t VALUES (i); COMMIT; END LOOP; END $$";
        let writer = Session::open(&server.info()).unwrap().spawn(loops);
        let mut looks = Looks::connect(server.info());
        looks.until("a delayed commit", |looks| {
            looks.samples.iter().any(|sample| CommitWait::of(sample) == Some(CommitWait::CommitDelay))
        });
        let sample =
            looks.samples.iter().rfind(|sample| CommitWait::of(sample) == Some(CommitWait::CommitDelay)).unwrap();
        eprintln!("  delayed in the kernel's {:?}", sample.kernel_wait);
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DO %'");
        writer.join().unwrap();
    });
}

#[test]
fn sessions_are_looked_at_a_hundred_times_a_second() {
    on_each("sessions_are_looked_at_a_hundred_times_a_second", |bin| {
        let server = Server::start(bin, &[]);
        let options = PostgresOptions { session_period: Duration::from_millis(10), ..PostgresOptions::default() };
        let (probe, _) = PostgresProbe::connect(server.info(), options).unwrap();
        let registry = Arc::new(Registry::new());
        let (observer, batches) = Observer::start(vec![Box::new(probe)], &registry).unwrap();
        let begun = Instant::now();
        let (mut looks, mut median_ms) = (VecDeque::new(), f64::INFINITY);
        // That it can, where the machine lets it: a hundred looks on end, half of them no more than 12 ms after the one before.
        while median_ms > 12.0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "at best one look in {median_ms} ms");
            let batch = batches.recv_timeout(Duration::from_secs(10)).unwrap();
            let is_look =
                |point: &&Point| registry.get(point.series).is_some_and(|series| series.name == "pg.sessions.active");
            looks.extend(batch.points.iter().filter(is_look).map(|point| point.at));
            looks.drain(..looks.len().saturating_sub(LOOKS + 1));
            if looks.len() > LOOKS {
                let mut distances: Vec<_> =
                    looks.iter().zip(looks.iter().skip(1)).map(|(one, next)| *next - *one).collect();
                distances.sort_unstable();
                median_ms = distances[LOOKS / 2].seconds() * 1e3;
            }
        }
        observer.stop();
        eprintln!(
            "  {LOOKS} looks with a median distance of {median_ms:.1} ms after {:.1} s",
            begun.elapsed().as_secs_f64()
        );
    });
}
