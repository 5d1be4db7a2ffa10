//! The targets, by name.

mod config;
mod conninfo;
mod console;
mod ftdc;
mod greeting;
mod guardian;
mod journal;
mod kernel;
mod memory;
mod opening;
mod process;
mod proxy_header;
mod recorder;
mod relay;
mod rows;
mod segment;
mod server_log;
mod socket;
mod state_file;
mod statement;
mod tail;

use std::sync::LazyLock;

type Target = fn(&[u8]);

/// That which is asked for by the environment.
pub(crate) fn chosen() -> Target {
    static CHOSEN: LazyLock<Target> = LazyLock::new(|| match std::env::var("BACKWATER_FUZZ_TARGET").as_deref() {
        Ok(name) => named(name).unwrap_or_else(|| panic!("no target is called {name}")),
        Err(_) => panic!("BACKWATER_FUZZ_TARGET names no target"),
    });
    *CHOSEN
}

fn named(name: &str) -> Option<Target> {
    let target: Target = match name {
        "config" => config::run,
        "conninfo" => conninfo::run,
        "console" => console::run,
        "ftdc" => ftdc::run,
        "greeting" => greeting::run,
        "guardian" => guardian::run,
        "journal" => journal::run,
        "kernel" => kernel::run,
        "memory" => memory::run,
        "opening" => opening::run,
        "process" => process::run,
        "proxy_header" => proxy_header::run,
        "recorder" => recorder::run,
        "relay" => relay::run,
        "rows" => rows::run,
        "segment" => segment::run,
        "server_log" => server_log::run,
        "socket" => socket::run,
        "state_file" => state_file::run,
        "statement" => statement::run,
        "tail" => tail::run,
        _ => return None,
    };
    Some(target)
}
