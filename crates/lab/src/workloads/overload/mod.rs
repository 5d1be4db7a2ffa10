//! An urgent query of a few milliseconds beside large results, on one link: the data of both, the query as a workload
//! ([`Urgent`]), the results as streams that never end by themselves ([`Background`]), and what stands in send queues
//! meanwhile ([`SendQueues`]).

mod background;
mod queues;
mod urgent;

pub(crate) use background::{BACKGROUND_NAME, Background};
pub(crate) use queues::{SendQueues, TABLE as SOCKETS};
pub(crate) use urgent::Urgent;

use super::error::cannot;
use super::{WorkloadError, config};
use tokio_postgres::{Client, NoTls};

/// Makes the tables of both, and sizes the urgent query so that it takes `urgent_ms` on this server.
///
/// # Errors
/// [`WorkloadError::Prepare`] with the server's answer.
pub(crate) fn prepare(conninfo: &str, urgent_ms: f64) -> Result<(), WorkloadError> {
    let config = config(conninfo)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| WorkloadError::System { call: "epoll_create", source })?;
    let made = runtime.block_on(async {
        let (client, connection) = config.connect(NoTls).await?;
        let connection = tokio::spawn(connection);
        let made = make(&client, urgent_ms).await;
        drop(client);
        // It ends with its client; how it ended matters to nobody once the statements were answered.
        let _ended = connection.await;
        made
    });
    made.map_err(cannot("make the data of the overload"))
}

async fn make(client: &Client, urgent_ms: f64) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(background::TABLE).await?;
    urgent::make(client, urgent_ms).await
}
