//! Fifty sessions of a busy server, ten times a second, without a server: what they cost is the recorder's own part alone.

use backwater_model::{Sample, Target};
use backwater_probe::{Probe, ProbeError, Sink};
use std::time::Duration;

const NAME: &str = "planted";
const SESSIONS: i32 = 50;

/// The server that they are of.
pub(crate) fn target() -> Target {
    Target { name: NAME.to_owned(), kind: "postgres".to_owned(), version_num: Some(180_000), ..Target::default() }
}

/// Sessions whose waits and statements change from look to look.
#[derive(Default)]
pub(crate) struct Sessions {
    looks: i32,
}

impl Probe for Sessions {
    fn name(&self) -> &str {
        "planted"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        const WAITS: [(&str, &str); 4] =
            [("IO", "DataFileWrite"), ("IO", "WALSync"), ("LWLock", "WALWrite"), ("Client", "ClientRead")];
        self.looks += 1;
        for session in 0..SESSIONS {
            let (class, event) = WAITS[((session + self.looks) % 4) as usize];
            let statement = (session + self.looks / 10) % 20;
            sink.sample(Sample {
                at: sink.at,
                target: NAME.into(),
                pid: 1_000 + session,
                backend_type: Some("client backend".into()),
                user: Some("app".into()),
                database: Some("app".into()),
                application: Some("web".into()),
                state: Some("active".into()),
                wait_event_type: Some(class.into()),
                wait_event: Some(event.into()),
                query_id: Some(i64::from(statement)),
                query: Some(format!("update accounts_{statement} set balance = balance + $1 where id = $2").into()),
                query_age_ms: Some(i64::from(self.looks % 50)),
                ..Sample::default()
            });
        }
        Ok(())
    }
}
