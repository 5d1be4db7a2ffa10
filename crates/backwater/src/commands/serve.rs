//! `backwater serve`: the page live, in a browser, and figures for Prometheus.

use super::source::is_recording;
use crate::args::Sight;
use crate::{signals, terminal, when};
use anyhow::{Context, bail};
use backwater_live::http::{Options, Tls, new_token, serve};
use backwater_live::{Feed, Source, tell_apart};
use backwater_probe::session::{Session, Setup};
use clap::Args;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How often pages learn of something newer.
const REFRESH: Duration = Duration::from_secs(2);
/// How long a viewer may leave what it asked for untaken before it is dropped.
const PATIENCE: Duration = Duration::from_secs(10);

/// The page live in a browser, and figures for Prometheus
#[derive(Args)]
#[command(after_help = "\
It reads only, listens on loopback, and asks whoever looks for the token that it prints. From another machine: ssh -L \
7979:localhost:7979 HOST, or --bind with a certificate. What servers did before it began is in no memory of it: give the \
directory of a recording (also one that is being written) to see further back.

Prometheus scrapes /metrics with the token as `authorization: credentials`; docs/monitoring has alert rules and a dashboard. \
Recordings in directories of one name are called by as much of their paths as tells them apart.

Examples:
  backwater serve                                         this host alone
  backwater serve postgres:///app                         a server, its last ten minutes
  backwater serve postgres:///app rec last-night          a server, and two recordings
  backwater serve /var/lib/mongodb/diagnostic.data        what MongoDB's flight recorder holds
  backwater serve rec --bind 0.0.0.0 --tls-cert c.pem --tls-key k.pem --host-name db1.example")]
pub(crate) struct Arguments {
    /// Servers to watch (postgres://… or a libpq connection string; `host` or nothing for this host alone), and directories of
    /// recordings or of MongoDB's flight recorder. Passwords belong into PGPASSWORD, a password file or a service file, not here
    sources: Vec<String>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    bind: IpAddr,
    /// Port; 0 takes one that is free
    #[arg(long, default_value = "7979")]
    port: u16,
    /// A file with the token that whoever looks must know [default: BACKWATER_TOKEN, else one is made]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Ask for no token: whoever can connect may look. Only on loopback
    #[arg(long, conflicts_with = "token_file")]
    no_token: bool,
    /// Give /metrics to who has no token
    #[arg(long)]
    open_metrics: bool,
    /// A name of this server beside localhost and its addresses
    #[arg(long = "host-name", value_name = "NAME")]
    host_names: Vec<String>,
    /// Certificate in PEM, followed by those that vouch for it
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let others than this host connect without TLS: token and page can then be read on the way
    #[arg(long, conflicts_with = "tls_cert")]
    plain: bool,
    /// How much of the past is remembered and shown: takes about 8 MiB a minute for a busy server
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = when::some_seconds)]
    history: f64,
    #[command(flatten)]
    sight: Sight,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let options = options(arguments)?;
    let (recordings, targets): (Vec<_>, Vec<_>) =
        arguments.sources.iter().cloned().partition(|text| is_recording(text));
    let mut sources = Vec::new();
    // With nothing but recordings nobody asked for this host.
    let session = if targets.is_empty() && !recordings.is_empty() { None } else { Some(watch(arguments, targets)?) };
    if let Some((_, feed)) = &session {
        sources.push(Source::live(feed.clone()));
    }
    for dir in &recordings {
        sources.push(Source::recording(Path::new(dir), arguments.history)?);
    }
    tell_apart(&mut sources);
    // What the page and the label `source` of figures call them.
    let names: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
    let ready = |url: &str| {
        let said = terminal::print(url);
        terminal::note(&format!("serving {} there (Ctrl-C ends it)", names.join(" | ")));
        if let Err(error) = said {
            terminal::error(&error);
        }
    };
    serve(sources, &options, signals::ended()?, ready)?;
    if let Some((session, _)) = session {
        session.stop();
    }
    Ok(ExitCode::SUCCESS)
}

/// A session on these targets, and what it remembers.
fn watch(arguments: &Arguments, targets: Vec<String>) -> anyhow::Result<(Session, Feed)> {
    let setup = Setup {
        targets,
        volumes: arguments.sight.volume.declared()?,
        keep_query_text: arguments.sight.keep_query_text,
        ..Setup::default()
    };
    let (session, batches) = Session::start(setup)?;
    let feed = Feed::of(&session, arguments.history);
    feed.take(batches, None, Some(session.self_readings()))?;
    Ok((session, feed))
}

fn options(arguments: &Arguments) -> anyhow::Result<Options> {
    let loopback = arguments.bind.is_loopback();
    if arguments.no_token && !loopback {
        bail!("--no-token would let everybody look who can reach {}; it is for loopback alone", arguments.bind);
    }
    if !loopback && arguments.tls_cert.is_none() && !arguments.plain {
        bail!(
            "on {} others than this host can connect: give --tls-cert and --tls-key, or --plain where something in front of it \
             encrypts",
            arguments.bind
        );
    }
    let tls = arguments.tls_cert.clone().zip(arguments.tls_key.clone());
    Ok(Options {
        bind: SocketAddr::new(arguments.bind, arguments.port),
        token: if arguments.no_token { None } else { Some(token(arguments.token_file.as_deref())?) },
        host_names: arguments.host_names.clone(),
        tls: tls.map(|(certificate, key)| Tls { certificate, key }),
        open_metrics: arguments.open_metrics,
        refresh: REFRESH,
        patience: PATIENCE,
    })
}

/// The token that was given, or a new one.
fn token(file: Option<&Path>) -> anyhow::Result<String> {
    let given = match file {
        Some(path) => Some(std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?),
        None => std::env::var("BACKWATER_TOKEN").ok(),
    };
    Ok(given.map_or_else(new_token, |text| text.trim().to_owned()))
}
