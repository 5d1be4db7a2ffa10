#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;
use std::fs;

fn journal(dir: &tempfile::TempDir) -> Journal {
    Journal::begin(&dir.path().join("state"), "test").unwrap()
}

/// A control group tree of plain files: reading one gives what was last written.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

#[test]
fn v1_is_taken_where_it_is() {
    let files: Vec<_> = NAMES.iter().map(|(file, _)| format!("blkio/{file}")).collect();
    let dir = tree(&files.iter().map(|file| (file.as_str(), "")).collect::<Vec<_>>());
    let journal = journal(&dir);
    let method = CapMethod::choose(&journal, dir.path(), "data").unwrap();
    assert_eq!(method, CapMethod::BlkioV1Root { group: dir.path().join("blkio") });
    let cap = Cap { write_iops: Some(1_500), write_bytes_per_s: Some(64 << 20), ..Cap::default() };
    method.set(&journal, "7:0", &cap).unwrap();
    assert_eq!(method.get("7:0").unwrap(), cap);
    assert_eq!(method.get("7:1").unwrap(), Cap::default());
    journal.finish().unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("blkio/blkio.throttle.write_iops_device")).unwrap(), "7:0 0");
}

#[test]
fn v2_makes_a_group_and_enables_what_it_needs() {
    let dir = tree(&[("cgroup.controllers", "cpu io memory\n"), ("cgroup.subtree_control", "cpu\n")]);
    let journal = journal(&dir);
    let CapMethod::IoMaxV2 { cgroup } = CapMethod::choose(&journal, dir.path(), "data").unwrap() else { panic!() };
    assert!(cgroup.is_dir());
    // A real group has the file; a plain directory must be given one, which is in the way of its removal.
    fs::write(cgroup.join("io.max"), "").unwrap();
    let method = CapMethod::IoMaxV2 { cgroup: cgroup.clone() };
    let cap = Cap { write_iops: Some(1_500), ..Cap::default() };
    method.set(&journal, "7:0", &cap).unwrap();
    assert_eq!(fs::read_to_string(cgroup.join("io.max")).unwrap(), "7:0 riops=max wiops=1500 rbps=max wbps=max");
    fs::remove_file(cgroup.join("io.max")).unwrap();
    journal.finish().unwrap();
    assert!(!cgroup.exists());
}

#[test]
fn the_first_of_two_runs_to_end_leaves_the_other_its_controllers() {
    let dir = tree(&[("cgroup.controllers", "cpu io memory\n"), ("cgroup.subtree_control", "cpu\n")]);
    let enabled = || fs::read_to_string(dir.path().join("cgroup.subtree_control")).unwrap();
    let (first, second) = (journal(&dir), journal(&dir));
    CapMethod::choose(&first, dir.path(), "data").unwrap();
    // A real file would now hold all that is enabled.
    fs::write(dir.path().join("cgroup.subtree_control"), "cpu io memory\n").unwrap();
    let CapMethod::IoMaxV2 { cgroup } = CapMethod::choose(&second, dir.path(), "data").unwrap() else { panic!() };
    first.finish().unwrap();
    assert_eq!((enabled().as_str(), cgroup.is_dir()), ("cpu io memory\n", true));
    second.finish().unwrap();
    assert_eq!((enabled().as_str(), cgroup.exists()), ("cpu io memory\n", false));
}

#[test]
fn without_a_controller_it_says_so() {
    let dir = tree(&[("cgroup.controllers", "hugetlb\n")]);
    let error = CapMethod::choose(&journal(&dir), dir.path(), "data").unwrap_err().to_string();
    assert!(error.contains("neither cgroup v1's blkio") && error.contains("mount -t cgroup"), "{error}");
    assert!(possible(dir.path()).is_err());
}

#[test]
fn a_cap_of_nothing_is_refused() {
    let cap = Cap { write_iops: Some(0), ..Cap::default() };
    assert!(cap.check().unwrap_err().to_string().contains("no limit"));
    assert!(!cap.is_none() && Cap::default().is_none());
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        let _ = (rule(&text, "7:0"), io_max(&text));
    }
}
