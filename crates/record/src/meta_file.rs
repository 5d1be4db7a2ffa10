//! `meta.json`: what the recording says of itself, and the format it is in.

use crate::RecordError;
use crate::layout::{META, publish, temp_of};
use backwater_model::{Meta, Role, Target};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// The format of everything in the directory. Columns and fields may be added within one format; anything that an
/// older reader would misunderstand needs a new number.
pub(crate) const FORMAT_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct MetaFile<M> {
    format_version: u32,
    meta: M,
}

/// The text of `meta.json`.
pub(crate) fn encode(path: &Path, meta: &Meta) -> Result<Vec<u8>, RecordError> {
    let file = MetaFile { format_version: FORMAT_VERSION, meta };
    let mut text = serde_json::to_vec_pretty(&file).map_err(|error| RecordError::encode(path, error))?;
    text.push(b'\n');
    Ok(text)
}

/// Writes `meta.json` beside its old self and puts it in its place, so that every reader finds one or the other.
pub(crate) fn write(dir: &Path, meta: &Meta, durable: bool) -> Result<(), RecordError> {
    let path = dir.join(META);
    let temp = temp_of(&path);
    let text = encode(&path, meta)?;
    let fill = || {
        let mut file = std::fs::File::create(&temp)?;
        file.write_all(&text)?;
        if durable { file.sync_all() } else { Ok(()) }
    };
    let done = fill().map_err(RecordError::at("write", &temp)).and_then(|()| publish(&temp, &path, durable));
    if done.is_err() {
        // The error that matters is the one above: a temporary file that cannot be removed is removed at the next start.
        let _ = std::fs::remove_file(&temp);
    }
    done
}

/// Reads `meta.json`.
pub(crate) fn read(dir: &Path) -> Result<Meta, RecordError> {
    let path = dir.join(META);
    let text = match std::fs::read(&path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(RecordError::NotARecording { dir: dir.to_owned(), why: why_none(dir) });
        }
        text => text.map_err(RecordError::at("read", &path))?,
    };
    decode(&path, &text)
}

/// Why there is no recording in a directory that has no meta.json.
fn why_none(dir: &Path) -> &'static str {
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => "it has no meta.json",
        Ok(_) => "it is a file, not a directory (one of MongoDB's flight recorder is named metrics.*)",
        Err(_) => "there is no such directory",
    }
}

fn decode(path: &Path, text: &[u8]) -> Result<Meta, RecordError> {
    let damaged = |why: String| RecordError::Damaged {
        path: path.to_owned(),
        why,
        advice: "restore this file from a copy; the segments beside it are still readable by any Parquet reader",
    };
    let file: MetaFile<serde_json::Value> = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
    if file.format_version != FORMAT_VERSION {
        let written_by = file.meta.get("written_by").and_then(|name| name.as_str()).unwrap_or("unknown");
        return Err(RecordError::UnknownVersion {
            path: path.to_owned(),
            found: file.format_version.to_string(),
            known: FORMAT_VERSION,
            written_by: written_by.to_owned(),
        });
    }
    serde_json::from_value(file.meta).map_err(|error| damaged(error.to_string()))
}

