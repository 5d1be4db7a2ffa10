//! An open database: how it is configured, its tables, and the documents put into it before a load.

use crate::engine::{Connection, EngineError, Entry, Session, version};
use crate::protocol::{DirectIo, Fill, Open};
use crate::replication::Replication;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

pub(crate) const DOCUMENTS: &str = "table:documents";
pub(crate) const INDEX: &str = "table:documents_index";
pub(crate) const OPLOG: &str = "table:oplog";
/// How large a page of the tables may grow in the cache, as mongod has it: the engine's own value is half of that.
pub(crate) const MEMORY_PAGE_MAX: &str = "10m";
/// Documents of one transaction of a fill.
const BATCH: u64 = 500;
/// Documents between two looks at whether a fill shall end.
const LOOK: u64 = 10 * BATCH;

/// An open database.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) connection: Connection,
    pub(crate) home: PathBuf,
    /// What it was opened with, as the engine was told.
    pub(crate) config: String,
    /// Whether it has a journal.
    pub(crate) journal: bool,
    /// The id of the next document; they begin with 1.
    pub(crate) next_id: AtomicI64,
    /// What it takes to be a member of a replica set, where it is one.
    pub(crate) replication: Option<Replication>,
}

impl Database {
    /// Opens it and makes its tables.
    pub(crate) fn open(how: &Open) -> Result<Database, String> {
        if how.sessions < 50 || how.sessions > 20_000 {
            return Err(format!("sessions = {}: give 50 to 20000", how.sessions));
        }
        if !how.home.is_absolute() {
            return Err(format!("home = {}: give an absolute path", how.home.display()));
        }
        make(&how.home)?;
        let (_, [major, ..]) = version();
        let config = config(how, major);
        let connection = Connection::open(&how.home, &config).map_err(|error| error.to_string())?;
        let next_id = prepare(&connection, how.replicated).map_err(|error| error.to_string())?;
        let replication = how.replicated.then(|| next_entry(&connection).map(Replication::from)).transpose();
        Ok(Database {
            replication: replication.map_err(|error| error.to_string())?,
            connection,
            home: how.home.clone(),
            config,
            journal: how.journal,
            next_id: AtomicI64::new(next_id),
        })
    }

    /// Puts documents into it; how many. `cancel` ends it early.
    pub(crate) fn fill(&self, how: &Fill, cancel: &AtomicBool) -> Result<u64, EngineError> {
        let session = self.connection.session()?;
        let (documents, index) = (session.cursor(DOCUMENTS)?, session.cursor(INDEX)?);
        let mut random = fastrand::Rng::new();
        let mut body = vec![0; how.document_bytes as usize];
        let mut done = 0;
        while done < how.documents {
            if done.is_multiple_of(LOOK) && cancel.load(Ordering::Relaxed) {
                break;
            }
            let many = BATCH.min(how.documents - done);
            session.begin()?;
            for _ in 0..many {
                let id = self.next_id.fetch_add(1, Ordering::Relaxed);
                random.fill(&mut body);
                documents.put(id, &body)?;
                let order = match how.expire_s {
                    Some([from, to]) => ((from + (to - from) * random.f64()) * 1e6) as u64,
                    None => random.u64(..),
                };
                index.put_entry(&entry(order, id))?;
            }
            session.commit()?;
            done += many;
        }
        session.checkpoint()?;
        Ok(done)
    }

    /// One of the engine's statistics.
    pub(crate) fn statistic(&self, name: &str) -> Option<i64> {
        let session = self.connection.session().ok()?;
        let cursor = session.cursor("statistics:").ok()?;
        std::iter::from_fn(|| cursor.next_statistic().ok()).find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Bytes free on its volume for ordinary users.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let space = rustix::fs::statvfs(&self.home).ok()?;
        Some(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

/// An entry of the index.
pub(crate) fn entry(order: u64, id: i64) -> Entry {
    let mut entry = Entry::default();
    entry[..8].copy_from_slice(&order.to_be_bytes());
    entry[8..].copy_from_slice(&id.to_be_bytes());
    entry
}

/// The two parts of an entry.
pub(crate) fn parts(entry: &Entry) -> (u64, i64) {
    let half = |from: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&entry[from..from + 8]);
        bytes
    };
    (u64::from_be_bytes(half(0)), i64::from_be_bytes(half(8)))
}

/// Its directory. One that holds other files than a database's is refused.
fn make(home: &Path) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("cannot make {}: {error}", home.display());
    std::fs::create_dir_all(home).map_err(fail)?;
    let mut files = std::fs::read_dir(home).map_err(fail)?;
    if files.next().is_some() && !home.join("WiredTiger").exists() {
        return Err(format!(
            "{} holds other files: give an empty directory or a database of the engine",
            home.display()
        ));
    }
    Ok(())
}

