//! What others pass on: a load balancer's word whose connection it is (PROXY protocol), and cancel requests with keys
//! as long as protocol 3.2 has them.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod held;
mod raw;
mod server;

use held::{before, proxy, until};
use raw::{ask, body, until_ready};
use server::{Running, complaint, psql, text, with_server};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A load balancer before this port. It begins every connection with this header, and passes on the rest.
fn balancer(before: u16, header: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        std::thread::spawn(move || {
            // Whoever is gone first ends both.
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        })
    };
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let mut proxy = TcpStream::connect(("127.0.0.1", before)).unwrap();
            proxy.write_all(&header).unwrap();
            pass(client.try_clone().unwrap(), proxy.try_clone().unwrap());
            pass(proxy, client);
        }
    });
    port
}

/// A header of version 2 (proxy-protocol.txt, 2.2), with an extension (PP2_TYPE_AUTHORITY) behind the addresses.
fn version_2(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
    let extension = b"\x02\0\x0bdb.internal";
    let length = (addresses.len() + extension.len()) as u16;
    let begin = b"\r\n\r\n\0\r\nQUIT\n";
    [&begin[..], &[0x20 | command, family], &length.to_be_bytes()[..], addresses, extension].concat()
}

#[test]
fn a_session_behind_a_balancer_is_its_clients_by_either_version() {
    with_server("a_session_behind_a_balancer_is_its_clients_by_either_version", &[], |server| {
        let more = "proxy_protocol_from = ['127.0.0.1']\n[admin]\nusers = { dba = 'secret' }\n";
        let held = proxy(server, more);
        let v4 = [&[192, 0, 2, 7, 127, 0, 0, 1][..], &40_000_u16.to_be_bytes(), &[0x15, 0x38]].concat();
        let mut v6 = [0; 36];
        v6[..16].copy_from_slice(&"2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets());
        v6[32..34].copy_from_slice(&40_001_u16.to_be_bytes());
        // A check of the balancer's own, which says so, reaches the console too: it comes from this host.
        let own = balancer(held.port, version_2(0, 0, &[]));
        let sessions = || {
            let mut console = psql("127.0.0.1", own, "SHOW SESSIONS");
            console.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "secret");
            text(&console.output().unwrap())
        };
        let version_1 = |line: &str| line.as_bytes().to_vec();
        for (header, peer) in [
            (version_2(1, 0x11, &v4), "192.0.2.7:40000"),
            (version_2(1, 0x21, &v6), "[2001:db8::7]:40001"),
            (version_1("PROXY TCP4 192.0.2.8 127.0.0.1 40002 5432\r\n"), "192.0.2.8:40002"),
            (version_1("PROXY TCP6 2001:db8::8 2001:db8::1 40003 5432\r\n"), "[2001:db8::8]:40003"),
        ] {
            let announcing = balancer(held.port, header);
            let large = psql("127.0.0.1", announcing, "SELECT repeat('x', 1000000)").output().unwrap();
            assert_eq!(text(&large).len(), 1_000_000);
            let _sleeper = Running::start(&mut psql("127.0.0.1", announcing, "SELECT pg_sleep(600)"));
            until(peer, || sessions().contains(peer));
        }
        let cut = balancer(held.port, b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x05\x7f\0\0\x01\0".to_vec());
        let mut psql = psql("127.0.0.1", cut, "SELECT 1");
        // An error in answer to a request for encryption is not shown.
        let refused = complaint(&psql.env("PGSSLMODE", "disable").env("PGGSSENCMODE", "disable").output().unwrap());
        assert!(refused.contains("the PROXY header is malformed"), "{refused}");
    });
}

/// What protocol 3.2 allows and PostgreSQL 18 sends: the process's number and a key of 32 bytes; longer ones may come.
const KEY_BYTES: [usize; 2] = [32, 256];
const CANCEL_CODE: [u8; 4] = 80_877_102_u32.to_be_bytes();

/// A server whose keys are so long. A query runs until it is cancelled. Returns its address and the cancel requests that came.
fn keyed_server(key_bytes: usize) -> (String, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let cancels = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let came = Arc::clone(&cancels);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let came = Arc::clone(&came);
            // An error says that its client is gone.
            std::thread::spawn(move || serve(stream, key_bytes, &came));
        }
    });
    (address, cancels)
}

fn serve(mut stream: TcpStream, key_bytes: usize, cancels: &Mutex<Vec<Vec<u8>>>) -> std::io::Result<()> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut rest)?;
    if rest.starts_with(&CANCEL_CODE) {
        cancels.lock().unwrap().push(rest.split_off(4));
        return Ok(());
    }
    assert_eq!(rest[..4], [0, 3, 0, 2], "the version is passed on");
    // Before the client knows its key, or a cancel request of the query to come may be counted already.
    let before = cancels.lock().unwrap().len();
    stream.write_all(b"R\0\0\0\x08\0\0\0\0")?;
    raw::say(&mut stream, b'K', &key(key_bytes));
    raw::say(&mut stream, b'Z', b"I");
    let query = &mut [0; 512];
    while stream.read(query)? > 0 {
        until("a cancel request", || cancels.lock().unwrap().len() > before);
        raw::say(&mut stream, b'E', b"SERROR\0C57014\0Mcanceling statement\0\0");
        raw::say(&mut stream, b'Z', b"I");
    }
    Ok(())
}

fn key(bytes: usize) -> Vec<u8> {
    let number = 4_711_u32.to_be_bytes().into_iter();
    number.chain((0..bytes).map(|byte| byte as u8 ^ 0x5a)).collect()
}

#[test]
fn a_cancel_request_is_as_long_as_its_key() {
    for bytes in KEY_BYTES {
        let (address, cancels) = keyed_server(bytes);
        let held = before(&address, "");
        let (mut session, greeting) = raw::open(held.port, 2, "u");
        assert_eq!(body(&greeting, b'K'), key(bytes));
        ask(&mut session, "SELECT pg_sleep(600)");
        let request = [&(bytes as u32 + 12).to_be_bytes(), &CANCEL_CODE[..], &key(bytes)].concat();
        let mut other = TcpStream::connect(("127.0.0.1", held.port)).unwrap();
        other.write_all(&request).unwrap();
        assert_eq!(other.read(&mut [0; 16]).unwrap(), 0, "it is closed when the server has taken it");
        assert!(body(&until_ready(&mut session), b'E').starts_with(b"SERROR\0C57014\0"));
        assert_eq!(*cancels.lock().unwrap(), [key(bytes)]);

        // And the one that the proxy itself makes, for a rule.
        let held = before(&address, "[rules.stop]\nelapsedtime = 0.1\n[pools.default]\nexcept_rule = 'stop'\n");
        let (mut session, _) = raw::open(held.port, 2, "u");
        ask(&mut session, "SELECT pg_sleep(600)");
        assert!(body(&until_ready(&mut session), b'E').starts_with(b"SERROR\0C57014\0"));
        assert_eq!(*cancels.lock().unwrap(), [key(bytes), key(bytes)]);
    }
}
