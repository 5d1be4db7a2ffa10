//! The probe on a primary with a standby, and on the standby through its promotion.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "postgres/looks.rs"]
mod looks;
#[path = "postgres/server.rs"]
mod server;

use backwater_model::EventKind;
use looks::Looks;
use server::{Server, on_each};

#[test]
fn a_standby_is_seen_from_both_ends() {
    on_each("a_standby_is_seen_from_both_ends", |bin| {
        let mut primary = Server::start(bin, &[]);
        primary.sql("SELECT pg_create_physical_replication_slot('s1', true)");
        // A cold copy needs no pg_basebackup, which some packages of the server lack.
        primary.stop();
        let mut standby = Server::empty(bin);
        let copied = standby.command("cp").arg("-a").arg(primary.data()).arg(standby.data()).status().unwrap();
        assert!(copied.success());
        assert!(standby.command("touch").arg(standby.data().join("standby.signal")).status().unwrap().success());
        primary.start_again(&[]);
        let conninfo =
            format!("primary_conninfo=host={} port={} user=postgres", primary.dir.path().display(), primary.port);
        standby.start_again(&[&conninfo, "primary_slot_name=s1", "wal_receiver_status_interval=1"]);

        let mut upper = Looks::connect(primary.info());
        upper.until("the standby", |looks| !looks.of("pg.replication.replay_bytes").is_empty());
        assert_eq!(upper.labels("pg.replication.sent_bytes", "standby")[0], "s1");
        assert!(upper.of("pg.replication.flush_bytes")[0].as_of.is_some());
        // A look that came late on a busy host says when it came; any other is of its own moment.
        upper.until("a position of its moment", |looks| {
            looks.of("pg.replication.sent_bytes").iter().any(|point| point.as_of.is_none())
        });
        upper.until("the slot", |looks| looks.of("pg.slot.active").last().is_some_and(|point| point.value == 1.0));
        assert!(!upper.of("pg.slot.restart_bytes").is_empty());

        let mut lower = Looks::connect(standby.info());
        lower.until("replay", |looks| !looks.of("pg.wal.replay_bytes").is_empty());
        assert!(lower.of("pg.wal.insert_bytes").is_empty());
        let before = lower.of("pg.wal.replay_bytes")[0].epoch;
        standby.sql("SELECT pg_promote()");
        lower.until("a promotion", |looks| looks.event(EventKind::Restart, "promoted").is_some());
        lower.until("positions of a primary", |looks| {
            looks.of("pg.wal.insert_bytes").last().is_some_and(|point| point.epoch != before)
        });
    });
}