/// What the engine is told. What stands later goes before what stands earlier.
fn config(how: &Open, major: i32) -> String {
    let mut parts = vec![
        "create".to_owned(),
        "statistics=(fast)".to_owned(),
        format!("session_max={}", how.sessions),
        "eviction=(threads_min=4,threads_max=4)".to_owned(),
    ];
    if how.journal {
        // Later versions gave it another name.
        let remove = if major >= 10 { "remove" } else { "archive" };
        parts.push(format!("log=(enabled=true,{remove}=true)"));
        parts.push("transaction_sync=(enabled=false)".to_owned());
    }
    if how.checkpoint_s > 0 {
        parts.push(format!("checkpoint=(wait={},log_size=2GB)", how.checkpoint_s));
    }
    if !how.direct_io.is_empty() {
        let name = |kind: &DirectIo| if *kind == DirectIo::Data { "data" } else { "checkpoint" };
        let names: Vec<&str> = how.direct_io.iter().map(name).collect();
        parts.push(format!("direct_io=[{}]", names.join(",")));
    }
    parts.push(how.config.trim().to_owned());
    parts.retain(|part| !part.is_empty());
    parts.join(",")
}

/// What mongod makes its tables with.
fn like_mongod() -> String {
    format!("memory_page_max={MEMORY_PAGE_MAX},split_pct=90,leaf_value_max=64MB,checksum=on")
}

/// Makes the tables of documents; the id that the next one gets. In a replica set the oplog alone is journalled.
fn prepare(connection: &Connection, replicated: bool) -> Result<i64, EngineError> {
    let session = connection.session()?;
    let like = if replicated { format!("{},log=(enabled=false)", like_mongod()) } else { like_mongod() };
    session.create(DOCUMENTS, &format!("key_format=q,value_format=u,{like}"))?;
    session.create(INDEX, &format!("key_format=u,value_format=u,prefix_compression=true,{like}"))?;
    next_of(&session, DOCUMENTS)
}

/// Makes the oplog; the number that its next entry gets.
fn next_entry(connection: &Connection) -> Result<i64, EngineError> {
    let session = connection.session()?;
    session.create(OPLOG, &format!("key_format=q,value_format=u,{}", like_mongod()))?;
    next_of(&session, OPLOG)
}

fn next_of(session: &Session<'_>, table: &str) -> Result<i64, EngineError> {
    Ok(session.cursor(table)?.last_document()?.map_or(1, |id| id + 1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn how(json: &str) -> Open {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_users_text_comes_last() {
        let text = config(&how(r#"{"home":"/x","config":"cache_size=1GB","direct_io":["data"]}"#), 3);
        assert!(text.contains("log=(enabled=true,archive=true)") && text.contains("checkpoint=(wait=60"), "{text}");
        assert!(text.contains("direct_io=[data]") && text.ends_with(",cache_size=1GB"), "{text}");
        assert!(config(&how(r#"{"home":"/x"}"#), 11).contains("remove=true"));
        let bare = config(&how(r#"{"home":"/x","journal":false,"checkpoint_s":0}"#), 11);
        assert!(!bare.contains("log=") && !bare.contains("checkpoint="), "{bare}");
    }

    #[test]
    fn entries_are_in_the_order_of_their_first_part() {
        assert!(entry(1, 9) < entry(2, 1) && entry(255, 1) < entry(256, 1));
        assert_eq!(parts(&entry(77, 5)), (77, 5));
    }

    #[test]
    fn other_files_are_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("letter"), "x").unwrap();
        assert!(make(dir.path()).unwrap_err().contains("other files"));
    }
}
