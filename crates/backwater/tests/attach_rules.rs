//! `backwater attach` by rules, pools and its console: whom they hold, end and let go.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod attach_help;
#[path = "../../gate/tests/server/mod.rs"]
mod server;

use attach_help::*;
use rustix::process::{Pid, Signal, kill_process};
use server::{Running, Server, complaint, psql, text, with_server};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn a_rule_slows_the_stream_and_not_the_others() {
    const NAME: &str = "a_rule_slows_the_stream_and_not_the_others";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        let (client, mut output) = flood(server, "stream");
        let mut quiet = psql("127.0.0.1", server.port, "SELECT pg_sleep(60)");
        let quiet = Running(quiet.env("PGAPPNAME", "quiet").stdout(Stdio::null()).spawn().unwrap());
        server.until(&sessions("quiet", "count(*)", "AND state = 'active'"), "1");
        let (stream, still) = (peer(server, "stream"), peer(server, "quiet"));
        let reader = std::thread::spawn(move || {
            let slowed = rate(&mut output, Duration::from_secs(9), Duration::from_secs(3));
            (slowed, output)
        });
        let rule = "bandwidth=8, action='penalty'";
        let master = attach(state.path(), &[&target(server), "--rule", rule, "--rate", "2MB", "--interval", "200ms"]);
        assert!(is_held_at(stream, 2) && kernel_rate(still).is_none());
        let (slowed, _output) = reader.join().unwrap();
        assert!((1.8 * MIB..2.1 * MIB).contains(&slowed), "{slowed}");
        // Its statement ends, its session stays or not: it is let go by itself.
        let cancel = sessions("stream", "pg_cancel_backend(pid)", "");
        server.value(&cancel);
        drop(client);
        drop((master, quiet));
    });
}

#[test]
fn a_role_that_may_not_see_others_sessions_is_told_so() {
    const NAME: &str = "a_role_that_may_not_see_others_sessions_is_told_so";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        server.value(&format!("CREATE ROLE narrow LOGIN PASSWORD '{}'", server::PASSWORD));
        let state = tempfile::tempdir().unwrap();
        let (_client, _output) = flood(server, "stream");
        let target = target(server).replace("//postgres@", "//narrow@");
        let rule = "elapsedtime=0.5, action='penalty'";
        let arguments = [&*target, "--rule", rule, "--rate", "2MB", "--interval", "100ms"];
        let (_master, line, _told) = attach_until("pg_read_all_stats", state.path(), &arguments);
        assert!(line.contains("may not see the sessions of postgres"), "{line}");
    });
}

#[test]
fn a_rule_goes_on_when_the_server_is_back() {
    const NAME: &str = "a_rule_goes_on_when_the_server_is_back";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        let held = |server: &Server| {
            let (client, output) = flood(server, "stream");
            let peer = peer(server, "stream");
            read_on(output);
            (client, peer)
        };
        let (before, _) = held(server);
        let rule = "elapsedtime=0.5, action='penalty'";
        let (master, told) =
            attach_listening(state.path(), &[&target(server), "--rule", rule, "--rate", "2MB", "--interval", "200ms"]);
        server.stop_at_once();
        until("it says that the server is away", || {
            told.try_iter().any(|line| line.contains("until it answers again"))
        });
        drop(before);
        server.start_again(&[]);
        let (_after, peer) = held(server);
        until("it holds again", || is_held_at(peer, 2));
        drop(master);
    });
}

/// Whether the server's process, which is stopped, has been asked something by this client.
fn is_asked(server: &Server, client: SocketAddr) -> bool {
    let ends = format!(" 0100007F:{:04X} 0100007F:{:04X} ", server.port, client.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let line = table.lines().find(|line| line.contains(&ends)).unwrap();
    // Bytes to send, and bytes that nobody has read.
    !line.split_whitespace().nth(4).unwrap().ends_with(":00000000")
}

#[test]
fn a_server_that_falls_silent_holds_nobody_and_delays_no_end() {
    const NAME: &str = "a_server_that_falls_silent_holds_nobody_and_delays_no_end";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        let (_client, output) = flood(server, "stream");
        let stream = peer(server, "stream");
        read_on(output);
        let rule = "elapsedtime=0.5, action='penalty'";
        let arguments = [&*target(server), "--rule", rule, "--rate", "2MB", "--interval", "100ms"];
        let (mut master, told) = attach_listening(state.path(), &arguments);
        let said = |words: &str| until(words, || told.try_iter().any(|line| line.contains(words)));
        let (asking, pid) = (peer(server, "backwater"), server.value(&sessions("backwater", "pid", "")));
        let signal = |signal| kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), signal).unwrap();
        signal(Signal::STOP);
        said("no answer within 10 s: what is held is let go until it answers again");
        until("it is let go", || kernel_rate(stream).is_none());
        signal(Signal::CONT);
        said("the server answers again");
        until("it is held again", || is_held_at(stream, 2));
        // No process more than one hangs on the server, however long it is silent.
        assert_eq!(server.value(&sessions("backwater", "pid", "")), pid);
        signal(Signal::STOP);
        until("a question is open", || is_asked(server, asking));
        let begun = Instant::now();
        let code = end(&mut master);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!((code, kernel_rate(stream)), (Some(0), None));
        signal(Signal::CONT);
    });
}

