//! A standby of a server, by a cold copy: some packages of the server lack pg_basebackup.

use crate::server::Server;

impl Server {
    /// Stops this server, copies it, starts it again with these settings, and starts the copy as a standby that reads
    /// from it through this slot, with these settings.
    pub fn standby(&mut self, slot: &str, own: &[&str], settings: &[&str]) -> Server {
        self.sql(&format!("SELECT pg_create_physical_replication_slot('{slot}', true)"));
        self.stop();
        let mut standby = self.copy();
        self.start_again(own);
        standby.follow(self, slot, settings);
        standby
    }

    /// A copy of a server that is stopped, or of a standby that is stopped.
    pub fn copy(&self) -> Server {
        let copy = self.sibling();
        let copied = copy.command("cp").arg("-a").arg(self.data()).arg(copy.data()).status().unwrap();
        assert!(copied.success());
        copy
    }

    /// Starts this one as a standby of another.
    pub fn follow(&mut self, upstream: &Server, slot: &str, settings: &[&str]) {
        assert!(self.command("touch").arg(self.data().join("standby.signal")).status().unwrap().success());
        let place = format!("host={} port={} user=postgres", upstream.dir.path().display(), upstream.port);
        let conninfo = format!("primary_conninfo={place} application_name={slot}");
        let slot = format!("primary_slot_name={slot}");
        let mut all = vec![conninfo.as_str(), slot.as_str(), "wal_receiver_status_interval=1"];
        all.extend(settings);
        self.start_again(&all);
    }
}
