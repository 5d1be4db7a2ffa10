//! What a run tells of itself while it goes on.

/// Somebody who wants to know how far a run is. The binary shows a bar; tests listen to nothing.
pub trait Progress: Sync {
    /// One line about what happens now.
    fn say(&self, line: &str);
    /// Something with an end begins: so many steps (rows, seconds × 10).
    fn begin(&self, what: &str, steps: u64);
    /// So many steps are done.
    fn at(&self, done: u64);
    /// It has ended.
    fn end(&self);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn say(&self, _line: &str) {}
    fn begin(&self, _what: &str, _steps: u64) {}
    fn at(&self, _done: u64) {}
    fn end(&self) {}
}