/// Cancels at once, and answers after so long that nobody waits for it any more, whatever time-out the server has.
const LATE_CANCEL: &str = "ALTER FUNCTION pg_catalog.pg_cancel_backend(int) RENAME TO cancel_at_once;
    CREATE FUNCTION pg_catalog.pg_cancel_backend(pid int) RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE cancelled boolean := pg_catalog.cancel_at_once(pid);
    BEGIN
        FOR i IN 1..15 LOOP
            BEGIN PERFORM pg_sleep(1); EXCEPTION WHEN query_canceled THEN NULL; END;
        END LOOP;
        RETURN cancelled;
    END $$";

#[test]
fn a_server_that_falls_silent_within_a_look_holds_nobody() {
    const NAME: &str = "a_server_that_falls_silent_within_a_look_holds_nobody";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        server.value(LATE_CANCEL);
        server.value(&format!("CREATE ROLE etl LOGIN PASSWORD '{}'", server::PASSWORD));
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("flow.toml");
        let rules = "low_priority_bandwidth = '2MB'\n[rules.long]\nelapsedtime = 0.5\naction = 'abort'\n\
                     [pools.default]\nexcept_rule = 'long'\n[pools.batch]\npriority = 'low'\n[users]\netl = 'batch'\n";
        std::fs::write(&file, rules).unwrap();
        let mut low = psql("127.0.0.1", server.port, FLOOD);
        let mut low = Running(low.env("PGUSER", "etl").env("PGAPPNAME", "low").stdout(Stdio::piped()).spawn().unwrap());
        let output = low.0.stdout.take().unwrap();
        read_on(output);
        let mut long = psql("127.0.0.1", server.port, "SELECT pg_sleep(600)");
        let _long = Running::start(long.env("PGAPPNAME", "long"));
        server.until(&sessions("low", "count(*)", "AND state = 'active'"), "1");
        // So that the first look finds both: one to stop, and one to hold.
        let is_long = "AND state = 'active' AND clock_timestamp() - query_start > interval '1 s'";
        server.until(&sessions("long", "count(*)", is_long), "1");
        let low = peer(server, "low");
        let arguments = [&*target(server), "-c", file.to_str().unwrap(), "--interval", "100ms"];
        let (_master, _, told) = attach_until("until it answers again", state.path(), &arguments);
        let next = std::iter::from_fn(|| told.recv_timeout(PATIENCE).ok())
            .find(|line| line.contains(" holding ") || line.contains("answers again"));
        assert!(next.as_ref().is_some_and(|line| line.contains("answers again")), "{next:?}");
        until("it is held then", || is_held_at(low, 2));
        let mut said = std::iter::from_fn(|| told.recv_timeout(PATIENCE).ok());
        let holding = said.find(|line| line.contains(" holding "));
        assert!(holding.as_ref().is_some_and(|line| line.contains("holds back vacuum")), "{holding:?}");
    });
}

#[test]
fn a_session_that_somebody_else_has_paced_is_held_once_it_is_free() {
    const NAME: &str = "a_session_that_somebody_else_has_paced_is_held_once_it_is_free";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        let (_client, output) = flood(server, "stream");
        let (stream, pid) = (peer(server, "stream"), server.value(&sessions("stream", "pid", "")));
        read_on(output);
        let target = target(server);
        let file = state.path().join("flow.toml");
        let pools = "low_priority_bandwidth = '5MB'\n[pools.batch]\npriority = 'low'\n[users]\npostgres = 'batch'\n";
        std::fs::write(&file, pools).unwrap();
        let by_pool = ["-c", file.to_str().unwrap()];
        let by_rule = ["--rule", "elapsedtime=0.5, action='penalty'", "--rate", "5MB"];
        for by in [&by_pool[..], &by_rule] {
            let other = attach(state.path(), &[&target, "--pid", &pid, "--rate", "2MB"]);
            let arguments = [&[&*target, "--interval", "100ms"][..], by].concat();
            let (master, _, told) = attach_until("is paced already", state.path(), &arguments);
            assert!(is_held_at(stream, 2));
            terminate(&other);
            until("it is held by the next one", || is_held_at(stream, 5));
            let said: Vec<String> = told.try_iter().collect();
            assert!(said.iter().all(|line| !line.contains("is paced already")), "one reason is told once: {said:?}");
            drop(master);
            until("it is put back", || kernel_rate(stream).is_none());
        }
    });
}

