//! A PostgreSQL that is too old is refused by name: a server of the test's own speaks the protocol (version 3, message
//! formats of PostgreSQL's documentation, chapter 55) just far enough to say which version it is.
#![allow(clippy::unwrap_used)]

use backwater_probe::postgres::{ConnInfo, PostgresOptions, PostgresProbe};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// A message: its letter, its length (itself included), its body.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() + 4) as u32;
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// One body: a length, then what it counts.
fn read_body(client: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    client.read_exact(&mut length).unwrap();
    let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
    client.read_exact(&mut body).unwrap();
    body
}

/// The first message has no letter: a request for TLS (answered with no), or the start-up itself.
fn start_up(client: &mut TcpStream) {
    const TLS_REQUEST: [u8; 4] = 80_877_103u32.to_be_bytes();
    while read_body(client)[..4] == TLS_REQUEST {
        client.write_all(b"N").unwrap();
    }
    let parameter = |name: &str, value: &str| message(b'S', format!("{name}\0{value}\0").as_bytes());
    let hello = [
        message(b'R', &[0, 0, 0, 0]),
        parameter("server_version", "11.22"),
        parameter("client_encoding", "UTF8"),
        message(b'K', &[0; 8]),
        ready(),
    ];
    client.write_all(&hello.concat()).unwrap();
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

/// One column of type int4, in binary.
fn row_description() -> Vec<u8> {
    const INT4: u32 = 23;
    let name = b"current_setting\0";
    let parts: [&[u8]; 7] =
        [&[0, 1], name, &[0; 6], &INT4.to_be_bytes(), &[0, 4], &u32::MAX.to_be_bytes(), &1u16.to_be_bytes()];
    message(b'T', &parts.concat())
}

/// Answers every statement with one row that holds this number, until the client goes.
fn serve(mut client: TcpStream, version_num: u32) {
    start_up(&mut client);
    let mut kind = [0];
    while client.read_exact(&mut kind).is_ok() {
        read_body(&mut client);
        let answer = match kind[0] {
            b'P' => message(b'1', &[]),
            b'D' => [message(b't', &[0, 0]), row_description()].concat(),
            b'B' => message(b'2', &[]),
            b'E' => {
                let row = [&[0, 1][..], &4u32.to_be_bytes(), &version_num.to_be_bytes()].concat();
                [message(b'D', &row), message(b'C', b"SELECT 1\0")].concat()
            }
            b'S' => ready(),
            b'C' => message(b'3', &[]),
            _ => return,
        };
        client.write_all(&answer).unwrap();
    }
}

fn refusal_of(version_num: u32) -> (String, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || serve(listener.accept().unwrap().0, version_num));
    let target = format!("postgres://u@127.0.0.1:{port}/d?connect_timeout=5");
    let info = ConnInfo::parse(&target, &|_| None).unwrap();
    let error = PostgresProbe::connect(info, PostgresOptions::default()).unwrap_err().to_string();
    server.join().unwrap();
    (error, port)
}

#[test]
fn postgresql_11_is_refused_with_its_version_and_a_way_on() {
    let (error, port) = refusal_of(110_022);
    let wanted = format!("127.0.0.1:{port} runs PostgreSQL 11.22; Backwater reads 12 to 18.");
    assert!(error.starts_with(&wanted), "{error}");
    assert!(error.contains("Upgrade the server") && error.contains("backwater record host"), "{error}");
}

#[test]
fn postgresql_9_6_is_refused_too() {
    let (error, _) = refusal_of(90_624);
    assert!(error.contains("runs PostgreSQL 9.6;"), "{error}");
}
