//! A password on its way to the server. It does not print, is not stored, and has no serde.

use std::fmt;

/// A password. `Debug` shows stars, there is no `Display` and no serialisation: the only way to it is
/// [`expose`](Password::expose), which is easy to search for.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Holds a password.
    pub fn new(text: String) -> Self {
        Password(text)
    }

    /// The password itself, for the one place that sends it to the server.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(********)")
    }
}
