//! Who comes to the console proves that he knows a password, by SCRAM-SHA-256. An unknown user gets as far as one with a
//! wrong password, so that names cannot be guessed one by one.

use super::message::{Body, Reply};
use super::scram::{Exchange, MECHANISM, ScramError, Verifier};
use super::{Admin, Connection};
use crate::wire::StartUp;
use std::io;
use std::sync::OnceLock;

/// What drivers look at when they connect.
const PARAMETERS: [(&str, &str); 9] = [
    ("server_version", concat!("16.0 (backwater ", env!("CARGO_PKG_VERSION"), ")")),
    ("server_encoding", "UTF8"),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "UTC"),
    ("integer_datetimes", "on"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "off"),
    // Who looks for a server that takes changes finds one here.
    ("in_hot_standby", "off"),
];

/// Logs in. False where the password is wrong or nobody has this name.
pub(super) async fn login(connection: &mut Connection, admin: &Admin, start: &StartUp) -> io::Result<bool> {
    if start.minor > 0 || start.parameters.keys().any(|name| name.starts_with("_pq_.")) {
        connection.reply.put(b'v', &older(start));
    }
    connection.reply.authentication(10, format!("{MECHANISM}\0\0").as_bytes());
    connection.send().await?;
    let (known, verifier) = verifier_of(admin, start.user())?;
    let Some(first) = response(connection).await? else { return Ok(false) };
    let mut random = [0; 18];
    fill(&mut random)?;
    let mut body = Body(&first);
    let mechanism = body.text();
    let length = body.i32().and_then(|length| usize::try_from(length).ok());
    if mechanism != Some(MECHANISM) || length != Some(body.0.len()) {
        return Ok(false);
    }
    let Ok(exchange) = Exchange::begin(verifier, body.0, &random) else { return Ok(false) };
    connection.reply.authentication(11, exchange.server_first().as_bytes());
    connection.send().await?;
    let Some(last) = response(connection).await? else { return Ok(false) };
    let told = match exchange.finish(&last) {
        Ok(told) if known => told,
        Ok(_) | Err(ScramError::Malformed | ScramError::WrongPassword) => return Ok(false),
    };
    connection.reply.authentication(12, told.as_bytes());
    greet(&mut connection.reply);
    Ok(true)
}

fn greet(reply: &mut Reply) {
    reply.authentication(0, &[]);
    for (name, value) in PARAMETERS {
        reply.parameter(name, value);
    }
    // Nothing that runs here can be cancelled: the number is nobody's.
    reply.put(b'K', &[0; 8]);
}

/// NegotiateProtocolVersion: 3.0, and none of the extensions that were asked for.
fn older(start: &StartUp) -> Vec<u8> {
    let unknown: Vec<&String> = start.parameters.keys().filter(|name| name.starts_with("_pq_.")).collect();
    let mut body = (3u32 << 16).to_be_bytes().to_vec();
    body.extend_from_slice(&(unknown.len() as u32).to_be_bytes());
    for name in unknown {
        body.extend_from_slice(name.as_bytes());
        body.push(0);
    }
    body
}

/// The verifier of a user, or of somebody who is not there: asked again, that has the same salt too; it is made as the first
/// user's, whose own may be copied from a server, and for everybody, so that the time tells nothing.
fn verifier_of(admin: &Admin, user: &str) -> io::Result<(bool, Verifier)> {
    let nobodys = Verifier::of_nobody(secret()?, user, admin.users.values().next());
    Ok(admin.users.get(user).map_or((false, nobodys), |verifier| (true, verifier.clone())))
}

/// What nobody outside this process knows.
fn secret() -> io::Result<&'static [u8; 32]> {
    static SECRET: OnceLock<[u8; 32]> = OnceLock::new();
    let mut fresh = [0; 32];
    if SECRET.get().is_none() {
        fill(&mut fresh)?;
    }
    Ok(SECRET.get_or_init(|| fresh))
}

async fn response(connection: &mut Connection) -> io::Result<Option<Vec<u8>>> {
    // Clients leave to ask somebody for a password where they have none: that is no guess.
    let said = connection.hear().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((said.kind == b'p').then_some(said.body))
}

fn fill(random: &mut [u8]) -> io::Result<()> {
    let count = rustix::rand::getrandom(&mut *random, rustix::rand::GetRandomFlags::empty())?;
    if count == random.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
