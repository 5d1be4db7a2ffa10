//! The shim's functions as C has them, and what the engine says by itself. Nothing else knows raw pointers but
//! `engine.rs`.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// How many of the engine's last complaints are kept for error lines.
const KEPT: usize = 8;
/// The longest complaint that is kept, in characters.
const LONGEST: usize = 400;

#[repr(C)]
pub(crate) struct RawConnection {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(crate) struct RawSession {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(crate) struct RawCursor {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    pub(crate) fn bw_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) -> *const c_char;
    pub(crate) fn bw_strerror(code: c_int) -> *const c_char;
    pub(crate) fn bw_code_rollback() -> c_int;
    pub(crate) fn bw_code_not_found() -> c_int;
    pub(crate) fn bw_code_panic() -> c_int;
    pub(crate) fn bw_open(home: *const c_char, config: *const c_char, out: *mut *mut RawConnection) -> c_int;
    pub(crate) fn bw_close(connection: *mut RawConnection) -> c_int;
    pub(crate) fn bw_reconfigure(connection: *mut RawConnection, config: *const c_char) -> c_int;
    pub(crate) fn bw_session(connection: *mut RawConnection, out: *mut *mut RawSession) -> c_int;
    pub(crate) fn bw_session_close(session: *mut RawSession) -> c_int;
    pub(crate) fn bw_create(session: *mut RawSession, uri: *const c_char, config: *const c_char) -> c_int;
    pub(crate) fn bw_begin(session: *mut RawSession) -> c_int;
    pub(crate) fn bw_commit(session: *mut RawSession) -> c_int;
    pub(crate) fn bw_stamp(session: *mut RawSession, at: u64) -> c_int;
    pub(crate) fn bw_confirm(connection: *mut RawConnection, stable: u64, oldest: u64) -> c_int;
    pub(crate) fn bw_rollback(session: *mut RawSession) -> c_int;
    pub(crate) fn bw_checkpoint(session: *mut RawSession) -> c_int;
    pub(crate) fn bw_log_flush(session: *mut RawSession, config: *const c_char) -> c_int;
    pub(crate) fn bw_cursor(session: *mut RawSession, uri: *const c_char, out: *mut *mut RawCursor) -> c_int;
    pub(crate) fn bw_cursor_close(cursor: *mut RawCursor) -> c_int;
    pub(crate) fn bw_cursor_reset(cursor: *mut RawCursor) -> c_int;
    pub(crate) fn bw_document_put(cursor: *mut RawCursor, id: i64, data: *const c_void, size: usize) -> c_int;
    pub(crate) fn bw_document_size(cursor: *mut RawCursor, id: i64, size: *mut usize) -> c_int;
    pub(crate) fn bw_document_last(cursor: *mut RawCursor, id: *mut i64) -> c_int;
    pub(crate) fn bw_document_remove(cursor: *mut RawCursor, id: i64) -> c_int;
    pub(crate) fn bw_entry_put(cursor: *mut RawCursor, data: *const c_void, size: usize) -> c_int;
    pub(crate) fn bw_entry_remove(cursor: *mut RawCursor, data: *const c_void, size: usize) -> c_int;
    pub(crate) fn bw_entry_after(cursor: *mut RawCursor, data: *mut c_void, size: usize) -> c_int;
    pub(crate) fn bw_statistic_next(cursor: *mut RawCursor, name: *mut *const c_char, value: *mut i64) -> c_int;
}

static SAID: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// What the engine complained of since this was asked last, oldest first.
pub(crate) fn complaints() -> Vec<String> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
}

/// Called by the engine, from any of its threads.
#[unsafe(no_mangle)]
extern "C" fn bw_engine_says(is_error: c_int, code: c_int, text: *const c_char) {
    if is_error == 0 || text.is_null() {
        return;
    }
    // SAFETY: the engine passes a C string that lives during the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // Its own head (time, process, thread) ends with the session's name.
    let text: String = text.trim().chars().take(LONGEST).collect();
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() >= KEPT {
        said.pop_front();
    }
    said.push_back(if code == 0 { text } else { format!("{text} ({code})") });
}
