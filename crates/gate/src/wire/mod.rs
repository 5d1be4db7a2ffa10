//! PostgreSQL's wire protocol, as far as a relay must know it: what a connection begins with, where each message ends,
//! and the few messages that a relay sends itself. Pure: bytes in, facts out. Nothing here changes a byte that passes but
//! an offer that cannot be kept ([`without_channel_binding`]).

mod cancel;
mod greeting;
mod heads;
mod opening;
mod proxy_header;
mod refusal;
mod tracker;

pub use cancel::cancel_request;
pub use greeting::{MOST_GREETING_BYTES, without_channel_binding};
pub use heads::{Head, Heads};
pub use opening::{MOST_OPENING_BYTES, Opening, OpeningError, SSL_REQUEST, StartUp, read_opening};
pub use proxy_header::{Announced, ProxyHeaderError, read_proxy_header};
pub use refusal::{TERMINATE, error_or_notice, refusal};
pub use tracker::{Side, Tracker, Transaction};
