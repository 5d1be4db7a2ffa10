//! `backwater watch` as a user meets it: plain text, and on a real terminal, which it gives back however it ends.

#![allow(clippy::unwrap_used)]

mod flight;
#[path = "../../live/tests/common/planted.rs"]
mod planted;
#[path = "../../live/tests/common/tmux.rs"]
mod tmux;

use backwater_model::{Moment, Registry};
use backwater_record::{Options, Writer};
use ftdc::Builder;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tmux::Tmux;

const HOSTILE: &str = "</script><img src=x onerror=alert('ran')>'\"&amp;\u{1b}[2J";
const HOUR: Duration = Duration::from_secs(3_600);

fn recording(dir: &Path, seconds: i64) {
    let mut recorder = Recorder::begin(dir);
    recorder.write(0..seconds);
    recorder.writer.close().unwrap();
}

/// Somebody who writes to a recording, now and then.
struct Recorder {
    registry: Arc<Registry>,
    writer: Writer,
}

impl Recorder {
    fn begin(dir: &Path) -> Recorder {
        let registry = Arc::new(Registry::new());
        let options = Options { free_floor_bytes: 0, ..Options::default() };
        let writer = Writer::create(dir, planted::meta(HOSTILE), Arc::clone(&registry), options).unwrap();
        Recorder { registry, writer }
    }

    fn write(&mut self, seconds: Range<i64>) {
        for at in seconds {
            self.writer.write(&planted::second(at, &self.registry, HOSTILE)).unwrap();
            self.writer.tick(Moment(at * 1_000_000)).unwrap();
        }
    }
}

/// A flight recorder of two minutes in 2023, whose cache fills with dirty pages.
fn recorder(dir: &Path) {
    let bytes = flight::bytes(0..120, |status, second, at| {
        let cache = |c: Builder| {
            c.int64("tracked dirty bytes in the cache", second << 20).double("maximum bytes configured", 1e9)
        };
        let status = status.date("start", at).int64("pid", 7).int64("uptimeMillis", second * 1_000 + 500);
        status.document("wiredTiger", |w| w.document("cache", cache))
    });
    std::fs::create_dir(dir).unwrap();
    std::fs::write(dir.join(flight::FILE), bytes).unwrap();
}

