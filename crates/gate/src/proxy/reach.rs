//! The proxy's way to the server: a connection, and its encryption where the configuration asks for it.

use super::stream::{Stream, URGENT_NOT_SENT_BYTES};
use super::terms::Terms;
use crate::clock;
use crate::wire::SSL_REQUEST;
use backwater_model::Moment;
use std::io;

/// The answer to a request for encryption that declines it, and the one that takes it.
pub(super) const NO_ENCRYPTION: u8 = b'N';
pub(super) const ENCRYPTION: u8 = b'S';

/// A connection with the server on which a client's requests for encryption are passed on.
pub(super) struct Asked {
    pub(super) server: Stream,
    /// When it was connected with.
    pub(super) since: Moment,
    /// It declined TLS: of another kind of encryption that says nothing.
    pub(super) declined: bool,
}

impl Asked {
    pub(super) async fn connect(terms: &Terms) -> io::Result<Asked> {
        let since = clock::now();
        Ok(Asked { server: connect(terms).await?, since, declined: false })
    }

    /// The server's answer of one byte to a request; none where it left.
    pub(super) async fn ask(&mut self, request: &[u8]) -> io::Result<Option<u8>> {
        self.server.write_all(request).await?;
        let mut answer = [0];
        let count = self.server.read(&mut answer).await?;
        self.declined |= request == SSL_REQUEST && answer[0] == NO_ENCRYPTION;
        Ok((count > 0).then_some(answer[0]))
    }
}

/// A connection with the server, encrypted as the configuration has it: as a client's would be, and for the proxy itself.
pub(super) async fn reach(terms: &Terms) -> io::Result<Stream> {
    let server = connect(terms).await?;
    server.set_options(URGENT_NOT_SENT_BYTES)?;
    encrypted(terms, server, false).await
}

/// A connection with the server, as bare as it comes.
pub(super) async fn connect(terms: &Terms) -> io::Result<Stream> {
    let within = terms.limits.connect_timeout();
    match tokio::time::timeout(within, Stream::connect(&terms.server)).await {
        Ok(connected) => connected,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {} s", within.as_secs_f64()))),
    }
}

/// Encrypts a connection with the server, where the configuration asks for it and the server has not `declined` already.
pub(super) async fn encrypted(terms: &Terms, mut server: Stream, declined: bool) -> io::Result<Stream> {
    let Some(tls) = &terms.server_tls else { return Ok(server) };
    let encrypted = async {
        let mut answer = [NO_ENCRYPTION];
        if !declined {
            server.write_all(&SSL_REQUEST).await?;
            server.read(&mut answer).await?;
        }
        match answer[0] {
            ENCRYPTION => server.encrypt(tls.begin()?).await,
            _ if tls.required => Err(io::Error::other("it takes no encryption, which server_tls asks for")),
            _ => Ok(server),
        }
    };
    let within = tokio::time::timeout(terms.limits.connect_timeout(), encrypted);
    within.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
