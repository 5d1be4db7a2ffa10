//! The engine, safely: connections, sessions and cursors that close themselves and cannot outlive one another.

use crate::ffi::{self, RawConnection, RawCursor, RawSession};
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::null_mut;

/// An entry of the index: eight bytes by which it is ordered, then the document's id, both big-endian.
pub(crate) const ENTRY_BYTES: usize = 16;
/// See [`ENTRY_BYTES`].
pub(crate) type Entry = [u8; ENTRY_BYTES];

/// What the engine refused.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{what}: {text}{}", said(.complaints))]
pub(crate) struct EngineError {
    what: &'static str,
    code: c_int,
    text: String,
    complaints: Vec<String>,
}

fn said(complaints: &[String]) -> String {
    if complaints.is_empty() { String::new() } else { format!(" [{}]", complaints.join("; ")) }
}

impl EngineError {
    /// The transaction met another one, or had to make room: it may be tried again.
    pub(crate) fn is_rollback(&self) -> bool {
        // SAFETY: a constant of the header.
        self.code == unsafe { ffi::bw_code_rollback() }
    }

    /// Something was told that is not allowed, such as a timestamp that is too old.
    pub(crate) fn is_invalid(&self) -> bool {
        self.code == rustix::io::Errno::INVAL.raw_os_error()
    }

    /// There is no such key, or no next one.
    pub(crate) fn is_not_found(&self) -> bool {
        // SAFETY: a constant of the header.
        self.code == unsafe { ffi::bw_code_not_found() }
    }

    /// The engine has given up; nothing but ending the process helps.
    pub(crate) fn is_panic(&self) -> bool {
        // SAFETY: a constant of the header.
        self.code == unsafe { ffi::bw_code_panic() }
    }
}

fn check(what: &'static str, code: c_int) -> Result<(), EngineError> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: always returns a C string, static or of this thread.
    let text = unsafe { CStr::from_ptr(ffi::bw_strerror(code)) }.to_string_lossy().into_owned();
    let mut error = EngineError { what, code, text, complaints: Vec::new() };
    // What a load meets all the time brings no complaints, and must not take those of others.
    if !error.is_rollback() && !error.is_not_found() {
        error.complaints = ffi::complaints();
    }
    Err(error)
}

fn c_string(what: &'static str, text: &str) -> Result<CString, EngineError> {
    CString::new(text).map_err(|_| EngineError {
        what,
        code: -1,
        text: "it has a zero byte in it".to_owned(),
        complaints: Vec::new(),
    })
}

/// What the engine calls itself, and its three numbers.
pub(crate) fn version() -> (String, [i32; 3]) {
    let mut numbers = [0; 3];
    let [major, minor, patch] = &mut numbers;
    // SAFETY: three places to write to; the text is static.
    let text = unsafe { CStr::from_ptr(ffi::bw_version(major, minor, patch)) };
    (text.to_string_lossy().into_owned(), numbers)
}

/// An open database.
#[derive(Debug)]
pub(crate) struct Connection {
    raw: *mut RawConnection,
}

// SAFETY: the engine's connection handle may be used by any thread at once.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}

impl Connection {
    /// Opens the database in this directory.
    pub(crate) fn open(home: &Path, config: &str) -> Result<Connection, EngineError> {
        let (home, config) = (c_string("open", &home.to_string_lossy())?, c_string("open", config)?);
        let mut raw = null_mut();
        drop(ffi::complaints());
        // SAFETY: C strings that live during the call, and a place for the handle.
        check("open", unsafe { ffi::bw_open(home.as_ptr(), config.as_ptr(), &mut raw) })?;
        Ok(Connection { raw })
    }

    /// Closes it, with a last checkpoint. Sessions cannot be open: they borrow it.
    pub(crate) fn close(self) -> Result<(), EngineError> {
        let raw = self.raw;
        std::mem::forget(self);
        // SAFETY: the handle is valid and nobody has it any more.
        check("close", unsafe { ffi::bw_close(raw) })
    }

    /// Changes what may be changed while it is open.
    pub(crate) fn reconfigure(&self, config: &str) -> Result<(), EngineError> {
        let config = c_string("reconfigure", config)?;
        // SAFETY: a valid handle and a C string.
        check("reconfigure", unsafe { ffi::bw_reconfigure(self.raw, config.as_ptr()) })
    }

    /// Up to where a majority has confirmed, and from where on history is kept: no checkpoint writes what is newer than the first.
    pub(crate) fn confirm(&self, stable: u64, oldest: u64) -> Result<(), EngineError> {
        // SAFETY: a valid handle.
        check("set timestamps", unsafe { ffi::bw_confirm(self.raw, stable, oldest) })
    }

    /// A session, for one thread at a time.
    pub(crate) fn session(&self) -> Result<Session<'_>, EngineError> {
        let mut raw = null_mut();
        // SAFETY: a valid handle and a place for the session.
        check("open a session", unsafe { ffi::bw_session(self.raw, &mut raw) })?;
        Ok(Session { raw, connection: PhantomData })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the handle is valid; sessions are gone. An error here has nobody left to hear it.
        let _ = unsafe { ffi::bw_close(self.raw) };
    }
}

/// A session. Not for several threads: the raw pointer sees to that.
#[derive(Debug)]
pub(crate) struct Session<'c> {
    raw: *mut RawSession,
    connection: PhantomData<&'c Connection>,
}

