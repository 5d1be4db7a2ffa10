//! Slowing a running query from outside: the server's own client socket gets a pacing rate, and nothing stands in the
//! data path.
//!
//! Two processes. The *guardian* ([`guard`]) has the rights and nothing else to do: it finds sockets, sets rates (and how connections that
//! pace themselves within the host find their speed; where the host may be changed, how much at once all send), writes each down in the undo journal before it does, and puts all of them
//! back when its master says so, goes away (also by
//! SIGKILL: the socket between them then ends), or when it is itself asked to end. The master ([`Guardian`]) decides:
//! it reads figures ([`Watch`]), judges them by the rules of their pools, which a [`Console`] keeps and lets people change, and divides what a whole class
//! may send among its sockets ([`divide`]). [`hindrance`] says why it cannot work here, where it cannot.
//!
//! What it cannot slow: what clients *send* (bulk loads, big UPDATEs), and clients that come by Unix sockets.

mod able;
mod bursts;
mod catch_up;
mod class;
mod congestion;
mod guardian;
mod hold;
mod master;
mod message;
mod rows;
mod trouble;
mod watch;

pub use crate::in_line::WAITS_BESIDES;
pub use crate::proxy::{Console, OutsideSession, PoolStep, Unseen, not_enforced};
pub use able::{Facts, drop_rights, hindrance};
pub use bursts::Bursts;
pub use class::{LEAST_BPS, Usage, divide};
pub use guardian::guard;
pub use hold::{ClassRate, Hold, Paced, Rates};
pub use master::{AttachError, Guardian};
#[cfg(fuzzing)]
pub use message::exercise as exercise_message;
pub use message::{FoundSockets, Named, PutBack, SocketLook};
#[cfg(fuzzing)]
pub use rows::exercise as exercise_process;
pub use watch::{Activity, LocalProcess, Seen, Watch};
