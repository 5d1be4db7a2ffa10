//! What is done about a server that no setting of its engine reaches: its oplog, its members, its readers, its clients, its device; by
//! release, and where one does not have something, what to do instead. Where the release is not known, what works in every one, or
//! each spelling with the releases that take it.
//!
//! Sources: MongoDB's manual (replSetResizeOplog, replication.enableMajorityReadConcern, $currentOp, rs.reconfig, maxPoolSize).

use super::engine::{MIB, bare, known_before, known_since, setting, version};
use backwater_model::{Activation, Figure, Remedy, Target};

/// Since here what idle sessions have open is listed, too.
const IDLE_SINCE: i32 = 40_200;
/// Since here there are transactions of several statements, and a limit to how long they live.
const TRANSACTIONS_SINCE: i32 = 40_000;
/// Since here an oplog may be told to keep a time.
const OPLOG_TIME_SINCE: i32 = 40_400;
/// Since here threads can no longer be shared among connections, and majority reads no longer be switched off.
const POOLS_ONLY_SINCE: i32 = 50_000;
const MAJORITY_ALWAYS_SINCE: i32 = 50_000;
/// Change streams also without majority reads.
const CHANGE_STREAMS_ALWAYS_SINCE: i32 = 40_200;
/// Since here the shell is mongosh.
const MONGOSH_SINCE: i32 = 50_000;
/// Since here the server itself decides how many tickets it gives out, and changes that number all the time.
const TICKETS_BY_ITSELF_SINCE: i32 = 70_000;

/// The replica set that a server belongs to: the command line has another name for it.
pub(crate) fn replica_set(target: &Target) -> Option<&str> {
    setting(Some(target), "replication.replSetName").or_else(|| setting(Some(target), "replication.replSet"))
}

/// An oplog that covers more time.
pub(crate) fn oplog_size(target: Option<&Target>, bytes: f64, now_bytes: f64, predicted: Vec<Figure>) -> Remedy {
    // The server takes whole mebibytes, no fewer than 990.
    let mib = |bytes: f64| (bytes / MIB).ceil().max(990.0);
    // The shell of 5.0 and newer needs to be told that it is a double; the older one has no other numbers.
    let run = |bytes: f64| {
        let resized = |size: String| format!("db.adminCommand({{replSetResizeOplog: 1, size: {size}}})");
        let (new, old) = (resized(format!("Double({:.0})", mib(bytes))), resized(format!("{:.0}", mib(bytes))));
        by_release(target, MONGOSH_SINCE, new, old, ["in mongosh", "in the older shell, mongo"])
    };
    let free = if known_before(target, OPLOG_TIME_SINCE) {
        ""
    } else {
        " Or keep a time whatever the size (4.4 and newer): db.adminCommand({replSetResizeOplog: 1, minRetentionHours: HOURS})."
    };
    Remedy {
        title: format!(
            "Give the oplog {:.0} MB (relieves the oplog, from which members go on that were away)",
            mib(bytes)
        ),
        runtime: run(bytes),
        persistent: vec![format!(
            "mongod.conf:  replication: {{oplogSizeMB: {:.0}}}   # for members made anew",
            mib(bytes)
        )],
        activation: Activation::Immediate,
        undo: run(now_bytes),
        predicted,
        risk: format!(
            "It takes that much more of the disk, on each member on which it is run; run it on every one.{free}"
        ),
    }
}

/// A line as releases take it from `since` on, or as older ones do; both, each with where it is right, where the release is not known.
fn by_release(target: Option<&Target>, since: i32, new: String, old: String, right: [&str; 2]) -> Vec<String> {
    match version(target) {
        Some(version) if version >= since => vec![new],
        Some(_) => vec![old],
        None => vec![format!("{new}   # {}", right[0]), format!("{old}   # {}", right[1])],
    }
}

