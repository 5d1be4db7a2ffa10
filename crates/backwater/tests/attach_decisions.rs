//! What rules of `backwater attach` decide, by the figures that can be seen from outside: about whom, carried out how
//! far, for how long, and recorded.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod attach_help;
#[path = "attach_help/decisions.rs"]
mod decisions;
#[path = "../../gate/tests/server/mod.rs"]
mod server;

use attach_help::*;
use backwater_model::catalogue::{FLOW_HELD, FLOW_RATE};
use backwater_model::{Event, EventKind, FlowState, Window};
use backwater_record::{Recording, read_flow};
use decisions::Deciding;
use server::{PASSWORD, Running, Server, complaint, psql, text, with_server};
use std::path::Path;
use std::time::{Duration, Instant};

/// A session that sleeps in this statement, and its process id.
fn quiet(server: &Server, sql: &str) -> (Running, String) {
    let mut client = psql("127.0.0.1", server.port, sql);
    let client = Running::start(client.env("PGAPPNAME", "quiet"));
    server.until(&sessions("quiet", "count(*)", "AND wait_event = 'PgSleep'"), "1");
    (client, server.value(&sessions("quiet", "pid", "")))
}

/// It takes what cancels it as nothing, for half a minute.
const STUBBORN: &str = "DO $$ BEGIN FOR i IN 1..30 LOOP BEGIN PERFORM pg_sleep(1); \
                        EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$";

#[test]
fn a_statement_that_goes_on_after_its_cancel_loses_its_session() {
    const NAME: &str = "a_statement_that_goes_on_after_its_cancel_loses_its_session";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        let (_quiet, other) = quiet(server, "SELECT pg_sleep(600)");
        let (target, rule) = (target(server), "elapsedtime=0.5, action='abort'");
        let meant = [target.as_str(), "--rule", rule, "--application", "stubborn", "--interval", "100ms"];
        let deciding = Deciding::start(state.path(), &meant);
        let output = telling(server, "stubborn", STUBBORN).output().unwrap();
        let told = complaint(&output);
        assert!(told.contains("terminating connection due to administrator command"), "{told}");
        let pid = pid_of(&output);
        server.until(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}"), "0");

        let events = deciding.until("each step", |events| events.len() > 2);
        assert_eq!(deciding.steps_of(&pid), ["began", "escalated", "lifted"]);
        assert_eq!(events[2].fields["why"], "the session ended");
        for event in &events {
            assert_eq!((event.kind, event.fields["action"].as_str()), (EventKind::Decision, "abort"));
            assert_eq!((event.fields["session"].as_str(), event.fields["rule"].as_str()), (pid.as_str(), "attached"));
            assert!(event.fields["elapsedtime"].parse::<f64>().unwrap() >= 0.5, "{event:?}");
        }
        // It had its five seconds in between, and the cancel came first.
        assert!(events[1].at.seconds_since(events[0].at) >= 5.0, "{events:?}");
        assert!(events[1].message.contains("its statement was cancelled and still runs"), "{events:?}");
        let said = deciding.said();
        assert!(said.iter().all(|line| !line.contains("was not stopped")), "{said:?}");
        assert_eq!(server.value(&sessions("quiet", "pid", "AND state = 'active'")), other, "who is not meant goes on");
    });
}

const BUSY: &str = "DO $$ DECLARE n bigint := 0; BEGIN LOOP n := n + 1; END LOOP; END $$";
/// A hundred megabytes that it has while it sleeps; made when it runs, so that no plan holds them too.
const LARGE: &str = "SELECT octet_length(s), pg_sleep(600) FROM \
                     (SELECT repeat(repeat('x', 1000), 100000 + (random() * 0)::int) AS s OFFSET 0) AS large";
const SPILLS: &str = "SET work_mem = '1MB'; SELECT count(*) FROM (SELECT md5(n::text) AS m FROM \
                      (SELECT generate_series(1, 20000000) AS n) AS numbers ORDER BY m) AS sorted";
/// The quiet session has this table to itself.
const WAITS: &str = "SELECT count(*) FROM held";

