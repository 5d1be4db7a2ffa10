//! Requests to cancel what a session runs, on their way to the server: a client's, passed on as it is, and the judge's
//! own.

use super::control::Control;
use super::live::{Ending, Live};
use super::reach::{connect_again, in_time};
use super::terms::Terms;
use std::io;
use std::time::Duration;

/// A request that the server, once connected with, does not take in this time is given up.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// What stands before the key in a request: its length and its code.
const HEAD_BYTES: usize = 8;

/// Passes a client's request on. The server knows nothing of a statement that waits for its turn, and would ignore the
/// request: its session is ended here.
pub(super) async fn pass_on(control: &Control, terms: &Terms, packet: &[u8]) -> io::Result<()> {
    let named = packet.get(HEAD_BYTES..).and_then(|key| control.by_cancel_key(key));
    let ending = |live: &Live| {
        let why = "terminating connection: its client cancelled what waited for its turn in pool";
        Ending { sqlstate: "57014", why: format!("{why} {}", live.pool.name) }
    };
    if named.as_ref().is_some_and(|live| live.end_waiting(ending(live))) {
        return Ok(());
    }
    send(terms, named.as_deref(), packet).await
}

/// Sends a request for this session, and waits until the server has closed its end, as libpq does: it has signalled its
/// process then.
pub(super) async fn send(terms: &Terms, session: Option<&Live>, packet: &[u8]) -> io::Result<()> {
    let mut server = connect_again(terms, session).await?;
    let taken = async {
        server.write_all(packet).await?;
        server.read(&mut [0; 16]).await.map(|_| ())
    };
    in_time(TAKEN_WITHIN, taken).await
}
