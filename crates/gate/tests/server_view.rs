//! What only the server can tell and do, by the proxy's own connection with it.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

mod held;
mod server;

use backwater_gate::proxy::ProxyConfig;
use held::{Held, PATIENCE, Session, until};
use server::{PASSWORD, Server, complaint, psql, text, with_server};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A proxy that is the server's superuser, and has a console.
fn proxy(server: &Server, more: &str) -> Held {
    let account = format!("[server_account]\nuser = 'postgres'\npassword = '{PASSWORD}'\n");
    let held = held::proxy(server, &format!("{account}[admin]\nusers = {{ dba = 'secret' }}\n{more}"));
    server.until("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'backwater-proxy'", "1");
    held
}

impl Held {
    fn console(&self, sql: &str) -> Command {
        let mut command = psql("127.0.0.1", self.port, sql);
        command.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "secret");
        command
    }

    fn told(&self, sql: &str) -> String {
        text(&self.console(sql).output().unwrap())
    }

    /// psql in the background, under a name of its own.
    fn begin(&self, name: &str, sql: &str) -> Child {
        let mut command = psql("127.0.0.1", self.port, sql);
        command.env("PGAPPNAME", name).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

fn waits(server: &Server, name: &str) {
    let waiting =
        format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' AND wait_event_type = 'Lock'");
    server.until(&waiting, "1");
}

#[test]
fn temporary_files_are_those_that_the_server_tells_of() {
    with_server("temporary_files_are_those_that_the_server_tells_of", &[], |server| {
        let held =
            proxy(server, "[rules.spills]\nspillsize = 8\naction = 'abort'\n[pools.default]\nexcept_rule = 'spills'\n");
        // Its last column is what cannot be measured.
        let begun = Instant::now();
        while !held.told("SHOW RULES").ends_with('|') {
            assert!(begun.elapsed() < PATIENCE, "{}", held.told("SHOW RULES"));
        }
        let sql = "SET work_mem = '1MB'; SELECT count(*) FROM (SELECT g FROM generate_series(1, 20000000) g ORDER BY md5(g::text)) o";
        let told = complaint(&psql("127.0.0.1", held.port, sql).output().unwrap());
        assert!(told.contains("canceling statement"), "{told}");
        let event = held.decision_of("began");
        assert!(event.fields["spillsize"].parse::<f64>().unwrap() > 8.0, "{event:?}");
    });
}

#[test]
fn sessions_that_stay_in_their_pool_are_told() {
    with_server("sessions_that_stay_in_their_pool_are_told", &[], |server| {
        let held = proxy(server, "[pools.batch]\npriority = 'low'\n");
        let mut sleeper = held.begin("sleeper", "SELECT pg_sleep(60)");
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        let told = held.console("CREATE USER postgres RESOURCE POOL 'batch'").output().unwrap();
        let notices = String::from_utf8_lossy(&told.stderr);
        assert!(told.status.success() && notices.contains("1 of postgres's sessions stay in the pool"), "{notices}");
        assert!(held.told("SHOW SESSIONS").contains("|default|"), "{}", held.told("SHOW SESSIONS"));
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    });
}

#[test]
fn a_held_session_is_let_go_when_somebody_waits_for_its_lock() {
    with_server("a_held_session_is_let_go", &[], |server| {
        let held = proxy(
            server,
            "[rules.slow]\nelapsedtime = 0.2\naction = 'penalty'\n[rules.locked]\nblocktime = 0.5\naction = 'dryrun'\n\
             [pools.default]\nexcept_rule = 'slow'\n[pools.calm]\nexcept_rule = 'locked'\n",
        );
        server.value("CREATE TABLE t AS SELECT 1 AS a");
        server.value("GRANT ALL ON t TO PUBLIC");
        // The role is made on the server, with that password.
        held.told("CREATE USER calm_user RESOURCE POOL 'calm' PASSWORD 'a secret'");
        assert_eq!(server.value("SELECT rolcanlogin FROM pg_roles WHERE rolname = 'calm_user'"), "t");
        // Nothing changes here, but there: that is told too, and not what it is.
        held.told("ALTER USER calm_user RESOURCE POOL 'calm' PASSWORD 'a secret'");
        let told = held.told("SHOW EVENTS");
        assert!(told.contains("changed: ALTER USER calm_user RESOURCE POOL calm PASSWORD '********'"), "{told}");
        let holder = held.begin("holder", "BEGIN; LOCK TABLE t; SELECT pg_sleep(4); COMMIT");
        let began = held.decision_of("began");
        assert_eq!(began.fields["rule"], "slow");
        let mut waiter = psql("127.0.0.1", held.port, "SELECT a FROM t");
        waiter.env("PGUSER", "calm_user").env("PGPASSWORD", "a secret").env("PGAPPNAME", "waiter");
        let waiter = waiter.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        waits(server, "waiter");
        let lifted = held.decision_of("lifted");
        assert_eq!((lifted.fields["rule"].as_str(), lifted.fields["why"].as_str()), ("slow", "it blocked urgent work"));
        let locked = held.decision_of("began");
        assert_eq!(locked.fields["rule"], "locked");
        assert!(locked.fields["blocktime"].parse::<f64>().unwrap() >= 0.5, "{locked:?}");
        assert_eq!(text(&waiter.wait_with_output().unwrap()), "1");
        text(&holder.wait_with_output().unwrap());
    });
}

#[test]
fn a_session_of_a_low_pool_is_let_go_when_somebody_urgent_waits_for_its_lock() {
    with_server("a_session_of_a_low_pool_is_let_go", &[], |server| {
        let held = proxy(server, "[pools.batch]\npriority = 'low'\n");
        server.value("CREATE TABLE t AS SELECT 1 AS a");
        let holder = Session::open_with(held.port, "-c backwater.pool=batch");
        holder.wait(holder.client.batch_execute("BEGIN; LOCK TABLE t")).unwrap();
        assert!(held.told("SHOW SESSIONS").contains("|batch|low|"));
        // It stays when it has got what it waited for.
        let mut waiter = psql("127.0.0.1", held.port, "SELECT a FROM t");
        waiter.args(["-c", "SELECT pg_sleep(60)"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut waiter = waiter.spawn().unwrap();
        let freed = held.decision_of("freed");
        assert_eq!((freed.fields["pool"].as_str(), freed.fields["why"].as_str()), ("batch", "it blocked urgent work"));
        until("it is urgent itself", || held.told("SHOW SESSIONS").contains("|batch|high|"));
        holder.wait(holder.client.batch_execute("COMMIT")).unwrap();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        // Its transaction is over, and it is what it was. That it blocked somebody is believed for two seconds, and not held against
        // what it does now.
        until("it is low again", || held.told("SHOW SESSIONS").contains("|batch|low|"));
        let back = held.decision_of("held");
        assert_eq!(
            (&back.fields["session"], back.fields["why"].as_str()),
            (&freed.fields["session"], "its transaction has ended")
        );
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            holder.wait(holder.client.batch_execute("SELECT 1")).unwrap();
            let sessions = held.told("SHOW SESSIONS");
            assert!(sessions.contains("|batch|low|"), "{sessions}");
        }
        let again = held.events.try_iter().filter(|event| event.fields.get("step").is_some_and(|step| step == "freed"));
        assert_eq!(again.count(), 0);
        waiter.kill().unwrap();
        waiter.wait().unwrap();
    });
}

#[test]
fn a_role_that_cannot_be_made_is_told_and_nothing_changes() {
    with_server("a_role_that_cannot_be_made", &[], |server| {
        server.value("CREATE ROLE weak LOGIN PASSWORD 'weak'");
        let held = proxy(server, "[pools.calm]\n");
        let again = held.console("CREATE USER weak RESOURCE POOL 'calm' PASSWORD 'x'").output().unwrap();
        assert!(String::from_utf8_lossy(&again.stderr).contains("already"), "{again:?}");
        held.told("ALTER USER weak RESOURCE POOL 'calm' PASSWORD 'strong'");
        let mut login = psql("127.0.0.1", held.port, "SELECT current_user");
        assert_eq!(text(&login.env("PGUSER", "weak").env("PGPASSWORD", "strong").output().unwrap()), "weak");
        server.value("ALTER ROLE postgres CONNECTION LIMIT -1");
        let refused =
            complaint(&held.console("CREATE USER pg_evil RESOURCE POOL 'calm' PASSWORD 'x'").output().unwrap());
        assert!(refused.contains("pg_evil") && refused.contains("reserved"), "{refused}");
        assert!(!held.told("SHOW USERS").contains("pg_evil"));
        let log = std::fs::read_to_string(server.dir.path().join("log")).unwrap();
        assert!(!log.contains("strong"), "a password is in the server's log");
    });
}

#[test]
fn a_role_that_somebody_else_holds_is_not_waited_for_nor_changed_later() {
    with_server("a_role_that_somebody_else_holds", &[], |server| {
        let held = proxy(server, "[pools.calm]\n");
        server.value("CREATE ROLE busy LOGIN PASSWORD 'before'");
        let holder = Session::open(server.port);
        holder.wait(holder.client.batch_execute("BEGIN; ALTER ROLE busy CONNECTION LIMIT 5")).unwrap();
        let sql = "ALTER USER busy RESOURCE POOL 'calm' PASSWORD 'after'";
        let refused = complaint(&held.console(sql).output().unwrap());
        assert!(refused.contains("the server refuses role busy") && refused.contains("statement timeout"), "{refused}");
        holder.wait(holder.client.batch_execute("ROLLBACK")).unwrap();
        let asked =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'backwater-proxy' AND state = 'active'";
        server.until(asked, "0");
        let mut login = psql("127.0.0.1", held.port, "SELECT 'as it was'");
        assert_eq!(text(&login.env("PGUSER", "busy").env("PGPASSWORD", "before").output().unwrap()), "as it was");
        assert!(!held.told("SHOW USERS").contains("busy"));
        // The time-out was for that statement alone, and the connection is the same.
        held.told(sql);
        assert_eq!(held.told("SHOW USERS"), "busy|calm");
    });
}

#[test]
fn another_account_is_the_proxys_from_a_reload_on() {
    with_server("another_account_is_the_proxys_from_a_reload_on", &[], |server| {
        let held = proxy(server, "");
        server.value(&format!("CREATE ROLE watcher LOGIN PASSWORD '{PASSWORD}' IN ROLE pg_monitor"));
        let address = server.address();
        let reload = |account: &str| {
            let written = format!("listen = '127.0.0.1:0'\nserver = '{address}'\n{account}");
            held.proxy.reload(&ProxyConfig::parse(&written, Path::new("test.toml")).unwrap()).unwrap()
        };
        let who = "SELECT coalesce(string_agg(usename::text, ','), '') FROM pg_stat_activity \
                   WHERE application_name = 'backwater-proxy'";
        let account = format!("[server_account]\nuser = 'watcher'\npassword = '{PASSWORD}'\n");
        assert_eq!(reload(&account), Vec::<&str>::new());
        server.until(who, "watcher");
        assert_eq!(reload(""), Vec::<&str>::new());
        server.until(who, "");
    });
}