/// What a rule looks at, how much it allows, and a statement that soon goes over that.
const FIGURES: [(&str, f64, &str); 5] = [
    ("cputime", 0.3, BUSY),
    ("cpuavgpercent", 10.0, BUSY),
    ("memsize", 64.0, LARGE),
    ("spillsize", 8.0, SPILLS),
    ("blocktime", 0.5, WAITS),
];

#[test]
fn each_figure_is_that_of_its_session_and_a_quiet_one_is_left_alone() {
    const NAME: &str = "each_figure_is_that_of_its_session_and_a_quiet_one_is_left_alone";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        server.value("CREATE TABLE held (a int)");
        let (_quiet, other) = quiet(server, "BEGIN; LOCK TABLE held; SELECT pg_sleep(600); COMMIT");
        let target = target(server);
        for (attribute, allowed, statement) in FIGURES {
            let rule = format!("{attribute}={allowed}, action='abort'");
            let deciding = Deciding::start(state.path(), &[&target, "--rule", &rule, "--interval", "100ms"]);
            let output = telling(server, "loud", statement).output().unwrap();
            let told = complaint(&output);
            assert!(told.contains("canceling statement due to user request"), "{attribute}: {told}");
            let events = deciding.until(attribute, |events| !events.is_empty());
            let began = &events[0];
            assert_eq!((began.fields["step"].as_str(), began.fields["action"].as_str()), ("began", "abort"));
            // As it is told, to three decimals.
            let figure: f64 = began.fields[attribute].parse().unwrap();
            assert!(figure >= allowed, "{attribute}: {began:?}");
            let pid = pid_of(&output);
            assert!(events.iter().all(|event| event.fields["session"] == pid), "{attribute}: {pid}, {events:?}");
            assert_ne!(pid, other);
            let said = deciding.said();
            assert!(said.iter().all(|line| !line.contains("was not stopped")), "{attribute}: {said:?}");
        }
        assert_eq!(server.value(&sessions("quiet", "pid", "AND wait_event = 'PgSleep'")), other);
    });
}

#[test]
fn a_dry_run_tells_each_rule_once_and_holds_nobody() {
    const NAME: &str = "a_dry_run_tells_each_rule_once_and_holds_nobody";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        // The later one says that the first was in force for a while, and that the result flowed meanwhile.
        let seen = "CREATE EXCEPT RULE seen WITH (elapsedtime=0.3, action='dryrun')";
        let later = "CREATE EXCEPT RULE later WITH (elapsedtime=2, bandwidth=1, action='dryrun')";
        let target = target(server);
        let rules = [target.as_str(), "--rule", seen, "--rule", later, "--interval", "100ms"];
        let deciding = Deciding::start(state.path(), &rules);
        let (_client, output) = flood(server, "stream");
        let (stream, pid) = (peer(server, "stream"), server.value(&sessions("stream", "pid", "")));
        read_on(output);
        let of = |events: &[Event], rule: &str| -> Vec<Event> {
            let own = |event: &&Event| event.fields["session"] == pid && event.fields["rule"] == rule;
            events.iter().filter(own).cloned().collect()
        };
        let both = |events: &[Event]| !of(events, "seen").is_empty() && !of(events, "later").is_empty();
        let events = deciding.until("both rules", both);
        assert_eq!(kernel_rate(stream), None);
        assert_eq!(server.value(&sessions("stream", "count(*)", "AND state = 'active'")), "1");
        for event in &events {
            assert_eq!((event.fields["step"].as_str(), event.fields["action"].as_str()), ("began", "dryrun"));
            assert!(event.message.contains("would act on session"), "{event:?}");
        }
        let bandwidth: f64 = of(&events, "later")[0].fields["bandwidth"].parse().unwrap();
        assert!(bandwidth >= 1.0, "{events:?}");
        // With its end both are over, and the next one, which comes to its end, is told anew.
        server.value(&sessions("stream", "pg_cancel_backend(pid)", ""));
        let next = telling(server, "next", "SELECT 'came to its end' FROM pg_sleep(1)").output().unwrap();
        assert!(text(&next).ends_with("came to its end"), "{next:?}");
        let next = pid_of(&next);
        deciding.until("the next one", |events| events.iter().any(|event| is_over(event, &next)));
        assert_eq!(deciding.steps_of(&next), ["began", "lifted"]);
        assert_eq!(deciding.steps_of(&pid), ["began", "began", "lifted", "lifted"], "each rule once");
        let said = deciding.said();
        assert!(said.iter().all(|line| !line.contains("holding")), "{said:?}");
    });
}

