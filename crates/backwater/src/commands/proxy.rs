//! `backwater proxy`: stand between clients and a PostgreSQL server, and hold low-priority work.

use crate::{signals, terminal};
use anyhow::Context;
use backwater_gate::proxy::{Address, Drained, Proxy, ProxyConfig};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Stand between clients and a PostgreSQL server, and hold low-priority work
#[derive(Args)]
#[command(after_help = "\
Examples:
  backwater proxy --listen 127.0.0.1:6432 --server 127.0.0.1:5432    relay, and hold nothing
  backwater proxy -c proxy.toml                                      with pools, limits and a low-priority bandwidth

A configuration:
  listen = \"127.0.0.1:6432\"
  server = \"127.0.0.1:5432\"
  low_priority_bandwidth = \"64MB\"
  [pools.batch]
  priority = \"low\"
  [users]
  etl = \"batch\"

The first Ctrl-C or SIGTERM lets sessions end between their statements, a second one ends the program at once.")]
pub(crate) struct Arguments {
    /// The configuration
    #[arg(short, long, value_name = "FILE", required_unless_present_all = ["listen", "server"])]
    config: Option<PathBuf>,
    /// Where clients come: HOST:PORT, or the path of a Unix socket; in place of the configuration's
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<Address>,
    /// The server: HOST:PORT, or the path of its socket or of the socket's directory; in place of the configuration's
    #[arg(long, value_name = "ADDRESS")]
    server: Option<Address>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let config = configured(arguments)?;
    let cancel = signals::cancel_flag()?;
    let proxy = Proxy::start(&config)?;
    let addresses: Vec<String> = proxy.addresses().iter().map(Address::to_string).collect();
    terminal::note(&format!("proxy on {} for the server at {}", addresses.join(", "), config.server));
    while !cancel.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(50));
    }
    terminal::note(&format!("letting sessions end for up to {} s", config.limits.drain_timeout_s));
    Ok(match proxy.drain(|| false) {
        Drained::Whole => ExitCode::SUCCESS,
        Drained::BrokenOff => {
            terminal::note("some sessions did not come to an end in time and were broken off");
            ExitCode::from(1)
        }
    })
}

fn configured(arguments: &Arguments) -> anyhow::Result<ProxyConfig> {
    let Some(path) = &arguments.config else {
        let server = arguments.server.clone().context("--server is missing")?;
        let mut config = ProxyConfig::plain(server.clone(), server);
        config.listen.clone_from(&arguments.listen);
        return Ok(config);
    };
    let mut config = ProxyConfig::load(path)?;
    if !arguments.listen.is_empty() {
        config.listen.clone_from(&arguments.listen);
    }
    if let Some(server) = &arguments.server {
        config.server = server.clone();
    }
    Ok(config)
}