#[test]
fn a_rule_that_aborts_cancels_the_statement_and_then_the_session() {
    const NAME: &str = "a_rule_that_aborts_cancels_the_statement_and_then_the_session";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        let run = |statements: &[&str]| {
            let mut client = psql("127.0.0.1", server.port, "SELECT 1");
            for statement in statements {
                client.args(["-c", statement]);
            }
            client.env("PGAPPNAME", "long").output().unwrap()
        };
        let rule = "elapsedtime=0.5, action='abort'";
        let (_master, _, told) = attach_until(
            "watching",
            state.path(),
            &[&target(server), "--rule", rule, "--interval", "100ms", "--application", "long"],
        );
        let long = complaint(&run(&["SELECT pg_sleep(60)"]));
        assert!(long.contains("canceling statement due to user request"), "{long}");
        // Statement after statement, none of them long: those that follow one that ended are not hit.
        text(&run(&["SELECT pg_sleep(0.3)"; 10]));
        let said: Vec<String> = told.try_iter().collect();
        assert!(said.iter().all(|line| !line.contains("was not stopped")), "{said:?}");
    });
}

#[test]
fn a_file_of_pools_holds_their_sessions_and_is_read_again() {
    const NAME: &str = "a_file_of_pools_holds_their_sessions_and_is_read_again";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        server.value(&format!("CREATE ROLE etl LOGIN PASSWORD '{}'", server::PASSWORD));
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("flow.toml");
        let write = |bandwidth: &str, users: &str| {
            let pool = "[pools.batch]\npriority = 'low'\n[rules.long]\nelapsedtime = 600\naction = 'penalty'\n";
            let text = format!("low_priority_bandwidth = '{bandwidth}'\n{pool}[users]\n{users}\n");
            std::fs::write(&file, text).unwrap();
        };
        write("2MB", "etl = 'batch'");
        let (_urgent, _untouched) = flood(server, "urgent");
        let mut low = psql("127.0.0.1", server.port, FLOOD);
        let low = low.env("PGUSER", "etl").env("PGAPPNAME", "low").stdout(Stdio::piped());
        let mut low = Running(low.spawn().unwrap());
        let output = low.0.stdout.take().unwrap();
        server.until(&sessions("low", "count(*)", "AND state = 'active'"), "1");
        let (batch, urgent) = (peer(server, "low"), peer(server, "urgent"));
        read_on(output);
        let arguments = [&*target(server), "-c", file.to_str().unwrap(), "--interval", "100ms"];
        let (master, told) = attach_listening(state.path(), &arguments);
        assert!(is_held_at(batch, 2) && kernel_rate(urgent).is_none());
        let read_again = || {
            kill_process(Pid::from_child(&master.0), Signal::HUP).unwrap();
        };
        write("4MB", "etl = 'batch'");
        read_again();
        until("the other rate", || is_held_at(batch, 4));
        // What cannot be changes nothing; the next that can does.
        write("9MB", "etl = 'nowhere'");
        read_again();
        let refused = |line: &String| line.contains("was not taken over") && line.contains("nowhere");
        until("it is refused", || told.recv_timeout(PATIENCE).is_ok_and(|line| refused(&line)));
        assert!(is_held_at(batch, 4));
        write("6MB", "etl = 'batch'");
        read_again();
        until("the rate of the next good file", || is_held_at(batch, 6));
        write("6MB", "etl = 'batch'\npostgres = 'batch'");
        read_again();
        until("somebody more is held", || kernel_rate(urgent).is_some());
        write("6MB", "postgres = 'batch'");
        read_again();
        until("who is no longer of the pool is let go", || kernel_rate(batch).is_none());
        drop(master);
        until("the rest is put back", || kernel_rate(urgent).is_none());
    });
}

/// The console of `backwater attach -c FILE`, by psql.
struct Console {
    master: Running,
    port: u16,
}

impl Console {
    fn start(server: &Server, state: &Path, file: &Path) -> Console {
        Console::start_at(&target(server), state, file)
    }

