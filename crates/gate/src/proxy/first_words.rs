//! The first words: what a client opens with, and what the server says to that.

use super::stream::Stream;
use crate::wire::{MOST_OPENING_BYTES, Opening, OpeningError, read_opening, without_channel_binding};
use std::io;

/// Bytes read at once of an opening: most have a few hundred.
const OPENING_READ: usize = 1024;

/// Passes the start-up message on, and reads the server's first words: they may hold an offer that cannot be kept where the
/// two ways are encrypted apart.
pub(super) async fn first_words(server: &mut Stream, start: &[u8]) -> io::Result<Vec<u8>> {
    server.write_all(start).await?;
    let mut words = Vec::new();
    loop {
        let count = read_more(server, &mut words).await?;
        if count == 0 {
            return Ok(words);
        }
        if let Some(told) = without_channel_binding(&words) {
            return Ok(told);
        }
    }
}

/// Reads until the opening is whole. None where the client left.
pub(super) async fn read_whole(
    client: &mut Stream,
    heard: &mut Vec<u8>,
) -> io::Result<Result<Option<(Opening, usize)>, OpeningError>> {
    loop {
        match read_opening(heard) {
            Ok(None) => {}
            decided => return Ok(decided),
        }
        if read_more(client, heard).await? == 0 {
            return Ok(Ok(None));
        }
    }
}

/// Reads some more. Zero where the client left.
pub(super) async fn read_more(client: &mut Stream, heard: &mut Vec<u8>) -> io::Result<usize> {
    let have = heard.len();
    heard.resize((have + OPENING_READ).min(MOST_OPENING_BYTES + OPENING_READ), 0);
    let count = client.read(&mut heard[have..]).await?;
    heard.truncate(have + count);
    Ok(count)
}
