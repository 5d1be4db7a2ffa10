//! The probe of a live server, against a server of ours that plays documents back. Against a real one: `mongodb_real.rs`.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "mongodb/documents.rs"]
mod documents;
#[path = "mongodb/looks.rs"]
mod looks;
#[path = "mongodb/replay.rs"]
mod replay;

use backwater_model::{EventKind, Moment, Span};
use backwater_probe::host::Roots;
use backwater_probe::mongodb::{Flight, MongoProbe, capabilities, servers};
use backwater_probe::session::{Session, Setup};
use documents::{RELEASES, Server};
use looks::Looks;
use replay::{Replay, Script};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A server that answers as this one does.
fn script(server: &Server, max_wire: i32) -> Script {
    Script { max_wire, answers: server.answers(), ..Script::default() }
}

fn seven() -> (Server, Replay) {
    let server = Server::of("7.0.12");
    let replay = Replay::start(script(&server, 21));
    (server, replay)
}

/// From now on it is this server.
fn becomes(replay: &Replay, server: &Server) {
    let answers = script(server, 21).answers;
    replay.script().answers = answers;
}

fn refused(uri: &str) -> String {
    Looks::try_connect(uri).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn every_release_gives_the_same_series() {
    for (release, wire) in RELEASES {
        let server = Server::of(release);
        let replay = Replay::start(script(&server, wire));
        let mut looks = Looks::connect(&replay.uri());
        looks.look().unwrap();
        assert_eq!(looks.last("wt.cache.dirty_bytes", &[]), Some(101.0 * 1_048_576.0), "{release}");
        assert_eq!(looks.last("wt.app.evicting_us", &[]), Some(1_000.0), "{release}");
        assert_eq!(looks.last("wt.checkpoint.last_ms", &[]), Some(700.0), "{release}");
        assert_eq!(looks.last("mongo.tickets.out", &[("op", "write")]), Some(5.0), "{release}");
        assert_eq!(looks.last("mongo.ttl.deleted", &[]), Some(5_000.0), "{release}");
        assert_eq!(looks.last("mongo.member.optime_s", &[("member", "db2:27017")]), Some(1_700_000_090.0), "{release}");
        assert_eq!(looks.last("mongo.oplog.max_bytes", &[]), Some(1_000.0 * 1_048_576.0), "{release}");
        let window = looks.last("mongo.oplog.last_s", &[]).unwrap() - looks.last("mongo.oplog.first_s", &[]).unwrap();
        assert_eq!(window, 10_100.0, "{release}");
        assert!(looks.last("mongo.probe.response_us", &[]).unwrap() > 0.0);
        let settings = &looks.target.settings;
        assert_eq!(settings["storage.wiredTiger.engineConfig.cacheSizeGB"], "1", "{release}");
        assert_eq!(
            (settings["setParameter.syncdelay"].as_str(), settings["hostInfo.system.memSizeMB"].as_str()),
            ("60", "16384")
        );
        assert!(!settings.values().any(|value| value.contains("mongod.key")), "{settings:?}");
        assert!(looks.of_kind(EventKind::Absent).is_empty(), "{release}: {:?}", looks.events);
    }
}

#[test]
fn lines_locks_the_network_and_flow_control_are_read_where_each_release_has_them() {
    for (release, wire) in RELEASES {
        let replay = Replay::start(script(&Server::of(release), wire));
        let mut looks = Looks::connect(&replay.uri());
        looks.look().unwrap();
        let line = ["7.0.12", "8.0.4"].contains(&release);
        for op in ["read", "write"] {
            assert_eq!(looks.last("mongo.tickets.queued", &[("op", op)]), line.then_some(4.0), "{release}");
            assert_eq!(looks.last("mongo.tickets.queued_us", &[("op", op)]), line.then_some(3_000.0), "{release}");
        }
        for (series, op, value) in [
            ("mongo.lock_queue", Some("read"), 2.0),
            ("mongo.lock_queue", Some("write"), 9.0),
            ("mongo.active_clients", Some("read"), 3.0),
            ("mongo.active_clients", Some("write"), 11.0),
            ("mongo.threads", None, 41.0),
            ("mongo.network.requests", None, 4_000.0),
            ("mongo.network.received_bytes", None, 100_000.0),
            ("mongo.network.sent_bytes", None, 800_000.0),
            ("mongo.write_concern.waits", None, 200.0),
            ("mongo.write_concern.wait_ms", None, 1_400.0),
            ("mongo.flow_control.lagged", None, 1.0),
            ("mongo.flow_control.lagged_us", None, 7_000.0),
            ("mongo.flow_control.acquiring_us", None, 6_000.0),
            ("mongo.flow_control.limit", None, 900.0),
            ("mongo.flow_control.sustainer", None, 700.0),
        ] {
            let labels: Vec<_> = op.map(|op| ("op", op)).into_iter().collect();
            assert_eq!(looks.last(series, &labels), Some(value), "{release}: {series} {op:?}");
        }
    }
}

#[test]
fn a_live_server_gives_what_its_flight_recorder_gives() {
    let server = Server::of("7.0.12");
    let dir = tempfile::tempdir().unwrap();
    let sample = |up_s| {
        let server = Server { up_s, ..server.clone() };
        ftdc::Builder::new()
            .date("start", up_s * 1_000)
            .raw_document("serverStatus", &server.status())
            .raw_document("replSetGetStatus", &server.members())
            .document("local.oplog.rs.stats", |o| o.int64("size", 900 << 20).int64("maxSize", 1_000 << 20))
            .finish()
    };
    let mut encoder = ftdc::encode::Encoder::new(10);
    let mut bytes: Vec<u8> =
        (99..=100).filter_map(|up_s| encoder.add(up_s * 1_000, &sample(up_s)).unwrap()).flatten().collect();
    bytes.extend(encoder.finish().unwrap());
    std::fs::write(dir.path().join("metrics.2023-11-14T22-13-20Z-00000"), bytes).unwrap();
    let flight = Flight::open(dir.path()).unwrap();
    let (from, to) = flight.span().unwrap();
    let window = flight.window(from, to).unwrap();

    let replay = Replay::start(script(&server, 21));
    let mut looks = Looks::connect(&replay.uri());
    looks.look().unwrap();
    let mut compared = 0;
    for track in window.all_tracks() {
        let label = ["op", "member"].into_iter().find_map(|name| Some((name, track.series.labels.get(name)?)));
        let live = looks.last(&track.series.name, label.as_slice());
        assert_eq!(live, track.last(), "{}", track.series.name);
        compared += 1;
    }
    assert!(compared > 25, "{compared}");
}

#[test]
fn a_restart_is_a_new_epoch_and_is_said_with_its_settings() {
    let (server, replay) = seven();
    let mut looks = Looks::connect(&replay.uri());
    looks.look().unwrap();
    replay.hang_up();
    let again = Server { pid: 8, up_s: 2, ..server };
    becomes(&replay, &again);
    replay.script().answers.insert("getParameter".to_owned(), ftdc::Builder::new().double("syncdelay", 20.0).finish());
    looks.until("the server again", |looks| !looks.of_kind(EventKind::Restart).is_empty());
    let changed = looks.of_kind(EventKind::Setting);
    assert!(
        changed.iter().any(|event| event.fields["name"] == "setParameter.syncdelay" && event.fields["after"] == "20")
    );
    assert_eq!(looks.epochs("mongo.ops"), 2, "no rate may cross the restart");
}

#[test]
fn a_step_down_is_said_and_readings_go_on() {
    let (server, replay) = seven();
    let mut looks = Looks::connect(&replay.uri());
    looks.look().unwrap();
    becomes(&replay, &Server { state: 2, up_s: 101, ..server });
    looks.later(1.0);
    looks.look().unwrap();
    let event = looks.of_kind(EventKind::Restart).remove(0);
    assert_eq!((event.fields["change"].as_str(), event.fields["after"].as_str()), ("stepped down", "SECONDARY"));
    assert_eq!(looks.epochs("mongo.ops"), 1, "counters go on");
}

#[test]
fn slow_operations_are_counted_and_the_longest_told_without_anybodys_data() {
    let (server, replay) = seven();
    let mut looks = Looks::connect(&replay.uri());
    looks.look().unwrap();
    assert_eq!(looks.last("mongo.slow_ops", &[]), Some(0.0), "what was logged before is not counted");
    becomes(&replay, &Server { up_s: 180, ..server });
    looks.later(11.0);
    looks.look().unwrap();
    assert_eq!(looks.last("mongo.slow_ops", &[]), Some(8.0));
    assert_eq!(looks.last("mongo.slow_ops_ms", &[]), Some(9_600.0));
    let told = looks.of_kind(EventKind::Log);
    assert_eq!(told.len(), 5, "the longest");
    assert_eq!(told[0].fields["cache_wait_us"], "900000");
    assert!(told[0].message.contains("900 ms for room in the cache, every document read"), "{}", told[0].message);
    assert!(!format!("{told:?}").contains("somebody"));
}

#[test]
fn a_slow_answer_is_a_reading() {
    let (_, replay) = seven();
    let mut looks = Looks::connect(&replay.uri());
    replay.script().delays.insert("serverStatus".to_owned(), Duration::from_millis(700));
    looks.look().unwrap();
    let took_us = looks.last("mongo.probe.response_us", &[]).unwrap();
    assert!((700_000.0..5_000_000.0).contains(&took_us), "{took_us}");
    // One that is not waited for any longer took at least that long.
    replay.script().delays.insert("serverStatus".to_owned(), Duration::from_secs(60));
    assert!(looks.look().unwrap_err().to_string().contains("serverStatus"));
    let took_us = looks.last("mongo.probe.response_us", &[]).unwrap();
    assert!((10_000_000.0..20_000_000.0).contains(&took_us), "{took_us}");
}

#[test]
fn few_rights_show_less_and_say_what_grants_the_rest() {
    let mut script = script(&Server::of("7.0.12"), 21);
    script.user = Some(("monitor".to_owned(), "s3cret".to_owned()));
    let denied = ["replSetGetStatus", "collStats", "getCmdLineOpts", "getParameter", "hostInfo"];
    script.denied = denied.map(str::to_owned).into();
    let replay = Replay::start(script);
    let uri = format!("mongodb://monitor:s3cret@{}/?authMechanism=PLAIN&authSource=$external", replay.address);
    let mut looks = Looks::connect(&uri);
    looks.look().unwrap();
    // Settings are read again each minute.
    looks.later(70.0);
    looks.look().unwrap();
    assert_eq!(looks.last("wt.cache.dirty_bytes", &[]), Some(101.0 * 1_048_576.0));
    let absent = looks.of_kind(EventKind::Absent);
    let what: Vec<&str> = absent.iter().map(|event| event.fields["what"].as_str()).collect();
    let expected = [
        "settings and data directory",
        "memory and processors of the server's host",
        "parameters that are changed while the server runs",
        "members of the replica set",
        "size of the oplog",
    ];
    assert_eq!(what, expected, "each once");
    assert!(absent.iter().all(|event| event.fields["remedy"].contains("db.grantRolesToUser(\"monitor\"")));
    let asked = replay.script().asked.iter().filter(|command| *command == "replSetGetStatus").count();
    assert_eq!(asked, 1, "what is refused for good is not asked again");

    let server = servers(&uri, &|_| None).unwrap().remove(0);
    let list = capabilities(&server, &Roots::default()).unwrap();
    let allowed = |what: &str| list.iter().find(|item| item.what == what).unwrap().missing.is_none();
    assert!(allowed("figures of the server (serverStatus)") && allowed("version"));
    assert!(!allowed("parameters that are changed while the server runs"));
    assert!(!allowed("size of the oplog") && !allowed("the server's process on this host"));
}

/// A made-up host: its process 7 is a server that has been up for a second and a half, and its root lies on device 8:1.
fn host_of_seven() -> (tempfile::TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::under(dir.path());
    let process = roots.proc.join("7");
    std::fs::create_dir_all(process.join("root")).unwrap();
    // Somewhat later than it says: who asks late, on a host with much to do, finds it younger still.
    let begun_s = backwater_probe::now().seconds() + 2.5;
    let begun_ticks = (begun_s * rustix::param::clock_ticks_per_second() as f64) as u64;
    let stat = format!("7 (mongod) S 1 {}{begun_ticks} 1 1\n", "0 ".repeat(17));
    std::fs::write(process.join("stat"), stat).unwrap();
    std::fs::write(process.join("mountinfo"), "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n").unwrap();
    (dir, roots)
}

#[test]
fn a_server_that_names_no_directory_keeps_its_data_where_mongod_does_by_itself() {
    let (_dir, roots) = host_of_seven();
    let mut script = script(&Server { up_s: 1, ..Server::of("7.0.12") }, 21);
    let no_path = ftdc::Builder::new().document("parsed", |parsed| parsed).finish();
    script.answers.insert("getCmdLineOpts".to_owned(), no_path);
    let replay = Replay::start(script);
    let server = || servers(&replay.uri(), &|_| None).unwrap().remove(0);
    let missing = || {
        let list = capabilities(&server(), &roots).unwrap();
        let of = |what: &str| list.iter().find(|item| item.what == what).unwrap().missing.clone();
        assert_eq!(of("the server's process on this host"), None);
        of("device of the data directory")
    };
    let why = missing().unwrap();
    assert!(why.contains("cannot read /data/db"), "{why}");
    std::fs::create_dir_all(roots.proc.join("7/root/data/db")).unwrap();
    assert_eq!(missing(), None);
    let (_probe, target) = MongoProbe::connect(server(), &roots).unwrap();
    assert_eq!((target.local, target.data_device.as_deref()), (true, Some("8:1")));
    // Whose settings are not told may have them anywhere, and a router has none.
    replay.script().refusals.insert("getCmdLineOpts".to_owned(), (13, "not authorized".to_owned()));
    assert_eq!(missing().unwrap(), "the server does not tell where it is");
    let router = ftdc::Builder::new().string("process", "mongos").int64("pid", 7).int64("uptimeMillis", 1_500).finish();
    replay.script().answers.insert("serverStatus".to_owned(), router);
    replay.script().refusals.clear();
    assert!(missing().unwrap().contains("holds no data"));
}

#[test]
fn nobody_and_a_wrong_password_are_told_what_to_do_and_no_password_is_printed() {
    let mut script = script(&Server::of("7.0.12"), 21);
    script.user = Some(("monitor".to_owned(), "s3cret".to_owned()));
    let replay = Replay::start(script);
    let nobody = refused(&replay.uri());
    assert!(nobody.contains("requires authentication") && nobody.contains("createUser"), "{nobody}");
    for mechanism in ["PLAIN&authSource=$external", "SCRAM-SHA-256"] {
        let wrong = refused(&format!("mongodb://monitor:wr0ngpw@{}/?authMechanism={mechanism}", replay.address));
        assert!(wrong.contains("does not let user monitor in") && wrong.contains("authSource"), "{wrong}");
        assert!(!wrong.contains("wr0ngpw"), "{wrong}");
    }
}

#[test]
fn servers_that_cannot_be_read_are_told_apart() {
    let old = Replay::start(script(&Server::of("4.4.29"), 8));
    let why = refused(&old.uri());
    assert!(why.contains("runs MongoDB 4.2 (wire version 8)") && why.contains("diagnostic.data"), "{why}");
    let gone = refused("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=600");
    assert!(gone.starts_with("127.0.0.1:1 cannot be reached: ") && gone.contains("refused"), "{gone}");
}

#[test]
fn a_release_that_is_not_known_is_read_as_far_as_it_kept_its_names() {
    for version in ["12.1.0", "next"] {
        let mut script = script(&Server::of("8.0.4"), 25);
        script.answers.insert("buildInfo".to_owned(), ftdc::Builder::new().string("version", version).finish());
        let replay = Replay::start(script);
        let mut looks = Looks::connect(&replay.uri());
        looks.look().unwrap();
        assert_eq!(looks.last("mongo.tickets.out", &[("op", "write")]), Some(5.0));
        let absent = looks.of_kind(EventKind::Absent);
        assert_eq!(absent[0].fields["what"], "figures that this release renamed", "{version}");
        assert!(absent[0].fields["why"].contains(version));
    }
}

#[test]
fn a_standalone_is_not_asked_for_members_and_a_router_names_its_shards() {
    let mut alone = script(&Server::of("7.0.12"), 21);
    let status = ftdc::Builder::new().string("process", "mongod").int64("pid", 7).int64("uptimeMillis", 500).finish();
    alone.answers.insert("serverStatus".to_owned(), status);
    let replay = Replay::start(alone);
    Looks::connect(&replay.uri()).look().unwrap();
    assert!(!replay.script().asked.iter().any(|command| command == "replSetGetStatus"));

    let mut router = script(&Server::of("7.0.12"), 21);
    let status = ftdc::Builder::new().string("process", "mongos").int64("pid", 7).int64("uptimeMillis", 500).finish();
    let shard = |b: ftdc::Builder| b.string("_id", "s1").string("host", "s1/a:27018,b:27018");
    let shards = ftdc::Builder::new().array("shards", |list| list.document("0", shard)).finish();
    router.answers.extend([("serverStatus".to_owned(), status), ("listShards".to_owned(), shards)]);
    let replay = Replay::start(router);
    let mut looks = Looks::connect(&replay.uri());
    looks.look().unwrap();
    let absent = looks.of_kind(EventKind::Absent);
    assert!(absent.iter().any(|event| event.fields["remedy"].ends_with("mongodb://a:27018,b:27018/")), "{absent:?}");
}

#[test]
fn a_routers_shards_are_watched_beside_it() {
    let members = [seven().1, seven().1];
    let mut router = script(&Server::of("7.0.12"), 21);
    let status = ftdc::Builder::new().string("process", "mongos").int64("pid", 7).int64("uptimeMillis", 500).finish();
    // The last one is a member that nobody answers for: it is left out.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hosts = [format!("rs0/{},{nobody}", members[0].address), format!("rs1/{}", members[1].address)];
    let shards = ftdc::Builder::new()
        .array("shards", |list| {
            hosts.iter().enumerate().fold(list, |list, (place, host)| {
                list.document(&place.to_string(), |b| b.string("_id", &place.to_string()).string("host", host))
            })
        })
        .finish();
    router.answers.extend([("serverStatus".to_owned(), status), ("listShards".to_owned(), shards)]);
    let router = Replay::start(router);
    // One of them is given by name, too: it is watched once.
    let targets = vec![router.uri() + "?serverSelectionTimeoutMS=500", members[1].uri()];
    let (session, _batches) = Session::start(Setup { targets, ..Setup::default() }).unwrap();
    let meta = session.meta();
    let names: Vec<String> = meta.targets.iter().map(|target| target.name.clone()).collect();
    let expected = [router.address, members[1].address, members[0].address].map(|address| address.to_string());
    assert_eq!(names, expected);
    let of_shard = &meta.targets[2].settings;
    assert_eq!(
        (of_shard["sharding.clusterRole"].as_str(), of_shard["replication.replSetName"].as_str()),
        ("shardsvr", "rs0")
    );
    session.stop();
}

#[test]
fn a_server_that_goes_away_fails_the_look_and_comes_back() {
    let (server, replay) = seven();
    let mut looks = Looks::connect(&replay.uri());
    looks.look().unwrap();
    replay.hang_up();
    // The look that meets the broken connection fails, or the driver has noticed before it.
    let _ = looks.look();
    becomes(&replay, &Server { up_s: 160, ..server });
    looks.until("later readings", |looks| looks.last("mongo.ops", &[("op", "reads")]) == Some(16_000.0));
    assert!(looks.of_kind(EventKind::Restart).is_empty());
}

/// The newest whole document in a flight recorder's directory, with all its texts, and when it was written.
fn newest(dir: &Path) -> (Vec<u8>, i64) {
    let source = ftdc::Source::open(dir).unwrap();
    let mut decoder = ftdc::Decoder::new(ftdc::Limits::default());
    let chunks =
        source.documents().filter_map(Result::ok).filter(|document| document.kind() == ftdc::DocumentKind::Chunk);
    let last = chunks.last().unwrap();
    let chunk = decoder.open(&last).unwrap();
    (chunk.reference().to_vec(), chunk.at_ms())
}

/// What a real server once wrote into its flight recorder, played back: the live probe reads what the recorder's reader reads.
#[test]
fn a_recorded_server_gives_what_its_flight_recorder_gives() {
    let Some(dir) = std::env::var_os("BACKWATER_FTDC").map(PathBuf::from) else {
        eprintln!("not asked for: a_recorded_server: it runs where BACKWATER_FTDC names a diagnostic.data");
        return;
    };
    let (document, at_ms) = newest(&dir);
    let mut script = script(&Server::of("7.0.12"), 21);
    for command in ["serverStatus", "replSetGetStatus"] {
        let found = ["", "common", "shard"].iter().find_map(|role| {
            let path: Vec<&str> = [*role, command].into_iter().filter(|part| !part.is_empty()).collect();
            ftdc::find_path(&document, &path).filter(|element| element.elements().is_some())
        });
        match found {
            Some(found) => drop(script.answers.insert(command.to_owned(), found.value.to_vec())),
            None => drop(script.answers.remove(command)),
        }
    }
    let replay = Replay::start(script);
    let mut looks = Looks::connect(&replay.uri());
    looks.look().unwrap();
    let flight = Flight::open(&dir).unwrap();
    let at = Moment(at_ms * 1_000);
    let window = flight.window(at, at + Span::from_seconds(0.9)).unwrap();
    let mut compared = 0;
    for track in window.all_tracks() {
        let name = track.series.name.as_ref();
        if name.starts_with("host.") || name.contains("oplog") || name.contains("probe") {
            continue;
        }
        let label = ["op", "member"].into_iter().find_map(|name| Some((name, track.series.labels.get(name)?)));
        let recorded = track.points.first().map(|point| point.value);
        // The recorder truncates doubles.
        assert_eq!(looks.last(name, label.as_slice()).map(f64::trunc), recorded.map(f64::trunc), "{name}");
        compared += 1;
    }
    assert!(compared > 50, "{compared}");
    eprintln!("compared {compared} figures of {}", dir.display());
}