    fn start_at(target: &str, state: &Path, file: &Path) -> Console {
        let arguments = [target, "-c", file.to_str().unwrap(), "--interval", "100ms"];
        let (master, line, _) = attach_until("console at ", state, &arguments);
        Console { master, port: line.rsplit(':').next().unwrap().parse().unwrap() }
    }

    fn ask(&self, sql: &str) -> std::process::Output {
        let mut command = psql("127.0.0.1", self.port, sql);
        command.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "open sesame");
        command.output().unwrap()
    }

    fn shown(&self, sql: &str) -> String {
        text(&self.ask(sql))
    }

    /// Those of the first session.
    fn rows(&self) -> Option<u64> {
        self.shown("SHOW SESSIONS").split('|').nth(12)?.parse().ok()
    }
}

const ARTICLE: &str = "CREATE EXCEPT RULE bandwidth_rule1 WITH (bandwidth=128, ELAPSEDTIME=60, action='penalty');
    CREATE RESOURCE POOL rp1 WITH (EXCEPT_RULE='bandwidth_rule1');
    CREATE USER user1 RESOURCE POOL 'rp1' PASSWORD 'xxxxxxxx';
    SET low_priority_bandwidth = 256;";
const SMALLER: &str = "ALTER EXCEPT RULE bandwidth_rule1 WITH (bandwidth=1, elapsedtime=1);
    ALTER USER postgres RESOURCE POOL 'rp1';
    SET low_priority_bandwidth = '3MB';";

#[test]
fn statements_on_its_console_hold_sessions_and_let_them_go() {
    const NAME: &str = "statements_on_its_console_hold_sessions_and_let_them_go";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("flow.toml");
        let admin = "[admin]\nlisten = '127.0.0.1:0'\nusers = { dba = 'open sesame' }\n";
        std::fs::write(&file, format!("state_file = 'state.toml'\n{admin}")).unwrap();
        let (_client, output) = flood(server, "flood");
        let flood = peer(server, "flood");
        read_on(output);
        let console = Console::start(server, state.path(), &file);
        until("the session is seen", || console.shown("SHOW SESSIONS").contains("|flood|"));
        assert_eq!(kernel_rate(flood), None);
        // The article's statements as they stand, then smaller figures, and for the session that there is.
        console.shown(ARTICLE);
        assert_eq!(console.shown("SHOW USERS"), "user1|rp1");
        console.shown(SMALLER);
        until("the rule holds it", || kernel_rate(flood).is_some_and(|rate| rate < 6 << 20));
        until("who holds it is shown", || console.shown("SHOW SESSIONS").contains("|rp1|low|bandwidth_rule1|"));
        let _xids = [(); 3].map(|()| server.value("SELECT txid_current()"));
        until("how old its snapshot is is shown", || {
            let shown = console.shown("SHOW SESSIONS");
            shown.rsplit('|').next().and_then(|age| age.trim().parse().ok()).is_some_and(|age: i64| age >= 3)
        });
        assert!(console.shown("SHOW RULES").contains("|rp1|1|0|0|"), "{}", console.shown("SHOW RULES"));
        let events = console.shown("SHOW EVENTS");
        assert!(events.contains("dba changed: CREATE EXCEPT RULE bandwidth_rule1"), "{events}");
        assert!(events.contains("|decision|"), "{events}");
        until("the one session is counted as held", || {
            console.shown("SHOW STATS") == "sessions|1\nsessions_low|1\nreloads_since_start|0"
        });
        assert_eq!(console.shown("SHOW QUEUES"), "low class|||1|3145728|bytes/s");
        assert_eq!(console.shown("SHOW GOVERNOR"), "", "no pool is low");
        let pools = console.shown("SHOW POOLS");
        assert!(pools.lines().any(|pool| pool.starts_with("rp1|high|") && pool.ends_with("|1|1||")), "{pools}");
        assert_eq!(console.shown("SHOW USERS"), "postgres|rp1\nuser1|rp1");
        assert!(console.shown("SHOW CONFIG").contains("low_priority_bandwidth|3"), "{}", console.shown("SHOW CONFIG"));
        let major: u32 = server.value("SELECT current_setting('server_version_num')::int / 10000").parse().unwrap();
        if major < 18 {
            let noticed = console.ask("CREATE EXCEPT RULE r WITH (walrate=5, action='abort')").stderr;
            assert!(String::from_utf8_lossy(&noticed).contains("rule r will not match: walrate cannot be measured"));
            let refused = complaint(&console.ask("ALTER RESOURCE POOL rp1 WITH (except_rule='r')"));
            assert!(refused.contains("no rule of attach mode can look at walrate here"), "{refused}");
        }
        console.shown(
            "CREATE EXCEPT RULE many WITH (rows=1000, action='dryrun');
             ALTER RESOURCE POOL rp1 WITH (except_rule='bandwidth_rule1, many');",
        );
        // Of COPY the server tells.
        until("its rows are told", || major < 14 || console.shown("SHOW EVENTS").contains("rule many would act on"));
        until("they are shown", || major < 14 || console.rows().is_some_and(|rows| rows > 1000));
        let in_vain = console.ask("ALTER RESOURCE POOL rp1 WITH (max_active=4)");
        let notice = String::from_utf8_lossy(&in_vain.stderr);
        assert!(notice.contains("max_active of pool rp1: not enforced from outside"), "{notice}");
        // What was said is kept over its end, and the socket is put back at once.
        let Console { master, .. } = console;
        terminate(&master);
        until("it is put back", || kernel_rate(flood).is_none());
        drop(master);
        let console = Console::start(server, state.path(), &file);
        until("the rule holds it again", || kernel_rate(flood).is_some());
        console.shown("ALTER USER postgres RESOURCE POOL default");
        until("who is no longer of the pool is let go", || kernel_rate(flood).is_none());
        let events = console.shown("SHOW EVENTS");
        assert!(events.contains("the rule no longer applies"), "{events}");
    });
}