/// What lets a slow member no longer fill the primary's cache, by release.
pub(crate) fn slow_member(target: Option<&Target>, member: Option<&str>, predicted: Vec<Figure>) -> Remedy {
    let who = member.map_or_else(|| "the slow member".to_owned(), |member| format!("member {member}"));
    let repair =
        format!("# find out what holds {who} back: backwater diagnose mongodb://{}/", member.unwrap_or("MEMBER"));
    let majority = |on: bool| {
        vec![format!("mongod.conf:  replication: {{enableMajorityReadConcern: {on}}}   # then restart, each member")]
    };
    let can_switch = known_before(target, MAJORITY_ALWAYS_SINCE);
    let (persistent, undo, activation) = if can_switch {
        (majority(false), majority(true), Activation::Restart)
    } else {
        (Vec::new(), Vec::new(), Activation::Immediate)
    };
    let risk = if can_switch && known_before(target, CHANGE_STREAMS_ALWAYS_SINCE) {
        "Without majority reads, change streams no longer work. It takes the pressure from the cache and leaves the member as slow as \
         it is."
    } else if can_switch {
        "Without majority reads, transactions of a sharded cluster that involve this shard fail, and flow control is off. It takes the \
         pressure from the cache and leaves the member as slow as it is."
    } else if version(target).is_none() {
        "Which release this is, is not known: up to 4.4 majority reads could be switched off (replication.enableMajorityReadConcern), \
         from 5.0 on a server with that line does not start. A hidden member without a vote (votes: 0) no longer holds the majority \
         back, in every release, and no longer counts for it."
    } else {
        "Switching majority reads off is not available in this release (5.0 and newer): history goes to the disk instead. Only the \
         member itself can be helped; a hidden member without a vote (votes: 0) no longer holds the majority back, and no longer \
         counts for it."
    };
    Remedy {
        title: format!("Help {who}, behind which the majority waits (relieves the history that the cache keeps)"),
        runtime: vec![repair],
        persistent,
        activation,
        undo,
        predicted,
        risk: risk.to_owned(),
    }
}

/// What ends a reader that keeps history from being dropped. A cursor that is not read from holds nothing, unless in a transaction.
/// Sources: MongoDB's manual ($currentOp, killOp, killSessions, transactionLifetimeLimitSeconds).
pub(crate) fn long_reader(target: Option<&Target>, open_s: f64) -> Remedy {
    let runtime = if bare(target) {
        vec!["# not a setting: end the transaction or snapshot that has been open the longest".to_owned()]
    } else {
        let seconds = (open_s / 2.0).floor().max(1.0);
        let right = ["4.2 and newer", "older releases"];
        let mut lines =
            by_release(target, IDLE_SINCE, find_readers(seconds, true), find_readers(seconds, false), right);
        lines.push(END_OPERATION.to_owned());
        if known_since(target, TRANSACTIONS_SINCE) {
            lines.extend([END_TRANSACTION, TRANSACTION_LIMIT].map(str::to_owned));
        }
        lines
    };
    Remedy {
        title: "End the reader that is open the longest (relieves the history that is kept for it)".to_owned(),
        runtime,
        persistent: Vec::new(),
        activation: Activation::Immediate,
        undo: Vec::new(),
        predicted: Vec::new(),
        risk: "What is ended fails at whoever asked for it, and asks again if it retries. Transactions alone are ended by a setting \
               (transactionLifetimeLimitSeconds); a lower one ends every transaction that takes longer, the good ones too. What \
               reads so long belongs on a member that answers nobody else."
            .to_owned(),
    }
}

const END_OPERATION: &str = "db.killOp(OPID)   # of the one that may be ended";
const END_TRANSACTION: &str =
    "db.adminCommand({killSessions: [LSID]})   # of a transaction that does nothing now and so has no opid";
const TRANSACTION_LIMIT: &str = "db.adminCommand({getParameter: 1, transactionLifetimeLimitSeconds: 1})   # the server ends older \
                                 transactions by itself: 60 unless somebody changed it";

