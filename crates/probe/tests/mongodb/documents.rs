//! Documents as servers of several releases answer them, made by us: shape and names as theirs, figures chosen.

// Each test binary uses a part of it.
#![allow(dead_code)]

use ftdc::Builder;
use std::collections::HashMap;

/// The releases, with the wire version of each.
pub(crate) const RELEASES: [(&str, i32); 5] =
    [("4.4.29", 9), ("5.0.31", 13), ("6.0.20", 17), ("7.0.12", 21), ("8.0.4", 25)];

/// A server at one moment.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) release: &'static str,
    pub(crate) pid: i64,
    pub(crate) up_s: i64,
    /// State in the replica set.
    pub(crate) state: i32,
}

impl Server {
    pub(crate) fn of(release: &'static str) -> Server {
        Server { release, pid: 7, up_s: 100, state: 1 }
    }

    fn at_least(&self, major: i32, minor: i32) -> bool {
        let mut parts = self.release.split('.').map(|part| part.parse::<i32>().unwrap());
        (parts.next().unwrap(), parts.next().unwrap()) >= (major, minor)
    }

    /// Its answers, by the command.
    pub(crate) fn answers(&self) -> HashMap<String, Vec<u8>> {
        let answers = [
            ("serverStatus", self.status()),
            ("buildInfo", self.build_info()),
            ("getCmdLineOpts", self.options()),
            ("hostInfo", self.host_info()),
            ("getParameter", self.parameters()),
            ("replSetGetStatus", self.members()),
            ("collStats", self.oplog_stats()),
            ("getLog", self.log()),
        ];
        answers.map(|(command, document)| (command.to_owned(), document)).into()
    }

    /// getLog: a connection, and a slow operation for each ten seconds it is up, with the command that held it.
    fn log(&self) -> Vec<u8> {
        let connected = r#"{"s":"I","c":"NETWORK","id":22943,"msg":"Connection accepted","attr":{}}"#.to_owned();
        let slow = (0..self.up_s / 10).flat_map(|number| {
            let statement = format!(
                r#"{{"s":"I","c":"WRITE","id":51803,"ctx":"conn{number}","msg":"Slow query","attr":{{"type":"update","ns":"shop.carts","command":{{"q":{{"name":"somebody"}}}},"planSummary":"COLLSCAN","storage":{{"timeWaitingMicros":{{"cache":900000}}}},"durationMillis":1200}}}}"#
            );
            let command = format!(
                r#"{{"s":"I","c":"COMMAND","id":51803,"ctx":"conn{number}","msg":"Slow query","attr":{{"type":"command","ns":"shop.$cmd","command":{{"update":"carts","ordered":true}},"durationMillis":1201}}}}"#
            );
            [statement, command]
        });
        let lines: Vec<String> = std::iter::once(connected).chain(slow).collect();
        Builder::new()
            .int32("totalLinesWritten", lines.len() as i32)
            .array("log", |log| {
                lines.iter().enumerate().fold(log, |log, (place, line)| log.string(&place.to_string(), line))
            })
            .finish()
    }

    pub(crate) fn build_info(&self) -> Vec<u8> {
        Builder::new().string("version", self.release).finish()
    }

    /// serverStatus without `ok`.
    pub(crate) fn status(&self) -> Vec<u8> {
        let (up, new) = (self.up_s, self.at_least(8, 0));
        let counters = |w: Builder| w.int64("ops", up * 100).int64("latency", up * 5_000);
        let builder = Builder::new()
            .string("host", "db1:27017")
            .string("version", self.release)
            .string("process", "mongod")
            .int64("pid", self.pid)
            .double("uptime", up as f64)
            .int64("uptimeMillis", up * 1_000 + 500)
            .document("connections", |c| {
                c.int32("current", 40).int32("available", 800).int32("active", 6).int64("totalCreated", up * 3)
            })
            .document("opLatencies", |o| {
                o.document("reads", counters).document("writes", counters).document("commands", counters)
            })
            .document("repl", |r| r.string("setName", "rs0"))
            .document("storageEngine", |s| s.string("name", "wiredTiger"))
            .document("metrics", |m| {
                m.document("ttl", |t| t.int64("deletedDocuments", up * 50).int64("passes", up / 60))
                    .document("getLastError", |g| {
                        g.document("wtime", |w| w.int64("num", up * 2).int64("totalMillis", up * 14))
                    })
            })
            .document("oplog", |o| {
                o.timestamp("latestOptime", 1_700_000_000 + up as u32, 3).timestamp("earliestOptime", 1_699_990_000, 1)
            })
            .document("wiredTiger", |w| self.engine(w));
        let builder = self.load(builder);
        if new {
            return builder.document("queues", |q| q.document("execution", |e| self.tickets(e))).finish();
        }
        builder.finish()
    }

