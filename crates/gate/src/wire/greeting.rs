//! The server's first words on a login, where the way to it is encrypted and the client's own encryption ends here: its
//! offer to bind the login to the channel (SCRAM-SHA-256-PLUS) is taken out, since the channel is not the client's. All
//! else stands as it is. (PostgreSQL, "SASL Authentication".)

/// More than a server's first words are not waited for.
pub const MOST_GREETING_BYTES: usize = 8 * 1024;

const AUTHENTICATION: u8 = b'R';
const NOTICE: u8 = b'N';
const NEGOTIATE_VERSION: u8 = b'v';
/// AuthenticationSASL's number.
const SASL: [u8; 4] = [0, 0, 0, 10];
const BOUND: &[u8] = b"SCRAM-SHA-256-PLUS";
const HEAD_BYTES: usize = 5;

/// The server's words as the client may hear them, once they hold its answer to the start-up message; None while they do
/// not. Whatever is not understood is passed on as it is.
pub fn without_channel_binding(words: &[u8]) -> Option<Vec<u8>> {
    let mut rest = words;
    let mut told = Vec::with_capacity(words.len());
    while let Some((kind, message)) = first_message(rest) {
        let Some(message) = message else {
            return (words.len() >= MOST_GREETING_BYTES).then(|| words.to_vec());
        };
        let after = &rest[message.len()..];
        match kind {
            NOTICE | NEGOTIATE_VERSION => told.extend_from_slice(message),
            AUTHENTICATION => {
                told.extend_from_slice(&unbound(message).unwrap_or_else(|| message.to_vec()));
                told.extend_from_slice(after);
                return Some(told);
            }
            _ => return Some(words.to_vec()),
        }
        rest = after;
    }
    (words.len() >= MOST_GREETING_BYTES).then(|| words.to_vec())
}

/// Kind and bytes of the first message; no bytes where it is not whole yet. None where not even its head is there.
fn first_message(bytes: &[u8]) -> Option<(u8, Option<&[u8]>)> {
    let (kind, rest) = bytes.split_first()?;
    let length = u32::from_be_bytes(*rest.first_chunk()?) as usize;
    // A length that cannot be is nothing to wait for: the bytes are passed on.
    if !(4..=MOST_GREETING_BYTES).contains(&length) {
        return Some((0, Some(bytes)));
    }
    Some((*kind, bytes.get(..=length)))
}

/// AuthenticationSASL without the offer; None where it is another message, or makes no such offer.
fn unbound(message: &[u8]) -> Option<Vec<u8>> {
    let body = message.get(HEAD_BYTES..)?.strip_prefix(&SASL[..])?;
    let names: Vec<&[u8]> = body.split(|byte| *byte == 0).take_while(|name| !name.is_empty()).collect();
    if !names.contains(&BOUND) {
        return None;
    }
    let mut kept = SASL.to_vec();
    for name in names.into_iter().filter(|name| *name != BOUND) {
        kept.extend_from_slice(name);
        kept.push(0);
    }
    kept.push(0);
    let length = u32::try_from(kept.len() + 4).ok()?;
    Some([&[AUTHENTICATION][..], &length.to_be_bytes(), &kept].concat())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    }

    #[test]
    fn the_offer_is_taken_out_and_nothing_else() {
        let offer = message(b'R', b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
        let plain = message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0");
        let notice = message(b'N', b"SNOTICE\0\0");
        assert_eq!(without_channel_binding(&offer).unwrap(), plain);
        let both = [&notice[..], &offer[..]].concat();
        assert_eq!(without_channel_binding(&both).unwrap(), [&notice[..], &plain[..]].concat());
        for as_it_is in [plain, message(b'R', b"\0\0\0\x05salt"), message(b'E', b"SFATAL\0\0"), message(b'R', b"")] {
            assert_eq!(without_channel_binding(&as_it_is).unwrap(), as_it_is);
        }
        for cut in 0..both.len() {
            assert_eq!(without_channel_binding(&both[..cut]), None);
        }
    }

    proptest! {
        #[test]
        fn any_words_are_survived(words in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(told) = without_channel_binding(&words) {
                prop_assert!(told.len() <= words.len());
            }
        }
    }
}
