//! A server of a release that not every host has: one that tests are given, an installed one, or one that the lab has downloaded.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, dead_code)]

use crate::majors::{self, Server};
use backwater_lab::servers::{Installed, cache_dir, cached, find};

/// Runs a test on a server of this major release or a later one, if there is one.
pub fn with_release(name: &str, least: u32, test: impl FnOnce(&Server)) {
    let given = majors::installed().into_iter().filter_map(|bin| Installed::at(&bin));
    let mut there = given.chain(find(Some(least))).chain(cached(&cache_dir(), Some(least)));
    match there.find(|installed| installed.version >= least) {
        Some(installed) => test(&Server::start(&installed.bin_dir, &[])),
        None => {
            eprintln!("skipped: {name}: needs PostgreSQL {least} (in BACKWATER_PG_BINS, or downloaded by the lab)");
        }
    }
}
