//! Rules carried out on real sessions: a penalty's rate measured, an abort, a dry run.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

mod held;
mod server;

use backwater_gate::proxy::{Drained, ProxyConfig};
use backwater_model::{Event, EventKind, FlowState};
use held::{CONSOLE, Held, Session, console, proxy, until};
use server::{complaint, psql, text, with_server};
use std::io::Read;
use std::path::Path;
use std::pin::pin;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;

fn run(port: u16, sql: &str) -> String {
    text(&psql("127.0.0.1", port, sql).output().unwrap())
}

#[test]
fn a_penalty_slows_a_running_statement_to_the_low_rate_and_is_lifted() {
    with_server("a_penalty_slows_a_running_statement_to_the_low_rate_and_is_lifted", &[], |server| {
        let held = proxy(
            server,
            "low_priority_bandwidth = '10MB'\n[rules.slow]\nelapsedtime = 0.2\nbandwidth = 1\naction = 'penalty'\n\
             [pools.rp1]\nexcept_rule = 'slow'\n[users]\npostgres = 'rp1'\n",
        );
        // A gigabyte: no machine sends it in a fifth of a second.
        let sql = "COPY (SELECT repeat('x', 1023) FROM generate_series(1, 1048576)) TO STDOUT";
        let mut stream = psql("127.0.0.1", held.port, sql).stdout(Stdio::piped()).spawn().unwrap();
        let read = Arc::new(AtomicU64::new(0));
        let (counter, mut out) = (Arc::clone(&read), stream.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(count) = out.read(&mut bytes)
                && count > 0
            {
                counter.fetch_add(count as u64, Ordering::Relaxed);
            }
        });
        let began = held.decision();
        assert_eq!((began.fields["step"].as_str(), began.fields["action"].as_str()), ("began", "penalty"));
        assert_eq!((began.fields["rule"].as_str(), began.fields["pool"].as_str()), ("slow", "rp1"));
        assert!(began.fields["elapsedtime"].parse::<f64>().unwrap() >= 0.2, "{began:?}");
        // What was under way already arrives first: the measurement begins when it has.
        std::thread::sleep(Duration::from_secs(2));
        let (from, begun) = (read.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(Duration::from_secs(3));
        let rate = (read.load(Ordering::Relaxed) - from) as f64 / begun.elapsed().as_secs_f64() / 1_048_576.0;
        eprintln!("held to {rate:.2} MB/s of 10");
        // A busy machine gives less, and then at once what stood in buffers meanwhile; unheld it is hundreds.
        assert!((1.0..12.0).contains(&rate), "{rate} MB/s");
        // Urgent work does not wait for the gigabyte, which has more than a minute to go.
        let begun = Instant::now();
        assert_eq!(run(held.port, "SELECT length(repeat('y', 5000000))"), "5000000");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        stream.kill().unwrap();
        stream.wait().unwrap();
        let lifted = held.decision();
        assert_eq!((lifted.fields["step"].as_str(), lifted.fields["why"].as_str()), ("lifted", "the session ended"));
    });
}

#[test]
fn a_penalty_ends_with_its_statement_and_the_next_one_is_urgent_again() {
    with_server("a_penalty_ends_with_its_statement_and_the_next_one_is_urgent_again", &[], |server| {
        let held = proxy(
            server,
            "low_priority_bandwidth = '1MB'\n[rules.slow]\nelapsedtime = 2\naction = 'penalty'\n\
             [pools.default]\nexcept_rule = 'slow'\n",
        );
        let mut shell = psql("127.0.0.1", held.port, "SELECT pg_sleep(2.5)");
        // Thirty megabytes take thirty seconds in the low class; the rule leaves a statement alone for two. In rows: of one value the
        // server makes several copies before it sends any of it, and where memory is slow that alone takes nearly so long.
        let begun = Instant::now();
        let sql = "SELECT repeat('x', 10000) FROM generate_series(1, 3000)";
        let out = text(&shell.args(["-c", "SELECT 'between' FROM pg_sleep(0.1)", "-c", sql]).output().unwrap());
        assert!(out.contains("between") && out.len() > 30_000_000);
        let elapsed = begun.elapsed();
        let steps: Vec<String> = (0..2).map(|_| held.decision().message).collect();
        // One that was hit again itself came to a stand for two seconds.
        let later: Vec<Event> = held.events.try_iter().collect();
        assert!(elapsed < Duration::from_secs(20), "{elapsed:?}: {steps:?}, and then {later:?}");
        assert!(steps[0].starts_with("rule slow demotes session"), "{steps:?}");
        assert!(
            steps[1].contains("lifts") && steps[1].contains("the statement ended (imposed at elapsedtime 2"),
            "{steps:?}"
        );
    });
}

