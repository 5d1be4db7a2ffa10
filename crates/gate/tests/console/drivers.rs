//! What drivers say of their own session, at a console that has none.

use super::{ADMIN, Console, challenge, connect, console, raw};
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use std::net::TcpStream;

/// A visit in the protocol's own messages.
fn visit(console: &Console) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", console.port)).unwrap();
    let mut scram = ScramSha256::new(b"open sesame", ChannelBinding::unrequested());
    let first = challenge(&mut stream, "dba", scram.message());
    scram.update(&first).unwrap();
    raw::say(&mut stream, b'p', scram.message());
    raw::until_ready(&mut stream);
    stream
}

/// Tags, SQLSTATEs, notices and the transaction's status, in their order.
fn heard(stream: &mut TcpStream) -> String {
    let shown = |(kind, body): &raw::Message| {
        let mut fields = body.split(|byte| *byte == 0).map(|field| String::from_utf8_lossy(field).into_owned());
        match kind {
            b'C' | b'Z' => fields.next(),
            b'E' => fields.find_map(|field| field.strip_prefix('C').map(str::to_owned)),
            b'N' => Some("notice".to_owned()),
            b'I' => Some("nothing".to_owned()),
            _ => None,
        }
    };
    raw::until_ready(stream).iter().filter_map(shown).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_drivers_say_of_their_sessions_is_answered_as_a_server_does() {
    let console = console(ADMIN);
    let mut stream = visit(&console);
    for (sql, answer) in [
        ("SET extra_float_digits = 3", "SET I"),
        ("SELECT 1", "SELECT 1 I"),
        (
            "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;",
            "SELECT 1 CLOSE CURSOR ALL UNLISTEN RESET I",
        ),
        (";", "nothing I"),
        ("SET client_encoding = 'LATIN1'", "42601 I"),
        ("BEGIN", "BEGIN T"),
        ("SHOW TRANSACTION ISOLATION LEVEL", "SHOW T"),
        ("CREATE RESOURCE POOL a", "CREATE RESOURCE POOL T"),
        ("COMMIT", "COMMIT I"),
        ("BEGIN; ALTER RESOURCE POOL a WITH (max_active=3); ROLLBACK", "BEGIN ALTER RESOURCE POOL notice ROLLBACK I"),
        ("BEGIN; DROP RESOURCE POOL nowhere", "42704 I"),
        ("START TRANSACTION", "START TRANSACTION T"),
        ("DROP RESOURCE POOL nowhere", "42704 E"),
        ("SHOW POOLS", "25P02 E"),
        ("", "nothing E"),
        ("COMMIT", "ROLLBACK I"),
        ("SHOW POOLS", "SHOW I"),
    ] {
        raw::ask(&mut stream, sql);
        assert_eq!(heard(&mut stream), answer, "{sql}");
    }
}

#[test]
fn the_same_is_so_by_the_extended_protocol() {
    let console = console(&format!("[pools.a]\n{ADMIN}"));
    let mut stream = visit(&console);
    let mut ask = |statements: &[&str]| {
        for sql in statements {
            raw::say(&mut stream, b'P', format!("\0{sql}\0\0\0").as_bytes());
            raw::say(&mut stream, b'B', &[0; 8]);
            raw::say(&mut stream, b'D', b"P\0");
            raw::say(&mut stream, b'E', &[0; 5]);
        }
        raw::say(&mut stream, b'S', b"");
        heard(&mut stream)
    };
    assert_eq!(ask(&["SET application_name = 'a script'", "SELECT 1"]), "SET SELECT 1 I");
    assert_eq!(ask(&["BEGIN", "ALTER RESOURCE POOL a WITH (max_active=4)"]), "BEGIN ALTER RESOURCE POOL T");
    assert_eq!(ask(&["DROP RESOURCE POOL nowhere", "SHOW POOLS"]), "42704 E");
    assert_eq!(ask(&["SHOW POOLS"]), "25P02 E");
    assert_eq!(ask(&["ROLLBACK"]), "notice ROLLBACK I");
    // What was prepared under a name is forgotten when that is asked for, and not before.
    let mut prepare = || {
        raw::say(&mut stream, b'P', b"named\0SHOW POOLS\0\0\0");
        raw::say(&mut stream, b'S', b"");
        heard(&mut stream)
    };
    assert_eq!((prepare(), prepare()), ("I".to_owned(), "42P05 I".to_owned()));
    raw::ask(&mut stream, "DISCARD ALL");
    assert_eq!(heard(&mut stream), "DISCARD ALL I");
    raw::say(&mut stream, b'P', b"named\0SHOW POOLS\0\0\0");
    raw::say(&mut stream, b'S', b"");
    assert_eq!(heard(&mut stream), "I");
    let (runtime, mut client) = connect(&console);
    runtime.block_on(async {
        let transaction = client.transaction().await.unwrap();
        transaction.batch_execute("CREATE RESOURCE POOL b").await.unwrap();
        transaction.commit().await.unwrap();
        let pools = client.query("SHOW POOLS", &[]).await.unwrap();
        assert!(pools.iter().any(|row| row.get::<_, &str>("name") == "b"));
    });
}
