//! A server of ours that speaks MongoDB's wire protocol and plays recorded documents back. It is no MongoDB: it answers a
//! command with the document it was given for it, late, or not at all, as it is told to.
//!
//! Spoken are OP_QUERY with OP_REPLY for the first hello, and OP_MSG: mongodb.com/docs/manual/reference/mongodb-wire-protocol.

// Each test binary uses a part of it.
#![allow(dead_code)]

use ftdc::Builder;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

const OP_REPLY: i32 = 1;
const OP_QUERY: i32 = 2_004;
const OP_MSG: i32 = 2_013;
const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;
const COMMAND_NOT_FOUND: i32 = 59;

/// What the server does.
#[derive(Default)]
pub(crate) struct Script {
    /// What it says it speaks: 9 is MongoDB 4.4, 25 is 8.0.
    pub(crate) max_wire: i32,
    /// Answers, by the command.
    pub(crate) answers: HashMap<String, Vec<u8>>,
    /// Refusals, by the command: code and words.
    pub(crate) refusals: HashMap<String, (i32, String)>,
    /// How long it takes to answer a command.
    pub(crate) delays: HashMap<String, Duration>,
    /// The user it lets in, `name` and `password`, and commands that user may not give.
    pub(crate) user: Option<(String, String)>,
    pub(crate) denied: HashSet<String>,
    /// Commands it was given.
    pub(crate) asked: Vec<String>,
}

/// A running server. It ends when dropped.
pub(crate) struct Replay {
    pub(crate) address: SocketAddr,
    script: Arc<Mutex<Script>>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Replay {
    pub(crate) fn start(script: Script) -> Replay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (script, connections) = (Arc::new(Mutex::new(script)), Arc::new(Mutex::new(Vec::new())));
        let ended = Arc::new(AtomicBool::new(false));
        let (own, known, over) = (Arc::clone(&script), Arc::clone(&connections), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                known.lock().unwrap().push(stream.try_clone().unwrap());
                let script = Arc::clone(&own);
                std::thread::spawn(move || serve(stream, &script));
            }
        });
        Replay { address, script, connections, ended, thread: Some(thread) }
    }

    pub(crate) fn uri(&self) -> String {
        format!("mongodb://{}/", self.address)
    }

    /// Changes what it does from now on.
    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    /// Breaks every connection, as a server does that ends.
    pub(crate) fn hang_up(&self) {
        for stream in self.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        self.hang_up();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream, script: &Mutex<Script>) {
    let mut let_in = false;
    while let Some((id, opcode, body)) = message(&mut stream) {
        let asked = match opcode {
            OP_QUERY => query(&body),
            OP_MSG => body.get(5..).map(<[u8]>::to_vec),
            _ => None,
        };
        let Some(asked) = asked.as_deref().and_then(whole) else { return };
        let answer = answer(asked, script, &mut let_in);
        if stream.write_all(&framed(opcode, id, &answer)).is_err() {
            return;
        }
    }
}

/// Number, kind and body of the next message.
fn message(stream: &mut TcpStream) -> Option<(i32, i32, Vec<u8>)> {
    let mut head = [0; 16];
    stream.read_exact(&mut head).ok()?;
    let number = |at: usize| i32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    let mut body = vec![0; usize::try_from(number(0)).ok()?.checked_sub(16)?];
    stream.read_exact(&mut body).ok()?;
    Some((number(4), number(12), body))
}

/// The document of an OP_QUERY, behind flags, the collection's name and two counts.
fn query(body: &[u8]) -> Option<Vec<u8>> {
    let name = body.get(4..)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    name.get(end + 9..).map(<[u8]>::to_vec)
}

/// The document at the front of these bytes.
fn whole(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(..i32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize)
}

fn framed(opcode: i32, id: i32, document: &[u8]) -> Vec<u8> {
    let (kind, front) = if opcode == OP_QUERY {
        let counts = [0_i32, 0, 0, 0, 1].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        (OP_REPLY, counts)
    } else {
        (OP_MSG, vec![0; 5])
    };
    let length = (16 + front.len() + document.len()) as i32;
    let head = [length, 1, id, kind].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    [head, front, document.to_vec()].concat()
}

fn answer(asked: &[u8], script: &Mutex<Script>, let_in: &mut bool) -> Vec<u8> {
    let first = ftdc::elements(asked).unwrap().next().unwrap().unwrap();
    let command = String::from_utf8_lossy(first.key).into_owned();
    let delay = script.lock().unwrap().delays.get(&command).copied();
    if let Some(delay) = delay {
        std::thread::sleep(delay);
    }
    let mut script = script.lock().unwrap();
    script.asked.push(command.clone());
    match command.as_str() {
        "hello" | "isMaster" | "ismaster" => return hello(script.max_wire),
        "ping" | "endSessions" => return ok(Builder::new()),
        "saslStart" => return sasl(asked, &script, let_in),
        _ => {}
    }
    if script.user.is_some() && !*let_in {
        return refusal(UNAUTHORIZED, &format!("command {command} requires authentication"));
    }
    if script.denied.contains(&command) {
        return refusal(UNAUTHORIZED, &format!("not authorized on admin to execute command {{ {command}: 1 }}"));
    }
    if let Some((code, words)) = script.refusals.get(&command) {
        return refusal(*code, words);
    }
    match script.answers.get(&command) {
        Some(document) => ok(copied(document)),
        None => refusal(COMMAND_NOT_FOUND, &format!("no such command: '{command}'")),
    }
}

fn copied(document: &[u8]) -> Builder {
    ftdc::elements(document).unwrap().fold(Builder::new(), |builder, element| builder.element(&element.unwrap()))
}

fn ok(builder: Builder) -> Vec<u8> {
    builder.double("ok", 1.0).finish()
}

fn refusal(code: i32, words: &str) -> Vec<u8> {
    Builder::new().double("ok", 0.0).string("errmsg", words).int32("code", code).string("codeName", "Refused").finish()
}

fn hello(max_wire: i32) -> Vec<u8> {
    let builder = Builder::new()
        .bool("helloOk", true)
        .bool("ismaster", true)
        .bool("isWritablePrimary", true)
        .int32("maxBsonObjectSize", 16 << 20)
        .int32("maxMessageSizeBytes", 48_000_000)
        .int32("maxWriteBatchSize", 100_000)
        .int32("minWireVersion", 0)
        .int32("maxWireVersion", max_wire)
        .bool("readOnly", false);
    ok(builder)
}

/// Lets a user in by PLAIN, whose payload is two zeros with a name and a password behind; by nothing else.
fn sasl(asked: &[u8], script: &Script, let_in: &mut bool) -> Vec<u8> {
    let payload = ftdc::find(asked, "payload").map(|payload| payload.value.get(5..).unwrap_or_default().to_vec());
    let wanted = script.user.as_ref().map(|(name, password)| format!("\0{name}\0{password}").into_bytes());
    let plain = ftdc::find(asked, "mechanism").and_then(|it| it.text().map(|text| text == "PLAIN")) == Some(true);
    if plain && payload == wanted {
        *let_in = true;
        return ok(Builder::new().int32("conversationId", 1).bool("done", true).binary("payload", b""));
    }
    refusal(AUTHENTICATION_FAILED, "Authentication failed.")
}
