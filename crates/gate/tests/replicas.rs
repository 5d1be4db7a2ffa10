//! Those who follow a server through the proxy for as long as they live: a standby, and a logical subscriber.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod held;
mod server;

use backwater_model::EventKind;
use held::{Held, proxy};
use server::{PASSWORD, Server, with_server};

/// A rule of the default pool that stops every statement at once; who replicates and has no pool is exempt from it.
const RULE: &str = "[rules.slow]\nelapsedtime = 0.02\naction = 'abort'\n[pools.default]\nexcept_rule = 'slow'\n";
const STATE: &str = "SELECT string_agg(state || ' ' || sync_state, ', ') FROM pg_stat_replication";

fn decided_nothing(held: &Held) {
    assert_eq!(held.events.try_iter().find(|event| event.kind == EventKind::Decision), None);
}

/// Whether they are the same: `t` of `a int, b text`.
fn until_alike(one: &Server, other: &Server) {
    let sum = "SELECT count(*) || ' ' || coalesce(sum(a), 0) || ' ' || md5(string_agg(b, '' ORDER BY a)) FROM t";
    other.until(sum, &one.value(sum));
}

#[test]
fn a_standby_follows_through_the_proxy_and_commits_wait_for_it() {
    const NAME: &str = "a_standby_follows_through_the_proxy_and_commits_wait_for_it";
    with_server(NAME, &[], |server| {
        server.value("CREATE TABLE t (a int, b text)");
        let held = proxy(server, RULE);
        let Some(standby) = server.standby_by(held.port) else {
            return eprintln!("skipped: {NAME}: needs pg_basebackup");
        };
        server.until(STATE, "streaming async");
        server.value("INSERT INTO t SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, 20000) g");
        until_alike(server, &standby);
        // What the standby acknowledges comes back: a commit that waits for it ends.
        server.value("ALTER SYSTEM SET synchronous_standby_names = '*'");
        server.value("SELECT pg_reload_conf()");
        server.until(STATE, "streaming sync");
        server.value("SET synchronous_commit = remote_apply; UPDATE t SET b = 'x' WHERE a % 7 = 0");
        let sum = "SELECT count(*) FROM t WHERE b = 'x'";
        assert_eq!(standby.value(sum), server.value(sum), "applied when the commit returned");
        // The server comes back after a crash, and so does the standby, by itself.
        server.stop_at_once();
        server.start_again(&[]);
        server.until(STATE, "streaming sync");
        server.value("INSERT INTO t SELECT g, 'later' FROM generate_series(20001, 30000) g");
        until_alike(server, &standby);
        decided_nothing(&held);
    });
}

#[test]
fn a_logical_subscriber_follows_through_the_proxy() {
    with_server("a_logical_subscriber_follows_through_the_proxy", &["wal_level=logical"], |server| {
        let held = proxy(server, RULE);
        server.value("CREATE TABLE t (a int PRIMARY KEY, b text)");
        server.value("INSERT INTO t SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, 20000) g");
        server.value("CREATE PUBLICATION p FOR TABLE t");
        let subscriber = server.another(&[]);
        subscriber.value("CREATE TABLE t (a int PRIMARY KEY, b text)");
        let at = format!("host=127.0.0.1 port={} user=postgres dbname=postgres password={PASSWORD}", held.port);
        subscriber.value(&format!("CREATE SUBSCRIPTION s CONNECTION '{at}' PUBLICATION p"));
        // What is there comes by COPY, in a session of its own.
        subscriber.until("SELECT string_agg(srsubstate, '') FROM pg_subscription_rel", "r");
        until_alike(server, &subscriber);
        server.value("UPDATE t SET b = repeat(b, 100) WHERE a < 500");
        server.value("DELETE FROM t WHERE a % 5 = 0");
        until_alike(server, &subscriber);
        decided_nothing(&held);
        // With its slot.
        subscriber.value("DROP SUBSCRIPTION s");
        assert_eq!(server.value("SELECT count(*) FROM pg_replication_slots"), "0");
    });
}
