#![allow(clippy::unwrap_used)]
use super::*;
use backwater_model::{Batch, Registry};
use std::collections::HashSet;
use std::net::TcpListener;

#[test]
fn one_whose_beat_is_open_and_may_have_written_ends_without_the_server() {
    // It takes connections, as the kernel does for every listener, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let text = format!("host=127.0.0.1 port={port} user=nobody dbname=nothing sslmode=disable");
    let info = ConnInfo::parse(&text, &|_| None).unwrap();
    let mut heartbeat = Heartbeat::new("primary", &info, Duration::from_millis(20), None).unwrap();
    let (registry, mut batch, mut absences) = (Registry::new(), Batch::default(), HashSet::new());
    let now = crate::now();
    let mut sink = Sink::new(now, &registry, &mut batch, &mut absences);
    heartbeat.begin(now, &mut sink);
    heartbeat.drive(now + Span::from_millis(100), false, &mut sink);
    heartbeat.judge(crate::now(), &mut sink);
    assert!(heartbeat.wrote && heartbeat.open.len() == 1 && heartbeat.missed == 1);
    drop(silent);
    // Here no runtime is entered: a timer made outside of the heartbeat's own would panic.
    assert!(tokio::runtime::Handle::try_current().is_err());
    drop(heartbeat);
}
