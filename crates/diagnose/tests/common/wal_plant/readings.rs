//! What probes would have read of the plant, and at what age.

use super::{Keep, MIB, RECEIVE_BUFFER, Replay, SEGMENT, START_S, State, WalPlant, noise};
use crate::common::{Readings, session};
use backwater_model::{Epoch, Moment, Point, Sample, SeriesId, catalogue as cat};

impl WalPlant {
    pub(super) fn read(&self, to: &mut Readings, state: &mut State, now: f64) {
        let at = START_S + now;
        let own = [("target", "primary")];
        if self.cascading {
            to.put(&cat::PG_WAL_RECEIVE, &own, at, state.flush);
            to.put(&cat::PG_WAL_REPLAY, &own, at, state.flush);
        } else {
            to.put(&cat::PG_WAL_INSERT, &own, at, state.insert);
            to.put(&cat::PG_WAL_WRITE, &own, at, state.flush + (state.insert - state.flush) * 0.7);
            to.put(&cat::PG_WAL_FLUSH, &own, at, state.flush);
        }
        to.put(&cat::PG_CHECKPOINT_REDO, &own, at, state.redo);
        to.put(&cat::PG_WAL_OLDEST_KEPT, &own, at, state.oldest);
        to.put(&cat::PG_XACT_COMMIT, &[("target", "primary"), ("database", "shop")], at, state.commits);
        to.put(&cat::PSI_IO_SOME, &[("cgroup", "host")], at, state.psi_us);
        self.read_heartbeat(to, state, at);
        if state.connected {
            self.read_row(to, state, at);
        }
        if let Keep::Slot(most) = self.keep {
            let slot = [("target", "primary"), ("slot", "s1")];
            to.put(&cat::PG_SLOT_RESTART, &slot, at, state.reported.1);
            to.put(&cat::PG_SLOT_ACTIVE, &slot, at, f64::from(u8::from(state.connected)));
            to.put(&cat::PG_SLOT_LOST, &slot, at, f64::from(u8::from(state.removed_at.is_some())));
            if let Some(most) = most {
                let safe =
                    ((state.reported.1 / SEGMENT).floor() + (most / SEGMENT).floor() + 1.0) * SEGMENT - state.insert;
                to.put(&cat::PG_SLOT_SAFE, &slot, at, safe);
            }
        }
        if self.archiver.is_some() {
            let whole = (state.archived / SEGMENT).floor() * SEGMENT;
            to.put(&cat::PG_ARCHIVED_UPTO, &[("target", "primary")], at, whole);
        }
        to.put(&cat::PG_WAL_DIR, &own, at, state.allocated());
        // As seldom as the probe looks.
        if now % 5.0 < 0.5 {
            to.put(&cat::VOLUME_FREE, &[("dev", "7:0")], at, self.free - state.allocated());
        }
        self.read_devices(to, state, at, now);
        if self.see_standby {
            self.read_standby(to, state, at);
        }
        if self.see_standby && self.data_apart {
            self.read_data_device(to, state, at);
        }
    }

    fn read_heartbeat(&self, to: &mut Readings, state: &mut State, at: f64) {
        let own = [("target", "primary")];
        let late = state.held && self.clients > 8;
        let response = if late { 1.4e6 } else { 3_000.0 + 4_000.0 * noise(state) };
        state.beats += f64::from(u8::from(!late));
        state.missed += f64::from(u8::from(late));
        to.put(&cat::PG_HEARTBEAT, &own, at, response);
        to.put(&cat::PG_HEARTBEATS, &own, at, state.beats);
        to.put(&cat::PG_HEARTBEATS_MISSED, &own, at, state.missed);
    }

