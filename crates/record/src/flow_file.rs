//! `flow.json` in a recording's directory: the newest state of whoever holds work back while the recording is made. Its past
//! lies in the tables, as series and events; this is the one thing that has no past: who is held now, and why.

use crate::RecordError;
use crate::layout::{publish, temp_of};
use backwater_model::FlowState;
use std::io::ErrorKind;
use std::path::Path;

const FLOW: &str = "flow.json";

/// Puts a newer state in the place of the one before; a reader finds one or the other.
///
/// Errors: the file cannot be written.
pub fn write_flow(dir: &Path, state: &FlowState) -> Result<(), RecordError> {
    let path = dir.join(FLOW);
    let temp = temp_of(&path);
    let text = serde_json::to_vec(state).map_err(|error| RecordError::encode(&path, error))?;
    std::fs::write(&temp, text).map_err(RecordError::at("write", &temp))?;
    publish(&temp, &path, false)
}

/// The newest state, if this is a recording of somebody who holds work back. One that cannot be read is no state: the
/// recording is whole without it.
pub fn read_flow(dir: &Path) -> Option<FlowState> {
    let path = dir.join(FLOW);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot be read");
            return None;
        }
    };
    let state = serde_json::from_slice(&text);
    state.inspect_err(|error| tracing::warn!(path = %path.display(), %error, "is no state of flow")).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_newest_state_is_read_and_a_broken_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_flow(dir.path()), None);
        for by in ["first", "second"] {
            let state = FlowState { by: by.to_owned(), rate_bps: Some(1.5), ..FlowState::default() };
            write_flow(dir.path(), &state).unwrap();
            assert_eq!(read_flow(dir.path()).unwrap(), state);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left over");
        std::fs::write(dir.path().join(FLOW), "{\"by\":").unwrap();
        assert_eq!(read_flow(dir.path()), None);
    }
}
