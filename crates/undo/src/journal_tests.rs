#![allow(clippy::unwrap_used)]
use super::*;

fn begin(dir: &tempfile::TempDir) -> Journal {
    Journal::begin(dir.path(), "test").unwrap()
}

#[test]
fn everything_is_put_back_and_the_journal_goes() {
    let dir = tempfile::tempdir().unwrap();
    let value = dir.path().join("value");
    std::fs::write(&value, "20\n").unwrap();
    let journal = begin(&dir);
    let lab = journal.state_dir().join("lab");
    journal.note(Change::Directory { path: lab.clone() }).unwrap();
    std::fs::create_dir(&lab).unwrap();
    journal.note(Change::FileValue { path: value.clone(), before: "20\n".into() }).unwrap();
    std::fs::write(&value, "10").unwrap();
    journal.note(Change::FileValue { path: value.clone(), before: "10".into() }).unwrap();
    std::fs::write(&value, "5").unwrap();
    let path = journal.path().to_owned();
    assert!(path.exists());
    journal.finish().unwrap();
    journal.finish().unwrap();
    assert_eq!(std::fs::read_to_string(&value).unwrap(), "20", "the first value noted is the one before the run");
    assert!(!lab.exists() && !path.exists());
    let more = journal.note(Change::File { path: lab });
    assert!(matches!(more, Err(UndoError::Finished { .. })));
}

#[test]
fn journals_in_different_directories_have_different_words() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, second) = (begin(&one), begin(&other));
    assert_ne!(first.run(), second.run());
}

#[test]
fn dropping_puts_back_also_in_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("image");
    let panicked = std::panic::catch_unwind(|| {
        let journal = begin(&dir);
        journal.note(Change::File { path: file.clone() }).unwrap();
        std::fs::write(&file, "x").unwrap();
        panic!("on purpose");
    });
    assert!(panicked.is_err() && !file.exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn one_change_can_be_put_back_early_and_twice() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, file) = (begin(&dir), dir.path().join("image"));
    let entry = journal.note(Change::File { path: file.clone() }).unwrap();
    std::fs::write(&file, "").unwrap();
    journal.undo(entry).unwrap();
    journal.undo(entry).unwrap();
    assert!(!file.exists());
    assert!(matches!(journal.undo(Entry(7)), Err(UndoError::NoSuchEntry { .. })));
    // Not this run's any more: a new file of that name can be noted, and is put back too.
    journal.note(Change::File { path: file.clone() }).unwrap();
    std::fs::write(&file, "").unwrap();
    drop(journal);
    assert!(!file.exists());
}

#[test]
fn several_are_put_back_although_one_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let journal = begin(&dir);
    let (first, second) = (journal.state_dir().join("first"), journal.state_dir().join("second"));
    let not_ours = Change::CgroupDir { path: "/sys/fs/cgroup/not-ours".into() };
    let changes = [Change::File { path: first.clone() }, not_ours.clone(), Change::File { path: second.clone() }];
    let entries = changes.map(|change| journal.note(change).unwrap());
    std::fs::write(&first, "").unwrap();
    std::fs::write(&second, "").unwrap();
    let unknown = journal.undo_all(&[entries[0], Entry(7)]);
    assert!(matches!(unknown, Err(UndoError::NoSuchEntry { entry: 7, .. })) && first.exists());
    let Err(UndoError::Left { left, .. }) = journal.undo_all(&entries) else { panic!("it was put back") };
    assert_eq!((left.len(), &left[0].change), (1, &not_ours));
    assert_eq!(entries.map(|entry| journal.is_open(entry)), [false, true, false]);
    assert!(!first.exists() && !second.exists());
    let content = crate::lines::parse(&std::fs::read(journal.path()).unwrap());
    assert_eq!(content.open, [(1, not_ours)], "what was put back is marked");
}

#[test]
fn what_is_not_ours_or_exists_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let journal = begin(&dir);
    assert!(matches!(journal.note(Change::Directory { path: "/etc/x".into() }), Err(UndoError::NotOurs { .. })));
    let there = dir.path().join("there");
    std::fs::write(&there, "").unwrap();
    assert!(matches!(journal.note(Change::File { path: there }), Err(UndoError::Exists { .. })));
}

#[test]
fn what_is_left_keeps_the_journal_for_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let journal = begin(&dir);
    journal.note(Change::CgroupDir { path: "/sys/fs/cgroup/not-ours".into() }).unwrap();
    let path = journal.path().to_owned();
    let error = journal.finish().unwrap_err().to_string();
    assert!(error.contains("rmdir /sys/fs/cgroup/not-ours"), "{error}");
    assert!(path.exists());
    let recovered = recover(dir.path()).unwrap();
    assert_eq!(recovered[0].left.len(), 1, "its lock is free although its process lives");
}

#[test]
fn two_runs_of_one_process_have_two_journals_and_names() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (begin(&dir), begin(&dir));
    assert_ne!(one.path(), two.path());
    assert_ne!(one.run(), two.run());
    drop(one);
    assert!(two.path().exists());
}

