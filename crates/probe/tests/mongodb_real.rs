//! The probe of a live server against a real one, where `MONGOD_URI` names it, with a password if it takes one: what can be claimed of
//! any, from 4.4 on. What is written
//! goes into a database of its own, which is dropped.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "mongodb/looks.rs"]
#[allow(dead_code)]
mod looks;

use looks::Looks;
use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;
use std::time::Duration;

/// The server to be tested, if one is named.
fn asked_for(test: &str) -> Option<String> {
    let uri = std::env::var("MONGOD_URI").ok().filter(|uri| !uri.is_empty());
    if uri.is_none() {
        eprintln!("not asked for: {test}: it runs where MONGOD_URI names a server");
    }
    uri
}

/// Does something as a client of the server that the probe reads, beside it: the first that is named, and that one alone.
fn as_client<T>(uri: &str, work: impl AsyncFnOnce(Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut options = ClientOptions::parse(uri).await.unwrap();
        options.hosts.truncate(1);
        (options.direct_connection, options.repl_set_name) = (Some(true), None);
        work(Client::with_options(options).unwrap()).await
    })
}

fn asked(uri: &str, command: Document) -> Document {
    as_client(uri, async |client| client.database("admin").run_command(command).await.unwrap())
}

#[test]
fn every_figure_that_rules_need_is_read() {
    let Some(uri) = asked_for("every_figure_that_rules_need_is_read") else { return };
    if asked(&uri, doc! { "isMaster": 1 }).get_str("msg").is_ok_and(|kind| kind == "isdbgrid") {
        eprintln!(
            "not asked for: every_figure_that_rules_need_is_read: MONGOD_URI names a router, which has no engine"
        );
        return;
    }
    let mut looks = Looks::connect(&uri);
    for _ in 0..3 {
        looks.look().unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
    let figures = [
        "mongo.uptime_ms",
        "mongo.connections.current",
        "wt.cache.max_bytes",
        "wt.cache.used_bytes",
        "wt.cache.dirty_bytes",
        "wt.cache.written_bytes",
        "wt.checkpoint.running",
        "mongo.probe.response_us",
    ];
    for name in figures {
        assert!(looks.last(name, &[]).is_some(), "{name}");
    }
    for op in ["read", "write"] {
        assert!(looks.last("mongo.tickets.out", &[("op", op)]).is_some(), "tickets {op}");
        assert!(looks.last("mongo.tickets.total", &[("op", op)]).is_some(), "tickets {op}");
    }
    assert_eq!(looks.epochs("mongo.uptime_ms"), 1);
    assert!(looks.last("mongo.uptime_ms", &[]).unwrap() > 0.0);
    let (used, most) =
        (looks.last("wt.cache.used_bytes", &[]).unwrap(), looks.last("wt.cache.max_bytes", &[]).unwrap());
    assert!(used > 0.0 && used <= 1.1 * most, "{used} of {most}");
}

#[test]
fn the_server_is_called_what_it_calls_itself() {
    let Some(uri) = asked_for("the_server_is_called_what_it_calls_itself") else { return };
    let looks = Looks::connect(&uri);
    let told = asked(&uri, doc! { "buildInfo": 1 });
    let version = told.get_array("versionArray").unwrap();
    let part = |place: usize| version[place].as_i32().unwrap();
    assert_eq!(looks.target.version_num, Some(part(0) * 10_000 + part(1) * 100 + part(2)));
    assert!(looks.target.version_num.unwrap() >= 40_400);
}

#[test]
fn what_a_client_writes_is_counted() {
    const WRITTEN: u32 = 1_000;
    let Some(uri) = asked_for("what_a_client_writes_is_counted") else { return };
    // Every release from 4.4.0 to 8.x answers by this name.
    if !asked(&uri, doc! { "isMaster": 1 }).get_bool("ismaster").unwrap() {
        eprintln!("not asked for: what_a_client_writes_is_counted: the first server of MONGOD_URI takes no writes");
        return;
    }
    let mut looks = Looks::connect(&uri);
    looks.look().unwrap();
    let counted = |looks: &Looks| {
        let of = |name, op| looks.last(name, &[("op", op)]).unwrap();
        (of("mongo.opcounters", "insert"), of("mongo.ops", "writes"), of("mongo.latency_us_total", "writes"))
    };
    let before = counted(&looks);
    let name = format!("backwater_tests_{}_{}", std::process::id(), backwater_probe::now().0);
    let written = as_client(&uri, async |client| {
        let database = client.database(&name);
        let collection = database.collection("written");
        let mut written = Ok(());
        for number in 0..WRITTEN {
            written = written.and(collection.insert_one(doc! { "number": number }).await.map(drop));
        }
        database.drop().await.and(written)
    });
    written.unwrap();
    std::thread::sleep(Duration::from_secs(1));
    looks.look().unwrap();
    let after = counted(&looks);
    let grown = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
    assert!(grown.0 >= f64::from(WRITTEN) && grown.1 >= f64::from(WRITTEN), "{grown:?}");
    // No write takes less than a microsecond.
    assert!(grown.2 >= f64::from(WRITTEN), "{grown:?}");
}

#[test]
fn the_newest_readings_are_not_older_than_the_servers_own_clock_says() {
    let Some(uri) = asked_for("the_newest_readings_are_not_older_than_the_servers_own_clock_says") else { return };
    let mut looks = Looks::connect(&uri);
    looks.look().unwrap();
    let first = looks.last("mongo.uptime_ms", &[]).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    looks.look().unwrap();
    let own = asked(&uri, doc! { "serverStatus": 1 }).get_i64("uptimeMillis").unwrap() as f64;
    let second = looks.last("mongo.uptime_ms", &[]).unwrap();
    assert!(second - first >= 1_900.0 && second <= own && own - second < 5_000.0, "{first} {second} {own}");
}
