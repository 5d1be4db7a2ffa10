//! Ten thousand sessions that do nothing, before a server that only greets: a real one would need as many processes.

use crate::peers::{self, Way};
use crate::{Bench, Result};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const SESSIONS: usize = 10_000;
/// What they may take together.
const MOST_BYTES: f64 = 100e6;
/// For how long nothing is said.
const IDLE: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_secs(2);

/// Opens them through each relay and prints the memory that they take.
pub(crate) fn measure(bench: &Bench, program: &Path) -> Result<()> {
    let greeted = Arc::new(Mutex::new(Vec::new()));
    let server = greeting_server(Arc::clone(&greeted))?;
    // Two descriptors for each in a relay, two in this program, and some for themselves.
    let count = SESSIONS.min(usize::try_from(bench.descriptors.saturating_sub(400) / 2)?);
    println!(
        "\n{count} idle sessions (a process may have {} descriptors here): resident memory, and processor time of {} s once all are open",
        bench.descriptors,
        IDLE.as_secs()
    );
    for way in peers::start_plain(bench, program, server)? {
        let before = way.resident_bytes()?;
        let sessions = (0..count).map(|_| session(&way)).collect::<Result<Vec<_>>>()?;
        let after = way.resident_bytes()?;
        let idle_cpu_s = cpu_of_idle(&way)?;
        let each = after.saturating_sub(before) as f64 / sessions.len() as f64;
        let all = before as f64 + each * SESSIONS as f64;
        println!(
            "{:<12} {:>6.1} MB, {:.1} MB of it without them: {each:.0} bytes each; with {SESSIONS} it is {:.1} MB ({} 100 MB); {:.0} ms of processor time",
            way.name,
            after as f64 / 1e6,
            before as f64 / 1e6,
            all / 1e6,
            if all < MOST_BYTES { "under" } else { "OVER" },
            idle_cpu_s * 1e3
        );
        // The next relay's need the descriptors.
        drop(sessions);
        greeted.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
    Ok(())
}

/// Processor seconds that a relay takes while nobody says anything, once it has come to rest.
fn cpu_of_idle(way: &Way) -> Result<f64> {
    std::thread::sleep(SETTLE);
    let before = way.cpu_s()?;
    std::thread::sleep(IDLE);
    Ok(way.cpu_s()? - before)
}

/// Takes connections and greets each: AuthenticationOk, ReadyForQuery. It ends with the program.
fn greeting_server(greeted: Arc<Mutex<Vec<TcpStream>>>) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut opening = [0; 512];
            // Whoever only looked whether somebody listens says nothing.
            if stream.read(&mut opening).is_ok_and(|count| count > 8)
                && stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").is_ok()
            {
                greeted.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
            }
        }
    });
    Ok(port)
}

fn session(way: &Way) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", way.port))?;
    stream.write_all(b"\0\0\0\x10\0\x03\0\0user\0u\0\0")?;
    stream.read_exact(&mut [0; 15])?;
    Ok(stream)
}