#[test]
fn a_penalty_stays_for_its_cooldown_and_no_rule_acts_meanwhile() {
    with_server("a_penalty_stays_for_its_cooldown_and_no_rule_acts_meanwhile", &[], |server| {
        let held = proxy(
            server,
            "[rules.slow]\nelapsedtime = 0.3\naction = 'penalty'\ncooldown = 2\n[pools.default]\nexcept_rule = 'slow'\n",
        );
        // One that the rule hits, and one that it would hit while it cools down. The session stays.
        let session = Session::open(held.port);
        for sql in ["SELECT pg_sleep(1)", "SELECT pg_sleep(0.6)"] {
            session.wait(session.client.batch_execute(sql)).unwrap();
        }
        let (began, lifted) = (held.decision(), held.decision());
        assert_eq!((began.fields["step"].as_str(), lifted.fields["step"].as_str()), ("began", "lifted"));
        assert_eq!(lifted.fields["why"], "the statement ended");
        let pid = session.pid().to_string();
        for decision in [&began, &lifted] {
            assert_eq!(decision.fields["server_pid"], pid);
            assert!(decision.fields["client"].starts_with("127.0.0.1:"), "{decision:?}");
        }
        // It was hit after 0.3 s and ended after 1 s: what is more is the cool-down.
        let held_s = lifted.at.seconds_since(began.at);
        assert!(held_s > 2.5, "held for {held_s} s");
        assert!(held.events.try_iter().all(|event| event.kind != EventKind::Decision));
    });
}

#[test]
fn what_is_held_when_the_proxy_ends_is_told_to_be_over() {
    with_server("what_is_held_when_the_proxy_ends_is_told_to_be_over", &[], |server| {
        let rule = "[rules.slow]\nelapsedtime = 0.2\naction = 'penalty'\n[pools.default]\nexcept_rule = 'slow'\n";
        let held = proxy(server, &format!("[limits]\ndrain_timeout_s = 0.3\n{rule}"));
        let mut running = psql("127.0.0.1", held.port, "SELECT pg_sleep(60)").stderr(Stdio::piped()).spawn().unwrap();
        assert_eq!(held.decision().fields["step"], "began");
        let Held { proxy, events, .. } = held;
        assert_eq!(proxy.drain(|| false), Drained::BrokenOff);
        // All is told once the proxy has ended.
        let told: Vec<Event> = events.try_iter().filter(|event| event.kind == EventKind::Decision).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].fields["step"], "lifted");
        // The session is broken off meanwhile.
        let why = told[0].fields["why"].as_str();
        assert!(["Backwater ended", "the session ended"].contains(&why), "{why}");
        assert!(!running.wait().unwrap().success());
    });
}

#[test]
fn an_abort_cancels_the_statement_and_leaves_the_session() {
    with_server("an_abort_cancels_the_statement_and_leaves_the_session", &[], |server| {
        let held = proxy(
            server,
            "[rules.stop]\nelapsedtime = 0.3\n[rules.seen]\nelapsedtime = 0.1\naction = 'dryrun'\n\
             [pools.batch]\nexcept_rule = 'stop,seen'\n",
        );
        let begun = Instant::now();
        let mut shell = psql("127.0.0.1", held.port, "SELECT pg_sleep(60)");
        let output = shell.env("PGOPTIONS", "-c backwater.pool=batch").args(["-v", "ON_ERROR_STOP=0"]);
        let output = output.args(["-c", "SELECT 'still here'"]).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("canceling statement due to user request"));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "still here");
        assert!(begun.elapsed() < Duration::from_secs(45));
        let (seen, stopped) = (held.decision(), held.decision());
        assert_eq!((seen.fields["action"].as_str(), seen.fields["rule"].as_str()), ("dryrun", "seen"));
        assert_eq!((stopped.fields["action"].as_str(), stopped.fields["rule"].as_str()), ("abort", "stop"));
        // Who is in another pool is left alone.
        assert_eq!(run(held.port, "SELECT 'done' FROM pg_sleep(0.6)"), "done");
    });
}

