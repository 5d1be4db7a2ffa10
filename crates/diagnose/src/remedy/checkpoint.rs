//! Settings of PostgreSQL that change how its writes reach the kernel.

use backwater_model::{Activation, Figure, Remedy, Target};

/// A change of settings of one server, or of one whose values are unknown. The way back is the value in force: a RESET would
/// drop a value that somebody had set by ALTER SYSTEM before, and is left for where none was read.
pub(super) fn setting(
    target: Option<&Target>,
    title: String,
    changes: &[(&str, String)],
    predicted: Vec<Figure>,
    risk: &str,
) -> Remedy {
    let set = changes.iter().map(|(name, value)| format!("ALTER SYSTEM SET {name} = '{value}';"));
    let before = |name: &str| target.and_then(|target| target.settings.get(name)).filter(|value| !value.is_empty());
    let back = changes.iter().map(|(name, _)| match before(name) {
        Some(value) => format!("ALTER SYSTEM SET {name} = '{}';", value.replace('\'', "''")),
        None => format!("ALTER SYSTEM RESET {name};"),
    });
    let reload = || std::iter::once("SELECT pg_reload_conf();".to_owned());
    Remedy {
        title,
        // ALTER SYSTEM writes postgresql.auto.conf: the running form and the lasting one are the same.
        runtime: set.clone().chain(reload()).collect(),
        persistent: set.collect(),
        activation: Activation::Reload,
        undo: back.chain(reload()).collect(),
        predicted,
        risk: risk.to_owned(),
    }
}

/// Has PostgreSQL itself push its writes out in small pieces (https://www.postgresql.org/docs/current/runtime-config-wal.html,
/// checkpoint_flush_after and its siblings).
pub(crate) fn flush_after(target: Option<&Target>) -> Remedy {
    setting(
        target,
        "Have PostgreSQL push its own writes out in small pieces".to_owned(),
        &[
            ("backend_flush_after", "256kB".to_owned()),
            ("bgwriter_flush_after", "512kB".to_owned()),
            ("checkpoint_flush_after", "256kB".to_owned()),
        ],
        Vec::new(),
        "Sessions that write their own buffers then wait for the device, and blocks written twice in a short time are \
         no longer merged in the page cache: on a slow device mean throughput can fall.",
    )
}

/// Spreads the writes of a checkpoint over more of its interval.
pub(crate) fn spread(target: Option<&Target>) -> Option<Remedy> {
    let now = target.and_then(|target| target.settings.get("checkpoint_completion_target"));
    let now: f64 = now.and_then(|text| text.parse().ok()).unwrap_or(0.9);
    (now < 0.85).then(|| {
        setting(
            target,
            format!("Spread the writes of a checkpoint over 90 % of its interval (now {:.0} %)", now * 100.0),
            &[("checkpoint_completion_target", "0.9".to_owned())],
            Vec::new(),
            "WAL is kept a little longer, and recovery after a crash takes a little longer.",
        )
    })
}

/// Makes checkpoints rarer by room for more WAL.
pub(crate) fn more_wal(target: Option<&Target>, bytes: f64, predicted: Vec<Figure>) -> Remedy {
    let mib = (bytes / 1_048_576.0).ceil();
    setting(
        target,
        format!("Give WAL {mib:.0} MB of room between checkpoints"),
        &[("max_wal_size", format!("{mib:.0}MB"))],
        predicted,
        "pg_wal takes that much more space, and recovery after a crash takes longer.",
    )
}

/// Pushes a checkpoint's writes out as it makes them, so that its syncs find little left.
pub(crate) fn checkpoint_flush(target: Option<&Target>) -> Remedy {
    setting(
        target,
        "Have each checkpoint push its writes out as it goes".to_owned(),
        &[("checkpoint_flush_after", "256kB".to_owned())],
        Vec::new(),
        "Little: it is the default on Linux. Writes of the sessions themselves still gather in the page cache.",
    )
}
