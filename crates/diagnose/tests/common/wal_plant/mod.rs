//! A plant of WAL: a primary that makes it, a device, a connection with its buffers, a standby's device, replay. A fluid model
//! in steps of a fiftieth of a second that leaves behind the series which probes would, with their ages and their noise.

mod readings;

use super::Readings;
use backwater_model::{Device, Event, EventKind, Meta, Moment, Role, Target, Window};
use std::collections::BTreeMap;

pub const MIB: f64 = 1_048_576.0;
pub const START_S: f64 = 1_000.0;
const STEP: f64 = 0.02;
const SEND_BUFFER: f64 = 4.0 * MIB;
const RECEIVE_BUFFER: f64 = 6.0 * MIB;
const SEGMENT: f64 = 16.0 * MIB;
/// WAL that may wait for its own flush before whoever makes it is held.
const UNFLUSHED: f64 = 24.0 * MIB;
const HEAD: f64 = 64.0 * SEGMENT;

/// By what the primary knows a standby without a slot.
pub const S: &str = "walreceiver@10.0.0.2";

pub fn at(second: f64) -> Moment {
    Moment::from_seconds(START_S + second)
}

pub fn until(window: &Window, second: f64) -> Window {
    window.slice(window.from, at(second))
}

pub fn run(plant: &WalPlant) -> (Window, Vec<State>) {
    let (readings, states) = plant.run();
    (readings.window(plant.meta(), START_S, START_S + plant.seconds), states)
}

/// A narrow network, a wal_keep_size of 512 MiB, checkpoints every 20 s or so.
pub fn narrow() -> WalPlant {
    WalPlant {
        seconds: 140.0,
        rate: 12.0 * MIB,
        link: Some(3.0 * MIB),
        keep: Keep::Size(512.0 * MIB),
        max_wal: 512.0 * MIB,
        ..WalPlant::default()
    }
}

/// What replay does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Replay {
    /// So many bytes a second.
    Rate(f64),
    Paused,
    /// Held by queries: the wait event that the startup process shows.
    Conflict(&'static str, &'static str),
    /// Waits for reads of data files, at so many bytes a second.
    Reads(f64),
}

/// How WAL is kept for the standby.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Keep {
    /// wal_keep_size.
    Size(f64),
    /// A slot, and max_slot_wal_keep_size.
    Slot(Option<f64>),
}

#[derive(Clone, Debug)]
pub struct WalPlant {
    pub seconds: f64,
    /// WAL made, bytes a second, and stretches (from, for, rate) in which it is another.
    pub rate: f64,
    pub bursts: Vec<(f64, f64, f64)>,
    /// What the primary's device takes, by a cap or by itself.
    pub primary_cap: Option<f64>,
    pub primary_slow: Option<f64>,
    /// Whether pg_wal lies on the capped device; else only data do, written at that rate.
    pub wal_on_capped: bool,
    pub standby_cap: Option<f64>,
    pub standby_slow: Option<f64>,
    pub link: Option<f64>,
    /// Whether the shaper can be seen on the primary's interface.
    pub see_shaper: bool,
    pub walsender_reads: Option<f64>,
    pub replay: Replay,
    /// The fault holds between these seconds; before and after all is well.
    pub fault: (f64, f64),
    /// When the standby is cut off, and when it comes back.
    pub away: Option<(f64, f64)>,
    pub keep: Keep,
    /// How the archiver goes: so many bytes a second; none without an archive.
    pub archiver: Option<f64>,
    /// Room on the primary's volume when it began.
    pub free: f64,
    pub max_wal: f64,
    pub checkpoint_timeout_s: f64,
    pub see_standby: bool,
    /// Whether the standby's data lie on another device (8:1) than its WAL.
    pub data_apart: bool,
    /// Whether the upstream is a standby itself: it makes no WAL, and passes on what it has received.
    pub cascading: bool,
    pub see_tcp: bool,
    /// Whether commits wait for the standby.
    pub synchronous: bool,
    pub clients: i32,
    /// How far the standby's clock is behind.
    pub skew_s: f64,
    pub seed: u64,
}

impl Default for WalPlant {
    /// All is well: 8 MiB of WAL a second, on a 1 Gbit/s link.
    fn default() -> Self {
        WalPlant {
            seconds: 40.0,
            rate: 8.0 * MIB,
            bursts: Vec::new(),
            primary_cap: None,
            primary_slow: None,
            wal_on_capped: true,
            standby_cap: None,
            standby_slow: None,
            link: None,
            see_shaper: true,
            walsender_reads: None,
            replay: Replay::Rate(150.0 * MIB),
            fault: (5.0, 1e9),
            away: None,
            keep: Keep::Size(1024.0 * MIB),
            archiver: None,
            free: 20.0 * 1024.0 * MIB,
            max_wal: 1024.0 * MIB,
            checkpoint_timeout_s: 300.0,
            cascading: false,
            see_standby: true,
            data_apart: false,
            see_tcp: true,
            synchronous: false,
            clients: 4,
            skew_s: 0.0,
            seed: 1,
        }
    }
}

