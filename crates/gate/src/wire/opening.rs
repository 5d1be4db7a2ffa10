//! The first packet of a client's connection, which has no type byte: a start-up message of protocol 3, a request for
//! TLS or GSS encryption, or a cancel request. (PostgreSQL documentation, "Message Formats"; `src/include/libpq/pqcomm.h`.)

use std::collections::BTreeMap;

/// The longest first packet that a server takes (MAX_STARTUP_PACKET_LENGTH).
pub const MOST_OPENING_BYTES: usize = 10_000;

pub(super) const CANCEL: u32 = 1234 << 16 | 5678;
const SSL: u32 = 1234 << 16 | 5679;
/// The request for encryption, as a client sends it.
pub const SSL_REQUEST: [u8; 8] = {
    let code = SSL.to_be_bytes();
    [0, 0, 0, 8, code[0], code[1], code[2], code[3]]
};
const GSS: u32 = 1234 << 16 | 5680;
/// The first byte of a TLS handshake: since PostgreSQL 17 a client may begin with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// What a connection begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The client would like TLS.
    Ssl,
    /// The client would like GSS encryption.
    Gss,
    /// The client begins with TLS at once.
    DirectTls,
    /// The client wants a running statement cancelled; the packet is passed on as it is.
    Cancel,
    /// The client wants a session.
    StartUp(StartUp),
}

/// What a start-up message says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartUp {
    /// The minor version of protocol 3: 0, or 2 from PostgreSQL 18 on.
    pub minor: u16,
    /// The parameters; the last of a name counts. What is no UTF-8 in them is replaced: only the server knows their
    /// encoding.
    pub parameters: BTreeMap<String, String>,
}

/// Why the first packet is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpeningError {
    /// The length that it begins with cannot be.
    #[error("{}", wrong_length(*.0))]
    Length(u32),
    /// Another protocol.
    #[error("protocol {0}.{1} is not known: it must be 3")]
    Version(u16, u16),
    /// The parameters are cut short.
    #[error("the parameters of the start-up message are malformed")]
    Parameters,
    /// Nobody says who it is.
    #[error("the start-up message names no user")]
    NoUser,
}

impl StartUp {
    /// The user, for whom the server is asked.
    pub fn user(&self) -> &str {
        self.parameters.get("user").map_or("", String::as_str)
    }

    /// The database: the user's name where none is named.
    pub fn database(&self) -> &str {
        self.parameters.get("database").map_or(self.user(), String::as_str)
    }

    /// Whether the client speaks the replication protocol.
    pub fn is_replication(&self) -> bool {
        // As the server reads it: a beginning of these words will do. What says neither is refused there.
        self.parameters.get("replication").is_some_and(|value| {
            let begins = |word: &str| word.starts_with(&value.to_ascii_lowercase());
            let is_yes = begins("true") || begins("yes") || value.eq_ignore_ascii_case("on") || value == "1";
            value == "database" || (is_yes && !value.is_empty())
        })
    }

    /// A setting, whose name may be in any case, given in `options` as `-c name=value` or `--name=value`; the last counts.
    pub fn option(&self, name: &str) -> Option<String> {
        let words = split_options(self.parameters.get("options")?);
        let mut found = None;
        let mut expect_setting = false;
        for word in words {
            let setting = match (expect_setting, word.as_str()) {
                (true, setting) => Some(setting.to_owned()),
                (false, "-c") => {
                    expect_setting = true;
                    continue;
                }
                (false, word) => word.strip_prefix("-c").or_else(|| word.strip_prefix("--")).map(str::to_owned),
            };
            expect_setting = false;
            if let Some((key, value)) = setting.as_deref().and_then(|setting| setting.split_once('='))
                && key.eq_ignore_ascii_case(name)
            {
                found = Some(value.to_owned());
            }
        }
        found
    }
}

/// A PROXY header begins with these letters, or is of the second version, which begins with an end of line.
fn wrong_length(length: u32) -> String {
    match &length.to_be_bytes() {
        b"PROX" | b"\r\n\r\n" => {
            "it begins with a PROXY header, which is taken from networks in proxy_protocol_from only".to_owned()
        }
        _ => format!("the first packet says that it has {length} bytes: it must have 8 to {MOST_OPENING_BYTES}"),
    }
}