/// A client's session that lives on between its statements.
struct Session {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Session {
    fn open(server: &Server, name: &str) -> Session {
        Session::open_as(server, "postgres", name)
    }

    fn open_as(server: &Server, user: &str, name: &str) -> Session {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut config = tokio_postgres::Config::new();
        config
            .host("127.0.0.1")
            .port(server.port)
            .user(user)
            .dbname("postgres")
            .password(PASSWORD)
            .application_name(name);
        let (client, connection) = runtime.block_on(config.connect(tokio_postgres::NoTls)).unwrap();
        // Its end shows in the next answer.
        drop(runtime.spawn(connection));
        Session { runtime, client }
    }

    fn run(&self, sql: &str) {
        self.runtime.block_on(self.client.simple_query(sql)).unwrap();
    }
}

#[test]
fn a_penalty_lasts_while_it_cools_down_and_one_that_matches_meanwhile_prolongs_it() {
    const NAME: &str = "a_penalty_lasts_while_it_cools_down_and_one_that_matches_meanwhile_prolongs_it";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        let (target, rule) = (target(server), "elapsedtime=0.3, action='penalty', cooldown=4");
        let (interval, rate) = (["--interval", "100ms"], ["--application", "cooling", "--rate", "2MB"]);
        let held = [&[target.as_str(), "--rule", rule][..], &rate, &interval].concat();
        let deciding = Deciding::start(state.path(), &held);
        let session = Session::open(server, "cooling");
        let (peer, pid) = (peer(server, "cooling"), server.value(&sessions("cooling", "pid", "")));
        assert_eq!(kernel_rate(peer), None);
        let begun = Instant::now();
        session.run("SELECT pg_sleep(1)");
        until("it is held after its statement", || kernel_rate(peer).is_some());
        // The kernel knows of it before it is told.
        deciding.until("it is told", |events| !events.is_empty());
        assert_eq!(deciding.steps_of(&pid), ["began"]);
        session.run("SELECT pg_sleep(1)");
        let events = deciding.until("it is lifted", |events| events.len() > 1);
        // Two statements of a second, and four seconds from the end of the second one.
        assert!(begun.elapsed() >= Duration::from_secs(6), "{:?}: {events:?}", begun.elapsed());
        assert_eq!(deciding.steps_of(&pid), ["began", "lifted"], "no second penalty");
        assert_eq!(events[1].fields["why"], "the statement ended");
        until("the rate is put back", || kernel_rate(peer).is_none());
    });
}

#[test]
fn an_abort_that_cools_down_leaves_the_sessions_next_statement_alone() {
    const NAME: &str = "an_abort_that_cools_down_leaves_the_sessions_next_statement_alone";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        let (target, rule) = (target(server), "elapsedtime=0.3, action='abort', cooldown=600");
        let meant = [target.as_str(), "--rule", rule, "--application", "long", "--interval", "100ms"];
        let deciding = Deciding::start(state.path(), &meant);
        let then = ["-v", "ON_ERROR_STOP=0", "-c", "SELECT 'left alone' FROM pg_sleep(2)"];
        let twice = telling(server, "long", "SELECT pg_sleep(60)").args(then).output().unwrap();
        let complained = String::from_utf8_lossy(&twice.stderr).into_owned();
        assert_eq!(complained.matches("canceling statement due to user request").count(), 1, "{complained}");
        assert!(text(&twice).ends_with("left alone"), "{twice:?}");
        // Another session's statement is stopped all the same.
        let other = telling(server, "long", "SELECT pg_sleep(60)").output().unwrap();
        assert!(complaint(&other).contains("canceling statement due to user request"), "{other:?}");
        let (first, second) = (pid_of(&twice), pid_of(&other));
        let events = deciding.until("the other one", |events| events.iter().any(|event| is_over(event, &second)));
        assert_eq!([&first, &second].map(|pid| deciding.steps_of(pid)), [["began", "lifted"], ["began", "lifted"]]);
        let over = events.iter().find(|event| is_over(event, &first)).unwrap();
        assert!(over.message.starts_with(&format!("rule attached has done with session {first} ")), "{over:?}");
        // The rule would have left it alone for ten minutes more.
        assert_eq!(over.fields["why"], "the session ended");
    });
}

