//! A recording of a device whose dirty pages climb to their limit, and a client that speaks as much HTTP as is needed.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

pub mod planted;

use backwater_live::Source;
use backwater_live::http::{Options, Tls, serve};
use backwater_model::catalogue::{BDI_MAX_BYTES, BDI_STRICT_LIMIT, Def, SELF_DROPPED};
use backwater_model::{Batch, ClockAnchor, Epoch, Moment, Point, Registry};
use backwater_probe::anchor;
use backwater_record::Writer;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

/// Longer than anything here takes, also on a busy host.
pub const LONG: Duration = Duration::from_secs(60);
const AHEAD: Duration = Duration::from_secs(3_600);
pub const TOKEN: &str = "0123456789abcdefghij";
/// What must stay a word wherever it goes.
pub const HOSTILE: &str = "a\"b\\c</script>\n{x=\"1\"} 2";

/// A second of it, with a limit of the device's own that holds, and what the recorder tells of itself.
pub fn second(at: i64, registry: &Registry) -> Batch {
    let mut batch = planted::second(at, registry, HOSTILE);
    let mut put = |def: &Def, labels: &[(&'static str, &str)], value: f64| {
        let series = registry.number(def, labels).unwrap();
        batch.points.push(Point { at: Moment(at * 1_000_000), series, epoch: Epoch(1), value, as_of: None });
    };
    put(&BDI_STRICT_LIMIT, &[("dev", "7:0")], 1.0);
    put(&BDI_MAX_BYTES, &[("dev", "7:0")], 256.0 * planted::MIB);
    put(&SELF_DROPPED, &[], 0.0);
    batch
}

/// A recording of so many seconds, which are of now for longer than any test takes: its clock is ahead.
pub fn recording(dir: &Path, seconds: i64) {
    let registry = Arc::new(Registry::new());
    let options = backwater_record::Options { free_floor_bytes: 0, ..Default::default() };
    let mut meta = planted::meta(HOSTILE);
    meta.anchors = vec![ClockAnchor {
        boot: Moment((seconds - 1) * 1_000_000),
        unix_us: anchor().unix_us + AHEAD.as_micros() as i64,
    }];
    let mut writer = Writer::create(dir, meta, Arc::clone(&registry), options).unwrap();
    for at in 0..seconds {
        writer.write(&second(at, &registry)).unwrap();
        writer.tick(Moment(at * 1_000_000)).unwrap();
    }
    writer.close().unwrap();
    keep_fresh(dir);
}

/// As if somebody wrote to a recording for longer than any test takes.
pub fn keep_fresh(dir: &Path) {
    written_at(dir, SystemTime::now() + AHEAD);
}

/// As if nobody had written to it for long.
pub fn stop_writing(dir: &Path) {
    written_at(dir, SystemTime::now() - AHEAD);
}

fn written_at(dir: &Path, at: SystemTime) {
    for entry in std::fs::read_dir(dir.join("points")).unwrap() {
        let file = std::fs::File::options().append(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(at).unwrap();
    }
}

/// A server of this recording, until the test is over.
pub struct Served {
    pub address: SocketAddr,
    end: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    pub fn start(dir: &Path, patience: Duration) -> Served {
        Served::start_with(dir, patience, None)
    }

    pub fn start_with(dir: &Path, patience: Duration, tls: Option<Tls>) -> Served {
        Served::of(&[dir], patience, tls)
    }

    /// A server of several recordings.
    pub fn of(dirs: &[&Path], patience: Duration, tls: Option<Tls>) -> Served {
        let sources: Vec<Source> = dirs.iter().map(|dir| Source::recording(dir, 600.0).unwrap()).collect();
        let options = Options {
            bind: "127.0.0.1:0".parse().unwrap(),
            token: Some(TOKEN.to_owned()),
            host_names: Vec::new(),
            tls,
            open_metrics: false,
            refresh: Duration::from_millis(200),
            patience,
        };
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (told, ready) = channel();
        let thread = std::thread::spawn(move || {
            let end = async { ended.await.unwrap_or(()) };
            serve(sources, &options, end, |url| told.send(url.to_owned()).unwrap()).unwrap();
        });
        let url = ready.recv().unwrap();
        assert!(url.ends_with(&format!("/?token={TOKEN}")), "{url}");
        let address = url.split("://").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
        Served { address, end: Some(end), thread: Some(thread) }
    }

    /// Status, head and body of what is answered.
    pub fn get(&self, path: &str, headers: &[&str]) -> (u16, String, String) {
        let mut stream = self.ask(path, &[headers, &["connection: close"]].concat());
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase(), body.to_owned())
    }

    pub fn with_token(&self, path: &str) -> (u16, String, String) {
        self.get(path, &[&format!("authorization: Bearer {TOKEN}")])
    }

    /// Figures as Prometheus asks for them.
    pub fn metrics(&self) -> (u16, String, String) {
        let accept = "accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        self.get("/metrics", &[&format!("authorization: Bearer {TOKEN}"), accept])
    }

    pub fn ask(&self, path: &str, headers: &[&str]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let own = if headers.iter().any(|line| line.starts_with("host:")) {
            String::new()
        } else {
            format!("host: {}\r\n", self.address)
        };
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        stream.write_all(format!("GET {path} HTTP/1.1\r\n{own}{lines}\r\n").as_bytes()).unwrap();
        stream
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end.take().into_iter().for_each(|end| end.send(()).unwrap_or(()));
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}