/// A large answer that is held to this rate is aborted: what the server had said before takes long to reach the client, and the
/// session stays. `told` is what rules do to it.
fn an_abort_leaves_a_session_that_is_held(name: &str, rate: &str, more: &str, told: &[&str]) {
    with_server(name, &[], |server| {
        let stop = "[rules.stop]\nelapsedtime = 3\naction = 'abort'\n";
        let held = proxy(server, &format!("low_priority_bandwidth = '{rate}'\n{stop}{more}"));
        let session = Session::open(held.port);
        let begun = Instant::now();
        let large = "SELECT repeat('x', 1023) FROM generate_series(1, 1048576)";
        let error = session.wait(session.client.simple_query(large)).unwrap_err();
        eprintln!("its end was seen after {:?}", begun.elapsed());
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED), "{error}");
        session.wait(session.client.batch_execute("SELECT 1")).unwrap();
        let step = |event: &Event| format!("{} {}", event.fields["action"], event.fields["step"]);
        let steps: Vec<String> = told.iter().map(|_| step(&held.decision())).collect();
        assert_eq!(steps, told);
    });
}

#[test]
fn an_abort_leaves_a_session_of_a_low_pool() {
    let low = "[pools.default]\nexcept_rule = 'stop'\npriority = 'low'\n";
    an_abort_leaves_a_session_that_is_held(
        "an_abort_leaves_a_session_of_a_low_pool",
        "200kB",
        low,
        &["abort began", "abort lifted"],
    );
}

#[test]
fn an_abort_leaves_a_session_that_a_penalty_holds() {
    let slow = "[rules.slow]\nrows = 1000\naction = 'penalty'\n[pools.default]\nexcept_rule = 'slow,stop'\n";
    let told = ["penalty began", "abort began", "penalty lifted", "abort lifted"];
    an_abort_leaves_a_session_that_is_held("an_abort_leaves_a_session_that_a_penalty_holds", "1MB", slow, &told);
}

#[test]
fn what_goes_on_after_a_cancel_loses_its_session() {
    with_server("what_goes_on_after_a_cancel_loses_its_session", &[], |server| {
        let held = proxy(server, "[rules.stop]\nelapsedtime = 0.3\n[pools.default]\nexcept_rule = 'stop'\n");
        let stubborn = "DO $$ BEGIN FOR i IN 1..20 LOOP BEGIN PERFORM pg_sleep(1); \
                        EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$";
        let told = complaint(&psql("127.0.0.1", held.port, stubborn).output().unwrap());
        assert!(told.contains("rule stop cancelled its statement, and it went on"), "{told}");
        let told: Vec<Event> = (0..3).map(|_| held.decision()).collect();
        assert_eq!(
            told.iter().map(|event| event.fields["step"].as_str()).collect::<Vec<_>>(),
            ["began", "escalated", "lifted"]
        );
        assert_eq!(told[2].fields["why"], "the session ended");
    });
}

#[test]
fn cpu_and_memory_are_those_of_the_servers_process() {
    with_server("cpu_and_memory_are_those_of_the_servers_process", &[], |server| {
        let held = proxy(
            server,
            "[rules.busy]\ncputime = 0.3\ncpuavgpercent = 10\nmemsize = 0.1\n[pools.default]\nexcept_rule = 'busy'\n",
        );
        assert_eq!(run(held.port, "SELECT 'slept' FROM pg_sleep(1)"), "slept", "sleeping costs no CPU");
        let burn = "SELECT sum(sqrt(g)) FROM generate_series(1, 500000000) g";
        let told = complaint(&psql("127.0.0.1", held.port, burn).output().unwrap());
        assert!(told.contains("canceling statement"), "{told}");
        let decision = held.decision();
        assert!(decision.fields["cputime"].parse::<f64>().unwrap() > 0.3, "{decision:?}");
        assert!(decision.fields.contains_key("memsize"));
    });
}

