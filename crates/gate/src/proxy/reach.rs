//! The proxy's way to the server: a connection, and its encryption where the configuration asks for it.

use super::Address;
use super::admission::Place;
use super::live::Live;
use super::stream::{Stream, URGENT_NOT_SENT_BYTES};
use super::terms::Terms;
use crate::clock;
use crate::wire::SSL_REQUEST;
use backwater_model::Moment;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::lookup_host;

/// The answer to a request for encryption that declines it, and the one that takes it.
pub(super) const NO_ENCRYPTION: u8 = b'N';
pub(super) const ENCRYPTION: u8 = b'S';
/// The one that takes a request for GSS encryption.
const GSS_ENCRYPTION: u8 = b'G';

/// A connection with the server on which a client's requests for encryption are passed on.
pub(super) struct Asked {
    pub(super) server: Stream,
    /// When it was connected with.
    pub(super) since: Moment,
    /// It declined TLS: of another kind of encryption that says nothing.
    pub(super) declined: bool,
    /// It agreed to what it was asked for last: now the client speaks. What it says instead may be an error, which goes on.
    pub(super) agreed: bool,
    /// Its client's place, until that has said whose it is.
    pub(super) place: Option<Place>,
}

impl Asked {
    pub(super) async fn connect(terms: &Terms, place: Place) -> io::Result<Asked> {
        let since = clock::now();
        Ok(Asked { server: connect(terms).await?, since, declined: false, agreed: false, place: Some(place) })
    }

    /// The server's answer of one byte to a request; none where it left.
    pub(super) async fn ask(&mut self, request: &[u8]) -> io::Result<Option<u8>> {
        self.server.write_all(request).await?;
        let mut answer = [0];
        let count = self.server.read(&mut answer).await?;
        self.agreed = matches!(answer[0], ENCRYPTION | GSS_ENCRYPTION);
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

/// A connection with the server, as bare as it comes. Each address of its name has the whole time, as of libpq's connect_timeout: one
/// that does not answer leaves some to the next.
pub(super) async fn connect(terms: &Terms) -> io::Result<Stream> {
    let within = terms.limits.connect_timeout();
    match &terms.server {
        Address::Tcp(name) => {
            let addresses = in_time(within, lookup_host(name.as_str())).await?;
            connect_to_any(addresses, within).await
        }
        Address::Unix(path) => in_time(within, Stream::connect_local(path)).await,
    }
}

/// The same for a request to cancel what a session runs: with the address at which that session has its server, as libpq does.
pub(super) async fn connect_again(terms: &Terms, session: Option<&Live>) -> io::Result<Stream> {
    match session.and_then(|live| live.identity.server_end) {
        Some(address) => connect_to_any([address], terms.limits.connect_timeout()).await,
        None => connect(terms).await,
    }
}

/// A connection with the first of these that takes it in time; as an error why the last one did not.
async fn connect_to_any(addresses: impl IntoIterator<Item = SocketAddr>, within: Duration) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match in_time(within, Stream::connect(address)).await {
            Ok(connected) => return Ok(connected),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What this comes to; an error where it takes longer.
pub(super) async fn in_time<T>(within: Duration, what: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(within, what).await {
        Ok(done) => done,
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
            if server.read(&mut answer).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"));
            }
        }
        match answer[0] {
            ENCRYPTION => server.encrypt(tls.begin()?).await.map_err(distrusted),
            NO_ENCRYPTION if tls.required => Err(io::Error::other("it takes no encryption, which server_tls asks for")),
            NO_ENCRYPTION => Ok(server),
            // An error, of a server that has no process for it: what it is is not in this byte, and it says no more than that.
            _ => Err(io::Error::other("it refused the connection when it was asked for encryption (its log says why)")),
        }
    };
    in_time(terms.limits.connect_timeout(), encrypted).await
}

/// A certificate that is refused is no matter of the network.
fn distrusted(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(why)) => io::Error::other(format!(
            "its certificate is not one that server_tls trusts (mode, roots and name there): {why}"
        )),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::ProxyConfig;
    use super::super::live::Identity;
    use super::super::pools::LivePool;
    use super::*;
    use backwater_flow::{PoolId, SessionId};
    use tokio::net::TcpListener;

    const SOON: Duration = Duration::from_millis(300);

    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_to_the_next() {
        // Its queue of connections is full: whoever comes is not answered.
        let silent = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        silent.listen(0).unwrap();
        let silent_one = silent.local_addr().unwrap().as_socket().unwrap();
        let mut queued = Vec::new();
        while let Ok(one) = in_time(SOON, Stream::connect(silent_one)).await {
            queued.push(one);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let answering = listener.local_addr().unwrap();
        let connected = connect_to_any([silent_one, silent_one, answering], SOON).await.unwrap();
        assert_eq!(connected.other_address(), Some(answering));
        let error = connect_to_any([silent_one], SOON).await.unwrap_err();
        assert_eq!(error.to_string(), "no answer in 0.3 s");
        assert_eq!(connect_to_any([], SOON).await.unwrap_err().to_string(), "the name has no address");
    }

    #[tokio::test]
    async fn a_cancel_request_goes_where_its_session_has_its_server() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server_end = Some(listener.local_addr().unwrap());
        let identity = Identity { server_end, ..Identity::of_test(SessionId(1)) };
        let live = Live::new(identity, LivePool::new("one", PoolId(0)), false);
        let config = ProxyConfig::plain("127.0.0.1:0".parse().unwrap(), "127.0.0.1:1".parse().unwrap());
        let terms = Terms::new(&config, None);
        assert_eq!(connect_again(&terms, Some(&live)).await.unwrap().other_address(), server_end);
        assert!(connect_again(&terms, None).await.is_err());
    }
}