/// Lists what has been open for so many seconds: operations and transactions, also such that do nothing now.
fn find_readers(seconds: f64, idle_too: bool) -> String {
    let idle = if idle_too { ", idleSessions: true" } else { "" };
    format!(
        "db.getSiblingDB(\"admin\").aggregate([{{$currentOp: {{allUsers: true{idle}}}}}, {{$match: {{$or: \
         [{{secs_running: {{$gte: {seconds:.0}}}}}, {{\"transaction.timeOpenMicros\": {{$gte: {:.0}}}}}]}}}}])",
        seconds * 1e6
    )
}

/// What is done about a device that stands still by itself, which no setting of a server reaches.
pub(crate) fn standing_device(target: Option<&Target>, name: &str) -> Remedy {
    let mut runtime = vec![
        format!(
            "uname -r; dmesg -T | grep -iE '{name}|reset|timeout|I/O error'   # what the kernel says of these seconds"
        ),
        format!("smartctl -x /dev/{name}   # its firmware and its own log; of NVMe also: nvme smart-log /dev/{name}"),
    ];
    let mut undo = Vec::new();
    if target.and_then(replica_set).is_some() {
        // A primary may not have priority 0.
        runtime.push(
            "cfg = rs.conf(); cfg.members[N].priority = 0.5; rs.reconfig(cfg)   # if this is the primary, and another member, of a \
             higher priority, can take the writes; N is its place in cfg.members"
                .to_owned(),
        );
        undo.push("cfg = rs.conf(); cfg.members[N].priority = BEFORE; rs.reconfig(cfg)".to_owned());
    }
    Remedy {
        title: format!(
            "Find which of kernel, driver, firmware and array lets {name} stand still, and replace it (relieves the device)"
        ),
        runtime,
        persistent: Vec::new(),
        activation: Activation::Immediate,
        undo,
        predicted: Vec::new(),
        risk: "Another kernel or firmware belongs on a secondary first: run the same load there and record it again. Where the finding \
               says at what rate the device stops, less than that keeps it going meanwhile."
            .to_owned(),
    }
}

/// Clients that ask for fewer at once than there are tickets. More tickets only put more operations into the same engine.
pub(crate) fn tickets(target: Option<&Target>, total: f64) -> Remedy {
    let size = if known_before(target, TICKETS_BY_ITSELF_SINCE) {
        format!("N = {total:.0} ÷ how many processes there are, and at least 1")
    } else {
        "N: the smallest that loses no throughput, and at least 1".to_owned()
    };
    Remedy {
        title: "Find what holds tickets for long, and have clients ask for no more at once than there are (relieves the line before \
                the engine)"
            .to_owned(),
        runtime: vec![
            "db.currentOp({active: true, secs_running: {$gte: 1}})   # an index may be missing".to_owned(),
            format!("mongodb://HOST/?maxPoolSize=N   # in the clients; {size}"),
        ],
        persistent: Vec::new(),
        activation: Activation::Immediate,
        undo: vec!["mongodb://HOST/   # in the clients: 100 for each process again".to_owned()],
        predicted: Vec::new(),
        risk: "Nobody is answered sooner by smaller pools: who waited in the server waits in its client, where it can be told to give up \
               (waitQueueTimeoutMS). More tickets are no remedy: operations inside the engine are slow, and there would be more of them."
            .to_owned(),
    }
}