/// Positions, levels and totals.
#[derive(Default, Clone)]
pub struct State {
    pub insert: f64,
    pub flush: f64,
    pub sent: f64,
    pub in_send_buffer: f64,
    in_receive_buffer: f64,
    pub received: f64,
    pub replayed: f64,
    reported: (f64, f64, f64),
    reported_at: f64,
    busy_us: f64,
    rwnd_us: f64,
    acked: f64,
    psi_us: f64,
    written: [f64; 2],
    device_busy_ms: [f64; 2],
    device_ms: [f64; 2],
    pub redo: f64,
    /// Redo position of the checkpoint that runs.
    pub checkpoint: Option<f64>,
    checkpoint_start: f64,
    /// What the slot needed then.
    saved: f64,
    pub oldest: f64,
    pub archived: f64,
    /// When WAL that the standby needs was removed.
    pub removed_at: Option<f64>,
    held: bool,
    receiver_busy: bool,
    waiting_sync: f64,
    commits: f64,
    startup_cpu: f64,
    /// Time in which replay waited for a read.
    reading_ms: f64,
    connected: bool,
    connection: u64,
    random: u64,
    missed: f64,
    beats: f64,
}

impl State {
    /// Bytes of the segments on the volume, of which the last is not full.
    pub fn allocated(&self) -> f64 {
        ((self.insert / SEGMENT).floor() + 1.0) * SEGMENT - self.oldest
    }
}

impl WalPlant {
    fn faulty(&self, now: f64) -> bool {
        (self.fault.0..self.fault.1).contains(&now)
    }

    fn capped(&self, limit: Option<f64>, now: f64) -> Option<f64> {
        limit.filter(|_| self.faulty(now))
    }

    fn settings(&self, standby: bool) -> BTreeMap<String, String> {
        let mib = |bytes: f64| format!("{:.0}MB", bytes / MIB);
        let mut list = vec![
            ("max_wal_size".to_owned(), mib(self.max_wal)),
            ("checkpoint_timeout".to_owned(), format!("{:.0}s", self.checkpoint_timeout_s)),
            ("checkpoint_completion_target".to_owned(), "0.9".to_owned()),
            ("wal_segment_size".to_owned(), "16MB".to_owned()),
            ("wal_buffers".to_owned(), "16MB".to_owned()),
            ("wal_sender_timeout".to_owned(), "1min".to_owned()),
            ("archive_mode".to_owned(), if self.archiver.is_some() { "on" } else { "off" }.to_owned()),
            ("wal_compression".to_owned(), "off".to_owned()),
        ];
        match self.keep {
            Keep::Size(bytes) => list.push(("wal_keep_size".to_owned(), mib(bytes))),
            Keep::Slot(most) => {
                list.push(("wal_keep_size".to_owned(), "0".to_owned()));
                list.push(("max_slot_wal_keep_size".to_owned(), most.map_or("-1".to_owned(), mib)));
            }
        }
        if standby && matches!(self.keep, Keep::Slot(_)) {
            list.push(("primary_slot_name".to_owned(), self.name().to_owned()));
        }
        list.into_iter().collect()
    }

