//! A flight recorder's directory, and what the commands do with it: sum up, export, put in order, read as windows. The bytes are a
//! file and its interim, as they are and as chunks whose compression is sound.

#[path = "../../../crates/ftdc/tests/common/mod.rs"]
mod common;

use backwater_probe::mongodb::Flight;
use ftdc::export::Export;
use ftdc::{Selection, Source};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("backwater-fuzz-recorder-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
});
/// So many stretches of an hour are looked at: two times may lie years apart.
const WINDOWS: usize = 4;

pub(crate) fn run(bytes: &[u8]) {
    let (file, interim) = bytes.split_at(bytes.len() * 2 / 3);
    read(file, interim);
    if let Ok(length) = u16::try_from(file.len()) {
        read(&common::stored(file, length), interim);
    }
}

fn read(file: &[u8], interim: &[u8]) {
    std::fs::write(DIR.join("metrics.2023-11-14T22-13-20Z-00000"), file).unwrap();
    std::fs::write(DIR.join("metrics.interim"), interim).unwrap();
    exported(&DIR);
    let Ok(flight) = Flight::open(&DIR) else { return };
    let Some((from, to)) = flight.span() else { return };
    assert!(from <= to);
    for window in flight.windows(from, to, 3_600.0).take(WINDOWS) {
        let window = window.unwrap();
        assert!(window.all_tracks().all(|track| track.points.windows(2).all(|pair| pair[0].at <= pair[1].at)));
    }
}

fn exported(dir: &Path) {
    let Ok(source) = Source::open(dir) else { return };
    let all = i64::MIN..i64::MAX;
    source.summarise(&Selection::default(), all.clone()).unwrap();
    let export = Export::new(&source, Selection::all(), all);
    export.json_lines(&mut std::io::sink(), &mut |_| ()).unwrap();
    export.csv(&mut std::io::sink(), &mut |_| ()).unwrap();
}
