#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

fn shell(script: &str, marker: &str) -> Child {
    Command::new("sh").args(["-c", script]).env(MARKER_VARIABLE, marker).process_group(0).spawn().unwrap()
}

/// Those of a group that have not ended.
fn members(group: i32) -> usize {
    pids().filter_map(stat).filter(|stat| stat.group == group && !stat.ended).count()
}

fn id(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

#[test]
fn names_with_spaces_and_parentheses() {
    let text = "42 (a b) c)) S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1 1";
    assert_eq!(parse(text), Some(Stat { ended: false, parent: 7, group: 42, start_time: 123_456 }));
    assert_eq!(parse("42 (a) Z 1"), None);
    assert!(start_time(id_of_self()).is_some());
}

fn id_of_self() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

#[test]
fn a_process_ends_with_its_children_and_twice_is_harmless() {
    let mut child = shell("sleep 300 & sleep 300", "tree-test");
    let (pid, start) = (id(&child), start_time(id(&child)).unwrap());
    assert!(wait::until(STOP_WITHIN, || members(pid) == 3));
    end(pid, start, Stop::Terminate).unwrap();
    child.wait().unwrap();
    assert_eq!(members(pid), 0);
    end(pid, start, Stop::Terminate).unwrap();
}

#[test]
fn a_reused_id_is_not_touched() {
    let mut child = shell("exec sleep 300", "reuse-test");
    let (pid, start) = (id(&child), start_time(id(&child)).unwrap());
    end(pid, start + 1, Stop::Terminate).unwrap();
    assert!(runs(pid, start));
    end(pid, start, Stop::Quit).unwrap();
    child.wait().unwrap();
}

#[test]
fn a_deaf_process_is_killed() {
    let mut child = shell("trap '' INT; while :; do sleep 0.05; done", "deaf-test");
    let (pid, start) = (id(&child), start_time(id(&child)).unwrap());
    kill(Family::from([(pid, start)])).unwrap();
    child.wait().unwrap();
    assert!(!runs(pid, start));
}

#[test]
fn a_process_is_found_by_its_marker() {
    let marker = format!("marker-test-{}", std::process::id());
    let mut child = shell("exec sleep 300", &marker);
    assert!(wait::until(STOP_WITHIN, || marked(&marker).len() == 1));
    end_marked(&marker, Stop::Terminate).unwrap();
    child.wait().unwrap();
    end_marked(&marker, Stop::Terminate).unwrap();
}

#[test]
fn the_process_that_undoes_is_spared() {
    let pid = id_of_self();
    end(pid, start_time(pid).unwrap(), Stop::Terminate).unwrap();
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }
}
