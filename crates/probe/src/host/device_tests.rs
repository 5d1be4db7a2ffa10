//! Devices of captured and made-up trees, and of this machine.

#![allow(clippy::unwrap_used)]

use super::*;
use std::fs;
use std::os::unix::fs::symlink;

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A made-up host: sda1 (8:1) on sda (8:0) mounted on /, dm-0 (253:0) of sdb (8:16) on /data.
fn tree() -> (tempfile::TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::under(dir.path());
    let block = roots.sys.join("devices/block");
    for (name, dev) in [("sda", "8:0"), ("sda/sda1", "8:1"), ("sdb", "8:16"), ("dm-0", "253:0")] {
        let short = name.rsplit('/').next().unwrap();
        put(&block.join(name).join("dev"), &format!("{dev}\n"));
        put(&block.join(name).join("uevent"), &format!("DEVNAME={short}\nDEVTYPE=disk\n"));
        fs::create_dir_all(roots.sys.join("dev/block")).unwrap();
        fs::create_dir_all(roots.sys.join("class/block")).unwrap();
        symlink(block.join(name), roots.sys.join("dev/block").join(dev)).unwrap();
        symlink(block.join(name), roots.sys.join("class/block").join(short)).unwrap();
    }
    put(&block.join("sda/sda1/partition"), "1\n");
    fs::create_dir_all(block.join("dm-0/slaves/sdb")).unwrap();
    let mountinfo = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 253:0 / /data rw - xfs /dev/mapper/vg rw\n\
                     3 1 0:44 / /pool rw - btrfs /dev/sdb rw\n4 1 0:45 / /share rw - nfs4 store:/pg rw\n\
                     5 1 0:46 / /box rw - overlay overlay rw,lowerdir=/l,upperdir=/data/upper,workdir=/w\n";
    put(&roots.proc.join("self/mountinfo"), mountinfo);
    put(&roots.proc.join("42/mountinfo"), mountinfo);
    (dir, roots)
}

#[test]
fn a_partition_knows_its_whole_device_and_a_mapper_its_parts() {
    let (_dir, roots) = tree();
    let partition = device(&roots, "8:1");
    assert_eq!((partition.name.as_str(), partition.parent.as_deref()), ("sda1", Some("8:0")));
    assert_eq!((partition.fs_type.as_deref(), partition.mount_points), (Some("ext4"), vec!["/".to_owned()]));
    let mapper = device(&roots, "253:0");
    assert_eq!((mapper.backing, mapper.parent), (vec!["sdb".to_owned()], None));
    assert_eq!(family(&roots, "253:0").into_iter().collect::<Vec<_>>(), ["253:0", "8:16"]);
    assert_eq!(family(&roots, "8:1").into_iter().collect::<Vec<_>>(), ["8:0", "8:1"]);
}

#[test]
fn links_are_followed_inside_the_root_of_the_process() {
    let (_dir, roots) = tree();
    let inside = roots.proc.join("42/root");
    fs::create_dir_all(inside.join("data/wal")).unwrap();
    fs::create_dir_all(inside.join("srv/pg")).unwrap();
    symlink("/data/wal", inside.join("srv/pg/pg_wal")).unwrap();
    assert_eq!(locate_in(&roots, 42, "/srv/pg/pg_wal".as_ref()).unwrap().dev, "253:0");
    assert_eq!(locate_in(&roots, 42, "/srv/pg/pg_wal/../../srv".as_ref()).unwrap().dev, "8:1");
    assert!(locate_in(&roots, 42, "/srv/missing".as_ref()).unwrap_err().to_string().contains("/srv/missing"));
    symlink("loop", inside.join("srv/loop")).unwrap();
    assert!(locate_in(&roots, 42, "/srv/loop".as_ref()).is_err());
}

#[test]
fn file_systems_without_a_block_device_of_their_own_are_traced_as_far_as_can_be() {
    let (_dir, roots) = tree();
    for place in ["pool", "share", "box"] {
        fs::create_dir_all(roots.proc.join("42/root").join(place)).unwrap();
    }
    let dev = |path: &str| locate_in(&roots, 42, path.as_ref()).unwrap().dev;
    assert_eq!(dev("/pool"), "8:16", "btrfs: the device it was mounted from");
    assert_eq!(dev("/share"), "0:45", "nfs: its own number, under which it has a bdi");
    assert_eq!(dev("/box"), "253:0", "overlay: where its upper directory lies");
}

#[test]
fn a_captured_loop_device_names_its_file_and_another_file_is_another_life() {
    let roots = Roots::under(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/capped").as_path());
    let device = device(&roots, "7:0");
    assert_eq!((device.name.as_str(), device.backing), ("loop0", vec!["/dev/shm/lab/img".to_owned()]));
    assert_eq!(device.mount_points, ["/srv/pg"]);

    let (_dir, made_up) = tree();
    put(&made_up.sys.join("dev/block/7:9/loop/backing_file"), "/one\n");
    let mut life = Life::new(&made_up, "7:9");
    let before = life.epoch();
    assert_eq!(before, life.epoch());
    put(&made_up.sys.join("dev/block/7:9/loop/backing_file"), "/other\n");
    assert_ne!(before, life.epoch());
    let numbered = |number: &str| {
        put(&made_up.sys.join("dev/block/7:9/diskseq"), number);
        Life::new(&made_up, "7:9").epoch()
    };
    assert_ne!(numbered("18\n"), numbered("19\n"));
}

#[test]
fn this_machine_has_a_device_under_its_root_directory() {
    let device = locate(&Roots::default(), "/".as_ref()).unwrap();
    assert!(!device.dev.is_empty() && device.fs_type.is_some(), "{device:?}");
}
