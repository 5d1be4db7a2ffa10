//! A connection of the lab's own for single statements: checkpoints, slots, positions.

use crate::LabError;
use backwater_probe::ProbeError;
use backwater_probe::postgres::{ConnInfo, connect_client};
use tokio::runtime::Runtime;
use tokio_postgres::SimpleQueryMessage;

/// A connection that blocks the thread which asks. It ends when it is dropped.
pub(crate) struct Client {
    runtime: Runtime,
    inner: tokio_postgres::Client,
    label: String,
}

impl Client {
    pub(crate) fn open(conninfo: &str) -> Result<Client, LabError> {
        let info = ConnInfo::parse(conninfo, &|_| None)?;
        let system = |source| ProbeError::System { call: "epoll_create", source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
        let inner = runtime.block_on(async {
            let (client, task) = connect_client(&info).await?;
            tokio::spawn(task);
            Ok::<_, ProbeError>(client)
        })?;
        Ok(Client { runtime, inner, label: info.label() })
    }

    /// Carries out statements.
    pub(crate) fn run(&mut self, sql: &str) -> Result<(), LabError> {
        self.ask(sql).map(drop)
    }

    /// Carries out statements; the first column of the last row.
    pub(crate) fn ask(&mut self, sql: &str) -> Result<Option<String>, LabError> {
        let answer = self.runtime.block_on(self.inner.simple_query(sql));
        let refused = |error: tokio_postgres::Error| {
            let said = error.as_db_error().map_or_else(|| error.to_string(), |answer| answer.message().to_owned());
            LabError::Refused(format!("{}: {sql}: {said}", self.label))
        };
        let first = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).map(str::to_owned)),
            _ => None,
        };
        Ok(answer.map_err(refused)?.iter().filter_map(first).next_back().flatten())
    }

    /// Whether the answer is true.
    pub(crate) fn is_true(&mut self, sql: &str) -> Result<bool, LabError> {
        Ok(self.ask(sql)?.as_deref() == Some("t"))
    }
}