fn once(dir: &Path, columns: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
    command.args(["watch", dir.to_str().unwrap(), "--once"]).env("LC_ALL", "C.UTF-8").env_remove("COLUMNS");
    command.envs(columns.map(|columns| ("COLUMNS", columns)));
    command.output().unwrap()
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn plain_text_has_all_of_it_at_its_own_length() {
    let dir = tempfile::tempdir().unwrap();
    let rec = dir.path().join("rec");
    recording(&rec, 90);
    for (columns, width) in [(None, 80), (Some("120"), 120)] {
        let text = printed(&once(&rec, columns));
        assert!(text.contains("host.dirty@7:0") && text.contains("206 MiB"), "{text}");
        assert!(text.contains("DataFileWrite") && text.contains("Findings"), "{text}");
        assert!(!text.contains('\u{1b}'), "no control sequence, of somebody else or our own: {text}");
        let heading = text.lines().find(|line| line.starts_with("Path at 12:01:2")).unwrap();
        assert_eq!(heading.chars().count(), width);
        assert!(!text.contains("\n\n\n") && !text.ends_with("\n\n"), "nothing is filled up: {text}");
    }
}

#[test]
fn a_recording_without_readings_is_said_to_be_so() {
    let dir = tempfile::tempdir().unwrap();
    let rec = dir.path().join("rec");
    recording(&rec, 0);
    let output = once(&rec, None);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{told}");
    assert!(told.contains("holds no readings yet") && told.contains("rec"), "{told}");
}

/// Makes a recording look as if it had been written to at this time.
fn written_at(rec: &Path, at: SystemTime) {
    for entry in std::fs::read_dir(rec.join("points")).unwrap() {
        let file = std::fs::File::options().append(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(at).unwrap();
    }
}

/// As if nobody wrote to it any more.
fn age(rec: &Path) {
    written_at(rec, SystemTime::now() - HOUR);
}

/// As if somebody wrote to it, for longer than any test takes.
fn keep_fresh(rec: &Path) {
    written_at(rec, SystemTime::now() + HOUR);
}

#[test]
fn results_that_cannot_be_read_are_said_to_be_and_the_rest_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let rec = dir.path().join("rec");
    recording(&rec, 90);
    std::fs::write(rec.join("outcome.json"), "{\"scenario\": \"stam").unwrap();
    // While it is being written, and once it has ended.
    for set in [keep_fresh, age] {
        set(&rec);
        let text = printed(&once(&rec, Some("160")));
        assert!(text.contains("! the lab's results are not shown: ") && text.contains("outcome.json"), "{text}");
        assert!(text.contains("host.dirty@7:0"), "{text}");
    }
}

#[test]
fn a_flight_recorder_is_watched_and_served() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("diagnostic.data");
    recorder(&data);
    let text = printed(&once(&data, None));
    assert!(
        text.contains("a.example") && text.contains("22:13:20 UTC to 22:15:"),
        "all of it, by its own clock: {text}"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
    command.args(["serve", data.to_str().unwrap(), "--port", "0", "--no-token"]);
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let address = url.trim().split("://").nth(1).unwrap().trim_end_matches('/').to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream
        .write_all(format!("GET /view/0/document HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes())
        .unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(page.contains(" 200 ") && page.contains("\"a.example"), "{}", &page[..page.len().min(500)]);
}

#[test]
fn damage_of_a_flight_recorder_is_told_wherever_it_is_shown_and_logged_once() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("diagnostic.data");
    recorder(&data);
    // Inside a chunk: it is found once what is in it is read.
    let file = data.join(flight::FILE);
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    std::fs::write(&file, bytes).unwrap();
    let watched = once(&data, Some("160"));
    let logged = String::from_utf8(watched.stderr.clone()).unwrap();
    assert_eq!(logged.matches("damaged: ").count(), 1, "{logged}");
    let text = printed(&watched);
    assert!(text.contains("! a part of the flight recorder is damaged and left out: "), "{text}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
    let report = command.arg("report").arg(&data).args(["-o", "-", "--format", "md"]).output().unwrap();
    assert!(printed(&report).contains("a part of the flight recorder is damaged and left out"), "{report:?}");
}

/// A terminal on which a recording is watched, the first screen drawn.
fn watched(test: &str, rec: &Path, environment: &str) -> Option<Tmux> {
    recording(rec, 90);
    let tmux = Tmux::start(test, 80, 24)?;
    let program = env!("CARGO_BIN_EXE_backwater");
    tmux.run(&format!("{environment} LC_ALL=C.UTF-8 {program} watch {}", rec.display()));
    tmux.until_all(&["host.dirty@7:0", "q quit", "Findings"]);
    assert_eq!(tmux.told("alternate_on"), "1");
    Some(tmux)
}

#[test]
fn keys_and_sizes_on_a_terminal_and_it_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let Some(tmux) = watched("keys_and_sizes_on_a_terminal_and_it_is_given_back", &dir.path().join("rec"), "") else {
        return;
    };
    tmux.keys(&["5"]);
    tmux.until("No finding: no rule saw a queue at its limit.");
    tmux.keys(&["?"]);
    tmux.until("below ─");
    tmux.keys(&["PageDown"]);
    tmux.until(" above");
    // Out of the explanation, and then out of the part.
    tmux.keys(&["Escape"]);
    tmux.until("No finding");
    tmux.keys(&["Escape"]);
    tmux.until("Path");
    tmux.resize(120, 40);
    tmux.until_all(&["PgDn more findings", &"─".repeat(90)]);
    tmux.resize(30, 8);
    tmux.until("Too small");
    tmux.resize(80, 24);
    tmux.until_all(&["host.dirty@7:0", "q quit"]);
    tmux.keys(&["?"]);
    tmux.until("Shift-Tab");
    tmux.keys(&["q"]);
    let left = tmux.until("over: 0");
    assert!(left.contains("before the view") && !left.contains("q quit"), "what was there is there again: {left}");
    tmux.is_as_before();
}

#[test]
fn a_recorder_that_stops_and_goes_on_is_told_as_such() {
    const NAME: &str = "a_recorder_that_stops_and_goes_on_is_told_as_such";
    let dir = tempfile::tempdir().unwrap();
    let rec = dir.path().join("rec");
    let mut recorder = Recorder::begin(&rec);
    recorder.write(0..90);
    keep_fresh(&rec);
    let Some(tmux) = Tmux::start(NAME, 100, 24) else { return };
    tmux.run(&format!("LC_ALL=C.UTF-8 {} watch {}", env!("CARGO_BIN_EXE_backwater"), rec.display()));
    tmux.until("live 12:01:");
    age(&rec);
    let screen = tmux.until("nothing new since 12:01:");
    assert!(screen.contains("host.dirty@7:0"), "what was known stays: {screen}");
    // Once while somebody looks, and once while it is paused: what came meanwhile may be the last there is.
    recorder.write(90..150);
    keep_fresh(&rec);
    tmux.until("live 12:02:");
    tmux.keys(&["p"]);
    tmux.until("paused 12:02:");
    age(&rec);
    tmux.keys(&["p"]);
    tmux.until("nothing new since 12:02:");
    recorder.write(150..210);
    keep_fresh(&rec);
    tmux.until("live 12:03:");
    tmux.keys(&["q"]);
    tmux.until("over: 0");
    tmux.is_as_before();
}

#[test]
fn a_terminal_is_given_back_after_ctrl_c_and_signals() {
    const NAME: &str = "a_terminal_is_given_back_after_ctrl_c_and_signals";
    let dir = tempfile::tempdir().unwrap();
    let Some(tmux) = watched(NAME, &dir.path().join("keys"), "") else { return };
    tmux.keys(&["C-c"]);
    tmux.until_all(&["before the view", "over: 0"]);
    tmux.is_as_before();
    let Some(tmux) = watched(NAME, &dir.path().join("signal"), "") else { return };
    let process = Pid::from_raw(tmux.process("backwater")).unwrap();
    kill_process(process, Signal::TERM).unwrap();
    let left = tmux.until_all(&["before the view", "over: "]);
    assert!(left.contains("stopping"), "what was logged meanwhile is told behind it: {left}");
    tmux.is_as_before();
}

#[test]
fn a_terminal_that_cannot_show_a_screen_is_told_what_to_do() {
    const NAME: &str = "a_terminal_that_cannot_show_a_screen_is_told_what_to_do";
    let Some(tmux) = Tmux::start(NAME, 80, 24) else { return };
    tmux.run(&format!("TERM=dumb {} watch", env!("CARGO_BIN_EXE_backwater")));
    tmux.until_all(&["TERM=dumb cannot show a screen; --once", "over: 2"]);
    tmux.is_as_before();
}

#[test]
fn without_colour_nothing_is_coloured_and_all_is_there() {
    const NAME: &str = "without_colour_nothing_is_coloured_and_all_is_there";
    let dir = tempfile::tempdir().unwrap();
    let Some(tmux) = watched(NAME, &dir.path().join("colour"), "") else { return };
    assert!(colours(&tmux.coloured()) > 0, "or the test sees none");
    let coloured = tmux.screen();
    let Some(tmux) = watched(NAME, &dir.path().join("none"), "NO_COLOR=1") else { return };
    assert_eq!(colours(&tmux.coloured()), 0);
    // But for the clock and the name of the state, which may be a second apart.
    let below = |screen: &str| screen.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(below(&tmux.screen()), below(&coloured), "no word was told by a colour alone");
}

/// Sequences that choose a colour.
fn colours(screen: &str) -> usize {
    let sequences = screen.split("\u{1b}[").skip(1).filter_map(|rest| rest.split_once('m'));
    let codes =
        sequences.flat_map(|(codes, _)| codes.split(';').map(|code| code.parse().unwrap_or(0)).collect::<Vec<u32>>());
    codes.filter(|code| matches!(code, 30..=38 | 40..=48 | 90..=97 | 100..=107)).count()
}
