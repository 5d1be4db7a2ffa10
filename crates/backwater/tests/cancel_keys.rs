//! Cancel requests by protocol 3.2, whose keys are longer, through the proxy to a server that has them (PostgreSQL 18).
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "../../gate/tests/held/mod.rs"]
mod held;
#[path = "../../probe/tests/postgres/server.rs"]
mod majors;
#[path = "../../gate/tests/raw/mod.rs"]
mod raw;
mod release;
#[path = "../../gate/tests/server/mod.rs"]
mod server;

use raw::{ask, body, until_ready};
use std::io::{Read, Write};
use std::net::TcpStream;

const SPEAKS_3_2: u32 = 18;
const CANCEL_CODE: [u8; 4] = 80_877_102_u32.to_be_bytes();

#[test]
fn a_statement_is_cancelled_by_a_long_key() {
    release::with_release("a_statement_is_cancelled_by_a_long_key", SPEAKS_3_2, |server| {
        // Who comes by the server's socket is asked for no password.
        let address = format!("{}/.s.PGSQL.{}", server.dir.path().display(), server.port);
        let cancelled =
            |session: &mut TcpStream| body(&until_ready(session), b'E').windows(6).any(|code| code == b"C57014");

        let proxy = held::before(&address, "");
        let (mut session, greeting) = raw::open(proxy.port, 2, "postgres");
        let key = body(&greeting, b'K');
        assert!(key.len() > 8, "{key:?}");
        ask(&mut session, "SELECT pg_sleep(600)");
        let mut asking = majors::Session::open(&server.info()).unwrap();
        let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        held::until("it sleeps", || asking.run(sleeps).unwrap().as_deref() == Some("1"));
        let mut request = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
        let length = (key.len() as u32 + 8).to_be_bytes();
        request.write_all(&[&length, &CANCEL_CODE[..], key].concat()).unwrap();
        assert_eq!(request.read(&mut [0; 16]).unwrap(), 0);
        assert!(cancelled(&mut session));

        // By a rule, the proxy asks for it.
        let proxy = held::before(&address, "[rules.stop]\nelapsedtime = 0.1\n[pools.default]\nexcept_rule = 'stop'\n");
        let (mut session, _) = raw::open(proxy.port, 2, "postgres");
        ask(&mut session, "SELECT pg_sleep(600)");
        assert!(cancelled(&mut session));
    });
}