    /// What comes in by the network, what waits for locks, and what flow control holds back.
    fn load(&self, status: Builder) -> Builder {
        let up = self.up_s;
        let threads = |t: Builder| t.int32("threadsRunning", 41);
        let network = |n: Builder| {
            let n = n.int64("bytesIn", up * 1_000).int64("bytesOut", up * 8_000).int64("numRequests", up * 40);
            if self.at_least(5, 0) {
                return n.document("serviceExecutors", |s| s.document("passthrough", threads));
            }
            n.document("serviceExecutorTaskStats", threads)
        };
        let locks = |g: Builder| {
            g.document("currentQueue", |q| q.int32("readers", 2).int32("writers", 9))
                .document("activeClients", |a| a.int32("readers", 3).int32("writers", 11))
        };
        let flow_control = |f: Builder| {
            f.int32("targetRateLimit", 900)
                .int64("timeAcquiringMicros", up * 60)
                .double("sustainerRate", 700.0)
                .bool("isLagged", true)
                .int64("isLaggedTimeMicros", up * 70)
        };
        status.document("network", network).document("globalLock", locks).document("flowControl", flow_control)
    }

    /// Tickets into the engine, and since 7.0 the line before them: beside the tickets, since 8.0 by its priority.
    fn tickets(&self, tickets: Builder) -> Builder {
        let line = |l: Builder| l.int64("queueLength", 4).int64("totalTimeQueuedMicros", self.up_s * 30);
        let one = |t: Builder| {
            let t = t.int32("out", 5).int32("available", 123).int32("totalTickets", 128);
            match (self.at_least(8, 0), self.at_least(7, 0)) {
                (true, _) => t.document("normalPriority", line),
                (false, true) => line(t),
                (false, false) => t,
            }
        };
        tickets.document("write", one).document("read", one)
    }

    fn engine(&self, engine: Builder) -> Builder {
        let (up, new) = (self.up_s, self.at_least(8, 0));
        let evicting = "application thread time evicting (usecs)";
        let engine = engine
            .document("cache", |c| {
                let c = c
                    .int64("bytes currently in the cache", 600 << 20)
                    .int64("tracked dirty bytes in the cache", (up + 1) << 20)
                    .double("maximum bytes configured", 1_073_741_824.0)
                    .int64("bytes allocated for updates", 5 << 20);
                if new { c.int64(evicting, up * 10) } else { c }
            })
            .document("thread-yield", |t| {
                let t = t.int64("application thread time waiting for cache (usecs)", up * 20);
                if new { t } else { t.int64(evicting, up * 10) }
            })
            .document("transaction", |t| {
                let t = t.int64("transaction range of timestamps currently pinned", 30 << 32);
                if new { t } else { t.int64("transaction checkpoint most recent time (msecs)", 700) }
            });
        if new {
            return engine.document("checkpoint", |c| c.int64("most recent time (msecs)", 700));
        }
        engine.document("concurrentTransactions", |t| self.tickets(t))
    }

    /// replSetGetStatus: this member and one that is ten seconds behind.
    pub(crate) fn members(&self) -> Vec<u8> {
        let member = |b: Builder, name: &str, state: i32, seconds: i64, own: bool| {
            let b = b.string("name", name).double("health", 1.0).int32("state", state);
            let b = b.document("optime", |o| o.timestamp("ts", seconds as u32, 1).int64("t", 3));
            if own { b.bool("self", true) } else { b }
        };
        let now = 1_700_000_000 + self.up_s;
        let commit = |o: Builder| o.timestamp("ts", (now - 10) as u32, 1).int64("t", 3);
        Builder::new()
            .string("set", "rs0")
            .int32("myState", self.state)
            .document("optimes", |o| o.document("lastCommittedOpTime", commit))
            .array("members", |m| {
                m.document("0", |b| member(b, "db1:27017", self.state, now, true))
                    .document("1", |b| member(b, "db2:27017", 2, now - 10, false))
            })
            .finish()
    }

    pub(crate) fn oplog_stats(&self) -> Vec<u8> {
        Builder::new().string("ns", "local.oplog.rs").int64("size", 900 << 20).int64("maxSize", 1_000 << 20).finish()
    }

    /// getCmdLineOpts, with a secret that nobody may repeat.
    pub(crate) fn options(&self) -> Vec<u8> {
        let parsed = |p: Builder| {
            p.document("storage", |s| {
                s.string("dbPath", "/data/db")
                    .document("wiredTiger", |w| w.document("engineConfig", |e| e.double("cacheSizeGB", 1.0)))
            })
            .document("security", |s| s.string("keyFile", "/etc/mongod.key"))
            .document("replication", |r| r.string("replSetName", "rs0"))
        };
        Builder::new().document("parsed", parsed).finish()
    }

    pub(crate) fn host_info(&self) -> Vec<u8> {
        let system = |s: Builder| s.string("hostname", "db1").int32("numCores", 8).int64("memSizeMB", 16_384);
        Builder::new().document("system", system).finish()
    }

    pub(crate) fn parameters(&self) -> Vec<u8> {
        Builder::new().double("syncdelay", 60.0).bool("ttlMonitorEnabled", true).finish()
    }
}
