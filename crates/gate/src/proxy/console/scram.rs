//! The server's half of SCRAM-SHA-256 (RFC 5802 and 7677), as PostgreSQL's clients speak it. What is known of a password
//! is PostgreSQL's own verifier, `SCRAM-SHA-256$4096:salt$stored:server`, so one can be copied from `pg_authid`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The only mechanism that is offered.
pub(super) const MECHANISM: &str = "SCRAM-SHA-256";
/// As PostgreSQL makes its verifiers, and we those of plain passwords.
const USUAL_ITERATIONS: u32 = 4096;
const USUAL_SALT_BYTES: usize = 16;

/// What is kept in place of a password.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::proxy) struct Verifier {
    iterations: u32,
    salt: String,
    stored_key: [u8; 32],
    server_key: [u8; 32],
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifier(********)")
    }
}

/// A client that does not keep to the protocol, or does not know the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScramError {
    Malformed,
    WrongPassword,
}

/// One exchange, after the client's first message.
#[derive(Debug)]
pub(super) struct Exchange {
    verifier: Verifier,
    /// The header of channel binding, which the client repeats.
    header: String,
    nonce: String,
    /// The first two thirds of what is signed.
    signed: String,
}

impl Verifier {
    /// A verifier as PostgreSQL writes it, or the one of a plain password.
    pub(in crate::proxy) fn of(secret: &str) -> Option<Verifier> {
        match secret.strip_prefix("SCRAM-SHA-256$") {
            Some(rest) => Verifier::read(rest),
            None => {
                let made = postgres_protocol::password::scram_sha_256(secret.as_bytes());
                Verifier::read(made.strip_prefix("SCRAM-SHA-256$")?)
            }
        }
    }

    /// One that looks as this one does, or as those of plain passwords do, and that no password fits.
    pub(super) fn of_nobody(secret: &[u8; 32], user: &str, like: Option<&Verifier>) -> Verifier {
        let (iterations, salt_bytes) =
            like.map_or((USUAL_ITERATIONS, USUAL_SALT_BYTES), |like| (like.iterations, like.salt_bytes()));
        let parts = (0_usize..).flat_map(|part| sign(secret, &format!("{part} {user}")));
        let salt = STANDARD.encode(parts.take(salt_bytes).collect::<Vec<u8>>());
        Verifier { iterations, salt, stored_key: [0; 32], server_key: [0; 32] }
    }

    fn salt_bytes(&self) -> usize {
        STANDARD.decode(&self.salt).map_or(USUAL_SALT_BYTES, |salt| salt.len())
    }

    fn read(text: &str) -> Option<Verifier> {
        let (iterations, rest) = text.split_once(':')?;
        let (salt, keys) = rest.split_once('$')?;
        let (stored, server) = keys.split_once(':')?;
        let key = |text: &str| STANDARD.decode(text).ok()?.try_into().ok();
        STANDARD.decode(salt).ok()?;
        let iterations = iterations.parse().ok().filter(|count| *count > 0)?;
        Some(Verifier { iterations, salt: salt.to_owned(), stored_key: key(stored)?, server_key: key(server)? })
    }
}

impl Exchange {
    /// Reads the client's first message. `random` is the server's part of the nonce, and fresh.
    pub(super) fn begin(verifier: Verifier, client_first: &[u8], random: &[u8; 18]) -> Result<Exchange, ScramError> {
        let text = std::str::from_utf8(client_first).map_err(|_| ScramError::Malformed)?;
        // No channel binding (n), or none that this server would have offered (y); and nobody acts for another.
        let bare = text.strip_prefix("n,,").or_else(|| text.strip_prefix("y,,")).ok_or(ScramError::Malformed)?;
        let mut fields = bare.split(',');
        let _user = fields.next().filter(|user| user.starts_with("n=")).ok_or(ScramError::Malformed)?;
        let client_nonce = fields.next().and_then(|field| field.strip_prefix("r=")).ok_or(ScramError::Malformed)?;
        if client_nonce.is_empty() {
            return Err(ScramError::Malformed);
        }
        let nonce = format!("{client_nonce}{}", STANDARD.encode(random));
        let mut exchange = Exchange { header: text[..3].to_owned(), signed: format!("{bare},"), nonce, verifier };
        exchange.signed.push_str(&exchange.server_first());
        Ok(exchange)
    }

    /// What the server says first.
    pub(super) fn server_first(&self) -> String {
        format!("r={},s={},i={}", self.nonce, self.verifier.salt, self.verifier.iterations)
    }

    /// Reads the client's last message. If it knows the password, returns what the server says last, which shows that
    /// the server knows the verifier.
    pub(super) fn finish(&self, client_final: &[u8]) -> Result<String, ScramError> {
        let text = std::str::from_utf8(client_final).map_err(|_| ScramError::Malformed)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let wanted = format!("c={},r={}", STANDARD.encode(&self.header), self.nonce);
        if without_proof != wanted {
            return Err(ScramError::Malformed);
        }
        let proof = STANDARD.decode(proof).ok().and_then(|proof| <[u8; 32]>::try_from(proof).ok());
        let proof = proof.ok_or(ScramError::Malformed)?;
        let signed = format!("{},{without_proof}", self.signed);
        let client_signature = sign(&self.verifier.stored_key, &signed);
        let client_key: Vec<u8> =
            proof.iter().zip(client_signature).map(|(proof, signature)| proof ^ signature).collect();
        let stored_key = Sha256::digest(&client_key);
        // All bytes are looked at: the time tells nothing.
        let differ = stored_key.iter().zip(self.verifier.stored_key).fold(0, |differ, (a, b)| differ | (a ^ b));
        if differ != 0 {
            return Err(ScramError::WrongPassword);
        }
        Ok(format!("v={}", STANDARD.encode(sign(&self.verifier.server_key, &signed))))
    }
}

