//! What the proxy says of its own accord: errors and notices to a client, and goodbye to a server.

/// Terminate: ends a session.
pub const TERMINATE: [u8; 5] = [b'X', 0, 0, 0, 4];

/// An ErrorResponse of severity FATAL with an SQLSTATE, as clients show it.
pub fn refusal(sqlstate: &str, message: &str) -> Vec<u8> {
    error_or_notice(b'E', "FATAL", sqlstate, message, 0)
}

/// An ErrorResponse (`E`) or a NoticeResponse (`N`). The position is counted in the statement's characters from 1; 0 is
/// nowhere.
pub fn error_or_notice(kind: u8, severity: &str, sqlstate: &str, message: &str, position: usize) -> Vec<u8> {
    let mut fields = Vec::new();
    let mut field = |kind: u8, value: &str| {
        fields.push(kind);
        // A zero would end it.
        fields.extend(value.bytes().filter(|byte| *byte != 0));
        fields.push(0);
    };
    field(b'S', severity);
    field(b'V', severity);
    field(b'C', sqlstate);
    field(b'M', message);
    if position > 0 {
        field(b'P', &position.to_string());
    }
    fields.push(0);
    let mut packet = vec![kind];
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