#[test]
fn rows_that_cannot_be_learnt_again_are_refused_and_what_is_said_then_is_done() {
    const NAME: &str = "rows_that_cannot_be_learnt_again_are_refused_and_what_is_said_then_is_done";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        server
            .value(&format!("CREATE ROLE watcher LOGIN PASSWORD '{}'; GRANT pg_monitor TO watcher", server::PASSWORD));
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("flow.toml");
        let rules = "[rules.many]\nrows = 1000000\naction = 'penalty'\n[pools.some]\n[users]\npostgres = 'some'\n";
        std::fs::write(&file, format!("{rules}[admin]\nlisten = '127.0.0.1:0'\nusers = {{ dba = 'open sesame' }}\n"))
            .unwrap();
        let target = target(server).replace("//postgres@", "//watcher@");
        let console = Console::start_at(&target, state.path(), &file);
        let with_rule = |rule: &str| format!("ALTER RESOURCE POOL some WITH (except_rule='{rule}')");
        console.shown(&with_rule("many"));
        // Its own query sleeps, and may not any more.
        server.value("REVOKE EXECUTE ON FUNCTION pg_sleep(float8) FROM PUBLIC");
        server.stop_at_once();
        server.start_again(&[]);
        let (_client, output) = flood(server, "flood");
        let flood = peer(server, "flood");
        read_on(output);
        // What still needs rows is refused, with the reason.
        let low = "ALTER RESOURCE POOL some WITH (priority='low'); SET low_priority_bandwidth = '3MB'";
        until("it is found out", || {
            let output = console.ask(low);
            !output.status.success() && complaint(&output).contains("that is tried again every minute")
        });
        assert_eq!(kernel_rate(flood), None);
        console.shown(&with_rule(""));
        let refused = complaint(&console.ask(&with_rule("many")));
        assert!(refused.contains("no rule of attach mode can look at rows here"), "{refused}");
        console.shown(low);
        until("what was said afterwards is done", || is_held_at(flood, 3));
    });
}

#[test]
fn a_service_whose_processes_are_asked_to_end_together_ends_well() {
    const NAME: &str = "a_service_whose_processes_are_asked_to_end_together_ends_well";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let (_client, output) = flood(server, "flood");
        let flood = peer(server, "flood");
        read_on(output);
        let pid = server.value(&sessions("flood", "pid", ""));
        for whom in [["--rule", "elapsedtime=0.2, action='penalty'"], ["--pid", &pid]] {
            for guardian_first in [true, false] {
                let state = tempfile::tempdir().unwrap();
                let arguments = [&*target(server), whom[0], whom[1], "--rate", "2MB", "--interval", "100ms"];
                let (mut master, told) = attach_listening(state.path(), &arguments);
                until("it is held", || is_held_at(flood, 2));
                let guardian = guardian_of(&master);
                if !guardian_first {
                    terminate(&master);
                }
                kill_process(guardian, Signal::TERM).unwrap();
                if guardian_first {
                    until("it is let go", || kernel_rate(flood).is_none());
                    terminate(&master);
                }
                let code = ended(&mut master);
                assert_eq!(code, Some(0), "{whom:?}, {guardian_first}: {:?}", told.iter().collect::<Vec<_>>());
                assert_eq!((kernel_rate(flood), journals(state.path())), (None, 0));
            }
        }
    });
}
