//! `backwater proxy`: stand between clients and a PostgreSQL server, and hold low-priority work.

use super::flow_record::Recorder;
use crate::{signals, terminal};
use anyhow::Context;
use backwater_gate::proxy::{Address, Drained, Proxy, ProxyConfig, Tell};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
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
  [rules.heavy]
  elapsedtime = 60
  bandwidth = 128
  action = \"penalty\"
  [pools.default]
  except_rule = \"heavy\"
  [admin]
  users = { dba = \"a password\" }

The console is the database backwater: psql -h 127.0.0.1 -p 6432 -U dba backwater. There CREATE EXCEPT RULE,
CREATE RESOURCE POOL, SET low_priority_bandwidth and SHOW POOLS, RULES, SESSIONS, EVENTS, CONFIG. With
state_file = \"FILE\" what is changed there survives a restart. SIGHUP reads the configuration again; a bad one changes nothing.

The first Ctrl-C or SIGTERM lets sessions end between their statements, a second one ends the program at once.")]
pub(crate) struct Arguments {
    /// The configuration
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where clients come: HOST:PORT, or the path of a Unix socket; in place of the configuration's
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<Address>,
    /// The server: HOST:PORT, or the path of its socket or of the socket's directory; in place of the configuration's
    #[arg(long, value_name = "ADDRESS")]
    server: Option<Address>,
    /// Record what rules decide, changes of settings, and each second who is held at what rate, into this directory;
    /// `backwater serve DIR` and `backwater report DIR` show it
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Print the reference of statements and settings, and end
    #[arg(long)]
    reference: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.reference {
        terminal::print(backwater_gate::reference().trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let config = configured(arguments)?;
    let cancel = signals::cancel_flag()?;
    let reload = signals::hangup_flag()?;
    let recorder = arguments.record.as_deref().map(Recorder::start).transpose()?;
    let nobody: Tell = Arc::new(|_| ());
    let tell = recorder.as_ref().map_or(nobody, |recorder| Arc::clone(&recorder.tell));
    let proxy = Proxy::start_telling(&config, tell)?;
    if let Some(recorder) = &recorder {
        let mut glance = proxy.glance();
        recorder.watch(Box::new(move || glance.look()));
    }
    terminal::note(&format!("proxy on {} for the server at {}", listed(proxy.addresses()), config.server));
    if !proxy.console_addresses().is_empty() {
        terminal::note(&format!("its console on {}", listed(proxy.console_addresses())));
    }
    while !cancel.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(50));
        if reload.swap(false, Ordering::SeqCst) {
            read_again(&proxy, arguments);
        }
    }
    let drained = proxy.drain(|| false);
    if let Some(recorder) = recorder {
        recorder.stop()?;
    }
    Ok(match drained {
        Drained::Whole => ExitCode::SUCCESS,
        Drained::BrokenOff => ExitCode::from(1),
    })
}

fn listed(addresses: &[Address]) -> String {
    addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(", ")
}

/// Takes over the configuration as it stands now. A bad one changes nothing.
fn read_again(proxy: &Proxy, arguments: &Arguments) {
    if arguments.config.is_none() {
        return terminal::note("there is no configuration file to read again");
    }
    let reloaded = configured(arguments).and_then(|config| Ok(proxy.reload(&config)?));
    match reloaded {
        // That it was read the proxy logs itself.
        Ok(later) if later.is_empty() => {}
        Ok(later) => terminal::note(&format!("{} only from the next start", later.join(", "))),
        Err(error) => proxy.not_reloaded(&terminal::told(&error)),
    }
}

fn configured(arguments: &Arguments) -> anyhow::Result<ProxyConfig> {
    let Some(path) = &arguments.config else {
        let missing = "say where clients come and where the server is, as in --listen 127.0.0.1:6432 --server \
                       127.0.0.1:5432, or name a configuration: -c FILE";
        let server = arguments.server.clone().filter(|_| !arguments.listen.is_empty()).context(missing)?;
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
