//! Several servers watched at once, on real ones: which of them are waited for.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "postgres/server.rs"]
mod server;

use backwater_model::{Batch, Event, EventKind, Role, catalogue};
use backwater_probe::session::{Session, Setup};
use server::{Server, on_each};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Nobody listens there.
const AWAY: &str = "host=127.0.0.1 port=1 user=postgres dbname=postgres";

fn start(targets: &[&str]) -> Result<(Session, Receiver<Batch>), String> {
    let targets = targets.iter().map(|text| (*text).to_owned()).collect();
    let setup = Setup { targets, heartbeat: true, ..Setup::default() };
    Session::start(setup).map_err(|error| error.to_string())
}

/// What comes, until it is seen in it.
fn until(batches: &Receiver<Batch>, what: &str, mut seen: impl FnMut(&[Batch]) -> bool) -> Vec<Batch> {
    let (begun, mut all) = (Instant::now(), Vec::new());
    while !seen(&all) {
        assert!(begun.elapsed() < PATIENCE, "not seen: {what}");
        all.extend(batches.recv_timeout(Duration::from_millis(100)));
    }
    all
}

fn events(batches: &[Batch]) -> Vec<&Event> {
    batches.iter().flat_map(|batch| &batch.events).collect()
}

#[test]
fn a_server_that_is_away_is_met_when_it_is_there() {
    on_each("a_server_that_is_away_is_met_when_it_is_there", |bin| {
        let (first, mut second) = (Server::start(bin, &[]), Server::start(bin, &[]));
        second.stop();
        let (session, batches) = start(&[&first.socket(), &second.tcp("password=right")]).unwrap();
        let name = format!("127.0.0.1:{}", second.port);
        let of_second = session.meta().targets[1].clone();
        assert_eq!((of_second.name.as_str(), of_second.version_num, of_second.local), (name.as_str(), None, false));
        assert_eq!(session.meta().targets[0].version_num.unwrap() / 10_000, first.major);
        let probe = format!("postgres.{name}");
        let of_probe = |event: &&Event| event.fields.get("probe") == Some(&probe);
        let gap =
            |all: &[Batch]| events(all).into_iter().any(|event| of_probe(&event) && event.message.contains("refused"));
        until(&batches, "that it cannot be read", gap);

        second.start_again(&[]);
        let reads = |batch: &Batch| {
            batch.points.iter().any(|point| {
                let series = session.registry.get(point.series).unwrap();
                series.name == catalogue::PG_PROBE_RESPONSE.name && series.labels.get("target") == Some(&name)
            })
        };
        let all = until(&batches, "a reading of it", |all| all.iter().any(reads));
        let ended = |event: &&Event| of_probe(event) && event.message.contains("reads again");
        assert!(events(&all).iter().any(ended), "{:#?}", events(&all));
        let told = |kind| events(&all).into_iter().any(|event| event.kind == kind && event.source == name);
        assert!(!told(EventKind::Restart) && !told(EventKind::Setting), "nothing has changed since it was met");

        let meta = session.meta();
        let met = &meta.targets[1];
        assert_eq!((met.name.as_str(), met.local, met.postmaster_pid), (name.as_str(), true, Some(second.pid())));
        assert_eq!((met.version_num, met.heartbeat_timeout_s), (meta.targets[0].version_num, Some(1.0)));
        assert!(met.data_device.is_some() && met.settings.contains_key("max_connections"));
        let role = (Role::Data, name.clone());
        assert!(meta.devices.iter().any(|device| device.roles.contains(&role)), "{:?}", meta.devices);
        session.stop();
    });
}

#[test]
fn only_who_is_away_is_waited_for() {
    on_each("only_who_is_away_is_waited_for", |bin| {
        let server = Server::start(bin, &[]);
        let error = start(&[&server.socket(), &server.tcp("password=wrong")]).unwrap_err();
        assert!(error.contains("password authentication failed"), "{error}");
        let error = start(&[AWAY, "host=127.0.0.1 port=2 user=postgres"]).unwrap_err();
        assert!(
            error.contains("127.0.0.1:1") && error.contains("refused"),
            "the first of those that are all away: {error}"
        );
        let error = start(&[&server.socket(), AWAY, AWAY]).unwrap_err();
        assert!(error.contains("127.0.0.1:1 is given twice"), "{error}");
        let error = start(&[&server.socket(), &server.tcp("password=right")]).unwrap_err();
        assert!(error.contains(&format!("the second time as 127.0.0.1:{}", server.port)), "{error}");
        // None of those that there are may be what is asked for until a failover.
        let standby = server.tcp("password=right target_session_attrs=standby");
        let (session, _batches) = start(&[&server.socket(), &standby]).unwrap();
        assert_eq!(session.meta().targets[1].version_num, None);
        session.stop();
    });
}