/// Fewer connections opened and thrown away.
pub(crate) fn pooling(target: Option<&Target>) -> Remedy {
    let shared = version(target).is_some_and(|version| (30_600..POOLS_ONLY_SINCE).contains(&version));
    let persistent = if shared {
        vec!["mongod.conf:  net: {serviceExecutor: adaptive}   # then restart the server".to_owned()]
    } else {
        vec![
            "mongod.conf (of a router mongos.conf):  net: {maxIncomingConnections: N}   # N = pools × their size, and a tenth more; then restart the server"
                .to_owned(),
        ]
    };
    let server_undo = if shared {
        "mongod.conf:  net: {serviceExecutor: synchronous}   # then restart the server".to_owned()
    } else {
        limit_undo(target)
    };
    let risk = if shared {
        "The adaptive executor was marked experimental and is gone from later releases: pools in the clients are the lasting way."
    } else if version(target).is_none() {
        "Which release this is, is not known: 3.6 to 4.4 can share threads among connections (serviceExecutor: adaptive), others cannot. \
         A limit turns clients away that have no pool, so give them one first."
    } else {
        "Sharing threads among connections (serviceExecutor: adaptive) is not available in this release; a limit turns clients away \
         that have no pool, so give them one first."
    };
    Remedy {
        title: "Have clients keep their connections: one pool a process, with a size and a least size (relieves threads and sessions)"
            .to_owned(),
        runtime: vec![
            "mongodb://HOST/?minPoolSize=10&maxPoolSize=100&maxIdleTimeMS=600000   # in the clients".to_owned(),
        ],
        persistent,
        // Pools are of the clients: no server need be restarted for them.
        activation: Activation::Immediate,
        undo: vec!["mongodb://HOST/   # in the clients, as before".to_owned(), server_undo],
        predicted: Vec::new(),
        risk: risk.to_owned(),
    }
}

/// Room for connections where clients are turned away, or nearly.
pub(crate) fn connection_limit(target: Option<&Target>) -> Remedy {
    Remedy {
        title: "Have clients keep fewer connections, and let the server take as many as they still need (relieves those that are turned \
                away)"
            .to_owned(),
        runtime: vec!["mongodb://HOST/?maxPoolSize=N   # in the clients: N × processes is what comes to the server".to_owned()],
        persistent: vec![
            "mongod.conf (of a router mongos.conf):  net: {maxIncomingConnections: M}   # M = N × processes, and a tenth more; then restart \
             the server"
                .to_owned(),
            "LimitNOFILE=   # of the server's service: the limit is also four fifths of its open files (ulimit -n)".to_owned(),
        ],
        // Pools are of the clients: no server need be restarted for them.
        activation: Activation::Immediate,
        undo: vec!["mongodb://HOST/   # in the clients, as before".to_owned(), limit_undo(target)],
        predicted: Vec::new(),
        risk: "Each connection takes a thread and up to a mebibyte of memory for its stack: a higher limit without it is a crash later."
            .to_owned(),
    }
}

