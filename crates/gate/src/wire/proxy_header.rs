//! The PROXY protocol, versions 1 and 2: how a load balancer says whose connection it passes on. (HAProxy,
//! "The PROXY protocol", proxy-protocol.txt.) It is believed only from where the configuration says so.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest line of version 1, with its end.
const MOST_LINE_BYTES: usize = 107;
/// What version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Addresses and extensions of version 2 that are longer are refused: real ones have a few hundred bytes.
const MOST_V2_BYTES: usize = 4096;

/// Whose connection it is; None where the balancer speaks for itself (a health check) or does not know.
pub type Announced = Option<SocketAddr>;

/// Why a header is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    /// Something else stands there.
    #[error("the connection does not begin with a PROXY header, which its source must send")]
    Missing,
    /// The header makes no sense.
    #[error("the PROXY header is malformed")]
    Malformed,
}

/// Reads a header, and how many bytes it took. None where more bytes are needed.
pub fn read_proxy_header(bytes: &[u8]) -> Result<Option<(Announced, usize)>, ProxyHeaderError> {
    if begins(bytes, SIGNATURE) {
        return version_2(bytes);
    }
    if begins(bytes, b"PROXY ") {
        return version_1(bytes);
    }
    Err(ProxyHeaderError::Missing)
}

/// Whether these bytes begin so, as far as they go.
fn begins(bytes: &[u8], with: &[u8]) -> bool {
    let common = bytes.len().min(with.len());
    bytes[..common] == with[..common]
}

fn version_1(bytes: &[u8]) -> Result<Option<(Announced, usize)>, ProxyHeaderError> {
    let seen = &bytes[..bytes.len().min(MOST_LINE_BYTES)];
    let Some(end) = seen.windows(2).position(|pair| pair == b"\r\n") else {
        return if seen.len() < MOST_LINE_BYTES { Ok(None) } else { Err(ProxyHeaderError::Malformed) };
    };
    let line = std::str::from_utf8(&seen[..end]).map_err(|_| ProxyHeaderError::Malformed)?;
    let mut words = line.split(' ').skip(1);
    let family = words.next();
    if family == Some("UNKNOWN") {
        return Ok(Some((None, end + 2)));
    }
    let source: Option<IpAddr> = words.next().and_then(|word| word.parse().ok());
    let _destination = words.next();
    let port: Option<u16> = words.next().and_then(|word| word.parse().ok());
    let fits = match source {
        Some(IpAddr::V4(_)) => family == Some("TCP4"),
        Some(IpAddr::V6(_)) => family == Some("TCP6"),
        None => false,
    };
    match (source, port) {
        (Some(source), Some(port)) if fits => Ok(Some((Some(SocketAddr::new(source, port)), end + 2))),
        _ => Err(ProxyHeaderError::Malformed),
    }
}

fn version_2(bytes: &[u8]) -> Result<Option<(Announced, usize)>, ProxyHeaderError> {
    let Some((&[version, family, high, low], rest)) = bytes.get(12..).and_then(<[u8]>::split_first_chunk) else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if version >> 4 != 2 || version & 0xf > 1 || length > MOST_V2_BYTES {
        return Err(ProxyHeaderError::Malformed);
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    let is_proxied = version & 0xf == 1;
    let announced = match (is_proxied, family) {
        (true, 0x11) => {
            let (source, ports) = (first::<4>(body, 0)?, first::<2>(body, 8)?);
            Some(SocketAddr::new(Ipv4Addr::from(source).into(), u16::from_be_bytes(ports)))
        }
        (true, 0x21) => {
            let (source, ports) = (first::<16>(body, 0)?, first::<2>(body, 32)?);
            Some(SocketAddr::new(Ipv6Addr::from(source).into(), u16::from_be_bytes(ports)))
        }
        // The balancer itself, or a family that has no addresses of this kind.
        _ => None,
    };
    Ok(Some((announced, 16 + length)))
}

fn first<const N: usize>(body: &[u8], at: usize) -> Result<[u8; N], ProxyHeaderError> {
    body.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(ProxyHeaderError::Malformed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend_from_slice(&[command, family]);
        header.extend_from_slice(&(body.len() as u16).to_be_bytes());
        header.extend_from_slice(body);
        header
    }

    #[test]
    fn both_versions_say_whose_connection_it_is() {
        let whole = |bytes: &[u8]| read_proxy_header(bytes).unwrap().unwrap();
        let line = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 5432\r\nrest";
        assert_eq!(whole(line), (Some("192.0.2.1:56324".parse().unwrap()), line.len() - 4));
        let line = b"PROXY TCP6 2001:db8::1 2001:db8::2 4000 5432\r\n";
        assert_eq!(whole(line).0, Some("[2001:db8::1]:4000".parse().unwrap()));
        assert_eq!(whole(b"PROXY UNKNOWN\r\n"), (None, 15));
        let body = [192, 0, 2, 1, 198, 51, 100, 1, 0xdc, 0x04, 0x15, 0x38, 4, 0, 1, 0];
        assert_eq!(whole(&v2(0x21, 0x11, &body)), (Some("192.0.2.1:56324".parse().unwrap()), 32));
        assert_eq!(whole(&v2(0x20, 0, &[])), (None, 16));
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let refused = |bytes: &[u8]| read_proxy_header(bytes).unwrap_err();
        assert_eq!(refused(b"\0\0\0\x08\x04\xd2\x16\x2f"), ProxyHeaderError::Missing);
        assert_eq!(refused(b"PROXY TCP4 ::1 ::1 1 1\r\n"), ProxyHeaderError::Malformed);
        assert_eq!(refused(b"PROXY TCP4 1.2.3.4 1.2.3.4 70000 1\r\n"), ProxyHeaderError::Malformed);
        assert_eq!(refused(&[b"PROXY ".as_slice(), &[b'x'; 200]].concat()), ProxyHeaderError::Malformed);
        assert_eq!(refused(&v2(0x31, 0x11, &[0; 12])), ProxyHeaderError::Malformed);
        assert_eq!(refused(&v2(0x21, 0x11, &[0; 5])), ProxyHeaderError::Malformed);
    }

    proptest! {
        /// However a header is cut, it is waited for and then the same.
        #[test]
        fn a_header_in_pieces_is_waited_for(source: [u8; 16], port: u16, v4: bool, text: bool, cut in 0..120usize) {
            let address = if v4 { IpAddr::from([source[0], source[1], source[2], source[3]]) } else { IpAddr::from(source) };
            let wanted = SocketAddr::new(address, port);
            let bytes = match (text, address) {
                (true, _) => format!("PROXY {} {address} {address} {port} 5432\r\n", if v4 { "TCP4" } else { "TCP6" }).into_bytes(),
                (false, IpAddr::V4(ip)) => v2(0x21, 0x11, &[&ip.octets()[..], &[0; 4], &port.to_be_bytes(), &[0; 2]].concat()),
                (false, IpAddr::V6(ip)) => v2(0x21, 0x21, &[&ip.octets()[..], &[0; 16], &port.to_be_bytes(), &[0; 2]].concat()),
            };
            let cut = cut.min(bytes.len() - 1);
            prop_assert_eq!(read_proxy_header(&bytes[..cut]), Ok(None));
            prop_assert_eq!(read_proxy_header(&bytes), Ok(Some((Some(wanted), bytes.len()))));
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), begin in 0..3usize) {
            let begin: &[u8] = [&b""[..], b"PROXY ", SIGNATURE][begin];
            let bytes = [begin, &bytes].concat();
            if let Ok(Some((_, length))) = read_proxy_header(&bytes) { prop_assert!(length <= bytes.len()) }
        }
    }
}
