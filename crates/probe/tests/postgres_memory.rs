//! Looks without asking: what is read in a server's shared memory is what the server would have answered.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "postgres/looks.rs"]
mod looks;
#[path = "postgres/server.rs"]
mod server;

use backwater_model::{Moment, Point, Sample};
use backwater_probe::postgres::PostgresOptions;
use looks::Looks;
use rustix::process::{Pid, Signal, kill_process};
use server::{Server, Session, conninfo, on_each};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LOOKS: &str = "pg.probe.memory_looks";
const ACTIVE: &str = "pg.sessions.active";

fn watched(server: &Server, read_memory: bool) -> Looks {
    let options = PostgresOptions { name: Some("primary".to_owned()), read_memory, ..PostgresOptions::default() };
    Looks::connect_with(server.info(), options)
}

/// How many looks of the last second were without asking.
fn unasked(looks: &Looks) -> f64 {
    looks.of(LOOKS).last().map_or(0.0, |point| point.value)
}

/// Whether this process may read that of another user, as root may.
fn may_read() -> bool {
    rustix::process::geteuid().is_root()
}

/// What the last look told of each session, but for when.
fn told(looks: &Looks) -> BTreeMap<i32, Sample> {
    let at = looks.samples.last().map(|sample| sample.at);
    let of_last = looks.samples.iter().filter(|sample| Some(sample.at) == at);
    of_last
        .map(|sample| {
            let ageless = Sample { at: Moment::default(), query_age_ms: None, xact_age_ms: None, ..sample.clone() };
            (sample.pid, ageless)
        })
        .collect()
}

