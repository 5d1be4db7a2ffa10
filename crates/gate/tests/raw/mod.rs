//! A session in the protocol's own messages, of which nothing is read but what is read here. Tests of other crates use it too.
#![allow(clippy::unwrap_used, unreachable_pub, dead_code)]

use std::io::{Read, Write};
use std::net::TcpStream;

/// A message of the server's: its kind and its body.
pub type Message = (u8, Vec<u8>);

/// Logs in where no password is asked for, by protocol 3.`minor`; with all that the server said up to its readiness.
pub fn open(port: u16, minor: u16, user: &str) -> (TcpStream, Vec<Message>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let greeting = log_in(&mut stream, minor, user, "");
    (stream, greeting)
}

/// The same by a connection that there is, with options.
pub fn log_in(stream: &mut TcpStream, minor: u16, user: &str, options: &str) -> Vec<Message> {
    let said = format!("user\0{user}\0database\0postgres\0options\0{options}\0\0");
    let version = (3 << 16 | u32::from(minor)).to_be_bytes();
    stream.write_all(&[&(said.len() as u32 + 8).to_be_bytes(), &version[..], said.as_bytes()].concat()).unwrap();
    until_ready(stream)
}

/// Sends a message.
pub fn say(stream: &mut TcpStream, kind: u8, body: &[u8]) {
    stream.write_all(&[&[kind], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()).unwrap();
}

/// Sends a query.
pub fn ask(stream: &mut TcpStream, sql: &str) {
    say(stream, b'Q', format!("{sql}\0").as_bytes());
}

/// What the server says up to ReadyForQuery, that included.
pub fn until_ready(stream: &mut TcpStream) -> Vec<Message> {
    let mut said = Vec::new();
    loop {
        let next = message(stream).unwrap_or_else(|error| panic!("{error} after {said:?}"));
        let is_ready = next.0 == b'Z';
        said.push(next);
        if is_ready {
            return said;
        }
    }
}

/// The server's next message.
pub fn message(stream: &mut TcpStream) -> std::io::Result<Message> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let [kind, length @ ..] = head;
    let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut body)?;
    Ok((kind, body))
}

/// The body of the one message of this kind.
pub fn body(said: &[Message], kind: u8) -> &[u8] {
    let mut of_it = said.iter().filter(|message| message.0 == kind);
    &of_it.next().unwrap_or_else(|| panic!("no {}: {said:?}", char::from(kind))).1
}