    /// By what the primary knows the standby.
    pub fn name(&self) -> &'static str {
        if matches!(self.keep, Keep::Slot(_)) { "s1" } else { "walreceiver@10.0.0.2" }
    }

    pub fn meta(&self) -> Meta {
        let mut meta = Meta::default();
        meta.host.cpus = Some(2);
        meta.host.cgroup_version = Some("v1".into());
        let device = |dev: &str, name: &str, target: &str, role| Device {
            dev: dev.into(),
            name: name.into(),
            roles: vec![(role, target.into())],
            ..Device::default()
        };
        meta.devices = vec![device("7:0", "loop0", "primary", Role::Data)];
        let wal_device = if self.wal_on_capped { "7:0" } else { "8:0" };
        let target = |name: &str, data: &str, wal: &str, standby| Target {
            name: name.into(),
            kind: "postgres".into(),
            version_num: Some(160_000),
            local: true,
            data_device: Some(data.into()),
            wal_device: Some(wal.into()),
            settings: self.settings(standby),
            ..Target::default()
        };
        meta.targets = vec![target("primary", "7:0", wal_device, false)];
        if self.see_standby {
            meta.devices.push(device("7:1", "loop1", "standby", Role::Data));
            let data = if self.data_apart { "8:1" } else { "7:1" };
            meta.targets.push(target("standby", data, "7:1", true));
        }
        meta
    }

    pub fn window(&self) -> Window {
        self.readings().window(self.meta(), START_S, START_S + self.seconds)
    }

    pub fn readings(&self) -> Readings {
        self.run().0
    }

    /// The readings, and the state at each whole second.
    pub fn run(&self) -> (Readings, Vec<State>) {
        let mut readings = Readings::default();
        let mut state = State { connected: true, random: self.seed | 1, redo: HEAD - 40.0 * MIB, ..State::default() };
        for position in [&mut state.insert, &mut state.flush, &mut state.sent, &mut state.received, &mut state.replayed]
        {
            *position = HEAD;
        }
        state.reported = (HEAD, HEAD, HEAD);
        state.oldest = HEAD - 64.0 * MIB;
        state.archived = HEAD;
        state.checkpoint_start = -20.0;
        let mut states = Vec::new();
        for tick in 0..=(self.seconds / STEP).round() as i64 {
            let now = tick as f64 * STEP;
            if tick % 50 == 0 {
                self.read(&mut readings, &mut state, now);
                states.push(state.clone());
            }
            if tick % 10 == 0 {
                self.look(&mut readings, &mut state, now);
            }
            self.step(&mut readings, &mut state, now);
        }
        (readings, states)
    }

    fn step(&self, readings: &mut Readings, state: &mut State, now: f64) {
        let jitter = 0.8 + 0.4 * noise(state);
        let burst = self.bursts.iter().find(|(at, long, _)| (*at..at + long).contains(&now));
        let mut made = burst.map_or(self.rate, |burst| burst.2) * jitter * STEP;
        let device =
            self.capped(self.primary_cap, now).or(self.capped(self.primary_slow, now)).filter(|_| self.wal_on_capped);
        let lag = state.insert - state.received;
        state.held = device.is_some() && state.insert - state.flush >= 0.9 * UNFLUSHED;
        if self.synchronous && lag > MIB {
            made = made.min(0.2 * MIB * STEP + (state.sent - state.received).max(0.0) * 0.0 + 0.05 * made);
            state.waiting_sync = f64::from(self.clients) * 0.9;
        } else {
            state.waiting_sync = if self.synchronous { 0.4 } else { 0.0 };
        }
        let room = (UNFLUSHED - (state.insert - state.flush)).max(0.0);
        made = if device.is_some() { made.min(room) } else { made };
        state.insert += made;
        state.commits += made / 8_192.0;
        let flushed = (state.insert - state.flush).min(device.map_or(400.0 * MIB, |cap| cap) * STEP);
        state.flush += flushed;
        self.devices(state, now, flushed);
        self.transport(state, now);
        self.replaying(state, now);
        let archiver = self.archiver.unwrap_or(f64::INFINITY);
        state.archived = (state.archived + archiver * STEP).min((state.flush / SEGMENT).floor() * SEGMENT);
        self.checkpoints(readings, state, now);
    }

    fn devices(&self, state: &mut State, now: f64, flushed: f64) {
        let data =
            if self.wal_on_capped { 0.0 } else { self.capped(self.primary_cap, now).unwrap_or(2.0 * MIB) * STEP };
        let first = data + if self.wal_on_capped { flushed } else { 0.0 };
        state.written[0] += first;
        let slow = self.capped(self.primary_slow, now).is_some();
        state.device_busy_ms[0] += STEP * 1e3 * if slow { 0.99 } else { 0.05 };
        state.device_ms[0] += first / 65_536.0 * if slow { 30.0 } else { 0.5 };
        let pressed = self.capped(self.primary_cap, now).is_some()
            || slow
            || self.faulty(now) && (self.standby_cap.is_some() || self.standby_slow.is_some());
        state.psi_us += STEP * 1e6 * if pressed { 0.6 } else { 0.03 };
    }

    fn transport(&self, state: &mut State, now: f64) {
        let away = self.away.is_some_and(|(from, to)| (from..to).contains(&now)) || state.removed_at.is_some();
        if away && state.connected {
            // What was under way is lost with the connection.
            (state.sent, state.in_send_buffer, state.in_receive_buffer) = (state.received, 0.0, 0.0);
            state.connection += 1;
            (state.busy_us, state.rwnd_us, state.acked) = (0.0, 0.0, 0.0);
        }
        state.connected = !away;
        if away {
            return;
        }
        let reads = self.capped(self.walsender_reads, now).unwrap_or(900.0 * MIB) * STEP;
        let put = (state.flush - state.sent).min(SEND_BUFFER - state.in_send_buffer).min(reads).max(0.0);
        state.sent += put;
        state.in_send_buffer += put;
        let link = self.capped(self.link, now).unwrap_or(118.0 * MIB) * STEP;
        let window = RECEIVE_BUFFER - state.in_receive_buffer;
        let moved = state.in_send_buffer.min(link).min(window).max(0.0);
        if state.in_send_buffer > 0.0 {
            let share = (moved / link).min(1.0);
            let limited = window < state.in_send_buffer && window < link;
            state.busy_us += STEP * 1e6 * if limited { 1.0 } else { share };
            // A healthy connection is held by the window for half of its short busy time.
            state.rwnd_us += STEP
                * 1e6
                * if limited {
                    0.98
                } else if share < 0.5 {
                    share * 0.55
                } else {
                    0.01
                };
        }
        state.in_send_buffer -= moved;
        state.in_receive_buffer += moved;
        state.acked += moved;
        let disk = self.capped(self.standby_cap, now).or(self.capped(self.standby_slow, now));
        let taken = state.in_receive_buffer.min(disk.unwrap_or(300.0 * MIB) * STEP);
        state.receiver_busy = disk.is_some() && state.in_receive_buffer > 0.02 * MIB;
        state.in_receive_buffer -= taken;
        state.received += taken;
        state.written[1] += taken;
        let slow = self.capped(self.standby_slow, now).is_some() && state.receiver_busy;
        state.device_busy_ms[1] += STEP * 1e3 * if slow { 0.99 } else { 0.04 };
        state.device_ms[1] += taken / 65_536.0 * if slow { 30.0 } else { 0.5 };
        if taken > 0.0 || now - state.reported_at >= 10.0 {
            state.reported = (state.received, state.received, state.replayed);
            state.reported_at = now;
        }
    }

    fn replaying(&self, state: &mut State, now: f64) {
        let rate = match self.replay {
            Replay::Rate(rate) => {
                if self.faulty(now) {
                    rate
                } else {
                    150.0 * MIB
                }
            }
            Replay::Reads(rate) if self.faulty(now) => rate,
            Replay::Paused | Replay::Conflict(..) if self.faulty(now) => 0.0,
            _ => 150.0 * MIB,
        };
        let most = rate * STEP;
        let done = (state.received - state.replayed).min(most);
        state.replayed += done;
        let share = if most > 0.0 { done / most } else { 0.0 };
        let reads = matches!(self.replay, Replay::Reads(_));
        state.startup_cpu += STEP * if reads { share * 0.2 } else { share };
        state.reading_ms += STEP * 1e3 * if reads { share * 0.8 } else { 0.0 };
    }

    /// As the server does it: WAL forces one once so many segments are full, counted from that of the last redo position, and
    /// it is paced to take nine tenths of as much WAL, or of the time.
    fn checkpoints(&self, readings: &mut Readings, state: &mut State, now: f64) {
        let segment = |position: f64| (position / SEGMENT).floor();
        let segments = (self.max_wal / SEGMENT / 1.9).floor().max(1.0);
        let since_s = now - state.checkpoint_start;
        if let Some(redo) = state.checkpoint
            && (state.insert - redo >= 0.9 * segments * SEGMENT || since_s >= 0.9 * self.checkpoint_timeout_s)
        {
            state.redo = redo;
            state.checkpoint = None;
            self.remove(readings, state, now);
        }
        let full = segment(state.insert) >= segment(state.redo) + segments;
        // One that is due while another runs begins when that ends.
        if state.checkpoint.is_none() && (full || since_s >= self.checkpoint_timeout_s) {
            state.checkpoint = Some(state.insert);
            state.checkpoint_start = now;
            state.saved = state.reported.1;
        }
    }

    fn remove(&self, readings: &mut Readings, state: &mut State, now: f64) {
        let segment = |position: f64| (position / SEGMENT).floor();
        let restart = state.saved;
        let kept = match self.keep {
            Keep::Size(bytes) => segment(state.insert) - (bytes / SEGMENT).floor(),
            Keep::Slot(None) => segment(restart),
            Keep::Slot(Some(most)) => segment(restart).max(segment(state.insert) - (most / SEGMENT).floor()),
        };
        state.oldest = (segment(state.redo).min(kept).min(segment(state.archived)) * SEGMENT).max(state.oldest);
        let needed = if state.connected { state.sent } else { segment(state.received) * SEGMENT };
        if state.removed_at.is_none() && needed < state.oldest {
            state.removed_at = Some(now);
            let line = "requested WAL segment 000000010000000000000040 has already been removed";
            for late in [0.5, 5.5, 10.5] {
                let at = Moment::from_seconds(START_S + now + late);
                readings.events.push(Event::new(at, "primary", EventKind::Log, line, &[("severity", "ERROR")]));
            }
        }
    }
}

/// A number between 0 and 1.
fn noise(state: &mut State) -> f64 {
    state.random = state.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (state.random >> 33) as f64 / f64::from(1_u32 << 31)
}