#[test]
fn what_is_read_in_memory_is_what_the_server_answers() {
    on_each("what_is_read_in_memory_is_what_the_server_answers", |bin| {
        let server = Server::start(bin, &["max_connections=60", "track_activity_query_size=4kB"]);
        if server.major < 13 || !may_read() {
            return;
        }
        server.sql("CREATE DATABASE \"other one\"");
        server.sql("CREATE TABLE t (a int); CREATE ROLE \"größe\" LOGIN SUPERUSER PASSWORD 'right'");
        let mut holder = Session::open(&server.info()).unwrap();
        holder.run("BEGIN; LOCK TABLE t").unwrap();
        let asleep = |info: &str, sql: &str| Session::open(&conninfo(info)).unwrap().spawn(sql.to_owned());
        let long: Vec<String> = (0..300).map(|number| format!("1 AS größe_{number}")).collect();
        let others = vec![
            asleep(&format!("{} application_name='nap größe'", server.socket()), "SELECT pg_sleep(3600)"),
            asleep(&server.socket(), &format!("SELECT pg_sleep(3600), {}", long.join(", "))),
            asleep(&server.tcp("password=right user=größe dbname='other one'"), "SELECT pg_sleep(3600) /* größe */"),
            asleep(&server.socket(), "SELECT a FROM t WHERE a = 42"),
            asleep(&server.socket(), "BEGIN; SELECT 1; SELECT pg_advisory_lock(1), pg_sleep(3600)"),
        ];
        let (mut read, mut asked) = (watched(&server, true), watched(&server, false));
        read.until("looks without asking", |looks| unasked(looks) >= 6.0);
        asked.until("all of them", |looks| told(looks).len() >= 6);
        let counted = read.of(LOOKS).len();
        let begin = read.samples.len();
        read.until("nine looks more", |looks| looks.of(LOOKS).len() > counted + 1);
        assert!(unasked(&read) >= 8.0, "{}: {} looks", server.major, unasked(&read));
        assert!(asked.of(LOOKS).is_empty());
        let by_server = told(&asked);
        let clients = by_server.values().filter(|sample| sample.backend_type.as_deref() == Some("client backend"));
        assert_eq!(clients.count(), others.len());
        for sample in &read.samples[begin..] {
            let ageless = Sample { at: Moment::default(), query_age_ms: None, xact_age_ms: None, ..sample.clone() };
            let other = by_server.get(&sample.pid).unwrap_or_else(|| panic!("not answered: {sample:?}"));
            // Processes of the server's own wake now and then.
            if sample.backend_type.as_deref() == Some("client backend") {
                assert_eq!(&ageless, other, "{}", server.major);
            }
            assert_eq!((&sample.backend_type, &sample.user), (&other.backend_type, &other.user));
            let age = |sample: &Sample| sample.query_age_ms.is_none_or(|age| (0..60_000).contains(&age));
            assert!(age(sample), "{sample:?}");
        }
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()");
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// Clients that come and go, each with statements of its own, until told to stop.
fn storm(server: &Server, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<()>> {
    let client = |number: usize| {
        let info = conninfo(&server.socket().replace("=tests", &format!("=storm_{number}_")));
        let stop = Arc::clone(stop);
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let Ok(mut session) = Session::open(&info) else { continue };
                for _ in 0..60 {
                    session.run(&format!("SELECT count(*) AS of_{number}_ FROM generate_series(1, 3000)")).unwrap();
                    session.run(&format!("SELECT pg_sleep(0.002) AS of_{number}_")).unwrap();
                }
            }
        })
    };
    (0..8).map(client).collect()
}

#[test]
fn what_is_read_while_it_is_written_belongs_together() {
    on_each("what_is_read_while_it_is_written_belongs_together", |bin| {
        let server = Server::start(bin, &[]);
        if server.major < 13 || !may_read() {
            return;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let storm = storm(&server, &stop);
        let mut looks = watched(&server, true);
        looks.until("looks without asking", |looks| unasked(looks) >= 3.0);
        let (counted, begin) = (looks.of(LOOKS).len(), looks.of(ACTIVE).len());
        let mut asked = watched(&server, false);
        looks.until("five seconds more", |looks| {
            asked.look().unwrap();
            looks.of(LOOKS).len() >= counted + 5
        });
        // Who works for a moment is seen as often as by asking.
        let mean = |points: &[Point]| points.iter().map(|point| point.value).sum::<f64>() / points.len() as f64;
        let (by_memory, by_answer) = (mean(&looks.of(ACTIVE)[begin..]), mean(&asked.of(ACTIVE)));
        eprintln!("{}: {by_memory:.2} active in memory, {by_answer:.2} by answers", server.major);
        assert!((0.7..1.5).contains(&(by_memory / by_answer)), "{by_memory} active, {by_answer} by answers");
        stop.store(true, Ordering::Relaxed);
        storm.into_iter().for_each(|client| client.join().unwrap());
        let by_memory: f64 = looks.of(LOOKS).iter().map(|point| point.value).sum();
        let mut told = 0;
        for sample in looks.samples.iter().filter(|sample| sample.backend_type.as_deref() == Some("client backend")) {
            let application = sample.application.as_deref().unwrap_or_default();
            // What has only just come has no name yet.
            let Some(number) = application.strip_prefix("storm") else { continue };
            let Some(query) = sample.query.as_deref() else { continue };
            assert!(query.contains(&format!("of{number}")), "{sample:?}");
            assert_eq!((sample.user.as_deref(), sample.database.as_deref()), (Some("postgres"), Some("postgres")));
            told += 1;
        }
        eprintln!("{}: {told} samples, {by_memory} looks without asking", server.major);
        assert!(told > 100, "{told} samples");
    });
}

/// The files behind a process's shared memory that is mapped with these rights, by their numbers.
fn mapped(process: &str, rights: &str) -> BTreeSet<String> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let lines = maps.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let shared = lines.filter(|fields| fields[1] == rights && fields.get(5) == Some(&"/dev/zero"));
    shared.map(|fields| fields[4].to_owned()).collect()
}

#[test]
fn a_server_that_was_started_anew_is_read_anew() {
    on_each("a_server_that_was_started_anew_is_read_anew", |bin| {
        let mut server = Server::start(bin, &[]);
        if server.major < 13 || !may_read() {
            return;
        }
        let mut looks = watched(&server, true);
        let read_now = |looks: &mut Looks, pid: i32| {
            let counted = looks.of(LOOKS).len();
            looks.until("looks without asking", |looks| looks.of(LOOKS).len() > counted + 1 && unasked(looks) >= 6.0);
            let begin = looks.samples.len();
            looks.until("the sleeper", |looks| looks.samples[begin..].iter().any(|sample| sample.pid == pid));
        };
        let sleeper = |server: &Server| {
            let mut session = Session::open(&server.info()).unwrap();
            let pid = session.run("SELECT pg_backend_pid()").unwrap().unwrap().parse::<i32>().unwrap();
            (pid, session.spawn("SELECT pg_sleep(3600)"))
        };
        let (pid, first) = sleeper(&server);
        read_now(&mut looks, pid);
        let segment =
            mapped("self", "r--s").into_iter().find(|inode| mapped(&server.pid().to_string(), "rw-s").contains(inode));
        let segment = segment.expect("the server's memory is mapped");
        // A session that dies takes all of shared memory with it.
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        first.join().unwrap();
        let begun = Instant::now();
        // It lets somebody in also before it has noticed.
        let has_noticed = || !mapped(&server.pid().to_string(), "rw-s").contains(&segment);
        while !has_noticed() || Session::open(&server.info()).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30));
        }
        // A mapping would keep memory that the server has let go of.
        let _lost = looks.look();
        assert!(!mapped("self", "r--s").contains(&segment));
        let (pid, second) = sleeper(&server);
        read_now(&mut looks, pid);
        let again =
            mapped("self", "r--s").into_iter().find(|inode| mapped(&server.pid().to_string(), "rw-s").contains(inode));
        server.stop();
        second.join().unwrap();
        let _lost = looks.look();
        assert!(!mapped("self", "r--s").contains(&again.expect("the server's memory is mapped")));
        server.start_again(&["max_connections=50"]);
        let (pid, third) = sleeper(&server);
        read_now(&mut looks, pid);
        drop(server);
        third.join().unwrap();
    });
}

#[test]
fn whoever_may_not_see_others_does_not_read_them_either() {
    on_each("whoever_may_not_see_others_does_not_read_them_either", |bin| {
        let server = Server::start(bin, &[]);
        server.sql("CREATE ROLE stranger LOGIN");
        let sleeper = Session::open(&server.info()).unwrap().spawn("SELECT pg_sleep(3600)");
        let options = PostgresOptions { name: Some("primary".to_owned()), ..PostgresOptions::default() };
        let mut looks = Looks::connect_with(conninfo(&server.socket_as("stranger")), options);
        looks.until("two seconds", |looks| looks.of("pg.probe.response_us").len() > 20);
        assert!(looks.of(LOOKS).is_empty());
        assert!(looks.samples.iter().all(|sample| sample.user.as_deref() != Some("postgres")));
        if server.major >= 15 && may_read() {
            server.sql("GRANT pg_monitor TO stranger");
            looks.until("looks without asking", |looks| unasked(looks) >= 6.0);
            server.sql("REVOKE pg_monitor FROM stranger");
            let counted = looks.of(LOOKS).len();
            let begin = looks.of("pg.probe.response_us").len();
            looks.until("two seconds", |looks| looks.of("pg.probe.response_us").len() > begin + 20);
            assert!(looks.of(LOOKS).len() <= counted + 1, "it is read though it may not be seen");
        }
        drop(server);
        sleeper.join().unwrap();
    });
}
