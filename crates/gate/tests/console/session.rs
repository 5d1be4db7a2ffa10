//! What drivers say of their own session at the console: transactions, portals, and the kind of server that they look for.

use super::{ADMIN, ask, complaint, connect, console, has_psql, text};

#[test]
fn a_portal_lasts_as_long_as_its_transaction() {
    let console = console(ADMIN);
    let (runtime, mut client) = connect(&console);
    runtime.block_on(async {
        client.batch_execute("CREATE RESOURCE POOL a; CREATE RESOURCE POOL b").await.unwrap();
        let transaction = client.transaction().await.unwrap();
        let portal = transaction.bind("SHOW POOLS", &[]).await.unwrap();
        let mut names = Vec::new();
        // Each of them ends with a Sync.
        for _ in 0..4 {
            let rows = transaction.query_portal(&portal, 1).await.unwrap();
            names.extend(rows.iter().map(|row| row.get::<_, String>("name")));
        }
        assert_eq!(names, ["a", "b", "default"]);
        transaction.commit().await.unwrap();
    });
}

#[test]
fn what_is_read_only_changes_nothing_wherever_that_was_said() {
    if !has_psql() {
        return;
    }
    let console = console(ADMIN);
    let refused = "cannot execute CREATE RESOURCE POOL in a read-only transaction";
    let told = |options: &str, sql: &str| {
        let mut command = ask(console.port, sql);
        complaint(&command.env("PGOPTIONS", options).output().unwrap())
    };
    assert!(told("", "BEGIN READ ONLY; CREATE RESOURCE POOL a").contains(refused));
    assert!(told("-c default_transaction_read_only=on", "CREATE RESOURCE POOL a").contains(refused));
    assert!(told("-c default_transaction_read_only=on", "RESET ALL; CREATE RESOURCE POOL a").contains(refused));
    assert!(!text(&ask(console.port, "SHOW POOLS").output().unwrap()).contains("a|"));
    let written = "SET default_transaction_read_only = off; CREATE RESOURCE POOL a";
    let mut command = ask(console.port, written);
    text(&command.env("PGOPTIONS", "-c default_transaction_read_only=on").output().unwrap());
    assert!(text(&ask(console.port, "SHOW POOLS").output().unwrap()).contains("a|"));
}

#[test]
fn who_looks_for_a_server_that_takes_changes_finds_the_console() {
    if !has_psql() {
        return;
    }
    let console = console(ADMIN);
    let asked = |kind: &str| ask(console.port, "SHOW USERS").env("PGTARGETSESSIONATTRS", kind).output().unwrap();
    for kind in ["any", "read-write", "primary", "prefer-standby"] {
        text(&asked(kind));
    }
    assert!(complaint(&asked("standby")).contains("not in hot standby mode"));
    // What drivers of other languages ask.
    let shown = |sql: &str| text(&ask(console.port, sql).output().unwrap());
    assert_eq!(shown("SHOW transaction_read_only"), "off");
    assert_eq!(shown("BEGIN READ ONLY; SHOW transaction_read_only"), "on");
    assert_eq!(shown("SELECT pg_catalog.pg_is_in_recovery()"), "f");
}
