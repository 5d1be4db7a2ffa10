//! The standby of an experiment: made as a copy, brought to the same state before every arm, hindered while the load
//! runs, and free again after it.

use crate::LabError;
use crate::client::Client;
use crate::limits::{NetworkEnd, ProcessorShare, SlowDisk};
use crate::rig::{self, RunOptions};
use crate::scenario::{Arm, Hindrance, Scenario, StandbyPart};
use crate::servers::{Postgres, PostgresSpec, Relay};
use backwater_model::Bytes;
use backwater_undo::Journal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Its name: as application_name and cluster_name, and of its slot.
const NAME: &str = "standby";
/// The port in its socket's name: next to the primary's.
const PORT: u16 = 5433;
/// The port in the name of the relay's socket.
const RELAY_PORT: u16 = 5434;
/// How long a standby may take to catch up before it is made anew, and then before the run is given up.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(30);
const CATCH_UP_ANEW_WITHIN: Duration = Duration::from_secs(60);
/// How often its position is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// What one message of WAL that is nothing to anybody holds.
const MESSAGE_BYTES: u64 = 1 << 20;
/// By which the session that hinders replay is known.
const CONFLICTING: &str = "backwater-reader";

/// A standby, running or not.
pub(crate) struct Standby {
    pub(crate) server: Postgres,
    pub(crate) disk: Option<SlowDisk>,
    part: StandbyPart,
    /// The session whose query hinders replay, in a thread of its own until the query is ended.
    conflict: Option<JoinHandle<()>>,
    paused: bool,
    /// The group in which its startup process is given a share of a processor, once an arm has asked for that.
    replay_share: Option<ProcessorShare>,
    /// It lacks WAL that its primary no longer has.
    dead: bool,
    /// What makes it far away, once an arm has asked for that, and where that listens.
    relay: Option<Relay>,
    relay_dir: PathBuf,
}

impl Standby {
    /// Makes it from a primary that does not run.
    pub(crate) fn make(
        part: &StandbyPart,
        primary: &Postgres,
        (work, disk): (&Path, Option<SlowDisk>),
        network: Option<NetworkEnd>,
        journal: &Journal,
    ) -> Result<Standby, LabError> {
        let with_wal = part.disk.as_ref().is_some_and(|disk| disk.with_wal);
        let spec = PostgresSpec {
            installed: primary.installed().clone(),
            data_dir: disk.as_ref().map_or(work, SlowDisk::mount_point).join("standby"),
            wal_dir: (disk.is_some() && !with_wal).then(|| work.join("standby-wal")),
            user: None,
            settings: BTreeMap::new(),
            port: None,
            socket_port: Some(PORT),
            network,
        };
        let server = Postgres::standby_of(primary, journal, spec)?;
        let relay_dir = work.join("relay");
        let part = part.clone();
        let (conflict, replay_share, relay) = (None, None, None);
        Ok(Standby { server, disk, part, conflict, paused: false, replay_share, dead: false, relay, relay_dir })
    }

    /// Makes it run with the arm's settings and waits until it has replayed all there is; where it cannot, it is made
    /// anew.
    pub(crate) fn ready(
        &mut self,
        primary: &mut Postgres,
        scenario: &Scenario,
        arm: &Arm,
        journal: &Journal,
        options: &RunOptions,
    ) -> Result<(), LabError> {
        let slot = arm.standby.slot.unwrap_or(self.part.slot);
        self.place(primary, arm)?;
        let settings = self.settings(primary, scenario, arm, slot);
        if !self.dead && !self.lacks_wal(primary)? {
            self.follow(primary, &settings, slot, journal)?;
            if self.catches_up(primary, CATCH_UP_WITHIN, options)? {
                return Ok(());
            }
        }
        tracing::info!("the standby cannot catch up: it is made anew");
        self.server.stop()?;
        primary.stop()?;
        self.server.copy_again(primary)?;
        self.dead = false;
        primary.start(journal)?;
        self.follow(primary, &settings, slot, journal)?;
        if self.catches_up(primary, CATCH_UP_ANEW_WITHIN, options)? {
            return Ok(());
        }
        let log = self.server.log_path();
        Err(LabError::Refused(format!("the standby does not stream; its log says why: {}", log.display())))
    }

    /// Whether the primary has removed WAL that it still needs, so that waiting for it would be in vain.
    fn lacks_wal(&mut self, primary: &Postgres) -> Result<bool, LabError> {
        if !self.server.is_running() {
            return Ok(false);
        }
        let has = "SELECT coalesce(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())";
        let Some(has) = Client::open(&self.server.conninfo())?.ask(has)? else { return Ok(false) };
        Client::open(&primary.conninfo())?.is_true(&format!(
            "SELECT coalesce(min(name) > pg_walfile_name('{has}'), false) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{{24}}$'"
        ))
    }

