//! Many idle sessions cost little: against a server that only greets, since a real one would need as many backends.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

use backwater_gate::proxy::{Proxy, ProxyConfig};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const SESSIONS: usize = 1_000;
/// Ten thousand sessions under 100 MB.
const MOST_BYTES_EACH: u64 = 10_000;

/// Takes connections and greets each: AuthenticationOk, ReadyForQuery.
fn greeting_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut kept: Vec<TcpStream> = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut opening = [0; 512];
            assert!(stream.read(&mut opening).unwrap() > 8);
            stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
            kept.push(stream);
        }
    });
    port
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn session(port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"\0\0\0\x10\0\x03\0\0user\0u\0\0").unwrap();
    let mut greeting = [0; 15];
    stream.read_exact(&mut greeting).unwrap();
    stream
}

#[test]
fn idle_sessions_hold_no_buffers() {
    let server = format!("127.0.0.1:{}", greeting_server());
    let config = ProxyConfig::plain("127.0.0.1:0".parse().unwrap(), server.parse().unwrap());
    let proxy = Proxy::start(&config).unwrap();
    let port: u16 = proxy.addresses()[0].to_string().rsplit(':').next().unwrap().parse().unwrap();
    let warm: Vec<TcpStream> = (0..50).map(|_| session(port)).collect();
    let before = resident_bytes();
    let sessions: Vec<TcpStream> = (0..SESSIONS).map(|_| session(port)).collect();
    let each = resident_bytes().saturating_sub(before) / SESSIONS as u64;
    eprintln!("an idle session costs {each} bytes, its clients' and server's ends in this process included");
    assert!(each < MOST_BYTES_EACH, "{each} bytes for each of {} sessions", warm.len() + sessions.len());
}