/// What to say of a recording that is continued: the news, and what only the older part knew. Clock anchors of both
/// are kept, since the older readings need theirs.
pub(crate) fn merge(older: &Meta, newer: &Meta) -> Meta {
    let mut merged = newer.clone();
    merged.anchors = older.anchors.clone();
    newer.anchors.iter().for_each(|anchor| merged.add_anchor(*anchor));
    for target in &older.targets {
        match merged.targets.iter_mut().find(|known| known.name == target.name) {
            // A server that is away now is what it was.
            Some(known) if known.is_unmet() => {
                let heartbeat_timeout_s = known.heartbeat_timeout_s.or(target.heartbeat_timeout_s);
                *known = Target { heartbeat_timeout_s, ..target.clone() };
            }
            Some(_) => {}
            None => merged.targets.push(target.clone()),
        }
    }
    let is_met = |name: &str| newer.targets.iter().any(|target| target.name == name && !target.is_unmet());
    for device in &older.devices {
        match merged.devices.iter_mut().find(|known| known.dev == device.dev) {
            Some(known) => {
                let of_others = device.roles.iter().filter(|(role, name)| *role != Role::Recording && !is_met(name));
                let new: Vec<_> = of_others.filter(|role| !known.roles.contains(role)).cloned().collect();
                known.roles.extend(new);
            }
            None => merged.devices.push(device.clone()),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{ClockAnchor, Device, Moment};

    fn meta(second: i64, target: &str) -> Meta {
        Meta {
            anchors: vec![ClockAnchor { boot: Moment(second * 1_000_000), unix_us: second }],
            targets: vec![Target { name: target.to_owned(), ..Target::default() }],
            devices: vec![Device { dev: format!("7:{second}"), ..Device::default() }],
            written_by: "backwater 9".to_owned(),
            ..Meta::default()
        }
    }

    #[test]
    fn what_only_the_older_part_knew_is_kept() {
        let merged = merge(&meta(1, "a"), &meta(2, "b"));
        assert_eq!(merged.anchors.len(), 2);
        assert_eq!(merged.targets.len(), 2);
        assert_eq!(merged.devices.len(), 2);
        assert_eq!(merge(&merged, &merged), merged);
    }

    #[test]
    fn of_a_server_that_is_away_now_all_is_kept_that_was_known() {
        let role = (Role::Data, "a".to_owned());
        let with = |target: Target| Meta {
            devices: vec![Device { dev: "7:1".to_owned(), roles: vec![role.clone()], ..Device::default() }],
            targets: vec![target],
            ..meta(1, "a")
        };
        let a = Target { name: "a".to_owned(), ..Target::default() };
        let older = with(Target { version_num: Some(150_000), data_device: Some("7:1".to_owned()), ..a.clone() });
        let newer = Meta { targets: vec![Target { heartbeat_timeout_s: Some(1.0), ..a.clone() }], ..meta(1, "a") };
        let merged = merge(&older, &newer);
        let known = Target { heartbeat_timeout_s: Some(1.0), ..older.targets[0].clone() };
        assert_eq!((&merged.targets, &merged.devices[0].roles), (&vec![known], &vec![role.clone()]));
        // Met anew it is what it is now.
        let newer = Meta { targets: vec![Target { version_num: Some(160_000), ..a }], ..newer };
        let merged = merge(&older, &newer);
        assert_eq!((&merged.targets, &merged.devices[0].roles), (&newer.targets, &Vec::new()));
    }

    #[test]
    fn a_temporary_file_cut_anywhere_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &meta(1, "a"), false).unwrap();
        let text = encode(dir.path(), &meta(2, "b")).unwrap();
        for cut in 0..text.len() {
            std::fs::write(dir.path().join("meta.json.tmp"), &text[..cut]).unwrap();
            assert_eq!(read(dir.path()).unwrap(), meta(1, "a"));
        }
    }

    #[test]
    fn a_cut_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let text = encode(dir.path(), &meta(1, "a")).unwrap();
        for cut in 0..text.len() - 2 {
            std::fs::write(dir.path().join(META), &text[..cut]).unwrap();
            let error = read(dir.path()).unwrap_err().to_string();
            assert!(error.contains("meta.json"), "{error}");
        }
    }

    #[test]
    fn a_recording_of_an_earlier_version_lacks_fields_and_is_read() {
        let dir = tempfile::tempdir().unwrap();
        // What the least of all versions would have written: no field but one in each part.
        let text = r#"{"format_version": 1, "meta": {"host": {"kernel": "6.1"}, "devices": [{"dev": "7:0"}],
            "targets": [{"name": "a"}], "anchors": [{"boot": 1, "unix_us": 2}], "a_field_of_later": 3}}"#;
        std::fs::write(dir.path().join(META), text).unwrap();
        let meta = read(dir.path()).unwrap();
        assert_eq!(meta.targets[0].name, "a");
        assert_eq!((meta.host.kernel.as_deref(), meta.host.cpus), (Some("6.1"), None));
        assert!(meta.declared_volumes.is_empty() && meta.devices[0].roles.is_empty());
    }

    #[test]
    fn what_is_no_recording_says_how_that_shows() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        for (path, why) in [
            (dir.path().to_owned(), "it has no meta.json"),
            (file, "it is a file"),
            (dir.path().join("none"), "there is no such directory"),
        ] {
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("record -o DIR"), "{error}");
        }
    }

    #[test]
    fn an_unknown_version_names_itself_the_file_and_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let text = String::from_utf8(encode(dir.path(), &meta(1, "a")).unwrap()).unwrap();
        let text = text.replace("\"format_version\": 1", "\"format_version\": 7");
        std::fs::write(dir.path().join(META), text).unwrap();
        let error = read(dir.path()).unwrap_err().to_string();
        for part in ["meta.json", "format 7", "reads format 1", "backwater 9"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