fn sign(key: &[u8; 32], text: &str) -> [u8; 32] {
    // A block of 64 bytes takes any shorter key with zeros behind it (RFC 2104).
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let mut mac = <Hmac<Sha256> as KeyInit>::new(&block.into());
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

/// Reads bytes as both of a client's messages. For the fuzzer.
#[cfg(fuzzing)]
pub(super) fn exercise(first: &[u8], last: &[u8]) {
    let Some(verifier) = Verifier::of(&format!("SCRAM-SHA-256$4096:AA==${0}:{0}", STANDARD.encode([0; 32]))) else {
        return;
    };
    let Ok(exchange) = Exchange::begin(verifier, first, &[0; 18]) else { return };
    assert!(exchange.finish(last).is_err(), "a password that nobody knows");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
    use proptest::prelude::*;

    fn exchange(known: &str, given: &str) -> Result<(), String> {
        let mut client = ScramSha256::new(given.as_bytes(), ChannelBinding::unrequested());
        let server = Exchange::begin(Verifier::of(known).unwrap(), client.message(), &[7; 18]).unwrap();
        client.update(server.server_first().as_bytes()).unwrap();
        let last = server.finish(client.message()).map_err(|error| format!("{error:?}"))?;
        client.finish(last.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_client_that_knows_the_password_is_let_in() {
        assert_eq!(exchange("right", "right"), Ok(()));
        assert_eq!(exchange("right", "wrong"), Err("WrongPassword".to_owned()));
        let verifier = postgres_protocol::password::scram_sha_256(b"kept");
        assert_eq!(exchange(&verifier, "kept"), Ok(()));
        assert_eq!(exchange(&verifier, &verifier), Err("WrongPassword".to_owned()), "a verifier is no password");
    }

    #[test]
    fn what_is_no_verifier_is_refused() {
        for wrong in ["SCRAM-SHA-256$", "SCRAM-SHA-256$0:AA==$AA==:AA==", "SCRAM-SHA-256$4096:?$?:?"] {
            assert!(Verifier::of(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn nobody_looks_like_somebody_and_is_not_let_in() {
        let nobody = |secret: u8, user: &str| Verifier::of_nobody(&[secret; 32], user, None);
        assert!(nobody(1, "a") == nobody(1, "a"));
        assert!(nobody(1, "a").salt != nobody(1, "b").salt && nobody(1, "a").salt != nobody(2, "a").salt);
        let somebody = Verifier::of("right").unwrap();
        let look = |verifier: &Verifier| (verifier.iterations, verifier.salt.len());
        assert_eq!(look(&nobody(1, "a")), look(&somebody));
        let key = STANDARD.encode([0_u8; 32]);
        let copied = format!("SCRAM-SHA-256$10000:{}${key}:{key}", STANDARD.encode([1_u8; 40]));
        let copied = Verifier::of(&copied).unwrap();
        assert_eq!(look(&Verifier::of_nobody(&[1; 32], "a", Some(&copied))), look(&copied));
        let mut client = ScramSha256::new(b"", ChannelBinding::unrequested());
        let server = Exchange::begin(nobody(1, "a"), client.message(), &[7; 18]).unwrap();
        client.update(server.server_first().as_bytes()).unwrap();
        assert_eq!(server.finish(client.message()), Err(ScramError::WrongPassword));
    }

    #[test]
    fn channel_binding_and_other_nonces_are_refused() {
        let verifier = Verifier::of("right").unwrap();
        let begin = |text: &str| Exchange::begin(verifier.clone(), text.as_bytes(), &[0; 18]);
        for wrong in ["p=tls-server-end-point,,n=,r=abc", "n,,n=,r=", "n,,r=abc", "n,a=other,n=,r=abc", ""] {
            assert!(begin(wrong).is_err(), "{wrong}");
        }
        let exchange = begin("n,,n=,r=abc").unwrap();
        assert_eq!(exchange.finish(b"c=biws,r=abc,p=AAAA"), Err(ScramError::Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(first in prop::collection::vec(any::<u8>(), 0..100), last in prop::collection::vec(any::<u8>(), 0..100), text in ".*") {
            let verifier = Verifier::read("4096:AAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=").unwrap();
            let _ = Exchange::begin(verifier.clone(), &first, &[0; 18]);
            let _ = Exchange::begin(verifier.clone(), format!("n,,n=,r={text}").as_bytes(), &[0; 18]);
            let _ = Exchange::begin(verifier, b"n,,n=,r=abc", &[0; 18]).unwrap().finish(&last);
            let _ = Verifier::read(&text);
        }
    }
}