/// What was done to this session is over.
fn is_over(event: &Event, pid: &str) -> bool {
    event.fields["session"] == pid && event.fields["step"] == "lifted"
}

fn recorded(dir: &Path) -> Option<Window> {
    Recording::open(dir).and_then(|recording| recording.window(None, None)).ok()
}

/// The values of a series.
fn values(window: &Window, name: &str) -> Vec<f64> {
    let points = window.tracks(name, &[]).flat_map(|track| track.points.to_vec());
    points.map(|point| point.value).collect()
}

/// What was decided about one session, in order.
fn decided(window: &Window, pid: &str) -> Vec<Event> {
    let own = |event: &&Event| event.fields.get("session").is_some_and(|session| session == pid);
    window.events_of(EventKind::Decision).filter(own).cloned().collect()
}

fn steps(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.fields["step"].as_str()).collect()
}

#[test]
fn decisions_and_changes_of_attach_mode_are_in_its_recording() {
    const NAME: &str = "decisions_and_changes_of_attach_mode_are_in_its_recording";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let (state, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (file, out) = (dir.path().join("flow.toml"), dir.path().join("recording"));
        let rules = "low_priority_bandwidth = '3MB'\n[rules.big]\nelapsedtime = 1\naction = 'penalty'\n\
                     [pools.default]\nexcept_rule = 'big'\n";
        let admin = "[admin]\nlisten = '127.0.0.1:0'\nusers = { dba = 'open sesame' }\n";
        std::fs::write(&file, format!("{rules}{admin}")).unwrap();
        let (target, interval) = (target(server), ["--interval", "100ms"]);
        let files = [target.as_str(), "-c", file.to_str().unwrap(), "--record", out.to_str().unwrap()];
        let (mut master, line, _told) = attach_until("console at ", state.path(), &[&files[..], &interval].concat());
        let (_client, output) = flood(server, "stream");
        let (stream, pid) = (peer(server, "stream"), server.value(&sessions("stream", "pid", "")));
        read_on(output);
        until("it is held", || is_held_at(stream, 3));
        let port = line.rsplit(':').next().unwrap().parse().unwrap();
        let mut console = psql("127.0.0.1", port, "SET low_priority_bandwidth = '5MB'");
        console.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "open sesame");
        text(&console.output().unwrap());
        until("the other rate", || is_held_at(stream, 5));
        until("who is held at what rate is recorded", || {
            let both = |window: &Window| {
                values(window, FLOW_HELD.name).contains(&1.0) && values(window, FLOW_RATE.name).contains(&(5.0 * MIB))
            };
            recorded(&out).is_some_and(|window| both(&window))
        });
        server.value(&sessions("stream", "pg_cancel_backend(pid)", ""));
        until("the end of it is recorded", || {
            recorded(&out).is_some_and(|window| steps(&decided(&window, &pid)).contains(&"lifted"))
        });
        assert_eq!(end(&mut master), Some(0));
        is_whole(&out, &pid);
    });
}

