//! The two messages that the proxy says of its own accord: a fatal error to a client, and goodbye to a server.

/// Terminate: ends a session.
pub const TERMINATE: [u8; 5] = [b'X', 0, 0, 0, 4];

/// An ErrorResponse of severity FATAL with an SQLSTATE, as clients show it.
pub fn refusal(sqlstate: &str, message: &str) -> Vec<u8> {
    let mut fields = Vec::new();
    for (kind, value) in [(b'S', "FATAL"), (b'V', "FATAL"), (b'C', sqlstate), (b'M', message)] {
        fields.push(kind);
        fields.extend(value.bytes().filter(|byte| *byte != 0));
        fields.push(0);
    }
    fields.push(0);
    let mut packet = vec![b'E'];
    packet.extend_from_slice(&(fields.len() as u32 + 4).to_be_bytes());
    packet.extend(fields);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Heads;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_refusal_is_one_message(message in ".*") {
            let mut heads = Heads::new();
            let mut kinds = Vec::new();
            heads.feed(&refusal("53300", &message), |head| kinds.push(head.kind));
            prop_assert_eq!(kinds, [b'E']);
            prop_assert!(heads.at_boundary());
        }
    }
}