/// The limit on connections as it is configured.
fn limit_undo(target: Option<&Target>) -> String {
    let before = match setting(target, "net.maxIncomingConnections") {
        Some(limit) => format!("{{maxIncomingConnections: {limit}}}"),
        None => "without maxIncomingConnections".to_owned(),
    };
    format!("mongod.conf (of a router mongos.conf):  net: {before}   # then restart the server")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::engine::tests::target;
    use super::*;

    #[test]
    fn what_a_release_does_not_have_is_not_advised() {
        let (v36, v42, v70) = (target(30_623, &[]), target(40_212, &[]), target(70_012, &[]));
        let v44 = target(40_429, &[]);
        assert!([&v36, &v44].iter().all(|old| pooling(Some(old)).persistent[0].contains("adaptive")));
        let new = pooling(Some(&v70));
        assert!(!new.persistent[0].contains("adaptive") && new.risk.contains("not available in this release"));
        assert!(!new.undo.iter().any(|line| line.contains("serviceExecutor")), "such a line keeps it from starting");
        let oplog = |version| oplog_size(Some(&target(version, &[])), 2e9, 1e9, Vec::new()).runtime.remove(0);
        assert!(oplog(70_012).contains("size: Double(1908)") && oplog(40_212).contains("size: 1908}"));
        let [without_36, without_42] = [&v36, &v42].map(|target| slow_member(Some(target), None, Vec::new()));
        assert!(without_42.persistent[0].contains("enableMajorityReadConcern: false"));
        assert!(without_36.risk.contains("change streams no longer work") && !without_36.risk.contains("flow control"));
        assert!(without_42.risk.contains("sharded cluster") && !without_42.risk.contains("change streams"));
        let new = slow_member(Some(&v70), Some("db2:27017"), Vec::new());
        assert!(new.persistent.is_empty() && new.risk.contains("not available in this release"));
        assert!(new.undo.is_empty() && new.activation == Activation::Immediate, "no server is restarted for it");
        assert!(new.title.contains("db2:27017"));
    }

    #[test]
    fn where_the_release_is_not_known_nothing_rests_on_one() {
        let unknown = Target { kind: "mongodb".to_owned(), ..Target::default() };
        for target in [None, Some(&unknown)] {
            let oplog = oplog_size(target, 2e9, 1e9, Vec::new());
            assert!(oplog.runtime[0].ends_with("size: Double(1908)})   # in mongosh"), "{:?}", oplog.runtime);
            assert!(oplog.runtime[1].ends_with("size: 1908})   # in the older shell, mongo"), "{:?}", oplog.runtime);
            assert!(oplog.undo.len() == 2 && oplog.risk.contains("(4.4 and newer)"));
            let reader = long_reader(target, 90.0);
            assert!(reader.runtime[0].contains("idleSessions") && reader.runtime[0].ends_with("# 4.2 and newer"));
            assert!(!reader.runtime[1].contains("idleSessions") && reader.runtime[1].ends_with("# older releases"));
            let (member, pool) = (slow_member(target, None, Vec::new()), pooling(target));
            assert!(member.persistent.is_empty(), "a server from 5.0 on does not start with it");
            assert!(pool.persistent[0].contains("maxIncomingConnections"), "every release has it");
            for risk in [member.risk, pool.risk] {
                assert!(risk.contains("is not known") && !risk.contains("not available in this release"), "{risk}");
            }
        }
    }

    #[test]
    fn a_long_reader_is_found_and_ended_in_the_words_of_its_release() {
        let found = long_reader(Some(&target(70_012, &[])), 90.0);
        assert!(found.runtime[0].contains("secs_running: {$gte: 45}") && found.runtime[0].contains("{$gte: 45000000}"));
        assert!(found.runtime[0].contains("idleSessions: true") && !found.runtime[0].contains("ursor"));
        assert!(
            found.runtime[2].contains("killSessions") && found.runtime[3].contains("transactionLifetimeLimitSeconds")
        );
        let old = long_reader(Some(&target(30_623, &[])), 90.0).runtime;
        assert!(!old[0].contains("idleSessions"));
        assert_eq!(old.len(), 2, "there are no transactions to end");
        assert!(found.runtime[1].starts_with("db.killOp(") && found.persistent.is_empty());
        let alone = Target { kind: "wiredtiger".to_owned(), ..Target::default() };
        assert!(long_reader(Some(&alone), 90.0).runtime[0].contains("not a setting"));
    }

    #[test]
    fn pools_are_sized_by_tickets_only_where_their_number_stays() {
        let pool = |version| tickets(Some(&target(version, &[])), 128.0).runtime[1].clone();
        assert!(pool(40_429).contains("N = 128 ÷") && pool(40_429).contains("at least 1"));
        assert!(!pool(70_012).contains("128"), "it is another number in a second");
    }

    #[test]
    fn only_a_member_gives_its_writes_to_another() {
        for name in ["replication.replSetName", "replication.replSet"] {
            let found = standing_device(Some(&target(70_012, &[(name, "rs0")])), "nvme0n1");
            assert!(found.runtime[2].contains("priority = 0.5") && found.undo[0].contains("priority = BEFORE"));
        }
        let alone = standing_device(Some(&target(70_012, &[])), "nvme0n1");
        assert_eq!((alone.runtime.len(), alone.undo.len()), (2, 0));
    }
}
