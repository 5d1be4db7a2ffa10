//! The request that cancels a running statement. (PostgreSQL documentation, "Canceling Requests in Progress".)

/// A CancelRequest for the server process whose BackendKeyData this is: its number and the key behind it.
pub fn cancel_request(key_data: &[u8]) -> Vec<u8> {
    let length = 8 + key_data.len() as u32;
    let mut packet = length.to_be_bytes().to_vec();
    packet.extend_from_slice(&super::opening::CANCEL.to_be_bytes());
    packet.extend_from_slice(key_data);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Opening, read_opening};

    #[test]
    fn a_cancel_request_is_read_as_one() {
        let packet = cancel_request(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(read_opening(&packet), Ok(Some((Opening::Cancel, 16))));
    }
}