    /// pg_stat_replication and the walsender's socket.
    fn read_row(&self, to: &mut Readings, state: &State, at: f64) {
        let row = [("target", "primary"), ("standby", self.name())];
        to.put(&cat::PG_REPL_SENT, &row, at, state.sent);
        to.put(&cat::PG_REPL_STREAMING, &row, at, 1.0);
        to.put(&cat::PG_REPL_SYNC, &row, at, f64::from(u8::from(self.synchronous)));
        to.put(&cat::PG_REPL_PID, &row, at, 700.0 + state.connection as f64);
        let spoke = (START_S + state.reported_at - self.skew_s).max(0.0);
        to.put(&cat::PG_REPL_REPLY_AGE, &row, at, (at - spoke).max(0.0));
        let reported = state.reported;
        for (def, value) in
            [(&cat::PG_REPL_WRITE, reported.0), (&cat::PG_REPL_FLUSH, reported.1), (&cat::PG_REPL_REPLAY, reported.2)]
        {
            to.put_as_of(def, &row, at, value, Some(spoke), 7);
        }
        if !self.see_tcp {
            return;
        }
        let pid = (700 + state.connection).to_string();
        let socket =
            [("target", "primary"), ("pid", pid.as_str()), ("local", "10.0.0.1:5432"), ("peer", "10.0.0.2:41000")];
        let values = [
            (&cat::TCP_BUSY, state.busy_us),
            (&cat::TCP_RWND_LIMITED, state.rwnd_us),
            (&cat::TCP_SNDBUF_LIMITED, 0.0),
            (&cat::TCP_ACKED, state.acked),
            (&cat::TCP_NOTSENT, if state.in_send_buffer > 64e3 { state.in_send_buffer } else { 0.0 }),
            (&cat::TCP_SENDQ, state.in_send_buffer),
            (&cat::TCP_MIN_RTT, 80.0),
            (&cat::TCP_PEER_WINDOW, RECEIVE_BUFFER - state.in_receive_buffer),
        ];
        for (def, value) in values {
            to.put_as_of(def, &socket, at, value, None, 100 + state.connection);
        }
        let interface = [("target", "primary"), ("if", "veth0")];
        to.put(&cat::NET_SENT_BYTES, &interface, at, 1e9 + state.connection as f64 * 1e9 + state.acked * 1.04);
        if self.see_shaper && self.link.is_some() {
            to.put(&cat::NET_SHAPER, &interface, at, self.link.unwrap_or(0.0) * 1.06);
        }
    }

    fn read_devices(&self, to: &mut Readings, state: &State, at: f64, now: f64) {
        for (place, dev) in ["7:0", "7:1"].into_iter().enumerate() {
            if place == 1 && !self.see_standby {
                continue;
            }
            let labels = [("dev", dev)];
            let written = state.written[place];
            to.put(&cat::DISK_READS, &labels, at, 0.0);
            to.put(&cat::DISK_READ_BYTES, &labels, at, 0.0);
            to.put(&cat::DISK_READ_MS, &labels, at, 0.0);
            to.put(&cat::DISK_WRITES, &labels, at, written / 65_536.0);
            to.put(&cat::DISK_WRITTEN_BYTES, &labels, at, written);
            to.put(&cat::DISK_WRITE_MS, &labels, at, state.device_ms[place]);
            to.put(&cat::DISK_WEIGHTED_MS, &labels, at, state.device_ms[place]);
            to.put(&cat::DISK_BUSY_MS, &labels, at, state.device_busy_ms[place]);
            let cap = if place == 0 { self.primary_cap } else { self.standby_cap };
            if let Some(cap) = self.capped(cap, now) {
                to.put(&cat::CGROUP_BPS_LIMIT, &[("cgroup", "/"), ("dev", dev), ("op", "write")], at, cap);
            }
        }
    }

    /// The device of the standby's data alone: replay has one read in it while it waits.
    fn read_data_device(&self, to: &mut Readings, state: &State, at: f64) {
        let values = [
            (&cat::DISK_READS, state.reading_ms / 4.0),
            (&cat::DISK_READ_MS, state.reading_ms),
            (&cat::DISK_WRITES, 0.0),
            (&cat::DISK_WRITE_MS, 0.0),
            (&cat::DISK_WEIGHTED_MS, state.reading_ms),
            (&cat::DISK_BUSY_MS, state.reading_ms),
        ];
        values.into_iter().for_each(|(def, value)| to.put(def, &[("dev", "8:1")], at, value));
    }

    fn read_standby(&self, to: &mut Readings, state: &State, at: f64) {
        let own = [("target", "standby")];
        to.put(&cat::PG_WAL_RECEIVE, &own, at, state.received);
        to.put(&cat::PG_WAL_REPLAY, &own, at, state.replayed);
        to.put(&cat::PG_RECEIVER_STREAMING, &own, at, f64::from(u8::from(state.connected)));
        let paused = self.replay == Replay::Paused && self.faulty(at - START_S);
        to.put(&cat::PG_REPLAY_PAUSED, &own, at, f64::from(u8::from(paused)));
        let labels = [("target", "standby"), ("pid", "900"), ("what", "startup")];
        to.put(&cat::PROC_CPU, &labels, at, state.startup_cpu);
    }

