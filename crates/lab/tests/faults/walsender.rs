//! A standby that only receives: PostgreSQL's streaming protocol (chapter "Streaming Replication Protocol"), just far enough
//! to be sent WAL and to say how far it came. A hundred of them cost what a hundred threads do.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PROTOCOL: i32 = 196_608;
/// Seconds from 1970 to 2000, from which the server counts.
const SERVERS_EPOCH_S: u64 = 946_684_800;
const STACK_BYTES: usize = 128 * 1024;

/// One that runs until it is dropped.
pub struct Receiver {
    stream: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Begins to receive from `start` (`0/3000000`) under this name, as fast as it comes.
    pub fn start(socket: &Path, name: &str, start: &str) -> Receiver {
        Receiver::begin(socket, name, &format!("START_REPLICATION PHYSICAL {start}"), f64::INFINITY)
    }

    /// The same by a slot of that name, and at most so many bytes a second.
    pub fn slow(socket: &Path, slot: &str, start: &str, bytes_per_s: f64) -> Receiver {
        Receiver::begin(socket, slot, &format!("START_REPLICATION SLOT {slot} PHYSICAL {start}"), bytes_per_s)
    }

    fn begin(socket: &Path, name: &str, command: &str, bytes_per_s: f64) -> Receiver {
        let mut stream = UnixStream::connect(socket).unwrap();
        let words = ["user", "postgres", "replication", "true", "application_name", name];
        let words = words.map(|word| format!("{word}\0")).concat();
        let body = [&PROTOCOL.to_be_bytes()[..], words.as_bytes(), &[0]].concat();
        stream.write_all(&[&(body.len() as i32 + 4).to_be_bytes()[..], &body].concat()).unwrap();
        while read(&mut stream).unwrap().0 != b'Z' {}
        send(&mut stream, b'Q', format!("{command}\0").as_bytes()).unwrap();
        let (kind, body) = read(&mut stream).unwrap();
        assert_eq!(kind, b'W', "{}", String::from_utf8_lossy(&body));
        let ours = stream.try_clone().unwrap();
        let run = move || {
            let mut stream = ours;
            let (begun, mut taken) = (Instant::now(), 0.0);
            // Until the other end, or this one, closes.
            while let Ok((kind, body)) = read(&mut stream) {
                taken += body.len() as f64;
                let due = begun + Duration::from_secs_f64(taken / bytes_per_s);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                if kind == b'd' && answer(&mut stream, &body).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap();
        Receiver { stream, thread: Some(thread) }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// Says that all of it is written, flushed and replayed.
fn answer(stream: &mut UnixStream, body: &[u8]) -> std::io::Result<()> {
    let number = |from: usize| u64::from_be_bytes(body[from..from + 8].try_into().unwrap());
    let upto = match body[0] {
        b'w' => number(1) + (body.len() - 25) as u64,
        b'k' => number(1),
        _ => return Ok(()),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64 - SERVERS_EPOCH_S * 1_000_000;
    let positions = [upto, upto, upto, now].map(u64::to_be_bytes).concat();
    send(stream, b'd', &[&b"r"[..], &positions, &[0]].concat())
}

fn send(stream: &mut UnixStream, kind: u8, body: &[u8]) -> std::io::Result<()> {
    let length = (body.len() as i32 + 4).to_be_bytes();
    stream.write_all(&[&[kind][..], &length, body].concat())
}

fn read(stream: &mut UnixStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let mut body = vec![0; i32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4];
    stream.read_exact(&mut body)?;
    Ok((head[0], body))
}