    /// Puts it as far from its primary as the arm wants it: at no distance it connects directly.
    fn place(&mut self, primary: &Postgres, arm: &Arm) -> Result<(), LabError> {
        let Some(delay_ms) = arm.standby.delay_ms else { return Ok(()) };
        let delay = Duration::from_secs_f64(delay_ms / 1e3);
        match &self.relay {
            Some(relay) => relay.delay_by(delay),
            None => self.relay = Some(Relay::start(&self.relay_dir, RELAY_PORT, &primary.socket(), delay)?),
        }
        Ok(())
    }

    /// How it connects to its primary in this arm.
    fn address(&self, primary: &Postgres, arm: &Arm) -> String {
        match &self.relay {
            Some(relay) if arm.standby.delay_ms.is_some() => {
                format!("host={} port={RELAY_PORT} user=postgres", relay.dir().display())
            }
            _ => primary.address_for_standby(),
        }
    }

    /// Starts it with these settings; its slot is made before that, or dropped after.
    fn follow(
        &mut self,
        primary: &Postgres,
        settings: &BTreeMap<String, String>,
        slot: bool,
        journal: &Journal,
    ) -> Result<(), LabError> {
        if slot {
            keep_wal(primary, true)?;
        }
        self.server.configure(journal, settings)?;
        if slot { Ok(()) } else { keep_wal(primary, false) }
    }

    fn settings(&self, primary: &Postgres, scenario: &Scenario, arm: &Arm, slot: bool) -> BTreeMap<String, String> {
        let mut settings = scenario.server.settings.clone();
        settings.extend(self.part.settings.clone());
        settings.extend(arm.standby.settings.clone());
        let conninfo = format!("{} application_name={NAME}", self.address(primary, arm));
        let slot = if slot { NAME } else { "" };
        let own = [
            ("hot_standby", "on"),
            ("cluster_name", NAME),
            ("primary_conninfo", &conninfo),
            ("primary_slot_name", slot),
        ];
        settings.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        settings
    }

