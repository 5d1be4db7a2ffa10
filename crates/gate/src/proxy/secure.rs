//! TLS between a relay's buffers and one of its sockets. rustls is a state machine over bytes; this drives it from the
//! relay's polls, so that an encrypted session moves between workers like any other: a socket and a value.
//!
//! What rustls holds is bounded: nothing is read while plaintext waits to be taken, and no plaintext is taken while
//! ciphertext waits to be sent.

use super::stream::Socket;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// What must be agreed upon where encryption begins at once (PostgreSQL 17), so that no other protocol is taken for it.
pub(super) const PROTOCOL: &[u8] = b"postgresql";

/// One end of an encrypted connection.
#[derive(Debug)]
pub(super) struct Secure {
    connection: Connection,
}

impl Secure {
    /// The end that clients come to.
    pub(super) fn server(config: &Arc<ServerConfig>) -> io::Result<Secure> {
        let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        Ok(Secure { connection: connection.into() })
    }

    /// The end that goes to the server.
    pub(super) fn client(config: &Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<Secure> {
        let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Secure { connection: connection.into() })
    }

    /// Takes what was read from the socket already.
    pub(super) fn hear(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.connection.read_tls(&mut bytes)?;
            self.connection.process_new_packets().map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Whether both ends agreed on PostgreSQL's protocol, which they must where encryption began at once.
    pub(super) fn is_postgresql(&self) -> bool {
        self.connection.alpn_protocol() == Some(PROTOCOL)
    }

    /// Whether something was decrypted that nobody has taken yet, or nothing more will come.
    pub(super) fn has_plaintext(&self) -> bool {
        !self.connection.wants_read()
    }

    /// Both ends agree on keys.
    pub(super) fn poll_handshake(&mut self, cx: &mut Context<'_>, socket: &mut Socket) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(cx, socket))?;
            if !self.connection.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_receive(cx, socket))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.connection.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Who leaves without a word of goodbye has left.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
                read => return Poll::Ready(read),
            }
            ready!(self.poll_receive(cx, socket))?;
            // What it answers by itself (a key renewed) goes as far as it goes; the next write takes the rest, or says why not:
            // last words of who has left already are heard all the same.
            let _ = self.poll_send(cx, socket);
        }
    }

    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx, socket))?;
        let taken = self.connection.writer().write(bytes)?;
        if let Poll::Ready(sent) = self.poll_send(cx, socket) {
            sent?;
        }
        Poll::Ready(Ok(taken))
    }

    /// Whether something that is encrypted is still to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends all that is encrypted.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>, socket: &mut Socket) -> Poll<io::Result<()>> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Blocking { cx, socket }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Says goodbye.
    pub(super) fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Reads and decrypts once; nothing at the socket's end.
    fn poll_receive(&mut self, cx: &mut Context<'_>, socket: &mut Socket) -> Poll<io::Result<usize>> {
        let count = match self.connection.read_tls(&mut Blocking { cx, socket }) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            read => read?,
        };
        if let Err(error) = self.connection.process_new_packets() {
            // The other end is told what is wrong, if it still listens.
            let _ = self.poll_send(cx, socket);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(count))
    }
}

/// A socket as rustls wants one: what cannot be done now is an error, and somebody is woken when it can.
struct Blocking<'a, 'b> {
    cx: &'a mut Context<'b>,
    socket: &'a mut Socket,
}

impl Read for Blocking<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.socket.poll_read(self.cx, into) {
            Poll::Ready(read) => read,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Blocking<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.socket.poll_write(self.cx, bytes) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stderr)]
    use super::super::Address;
    use super::super::stream::Stream;
    use super::super::tls::{ClientTls, ServerTls};
    use std::future::poll_fn;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::task::Poll;
    use tokio::net::{TcpListener, TcpStream};

    /// A certificate that signs itself, and its key; false where there is no openssl.
    fn certificate(dir: &Path) -> bool {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-days", "2", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=localhost"]);
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "own.key", "-out", "own.crt"]);
        openssl.current_dir(dir).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// Both ends of an encrypted connection: one as towards a server, one as towards a client.
    async fn ends(dir: &Path) -> (Stream, Stream) {
        let beside = dir.join("proxy.toml");
        let address: Address = "localhost:5432".parse().unwrap();
        let written = toml::from_str("mode = 'require'").unwrap();
        let to_server = ServerTls::read(&written, &address, &beside).unwrap().unwrap();
        let written = toml::from_str("certificate = 'own.crt'\nkey = 'own.key'").unwrap();
        let to_client = ClientTls::read(&written, &beside).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = Stream::from(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
        let far = Stream::from(listener.accept().await.unwrap().0);
        tokio::try_join!(near.encrypt(to_server.begin().unwrap()), far.encrypt(to_client.begin().unwrap())).unwrap()
    }

    #[tokio::test]
    async fn last_words_are_heard_where_nothing_can_be_sent_any_more() {
        let dir = tempfile::tempdir().unwrap();
        if !certificate(dir.path()) {
            eprintln!("skipped: encryption: needs openssl");
            return;
        }
        let (mut near, mut far) = ends(dir.path()).await;
        // As a COPY fills it: the last of it is encrypted and not sent.
        poll_fn(|cx| {
            while near.poll_write(cx, &[0; 16_384]).is_ready() {}
            Poll::Ready(())
        })
        .await;
        far.write_all(b"FATAL").await.unwrap();
        // What it did not read makes a reset of its goodbye.
        drop(far);
        let mut heard = [0; 16];
        let count = near.read(&mut heard).await.unwrap();
        assert_eq!(&heard[..count], b"FATAL");
    }
}