#[test]
fn a_low_session_that_blocks_urgent_work_is_let_go_and_each_step_is_told() {
    const NAME: &str = "a_low_session_that_blocks_urgent_work_is_let_go_and_each_step_is_told";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        server.value(&format!("CREATE ROLE etl LOGIN PASSWORD '{PASSWORD}'"));
        server.value("CREATE TABLE t AS SELECT 1 AS a");
        server.value("GRANT ALL ON t TO etl");
        let (state, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (file, out) = (dir.path().join("flow.toml"), dir.path().join("recording"));
        let pools = "low_priority_bandwidth = '3MB'\n[pools.batch]\npriority = 'low'\n[users]\netl = 'batch'\n";
        let admin = "[admin]\nlisten = '127.0.0.1:0'\nusers = { dba = 'open sesame' }\n";
        std::fs::write(&file, format!("{pools}{admin}")).unwrap();
        let holder = Session::open_as(server, "etl", "holder");
        let (held, pid) = (peer(server, "holder"), server.value(&sessions("holder", "pid", "")));
        let files = ["-c", file.to_str().unwrap(), "--record", out.to_str().unwrap(), "--interval", "100ms"];
        let target = target(server);
        let arguments = [&[target.as_str()][..], &files].concat();
        let (mut master, line, _told) = attach_until("console at ", state.path(), &arguments);
        let port: u16 = line.rsplit(':').next().unwrap().parse().unwrap();
        let shown = |what: &str| {
            let mut console = psql("127.0.0.1", port, what);
            console.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "open sesame");
            text(&console.output().unwrap())
        };
        until("it is held", || kernel_rate(held).is_some());
        until("it is shown", || shown("SHOW STATS").contains("sessions_low|1"));
        assert_eq!(shown("SHOW QUEUES"), "low class|||1|3145728|bytes/s");
        assert!(shown("SHOW GOVERNOR").starts_with("batch|3|low_priority_bandwidth|"), "{}", shown("SHOW GOVERNOR"));

        holder.run("BEGIN; LOCK TABLE t");
        let _waiter = Running::start(psql("127.0.0.1", server.port, "SELECT a FROM t").env("PGAPPNAME", "waiter"));
        until("it is let go", || kernel_rate(held).is_none());
        until("that is shown", || shown("SHOW STATS").contains("sessions_low|0"));
        holder.run("COMMIT");
        until("it is held again", || kernel_rate(held).is_some());
        let told = |step: &str| format!("session {pid} (user etl, pool batch) is {step}");
        let freed = "let go for as long as it does: it blocked urgent work";
        let words =
            [told("held: its pool has low priority"), told(freed), told("held again: it is not known to block")];
        until("the console tells each step", || {
            let events = shown("SHOW EVENTS");
            words.iter().all(|words| events.contains(words))
        });
        until("each step is recorded", || {
            recorded(&out).is_some_and(|window| steps(&decided(&window, &pid)) == ["held", "freed", "held"])
        });
        assert_eq!(end(&mut master), Some(0));
        let last = decided(&recorded(&out).unwrap(), &pid).pop().unwrap();
        assert_eq!((last.fields["step"].as_str(), last.fields["why"].as_str()), ("freed", "Backwater ended"));
    });
}

/// The steps of what was done to a session, each with why.
fn whys(events: &[Event], pid: &str) -> Vec<String> {
    let of_it = events.iter().filter(|event| event.fields["session"] == pid);
    of_it.filter_map(|event| event.fields.get("why").cloned()).collect()
}

#[test]
fn who_blocks_what_the_server_does_by_itself_is_let_go_at_once() {
    const NAME: &str = "who_blocks_what_the_server_does_by_itself_is_let_go_at_once";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &["wal_level=logical"], |server| {
        // A subscription to a table of the same server: its worker is no client.
        server.value("CREATE DATABASE copies");
        server.value("CREATE TABLE t (a int); CREATE PUBLICATION p FOR TABLE t");
        server.value("SELECT pg_create_logical_replication_slot('s', 'pgoutput')");
        let in_copies = |sql: &str| text(server.direct(sql).env("PGDATABASE", "copies").output().as_ref().unwrap());
        let from = format!("host=127.0.0.1 port={} user=postgres password={PASSWORD} dbname=postgres", server.port);
        in_copies("CREATE TABLE t (a int)");
        in_copies(&format!(
            "CREATE SUBSCRIPTION s CONNECTION '{from}' PUBLICATION p WITH (create_slot = false, copy_data = false)"
        ));
        let state = tempfile::tempdir().unwrap();
        let arguments = ["--rule", "elapsedtime=0.5, action='penalty'", "--rate", "1MB", "--interval", "100ms"];
        let target = target(server);
        let deciding = Deciding::start(state.path(), &[&[target.as_str()][..], &arguments].concat());
        let sleeps = "BEGIN; SELECT count(*) FROM t; SELECT pg_sleep(600)";
        let mut client = psql("127.0.0.1", server.port, sleeps);
        let _held = Running::start(client.env("PGDATABASE", "copies").env("PGAPPNAME", "held"));
        let held_pid = || server.value(&sessions("held", "pid", "AND wait_event = 'PgSleep'"));
        until("it sleeps", || !held_pid().is_empty());
        let held = held_pid();
        deciding.until("it is held", |events| events.iter().any(|event| event.fields["session"] == held));
        assert!(whys(&deciding.events(), &held).is_empty());
        server.value("TRUNCATE t");
        deciding.until("it is let go", |events| !whys(events, &held).is_empty());
        assert_eq!(whys(&deciding.events(), &held), ["it blocked urgent work"]);
        assert_eq!(held_pid(), held, "its statement goes on");
    });
}