/// Words of `options`: separated by blanks, a backslash takes the next character as it is.
fn split_options(options: &str) -> Vec<String> {
    let (mut words, mut word, mut escaped) = (Vec::new(), String::new(), false);
    for c in options.chars() {
        if escaped {
            word.push(c);
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c.is_whitespace() {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
        } else {
            word.push(c);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Reads what a connection begins with, and how many bytes it took. None where more bytes are needed. A TLS handshake
/// takes none: it is not ours.
pub fn read_opening(bytes: &[u8]) -> Result<Option<(Opening, usize)>, OpeningError> {
    if bytes.first() == Some(&TLS_HANDSHAKE) {
        return Ok(Some((Opening::DirectTls, 0)));
    }
    let Some((length, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let said = u32::from_be_bytes(*length);
    let length = said as usize;
    if !(8..=MOST_OPENING_BYTES).contains(&length) {
        return Err(OpeningError::Length(said));
    }
    let Some((code, _)) = rest.split_first_chunk() else { return Ok(None) };
    let code = u32::from_be_bytes(*code);
    let known_version = matches!(code, CANCEL | SSL | GSS) || code >> 16 == 3;
    if !known_version {
        return Err(OpeningError::Version((code >> 16) as u16, code as u16));
    }
    let Some(body) = bytes.get(8..length) else { return Ok(None) };
    let opening = match code {
        CANCEL => Opening::Cancel,
        SSL => Opening::Ssl,
        GSS => Opening::Gss,
        _ => Opening::StartUp(start_up(code as u16, body)?),
    };
    Ok(Some((opening, length)))
}

fn start_up(minor: u16, body: &[u8]) -> Result<StartUp, OpeningError> {
    let mut parameters = BTreeMap::new();
    // Pairs of texts, each with its zero, and a zero in the end.
    let pairs = body.strip_suffix(&[0]).ok_or(OpeningError::Parameters)?;
    let mut words = pairs.split_inclusive(|byte| *byte == 0);
    while let Some(name) = words.next() {
        let value = words.next().ok_or(OpeningError::Parameters)?;
        parameters.insert(text(name)?, text(value)?);
    }
    let start = StartUp { minor, parameters };
    if start.user().is_empty() { Err(OpeningError::NoUser) } else { Ok(start) }
}

/// A text that ends with a zero. A server takes names and an application_name in any encoding, and so must who stands
/// before it.
fn text(bytes: &[u8]) -> Result<String, OpeningError> {
    let text = bytes.strip_suffix(&[0]).ok_or(OpeningError::Parameters)?;
    Ok(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn packet(code: u32, body: &[u8]) -> Vec<u8> {
        let mut packet = (8 + body.len() as u32).to_be_bytes().to_vec();
        packet.extend_from_slice(&code.to_be_bytes());
        packet.extend_from_slice(body);
        packet
    }

    #[test]
    fn a_start_up_message_says_who_and_where() {
        let body = b"user\0user1\0application_name\0psql\0options\0-c a=1 --backwater.pool=my\\ pool\0replication\0database\0\0";
        let bytes = packet(3 << 16 | 2, body);
        let (opening, length) = read_opening(&bytes).unwrap().unwrap();
        let Opening::StartUp(start) = opening else { panic!("{opening:?}") };
        assert_eq!((length, start.minor, start.user(), start.database()), (bytes.len(), 2, "user1", "user1"));
        assert_eq!(start.option("backwater.pool").as_deref(), Some("my pool"));
        assert_eq!(start.option("a").as_deref(), Some("1"));
        assert_eq!(start.option("b"), None);
        assert!(start.is_replication());
    }

    #[test]
    fn who_replicates_is_told_as_the_server_tells_it() {
        let replicates = |value: &str| {
            let parameters = [("replication".to_owned(), value.to_owned())].into_iter().collect();
            StartUp { parameters, ..StartUp::default() }.is_replication()
        };
        for value in ["database", "true", "TRUE", "t", "tru", "y", "yes", "on", "On", "1"] {
            assert!(replicates(value), "{value}");
        }
        // Of these the server makes an ordinary session, or none.
        for value in ["false", "f", "n", "no", "of", "off", "0", "", "o", "Database", "truer", "2"] {
            assert!(!replicates(value), "{value}");
        }
    }

    #[test]
    fn names_in_another_encoding_are_for_the_server_to_judge() {
        let bytes = packet(3 << 16, b"user\0m\xfcller\0application_name\0B\xfcro.exe\0\0");
        let (opening, length) = read_opening(&bytes).unwrap().unwrap();
        let Opening::StartUp(start) = opening else { panic!("{opening:?}") };
        assert_eq!((length, start.user()), (bytes.len(), "m\u{fffd}ller"));
    }

    #[test]
    fn requests_are_told_apart() {
        let of = |bytes: &[u8]| read_opening(bytes).unwrap().unwrap();
        assert_eq!(of(&packet(SSL, b"")), (Opening::Ssl, 8));
        assert_eq!(of(&packet(GSS, b"")), (Opening::Gss, 8));
        assert_eq!(of(&packet(CANCEL, &[0; 8])), (Opening::Cancel, 16));
        assert_eq!(of(&packet(CANCEL, &[0; 36])), (Opening::Cancel, 44), "protocol 3.2 has longer keys");
        assert_eq!(of(&[0x16, 3, 1]), (Opening::DirectTls, 0));
    }

    #[test]
    fn what_is_no_first_packet_is_refused() {
        let refused = |bytes: &[u8]| read_opening(bytes).unwrap_err();
        assert_eq!(refused(b"GET / HTTP/1.1\r\n\r\n"), OpeningError::Length(0x4745_5420));
        assert_eq!(refused(&packet(2 << 16, b"")), OpeningError::Version(2, 0));
        assert_eq!(refused(&packet(3 << 16, b"user\0x\0")), OpeningError::Parameters);
        assert_eq!(refused(&packet(3 << 16, b"user\0x")), OpeningError::Parameters);
        assert_eq!(refused(&packet(3 << 16, b"\0")), OpeningError::NoUser);
        assert_eq!(refused(&[0, 0, 0, 7]), OpeningError::Length(7));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), code in prop::sample::select(&[CANCEL, SSL, GSS, 3 << 16, 3 << 16 | 2][..])) {
            let _ = read_opening(&bytes);
            let packet = packet(code, &bytes);
            if let Ok(Some((_, length))) = read_opening(&packet) { prop_assert_eq!(length, packet.len()) }
        }

        /// However a packet is cut, it is either not there yet or the same.
        #[test]
        fn a_packet_that_comes_in_pieces_is_waited_for(user in "[a-z]{1,20}", cut in 0..200usize) {
            let bytes = packet(3 << 16, format!("user\0{user}\0\0").as_bytes());
            let cut = cut.min(bytes.len());
            let early = read_opening(&bytes[..cut]).unwrap();
            prop_assert_eq!(early.is_some(), cut == bytes.len());
        }
    }
}
