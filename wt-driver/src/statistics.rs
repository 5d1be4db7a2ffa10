//! The engine's statistics, by its own descriptions (`cache: tracked dirty bytes in the cache`): numbers of statistics
//! change from version to version, descriptions hardly do.

use crate::database::Database;
use crate::engine::{EngineError, Session};
use crate::load::Running;
use crate::protocol::{Output, boot_us};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// The present values of these statistics; of all where none is named. A name that this version does not have is left
/// out.
pub(crate) fn read(database: &Database, names: &[String]) -> Result<Map<String, Value>, EngineError> {
    of(&database.connection.session()?, names)
}

fn of(session: &Session<'_>, names: &[String]) -> Result<Map<String, Value>, EngineError> {
    let cursor = session.cursor("statistics:")?;
    let mut values = Map::new();
    loop {
        match cursor.next_statistic() {
            Ok((name, value)) if names.is_empty() || names.contains(&name) => {
                values.insert(name, json!(value));
            }
            Ok(_) => {}
            Err(error) if error.is_not_found() => return Ok(values),
            Err(error) => return Err(error),
        }
    }
}

/// Each value before and after.
pub(crate) fn both(before: Map<String, Value>, after: &Map<String, Value>) -> Value {
    let pairs = before.into_iter().filter_map(|(name, was)| {
        let is = after.get(&name)?.clone();
        Some((name, json!([was, is])))
    });
    Value::Object(pairs.collect())
}

/// Tells them again and again until the load is over.
pub(crate) fn tell(run: &Running<'_>, output: &Output) {
    let session = match run.database.connection.session() {
        Ok(session) => session,
        Err(error) => return run.fault(error.to_string()),
    };
    run.every(Duration::from_millis(u64::from(run.load.statistics_ms)), || {
        let (at_us, began) = (boot_us(), Instant::now());
        match of(&session, &run.load.statistics) {
            Ok(values) => {
                let took_us = began.elapsed().as_micros() as u64;
                output.line(&json!({"event": "statistics", "at_us": at_us, "response_us": took_us, "values": values}));
            }
            Err(error) => output.line(&json!({"event": "gap", "at_us": at_us, "error": error.to_string()})),
        }
    });
}
