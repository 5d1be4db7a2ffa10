//! A load balancer's header: what is read takes no more than there is, and is waited for while it is not whole.

use backwater_gate::wire::read_proxy_header;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(Some((announced, length))) = read_proxy_header(bytes) else { return };
    assert!(length <= bytes.len());
    assert_eq!(read_proxy_header(&bytes[..length]), Ok(Some((announced, length))));
    for cut in 0..length {
        assert_eq!(read_proxy_header(&bytes[..cut]), Ok(None));
    }
}