impl Session<'_> {
    /// Makes a table unless it is there.
    pub(crate) fn create(&self, uri: &str, config: &str) -> Result<(), EngineError> {
        let (uri, config) = (c_string("create", uri)?, c_string("create", config)?);
        // SAFETY: a valid handle and C strings.
        check("create", unsafe { ffi::bw_create(self.raw, uri.as_ptr(), config.as_ptr()) })
    }

    pub(crate) fn begin(&self) -> Result<(), EngineError> {
        // SAFETY: a valid handle.
        check("begin", unsafe { ffi::bw_begin(self.raw) })
    }

    pub(crate) fn commit(&self) -> Result<(), EngineError> {
        // SAFETY: a valid handle.
        check("commit", unsafe { ffi::bw_commit(self.raw) })
    }

    /// Gives the open transaction a timestamp, which must be newer than what a majority has confirmed.
    pub(crate) fn stamp(&self, at: u64) -> Result<(), EngineError> {
        // SAFETY: a valid handle.
        check("set a timestamp", unsafe { ffi::bw_stamp(self.raw, at) })
    }

    pub(crate) fn rollback(&self) -> Result<(), EngineError> {
        // SAFETY: a valid handle.
        check("roll back", unsafe { ffi::bw_rollback(self.raw) })
    }

    pub(crate) fn checkpoint(&self) -> Result<(), EngineError> {
        // SAFETY: a valid handle.
        check("checkpoint", unsafe { ffi::bw_checkpoint(self.raw) })
    }

    /// Writes and syncs the journal up to now.
    pub(crate) fn sync_journal(&self) -> Result<(), EngineError> {
        // SAFETY: a valid handle and a static C string.
        check("sync the journal", unsafe { ffi::bw_log_flush(self.raw, c"sync=on".as_ptr()) })
    }

    pub(crate) fn cursor(&self, uri: &str) -> Result<Cursor<'_>, EngineError> {
        let uri = c_string("open a cursor", uri)?;
        let mut raw = null_mut();
        // SAFETY: a valid handle, a C string, a place for the cursor.
        check("open a cursor", unsafe { ffi::bw_cursor(self.raw, uri.as_ptr(), &mut raw) })?;
        Ok(Cursor { raw, session: PhantomData })
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: a valid handle; cursors borrow it, so there are none. It rolls back what is open.
        let _ = unsafe { ffi::bw_session_close(self.raw) };
    }
}

/// A cursor.
#[derive(Debug)]
pub(crate) struct Cursor<'s> {
    raw: *mut RawCursor,
    session: PhantomData<&'s RawSession>,
}

impl Cursor<'_> {
    /// Lets go of the page it stands on.
    pub(crate) fn reset(&self) -> Result<(), EngineError> {
        // SAFETY: a valid handle.
        check("reset", unsafe { ffi::bw_cursor_reset(self.raw) })
    }

    /// Puts a document, over an earlier one of this id.
    pub(crate) fn put(&self, id: i64, document: &[u8]) -> Result<(), EngineError> {
        // SAFETY: a valid cursor of documents; the engine copies the bytes during the call.
        check("insert", unsafe { ffi::bw_document_put(self.raw, id, document.as_ptr().cast(), document.len()) })
    }

    /// Reads a document; its size.
    pub(crate) fn size_of(&self, id: i64) -> Result<usize, EngineError> {
        let mut size = 0;
        // SAFETY: a valid cursor of documents and a place for the size.
        check("read", unsafe { ffi::bw_document_size(self.raw, id, &mut size) })?;
        self.reset()?;
        Ok(size)
    }

    /// The largest id; none where there are no documents.
    pub(crate) fn last_document(&self) -> Result<Option<i64>, EngineError> {
        let mut id = 0;
        // SAFETY: a valid cursor of documents and a place for the id.
        match check("read", unsafe { ffi::bw_document_last(self.raw, &mut id) }) {
            Ok(()) => self.reset().map(|()| Some(id)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn remove(&self, id: i64) -> Result<(), EngineError> {
        // SAFETY: a valid cursor of documents.
        check("remove", unsafe { ffi::bw_document_remove(self.raw, id) })
    }

    pub(crate) fn put_entry(&self, entry: &Entry) -> Result<(), EngineError> {
        // SAFETY: a valid cursor of the index; the engine copies the bytes during the call.
        check("insert into the index", unsafe { ffi::bw_entry_put(self.raw, entry.as_ptr().cast(), ENTRY_BYTES) })
    }

    pub(crate) fn remove_entry(&self, entry: &Entry) -> Result<(), EngineError> {
        // SAFETY: a valid cursor of the index.
        check("remove from the index", unsafe { ffi::bw_entry_remove(self.raw, entry.as_ptr().cast(), ENTRY_BYTES) })
    }

    /// The first entry behind this one.
    pub(crate) fn entry_after(&self, mut entry: Entry) -> Result<Entry, EngineError> {
        // SAFETY: a valid cursor of the index, and ENTRY_BYTES that may be written to.
        check("read the index", unsafe { ffi::bw_entry_after(self.raw, entry.as_mut_ptr().cast(), ENTRY_BYTES) })?;
        Ok(entry)
    }

    /// The next statistic of a statistics cursor.
    pub(crate) fn next_statistic(&self) -> Result<(String, i64), EngineError> {
        let (mut name, mut value) = (std::ptr::null(), 0);
        // SAFETY: a valid statistics cursor and places for both.
        check("read the statistics", unsafe { ffi::bw_statistic_next(self.raw, &mut name, &mut value) })?;
        // SAFETY: the engine's string lives until the cursor moves.
        Ok((unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(), value))
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: a valid handle that nobody has any more.
        let _ = unsafe { ffi::bw_cursor_close(self.raw) };
    }
}