#[test]
fn a_rule_on_cpu_reaches_a_statement_that_another_rule_watches_already() {
    with_server("a_rule_on_cpu_reaches_a_statement_that_another_rule_watches_already", &[], |server| {
        let other = "[rules.other]\nelapsedtime = 3600\n[pools.default]\nexcept_rule = 'other'\n";
        let held = proxy(server, &format!("{CONSOLE}{other}"));
        let burn = "SELECT 'burning', sum(sqrt(g)) FROM generate_series(1, 500000000) g";
        let running = psql("127.0.0.1", held.port, burn).stderr(Stdio::piped()).spawn().unwrap();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE query ~ '^SELECT .burning'", "1");
        console(
            held.port,
            "CREATE EXCEPT RULE busy WITH (cputime=0.2); ALTER RESOURCE POOL default WITH (except_rule='other,busy')",
        );
        let began = held.decision_of("began");
        assert!(began.fields["cputime"].parse::<f64>().unwrap() > 0.2, "{began:?}");
        assert!(complaint(&running.wait_with_output().unwrap()).contains("canceling statement"));
    });
}

#[test]
fn what_an_aborted_statement_sent_does_not_stop_the_next() {
    with_server("what_an_aborted_statement_sent_does_not_stop_the_next", &[], |server| {
        let held = proxy(server, "[rules.much]\nbandwidth = 10\n[pools.default]\nexcept_rule = 'much'\n");
        let session = Session::open(held.port);
        let large = "SELECT repeat('x', 1023) FROM generate_series(1, 1048576)";
        assert!(session.wait(session.client.batch_execute(large)).is_err(), "it is cancelled");
        session.wait(session.client.batch_execute("SELECT pg_sleep(0.5)")).unwrap();
        assert_eq!(held.decision().fields["step"], "began");
        assert_eq!(held.decision().fields["step"], "lifted");
        assert!(held.events.try_iter().all(|event| event.kind != EventKind::Decision));
    });
}

#[test]
fn who_waits_for_its_turn_has_it_also_while_the_proxy_drains() {
    with_server("who_waits_for_its_turn_has_it_also_while_the_proxy_drains", &[], |server| {
        let held = proxy(server, &format!("{CONSOLE}[pools.default]\nmax_active = 1\n"));
        let spawn = |sql: &str| psql("127.0.0.1", held.port, sql).stdout(Stdio::piped()).spawn().unwrap();
        let first = spawn("SELECT 'first' FROM pg_sleep(8)");
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        let second = spawn("SELECT 'second'");
        until("one waits", || console(held.port, "SHOW SESSIONS").contains("|waiting for its turn|"));
        assert_eq!(held.proxy.drain(|| false), Drained::Whole);
        for (child, said) in [(first, "first"), (second, "second")] {
            assert_eq!(text(&child.wait_with_output().unwrap()), said);
        }
    });
}

#[test]
fn a_rule_made_on_the_console_catches_a_statement_that_runs_already() {
    with_server("a_rule_made_on_the_console_catches_a_statement_that_runs_already", &[], |server| {
        let held = proxy(server, CONSOLE);
        let mut running = psql("127.0.0.1", held.port, "SELECT pg_sleep(60)").stderr(Stdio::piped()).spawn().unwrap();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        console(
            held.port,
            "CREATE EXCEPT RULE slow WITH (elapsedtime=0.1, action='penalty'); \
             ALTER RESOURCE POOL default WITH (except_rule='slow')",
        );
        let began = held.decision_of("began");
        assert!(began.message.starts_with("rule slow demotes session"), "{began:?}");
        let seen = console(held.port, "SHOW SESSIONS");
        assert!(seen.contains("|default|low|slow|active|"), "{seen}");
        // Its pool is urgent, and it is held all the same.
        let bound = console(held.port, "SHOW GOVERNOR");
        assert!(bound.contains("default|") && bound.contains("low_priority_bandwidth"), "{bound}");
        assert!(console(held.port, "SHOW EVENTS").contains("rule slow demotes"), "the console tells it too");
        // Dropping the rule lifts what it did, and a rule of another action stops the statement.
        console(held.port, "ALTER EXCEPT RULE slow WITH (action='abort')");
        let lifted = held.decision_of("lifted");
        assert_eq!(lifted.fields["why"], "the rule no longer applies");
        assert!(!running.wait().unwrap().success(), "cancelled");
        assert_eq!(held.decision_of("began").fields["action"], "abort");
    });
}