#[test]
fn a_claim_keeps_other_runs_out_until_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (begin(&dir), begin(&dir));
    let name = format!("claim-{}", one.run());
    one.claim(&name).unwrap();
    one.claim(&name).unwrap();
    assert!(matches!(two.claim(&name), Err(UndoError::Claimed { .. })));
    one.finish().unwrap();
    two.claim(&name).unwrap();
    let _ = std::fs::remove_file(format!("/run/backwater/{name}.lock"));
}

#[test]
fn a_spawned_process_ends_with_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let journal = begin(&dir);
    let (mut child, _) = journal.spawn(Command::new("sleep").arg("300"), "a sleeper", Stop::Terminate).unwrap();
    let text = std::fs::read_to_string(journal.path()).unwrap();
    assert!(text.contains("\"spawn\"") && text.contains("\"process\""), "{text}");
    journal.finish().unwrap();
    assert!(!child.wait().unwrap().success());
    let missing = begin(&dir).spawn(&mut Command::new("/no/such/program"), "nothing", Stop::Terminate);
    assert!(matches!(missing, Err(UndoError::Spawn { .. })));
}

#[test]
fn many_changes_that_are_put_back_soon_do_not_make_the_journal_long() {
    let dir = tempfile::tempdir().unwrap();
    let journal = begin(&dir);
    let (kept, brief) = (journal.state_dir().join("kept"), journal.state_dir().join("x".repeat(200)));
    journal.note(Change::File { path: kept.clone() }).unwrap();
    std::fs::write(&kept, "").unwrap();
    let mut written = 0;
    for _ in 0..1_000 {
        let before = std::fs::metadata(journal.path()).unwrap().len();
        let entry = journal.note(Change::File { path: brief.clone() }).unwrap();
        written += std::fs::metadata(journal.path()).unwrap().len() - before;
        journal.undo(entry).unwrap();
        assert!(std::fs::metadata(journal.path()).unwrap().len() < LONG);
    }
    assert!(written > 3 * LONG, "{written}: it was never long");
    assert_eq!(recover(dir.path()).unwrap(), [], "the run lives, whatever file its journal is in");
    let content = crate::lines::parse(&std::fs::read(journal.path()).unwrap());
    assert_eq!(content.began, Some(journal.began.clone()));
    assert_eq!((content.open.first(), content.unreadable.len()), (Some(&(0, Change::File { path: kept.clone() })), 0));
    journal.finish().unwrap();
    assert!(!kept.exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_journal_that_cannot_be_written_anew_goes_on_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let journal = begin(&dir);
    let (kept, brief) = (journal.state_dir().join("kept"), journal.state_dir().join("brief"));
    journal.note(Change::File { path: kept.clone() }).unwrap();
    std::fs::write(&kept, "").unwrap();
    // A directory in its place: nothing can be given its name.
    let aside = dir.path().join("aside");
    std::fs::rename(journal.path(), &aside).unwrap();
    std::fs::create_dir(journal.path()).unwrap();
    journal.inner().long = 1;
    let entry = journal.note(Change::File { path: brief }).unwrap();
    journal.undo(entry).unwrap();
    std::fs::remove_dir(journal.path()).unwrap();
    std::fs::rename(&aside, journal.path()).unwrap();
    assert_eq!(crate::lines::parse(&std::fs::read(journal.path()).unwrap()).open.len(), 1);
    journal.finish().unwrap();
    assert!(!kept.exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "what could not take its place is gone");
}

/// Set in the process of the test below whose files may not grow.
const SMALL: &str = "BACKWATER_TEST_SMALL";

#[test]
fn a_note_for_which_there_was_no_room_does_not_harm_the_next() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const NAME: &str = "journal::tests::a_note_for_which_there_was_no_room_does_not_harm_the_next";
    let noted = |number: usize| Change::Spawn {
        marker: format!("nobody-{number}"),
        what: "x".repeat(50),
        stop: Stop::Terminate,
    };
    if let Some(dir) = std::env::var_os(SMALL) {
        let journal = Journal::begin(Path::new(&dir), "test").unwrap();
        let refused = (0..).find(|number| journal.note(noted(*number)).is_err()).unwrap();
        assert!(refused > 0, "there was room for some");
        setrlimit(Resource::Fsize, Rlimit { current: None, ..getrlimit(Resource::Fsize) }).unwrap();
        journal.note(noted(usize::MAX)).unwrap();
        // Killed, as far as the journal knows.
        std::process::exit(7);
    }
    let dir = tempfile::tempdir().unwrap();
    // A signal that is ignored stays so: the write that would go beyond the limit is cut there, and the next one fails.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -S -f 2; exec \"$0\" --exact \"$1\""]);
    command.arg(std::env::current_exe().unwrap()).arg(NAME).env(SMALL, dir.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stdout));
    let recovered = recover(dir.path()).unwrap();
    assert!(recovered[0].is_complete(), "{recovered:?}");
    assert!(recovered[0].undone.contains(&noted(usize::MAX)), "{recovered:?}");
}
