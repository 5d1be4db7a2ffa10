//! The last words: why it ends, as a client is told before its connection is closed. Who was told is left time to hear
//! it ([`Stream::hear_out`]).

use super::stream::Stream;
use crate::wire::refusal;
use backwater_model::Span;
use std::io;

/// A session's client, or the console's, that does not take the last words within this time does not get them; one that took them
/// has as long again to hear them.
pub(super) const LAST_WORDS_WITHIN: Span = Span::from_millis(1_000);

/// Tells a client why it ends, and that nothing more will come.
pub(super) async fn tell(client: &mut Stream, sqlstate: &str, why: &str) -> io::Result<()> {
    client.write_all(&refusal(sqlstate, why)).await?;
    client.shutdown().await
}