#[test]
fn what_was_sent_before_a_rule_looked_is_no_bandwidth() {
    with_server("what_was_sent_before_a_rule_looked_is_no_bandwidth", &[], |server| {
        let held = proxy(server, CONSOLE);
        let session = Session::open(held.port);
        let large = "SELECT repeat('x', 10000) FROM generate_series(1, 10000)";
        assert_eq!(session.wait(session.client.query(large, &[])).unwrap().len(), 10_000);
        console(
            held.port,
            "CREATE EXCEPT RULE much WITH (bandwidth=5, action='dryrun'); \
             ALTER RESOURCE POOL default WITH (except_rule='much')",
        );
        session.wait(session.client.batch_execute("SELECT pg_sleep(1)")).unwrap();
        assert!(held.events.try_iter().all(|event| event.kind != EventKind::Decision), "100 MB were sent before");
        // The same again is looked at.
        session.wait(session.client.query(large, &[])).unwrap();
        session.wait(session.client.batch_execute("SELECT pg_sleep(0.5)")).unwrap();
        assert_eq!(held.decision_of("began").fields["rule"], "much");
    });
}

#[test]
fn a_copy_of_the_extended_protocol_ends() {
    with_server("a_copy_of_the_extended_protocol_ends", &[], |server| {
        server.value("CREATE TABLE t (a int)");
        let held = proxy(
            server,
            "[rules.slow]\nelapsedtime = 0.5\naction = 'abort'\n[pools.default]\nexcept_rule = 'slow'\nmax_active = 1\n",
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(held.port).user("postgres").password(server::PASSWORD);
        let (client, connection) = runtime.block_on(config.connect(tokio_postgres::NoTls)).unwrap();
        let _connection = runtime.spawn(connection);
        let copied = runtime.block_on(async {
            // Bind, Execute and Sync; then, as the server copies, CopyDone and Sync; one answer.
            let mut sink = pin!(client.copy_in::<_, &'static [u8]>("COPY t FROM STDIN").await.unwrap());
            sink.as_mut().finish().await.unwrap()
        });
        assert_eq!(copied, 0);
        let running = |state: &FlowState| state.pools.iter().map(|pool| pool.running).sum::<u64>();
        // The client has the answer a moment before the proxy has noted it.
        let (mut glance, begun) = (held.proxy.glance(), std::time::Instant::now());
        while running(&glance.look()) > 0 {
            assert!(begun.elapsed() < std::time::Duration::from_secs(30), "it counts as running for ever");
            std::thread::yield_now();
        }
        // It has no turn that others wait for, and the rule looks at them alone.
        let late = complaint(&psql("127.0.0.1", held.port, "SELECT pg_sleep(60)").output().unwrap());
        assert!(late.contains("canceling statement"), "{late}");
        let other = held.decision_of("began").fields["session"].clone();
        assert_eq!(other, "2");
        assert!(runtime.block_on(client.simple_query("SELECT 1")).is_ok());
    });
}

#[test]
fn rows_are_those_that_were_sent_by_a_query_or_a_copy() {
    with_server("rows_are_those_that_were_sent", &[], |server| {
        let held =
            proxy(server, "[rules.many]\nrows = 1000\naction = 'abort'\n[pools.default]\nexcept_rule = 'many'\n");
        for sql in [
            "SELECT g, pg_sleep(0.0001) FROM generate_series(1, 2000000) g",
            "COPY (SELECT g, pg_sleep(0.0001) FROM generate_series(1, 2000000) g) TO STDOUT",
        ] {
            let late = complaint(&psql("127.0.0.1", held.port, sql).output().unwrap());
            assert!(late.contains("canceling statement"), "{late}");
            let began = held.decision_of("began");
            assert!(began.fields["rows"].parse::<f64>().unwrap() > 1000.0, "{began:?}");
        }
    });
}

/// Receives the server's WAL by the replication protocol until it is ended.
struct Receiving(Child, tempfile::TempDir);

impl Receiving {
    fn through(port: u16) -> Receiving {
        let dir = tempfile::tempdir().unwrap();
        let mut command = server::client("pg_receivewal", "127.0.0.1", port);
        let command = command.arg("--no-loop").arg("-D").arg(dir.path()).stderr(Stdio::null());
        Receiving(command.spawn().unwrap(), dir)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const STREAMING: &str = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";

#[test]
fn replication_is_left_alone_unless_its_role_has_a_pool() {
    with_server("replication_is_left_alone_unless_its_role_has_a_pool", &[], |server| {
        let rules = "[rules.slow]\nelapsedtime = 0.3\naction = 'abort'\n[rules.seen]\nelapsedtime = 0.3\naction = 'dryrun'\n\
                     [pools.default]\nexcept_rule = 'slow'\npriority = 'low'\nmax_active = 1\n";
        let held = proxy(server, rules);
        let receiving = Receiving::through(held.port);
        server.until(STREAMING, "1");
        // The one turn is there for a statement, and the rule looks at that one.
        let late = complaint(&psql("127.0.0.1", held.port, "SELECT pg_sleep(60)").output().unwrap());
        assert!(late.contains("canceling statement"), "{late}");
        let began = held.decision_of("began");
        assert_ne!(began.fields["session"], "1", "{began:?}");
        let seen = held.proxy.glance().look();
        assert!(seen.held.iter().all(|held| held.session != 1), "{seen:?}");
        assert_eq!(server.value(STREAMING), "1");
        drop(receiving);
        let more =
            format!("{rules}[pools.copies]\npriority = 'low'\nexcept_rule = 'seen'\n[users]\npostgres = 'copies'\n");
        let held = proxy(server, &more);
        let _receiving = Receiving::through(held.port);
        assert_eq!(held.decision_of("began").fields["pool"], "copies");
        assert_eq!(held.proxy.glance().look().held_in_all, 1);
    });
}

#[test]
fn a_session_that_is_idle_for_too_long_is_ended_with_a_reason() {
    with_server("a_session_that_is_idle_for_too_long_is_ended_with_a_reason", &[], |server| {
        let held = proxy(server, "[limits]\nidle_timeout_s = 0.3\n");
        let mut shell = psql("127.0.0.1", held.port, "SELECT 'first'");
        let told = complaint(&shell.args(["-c", "\\! sleep 1", "-c", "SELECT 'second'"]).output().unwrap());
        assert!(told.contains("terminating connection due to the proxy's idle_timeout_s"), "{told}");
        assert_eq!(run(held.port, "SELECT 'busy' FROM pg_sleep(0.8)"), "busy", "who works is not idle");
    });
}

#[test]
fn reloading_under_load_disturbs_nobody() {
    with_server("reloading_under_load_disturbs_nobody", &[], |server| {
        let held = proxy(server, "");
        let mut bench = server::client("pgbench", "127.0.0.1", held.port);
        // Longer than the thirty reloads take, also where the processors are busy.
        let load = "SELECT pg_sleep(0.01);";
        let script = server.dir.path().join("load.sql");
        std::fs::write(&script, load).unwrap();
        bench.args(["-n", "-c", "8", "-j", "2", "-t", "1000", "-f"]).arg(&script);
        let bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'", "8");
        let written = |more: &str| format!("listen = '127.0.0.1:0'\nserver = '{}'\n{more}", server.address());
        for round in 0..30 {
            let low = if round % 2 == 0 { "low" } else { "high" };
            let more = format!("[pools.default]\npriority = '{low}'\nmax_active = {}\n", 2 + round % 4);
            held.proxy.reload(&ProxyConfig::parse(&written(&more), Path::new("test.toml")).unwrap()).unwrap();
            assert!(ProxyConfig::parse(&written("[pools.default]\nprio = 1\n"), Path::new("test.toml")).is_err());
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = bench.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && told.contains("processed: 8000/8000"), "{told}");
    });
}

#[test]
fn what_a_statement_spilled_is_not_held_against_the_next() {
    with_server("what_a_statement_spilled_is_not_held_against_the_next", &[], |server| {
        let account = format!("[server_account]\nuser = 'postgres'\npassword = '{}'\n", server::PASSWORD);
        let rule = "[rules.seen]\nspillsize = 1\naction = 'dryrun'\n[pools.default]\nexcept_rule = 'seen'\n";
        let held = proxy(server, &format!("{account}{rule}"));
        server.until("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'backwater-proxy'", "1");
        let spills = "SELECT count(*) FROM (SELECT md5(n::text) FROM generate_series(1, 1000000) n ORDER BY 1) s";
        let mut command = psql("127.0.0.1", held.port, "SET work_mem = '64kB'");
        // Each in its own message, of one session.
        for _ in 0..5 {
            command.args(["-c", spills, "-c", "SELECT pg_sleep(0.6)"]);
        }
        text(&command.output().unwrap());
        let began = |event: &Event| event.kind == EventKind::Decision && event.fields["step"] == "began";
        let told: Vec<Event> = held.events.try_iter().filter(began).collect();
        assert_eq!(told.len(), 5, "one for each that spilled: {told:?}");
    });
}