    /// Sessions and the processes that carry WAL.
    pub(super) fn look(&self, to: &mut Readings, state: &mut State, now: f64) {
        let at = START_S + now;
        let mut carrier = |target: &str, pid: i32, what: &str, wait: Option<(&str, &str)>, stuck: bool| {
            let kernel = stuck.then_some(("folio_wait_bit_common", 'D'));
            let sample = session(at, pid, "", wait, kernel);
            to.samples.push(Sample { target: target.into(), backend_type: Some(what.into()), state: None, ..sample });
        };
        carrier(
            "primary",
            600,
            "walwriter",
            if state.held { Some(("IO", "WALSync")) } else { Some(("Activity", "WalWriterMain")) },
            state.held,
        );
        if state.connected {
            let reads = self.capped(self.walsender_reads, now).is_some();
            let wait = if reads { ("IO", "WALRead") } else { ("Activity", "WalSenderMain") };
            carrier("primary", 700 + state.connection as i32, "walsender", Some(wait), false);
        }
        if self.see_standby {
            let receiver = if state.receiver_busy { ("IO", "WALSync") } else { ("Activity", "WalReceiverMain") };
            if state.connected {
                carrier("standby", 901, "walreceiver", Some(receiver), state.receiver_busy);
            }
            let behind = state.received - state.replayed > 0.1 * MIB;
            let startup = match self.replay {
                Replay::Paused if self.faulty(now) => Some(("Timeout", "RecoveryPause")),
                Replay::Conflict(kind, event) if self.faulty(now) && behind => Some((kind, event)),
                Replay::Reads(_) if self.faulty(now) && behind => Some(("IO", "DataFileRead")),
                _ if behind => None,
                _ => Some(("Activity", "RecoveryWalStream")),
            };
            carrier("standby", 900, "startup", startup, false);
        }
        for pid in 0..self.clients {
            let sync = f64::from(pid) < state.waiting_sync.floor();
            let wait = match (state.held, sync) {
                (true, _) => Some(("LWLock", "WALWrite")),
                (false, true) => Some(("IPC", "SyncRep")),
                _ => None,
            };
            let sample = session(at, pid, "active", wait, None);
            to.samples.push(Sample { target: "primary".into(), ..sample });
        }
    }
}

impl Readings {
    /// Takes another run's row of its standby, and that one's socket, under another name and process id.
    pub fn adopt(&mut self, other: Readings, name: &str, pid: i64) {
        let pid_text = pid.to_string();
        for (series, points) in other.series {
            let row = series.name.starts_with("pg.replication.");
            if !row && !series.name.starts_with("host.tcp.") {
                continue;
            }
            let def = cat::ALL.iter().find(|def| def.name == series.name).unwrap();
            let socket =
                [("target", "primary"), ("pid", pid_text.as_str()), ("local", "10.0.0.1:5432"), ("peer", name)];
            for point in points {
                let value = if series.name == cat::PG_REPL_PID.name { pid as f64 } else { point.value };
                let labels: &[(&'static str, &str)] =
                    if row { &[("target", "primary"), ("standby", name)] } else { &socket };
                self.push(def, labels, Point { value, ..point });
            }
        }
    }

    /// Drops the rows of standbys that were read between two moments.
    pub fn drop_rows(&mut self, from_s: f64, to_s: f64) {
        let rows = self.series.iter_mut().filter(|(series, _)| series.name.starts_with("pg.replication."));
        let inside = |point: &Point| from_s < point.at.seconds() && point.at.seconds() < to_s;
        rows.for_each(|(_, points)| points.retain(|point| !inside(point)));
    }

    /// A value that the source says is older than the read, in one life of it.
    pub fn put_as_of(
        &mut self,
        def: &backwater_model::catalogue::Def,
        labels: &[(&'static str, &str)],
        at_s: f64,
        value: f64,
        as_of_s: Option<f64>,
        epoch: u64,
    ) {
        let point = Point {
            at: Moment::from_seconds(at_s),
            series: SeriesId(0),
            epoch: Epoch(epoch),
            value,
            as_of: as_of_s.map(Moment::from_seconds),
        };
        self.push(def, labels, point);
    }
}