    /// Waits until it has replayed what the primary has flushed by now; whether it did.
    pub(crate) fn catches_up(
        &self,
        primary: &Postgres,
        within: Duration,
        options: &RunOptions,
    ) -> Result<bool, LabError> {
        let mut client = Client::open(&primary.conninfo())?;
        let Some(goal) = client.ask("SELECT pg_current_wal_flush_lsn()")? else { return Ok(false) };
        let there = format!(
            "SELECT coalesce(bool_or(state = 'streaming' AND replay_lsn >= '{goal}'), false) FROM pg_stat_replication"
        );
        let deadline = Instant::now() + within;
        while !client.is_true(&there)? {
            options.go_on()?;
            if Instant::now() >= deadline {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        Ok(true)
    }

    /// Begins what hinders it in this arm.
    pub(crate) fn hinder(
        &mut self,
        primary: &Postgres,
        arm: &Arm,
        journal: &Journal,
        options: &RunOptions,
    ) -> Result<(), LabError> {
        match arm.standby.replay {
            Some(Hindrance::Paused) => {
                Client::open(&self.server.conninfo())?.run("SELECT pg_wal_replay_pause()")?;
                self.paused = true;
            }
            Some(Hindrance::Conflicting) => self.conflict(primary, options)?,
            None => {}
        }
        if let Some(share) = arm.standby.replay_processor {
            self.starve_replay(share, journal)?;
        }
        if arm.standby.away || arm.standby.returns_after.is_some() {
            self.server.stop()?;
        }
        if let Some(made) = arm.standby.returns_after {
            make_wal(primary, made, options)?;
            forget_wal(primary)?;
            self.start(journal)?;
        }
        Ok(())
    }

    /// Gives its startup process, which replays, a share of one processor, as a crowded host or a container's limit would.
    fn starve_replay(&mut self, share: f64, journal: &Journal) -> Result<(), LabError> {
        let group = match self.replay_share.take() {
            Some(group) => group,
            None => ProcessorShare::create(journal, "replay")?,
        };
        let group = self.replay_share.insert(group);
        let asked = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'";
        let startup = Client::open(&self.server.conninfo())?.ask(asked)?.and_then(|pid| pid.parse().ok());
        let startup = startup.ok_or_else(|| LabError::Refused("the standby has no startup process".to_owned()))?;
        group.adopt(startup)?;
        Ok(group.bound(journal, share)?)
    }

    /// A query here that still sees rows which the primary cleans away: replay of the cleaning has to wait for it, as
    /// long as max_standby_streaming_delay allows.
    fn conflict(&mut self, primary: &Postgres, options: &RunOptions) -> Result<(), LabError> {
        let mut above = Client::open(&primary.conninfo())?;
        above.run("DROP TABLE IF EXISTS backwater_rows")?;
        above.run("CREATE TABLE backwater_rows AS SELECT n FROM generate_series(1, 10000) AS n")?;
        if !self.catches_up(primary, CATCH_UP_WITHIN, options)? {
            return Err(LabError::Refused("the standby did not catch up before its query was to begin".to_owned()));
        }
        let mut here = Client::open(&format!("{} application_name={CONFLICTING}", self.server.conninfo()))?;
        here.run("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        here.run("SELECT count(*) FROM backwater_rows")?;
        self.conflict = Some(std::thread::spawn(move || {
            // It ends when its session is ended, and then says so.
            if let Err(ended) = here.run("SELECT count(*), pg_sleep(86400) FROM backwater_rows") {
                tracing::debug!(%ended, "the conflicting query is over");
            }
        }));
        above.run("DELETE FROM backwater_rows")?;
        above.run("VACUUM backwater_rows")
    }

    /// While the load runs: where it is away, comes back once the primary has removed WAL that it needs, or when the
    /// load is over.
    pub(crate) fn during(
        &mut self,
        primary: &str,
        arm: &Arm,
        journal: &Journal,
        over: &AtomicBool,
    ) -> Result<(), LabError> {
        if !arm.standby.away {
            return Ok(());
        }
        let mut client = Client::open(primary)?;
        let needed = client.ask("SELECT pg_walfile_name(pg_current_wal_flush_lsn())")?.unwrap_or_default();
        let removed = format!("SELECT min(name) > '{needed}' FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{{24}}$'");
        while !self.dead && !over.load(Ordering::SeqCst) {
            self.dead = client.is_true(&removed)?;
            std::thread::sleep(LOOK);
        }
        self.start(journal)
    }

    /// Starts it where its cap reaches it.
    fn start(&mut self, journal: &Journal) -> Result<(), LabError> {
        self.server.start(journal)?;
        rig::adopt(self.disk.as_ref(), &self.server)
    }

    /// Whether its primary has been seen without WAL that it needs.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    /// Stops it for good.
    pub(crate) fn end(mut self) -> Result<(), LabError> {
        // A query that hinders replay goes with its server.
        self.server.stop()?;
        self.conflict.take().into_iter().for_each(|query| drop(query.join()));
        Ok(())
    }

    /// Ends what hinders it, and lifts its cap.
    pub(crate) fn free(&mut self, journal: &Journal) -> Result<(), LabError> {
        if let Some(disk) = &self.disk {
            disk.lift_cap(journal)?;
        }
        if let Some(group) = &self.replay_share {
            group.lift(journal)?;
        }
        if std::mem::take(&mut self.paused) && self.server.is_running() {
            Client::open(&self.server.conninfo())?.run("SELECT pg_wal_replay_resume()")?;
        }
        if let Some(query) = self.conflict.take() {
            if self.server.is_running() {
                let end = format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{CONFLICTING}'"
                );
                Client::open(&self.server.conninfo())?.run(&end)?;
            }
            if query.join().is_err() {
                tracing::warn!("the conflicting query did not end well");
            }
        }
        Ok(())
    }
}

/// Makes so much WAL, which is nothing to anybody, and brings it to disk.
fn make_wal(primary: &Postgres, bytes: Bytes, options: &RunOptions) -> Result<(), LabError> {
    let mut client = Client::open(&primary.conninfo())?;
    for _ in 0..bytes.0.div_ceil(MESSAGE_BYTES) {
        options.go_on()?;
        client.run(&format!("SELECT pg_logical_emit_message(false, 'backwater', repeat('x', {MESSAGE_BYTES}))"))?;
    }
    client.run("SELECT pg_switch_wal(); CHECKPOINT")
}

/// Lets a server's WAL leave the page cache, as it does where more is written and read than memory holds: who needs it
/// reads it from disk.
fn forget_wal(primary: &Postgres) -> Result<(), LabError> {
    let dir = primary.data_dir().join("pg_wal");
    for entry in std::fs::read_dir(&dir).map_err(LabError::file("list", &dir))?.flatten() {
        let path = entry.path();
        if path.is_file() {
            let file = std::fs::File::open(&path).map_err(LabError::file("open", &path))?;
            // Pages that are dirty would stay.
            file.sync_all().map_err(LabError::file("sync", &path))?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
                .map_err(|error| LabError::file("drop from the page cache", &path)(error.into()))?;
        }
    }
    Ok(())
}

/// Makes or drops the slot for which the primary keeps WAL; one that has lost some is made anew. Nobody may still want to read
/// from one that is dropped.
fn keep_wal(primary: &Postgres, wanted: bool) -> Result<(), LabError> {
    let mut client = Client::open(&primary.conninfo())?;
    let slot = |what: &str| format!("SELECT {what} FROM pg_replication_slots WHERE slot_name = '{NAME}'");
    // PostgreSQL 12 has no such column, and loses none.
    let lost = "coalesce(bool_or(to_jsonb(pg_replication_slots) ->> 'wal_status' = 'lost'), false)";
    if wanted && client.is_true(&slot(lost))? {
        client.run(&format!("SELECT pg_drop_replication_slot('{NAME}')"))?;
    }
    match (wanted, client.is_true(&slot("count(*) > 0"))?) {
        (true, false) => client.run(&format!("SELECT pg_create_physical_replication_slot('{NAME}', true)")),
        (false, true) => {
            // Its last reader may still be on its way out.
            let deadline = Instant::now() + CATCH_UP_WITHIN;
            while client.is_true(&slot("active"))? && Instant::now() < deadline {
                std::thread::sleep(LOOK);
            }
            client.run(&format!("SELECT pg_drop_replication_slot('{NAME}')"))
        }
        _ => Ok(()),
    }
}