#[test]
fn what_is_held_at_the_end_is_told_to_be_let_go() {
    const NAME: &str = "what_is_held_at_the_end_is_told_to_be_let_go";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let (state, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (_client, output) = flood(server, "stream");
        let (stream, pid) = (peer(server, "stream"), server.value(&sessions("stream", "pid", "")));
        read_on(output);
        let target = target(server);
        let ruled = [target.as_str(), "--rule", "elapsedtime=0.1, action='penalty'", "--interval", "100ms"];
        let named = [target.as_str(), "--pid", &pid];
        let lifts = "rule attached lifts its penalty of session".to_owned();
        let lets_go = format!("session {pid} (client {stream}) is let go after");
        for (name, meant, wanted, message) in
            [("ruled", &ruled[..], ["began", "lifted"], lifts), ("named", &named, ["held", "freed"], lets_go)]
        {
            let out = dir.path().join(name);
            let recording = ["--rate", "3MB", "--record", out.to_str().unwrap()];
            let mut master = attach(state.path(), &[meant, &recording].concat());
            until("it is held", || is_held_at(stream, 3));
            let sends = |state: FlowState| state.held.first().is_some_and(|held| held.sent_bytes > 0);
            until("it was seen to send", || read_flow(&out).is_some_and(sends));
            assert_eq!(end(&mut master), Some(0));
            let events = decided(&recorded(&out).unwrap(), &pid);
            assert_eq!(steps(&events), wanted);
            let last = &events[1];
            assert!(last.message.starts_with(&message), "{last:?}");
            assert_eq!(last.fields["why"], "Backwater ended");
            assert!(last.fields["began"].parse::<i64>().unwrap() <= events[0].at.0, "{events:?}");
            let sent = last.fields.get("sent_bytes").map(|sent| sent.parse::<u64>().unwrap());
            assert_eq!(sent.is_some_and(|sent| sent > 0), name == "named", "{last:?}");
        }
    });
}

/// What a recording of one penalty and one change must hold.
fn is_whole(out: &Path, pid: &str) {
    let window = recorded(out).unwrap();
    let events = decided(&window, pid);
    assert_eq!(steps(&events), ["began", "lifted"]);
    for event in &events {
        let field = |name: &str| event.fields.get(name).map(String::as_str);
        assert_eq!((event.source.as_str(), field("rule"), field("action")), ("attach", Some("big"), Some("penalty")));
        assert_eq!((field("user"), field("pool")), (Some("postgres"), Some("default")));
        assert!(field("elapsedtime").unwrap().parse::<f64>().unwrap() >= 1.0, "{event:?}");
    }
    let why = events[1].fields["why"].as_str();
    assert!(["the statement ended", "the session ended"].contains(&why), "{why}");
    let changed = window.events_of(EventKind::Setting).find(|event| event.message.contains("low_priority_bandwidth"));
    assert_eq!(changed.unwrap().fields.get("who").map(String::as_str), Some("dba"));
    // The newest state in one piece, for pages: nobody is held any more.
    let state = read_flow(out).unwrap();
    assert_eq!((state.by.as_str(), state.held_in_all), ("attach mode, sessions by rule", 0));
    let rule = &state.rules[0];
    assert_eq!((rule.name.as_str(), rule.conditions.as_str()), ("big", "elapsedtime > 1 s"));
    assert_eq!((rule.began, rule.escalated, rule.lifted), (1, 0, 1));
}
