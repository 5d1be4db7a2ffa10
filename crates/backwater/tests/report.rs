//! `backwater report` as a user meets it, and its page in a real browser.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "browser/mod.rs"]
mod browser;
#[path = "page/planted.rs"]
mod planted;
#[path = "page/reader.rs"]
mod reader;

use planted::{HOSTILE, MIB};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn report(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_backwater")).arg("report").args(arguments).output().unwrap()
}

/// The document inside a report.
fn document(page: &str) -> serde_json::Value {
    const BEGIN: &str = "<script type=\"application/json\" id=\"document\">";
    let begin = page.find(BEGIN).unwrap() + BEGIN.len();
    let end = begin + page[begin..].find("</script>").unwrap();
    serde_json::from_str(&page[begin..end]).unwrap()
}

#[test]
fn a_recording_becomes_one_page() {
    let dir = tempfile::tempdir().unwrap();
    let (recorded, file) = (dir.path().join("rec"), dir.path().join("report.html"));
    planted::hostile(&recorded);
    let output = report(&[recorded.to_str().unwrap(), "-o", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(&file).unwrap();
    assert_eq!(page.matches("<script").count(), 2, "its data and its program, nothing of the recording");
    let document = document(&page);
    let queues = document["path"]["queues"].as_array().unwrap();
    let dirty = queues.iter().find(|queue| queue["name"] == "host.dirty@7:0").unwrap();
    let series = |name: &str| &document["series"][dirty[name].as_u64().unwrap() as usize];
    // Dirty and under writeback together, to the recording's last readings, and nothing in the hole.
    let level = series("level")["max"].as_array().unwrap();
    // Written with four digits.
    let near = |value: &serde_json::Value, wanted: f64| (value.as_f64().unwrap() / wanted - 1.0).abs() < 0.001;
    assert!(near(&level[20], 86.0 * MIB), "20 × 4 MiB and 6: {}", level[20]);
    assert!(level[54].is_null() && level[70].is_number(), "{level:?}");
    assert!(near(&series("hard_limit")["max"][70], 256.0 * MIB));
    assert!(near(&series("inflow")["max"][70], 30.0 * MIB));
    assert_eq!(document["sessions"]["classes"][0]["name"], HOSTILE);
    assert_eq!(document["failing"], serde_json::json!([HOSTILE]), "who read no more at its end");
    let flow = &document["flow"];
    assert_eq!((&flow["state"]["held"][0]["user"], &flow["at_s"]), (&HOSTILE.into(), &89.0.into()));
    assert_eq!((&flow["holds"][0]["from_s"], &flow["holds"][0]["to_s"]), (&30.0.into(), &45.0.into()));
}

#[test]
fn json_is_the_same_document() {
    let dir = tempfile::tempdir().unwrap();
    let (recorded, page, json) =
        (dir.path().join("rec"), dir.path().join("report.html"), dir.path().join("report.json"));
    planted::hostile(&recorded);
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    assert!(report(&[&path(&recorded), "-o", &path(&page)]).status.success());
    assert!(report(&[&path(&recorded), "-o", &path(&json), "--format", "json"]).status.success());
    let inside = document(&std::fs::read_to_string(&page).unwrap());
    let apart: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(inside, apart);
}

#[test]
fn a_files_ending_chooses_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (recorded, file) = (dir.path().join("rec"), dir.path().join("report.md"));
    planted::hostile(&recorded);
    let recorded = recorded.to_str().unwrap();
    assert!(report(&[recorded, "-o", file.to_str().unwrap()]).status.success());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# Backwater: ") && text.contains("| host.dirty@7:0 |"), "{text}");
    assert!(text.contains("256 MiB"), "its limit: {text}");
    assert!(text.contains("all low-priority sessions together may send 5.00 MiB/s"), "who is held: {text}");
    let output = report(&[recorded, "-o", "-", "--format", "md"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), text, "the same on stdout, and nothing else");
    let json = dir.path().join("report.json");
    assert!(report(&[recorded, "-o", json.to_str().unwrap()]).status.success());
    let value: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(value["format"], "backwater-page");
}

#[test]
fn what_is_no_recording_is_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = dir.path().to_str().unwrap();
    let file = dir.path().join("report.html");
    let output = report(&[nothing, "-o", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!file.exists());
    let output = report(&[nothing, "-o", nothing]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is a directory"));
}

/// The page of a recording, and beside it what the recording's own reader says that it must show.
fn page(recorded: &Path, into: &Path) -> String {
    let name = recorded.file_name().unwrap().to_string_lossy();
    let file = into.join(format!("{name}.html"));
    let output = report(&[recorded.to_str().unwrap(), "-o", file.to_str().unwrap()]);
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let shown = document(&std::fs::read_to_string(&file).unwrap());
    let slot_pieces = shown["sessions"]["pieces"].as_u64().unwrap_or(1) as usize;
    let figures = reader::figures(recorded, &shown["axis"], slot_pieces);
    std::fs::write(into.join(format!("{name}.reader.json")), figures.to_string()).unwrap();
    file.display().to_string()
}

/// Where recordings are made, and where their pages: in the directory that BACKWATER_PAGES names they stay, to be looked at.
fn places() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let into = std::env::var_os("BACKWATER_PAGES").map_or_else(|| dir.path().to_owned(), PathBuf::from);
    std::fs::create_dir_all(&into).unwrap();
    (dir, into)
}

/// Runs tests of web/test in an installed Chromium on these pages.
fn in_browser(web: &Path, tests: &[&str], pages: &[String]) {
    let output = Command::new("node")
        .arg("--test")
        .args(tests)
        .current_dir(web)
        .env("BACKWATER_REPORTS", pages.join(":"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Every panel shows what the recording's reader says: of a recording of hostile names, of real runs of the lab (arms of
/// `stampede`, `wt-stall` and `wal-lag`, cut by crates/record/examples/cut.rs), and of those that BACKWATER_RECORDINGS names.
#[test]
fn the_page_works_in_a_browser() {
    const NAME: &str = "the_page_works_in_a_browser";
    let Some(web) = browser::web(NAME) else { return };
    let (dir, into) = places();
    planted::hostile(&dir.path().join("hostile"));
    let given = std::env::var("BACKWATER_RECORDINGS").unwrap_or_default();
    let recordings = given.split(':').filter(|path| !path.is_empty()).map(PathBuf::from);
    let lab = ["stampede", "ttl-burst", "wal-lag"]
        .map(|name| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(name));
    let pages: Vec<String> =
        recordings.chain([dir.path().join("hostile")]).chain(lab).map(|recorded| page(&recorded, &into)).collect();
    in_browser(
        &web,
        &["test/units.test.mjs", "test/layout.test.mjs", "test/report.test.mjs", "test/brush.test.mjs"],
        &pages,
    );
}

/// Shards of a cluster stand side by side with the reader's figures.
#[test]
fn the_page_has_a_row_for_each_shard() {
    const NAME: &str = "the_page_has_a_row_for_each_shard";
    let Some(web) = browser::web(NAME) else { return };
    let (dir, into) = places();
    planted::shards(&dir.path().join("shards"));
    in_browser(&web, &["test/shards.test.mjs"], &[page(&dir.path().join("shards"), &into)]);
}

/// Right at 10 sessions and at 1,000, at a minute and at a day.
#[test]
fn the_page_is_right_at_every_size() {
    const NAME: &str = "the_page_is_right_at_every_size";
    let Some(web) = browser::web(NAME) else { return };
    let (dir, into) = places();
    planted::many(&dir.path().join("many"));
    planted::day(&dir.path().join("day"));
    let pages = ["many", "day"].map(|name| page(&dir.path().join(name), &into));
    in_browser(&web, &["test/size.test.mjs"], &pages);
}
