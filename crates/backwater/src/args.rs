//! Arguments that several subcommands share.

use crate::{terminal, when};
use anyhow::bail;
use backwater_model::{DeclaredVolume, Meta, Moment};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to watch.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Watched {
    /// Servers to watch beside this host: postgres://…, mongodb://… or a libpq connection string; `host` (or nothing) for
    /// this host alone. Passwords belong into PGPASSWORD, MONGODB_PASSWORD, a password file or a service file, not here
    pub(crate) targets: Vec<String>,
    #[command(flatten)]
    pub(crate) sight: Sight,
}

/// What to look at: a recording, or a live system for a while.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Looked {
    /// The directory of a recording; or servers to watch for a while: postgres://…, mongodb://… or a libpq connection
    /// string, `host` (or nothing) for this host alone. Passwords belong into PGPASSWORD, MONGODB_PASSWORD, a password file
    /// or a service file, not here
    pub(crate) targets: Vec<String>,
    #[command(flatten)]
    pub(crate) stretch: Stretch,
    #[command(flatten)]
    pub(crate) live: Live,
    #[command(flatten)]
    pub(crate) beside: Beside,
    #[command(flatten)]
    pub(crate) sight: Sight,
}

/// What is to be known of a live system, and what may be kept of it.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Sight {
    #[command(flatten)]
    pub(crate) volume: VolumeArguments,
    /// Keep query texts as they stand, literals included (they are removed unless this is given)
    #[arg(long)]
    pub(crate) keep_query_text: bool,
    /// Look at a server's sessions so often, from every 10ms to every 1s: what is shorter is seen rarely, and each look costs
    /// the server [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = look_period)]
    pub(crate) sessions_every: Option<f64>,
    /// Ask a server at every look. Otherwise its sessions are read in its shared memory, and it is asked once a second, where
    /// backwater runs on its host and may read its processes' memory, as root may: that costs it next to nothing
    #[arg(long)]
    pub(crate) no_shared_memory: bool,
}

impl Sight {
    /// How often sessions are looked at, where told.
    pub(crate) fn session_period(&self) -> Option<Duration> {
        self.sessions_every.map(Duration::from_secs_f64)
    }
}

/// What a look costs bounds it on one side; the readings beside sessions, one a second, on the other.
fn look_period(text: &str) -> Result<f64, String> {
    let seconds = when::seconds(text).map_err(|error| error.to_string())?;
    if (0.01..=1.0).contains(&seconds) { Ok(seconds) } else { Err("give 10ms to 1s".to_owned()) }
}

/// A volume's rating, which no guest can see.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct VolumeArguments {
    /// I/O operations a second the data volume is rated for
    #[arg(long, value_name = "N")]
    pub(crate) volume_iops: Option<f64>,
    /// Bytes a second the data volume is rated for, such as 250MiB
    #[arg(long, value_name = "BYTES")]
    pub(crate) volume_bps: Option<String>,
    /// I/O operations a second while the data volume's burst credit lasts
    #[arg(long, value_name = "N")]
    pub(crate) burst_iops: Option<f64>,
    /// A TOML file with a [[volume]] for each: device (or mount point), iops, bytes_per_s, burst_iops
    #[arg(long, value_name = "FILE")]
    pub(crate) volumes: Option<PathBuf>,
}

impl VolumeArguments {
    /// The ratings told.
    pub(crate) fn declared(&self) -> anyhow::Result<Vec<DeclaredVolume>> {
        let mut list = self.volumes.as_deref().map(volumes_in).transpose()?.unwrap_or_default();
        let bytes_per_s = match &self.volume_bps {
            Some(text) => Some(text.trim_end_matches("/s").parse::<backwater_model::Bytes>()?.0 as f64),
            None => None,
        };
        if self.volume_iops.is_some() || bytes_per_s.is_some() || self.burst_iops.is_some() {
            list.push(DeclaredVolume {
                device: None,
                iops: self.volume_iops,
                bytes_per_s,
                burst_iops: self.burst_iops,
            });
        }
        list.iter().try_for_each(possible)?;
        Ok(list)
    }
}

/// A rating that no volume has is a slip, and every figure that rests on it would be wrong.
fn possible(volume: &DeclaredVolume) -> anyhow::Result<()> {
    let whose = volume.device.as_deref().unwrap_or("the data volume");
    let figures = [("iops", volume.iops), ("bytes_per_s", volume.bytes_per_s), ("burst_iops", volume.burst_iops)];
    for (what, value) in figures.into_iter().filter_map(|(what, value)| Some((what, value?))) {
        if !(value > 0.0 && value.is_finite()) {
            bail!("{whose}: {what} cannot be {value}: give what the volume is rated for, more than 0 a second");
        }
    }
    match volume.iops.zip(volume.burst_iops) {
        Some((iops, burst)) if burst < iops => bail!(
            "{whose}: burst_iops {burst} is less than iops {iops}: give the higher rate that it may have for a while"
        ),
        _ => Ok(()),
    }
}

fn volumes_in(path: &Path) -> anyhow::Result<Vec<DeclaredVolume>> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        volume: Vec<DeclaredVolume>,
    }
    let text =
        std::fs::read_to_string(path).map_err(|error| anyhow::anyhow!("cannot read {}: {error}", path.display()))?;
    let file: File = toml::from_str(&text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    Ok(file.volume)
}

/// How long a live system is watched unless told otherwise, in seconds.
const WATCHED_S: f64 = 30.0;

/// How to look at a live system.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Live {
    /// How long to watch a live system, such as 5min [default: 30s]
    #[arg(long = "for", value_name = "TIME", value_parser = when::some_seconds)]
    seconds: Option<f64>,
}

impl Live {
    /// How long to watch, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(WATCHED_S)
    }

    /// Whether a time was given.
    pub(crate) fn is_given(&self) -> bool {
        self.seconds.is_some()
    }
}

/// Which part of a recording.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Stretch {
    /// From when: 03:10, '2026-11-21 03:10', -10min (before the end)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) from: Option<String>,
    /// Until when, spelled likewise
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) to: Option<String>,
}

impl Stretch {
    /// The moments meant, in a recording that spans `span`.
    pub(crate) fn moments(&self, meta: &Meta, span: (Moment, Moment)) -> anyhow::Result<(Moment, Moment)> {
        let from = self.from.as_deref().map(|text| when::parse(text, meta, span)).transpose()?.unwrap_or(span.0);
        let to = self.to.as_deref().map(|text| when::parse(text, meta, span)).transpose()?.unwrap_or(span.1);
        if from >= to && self.from.is_some() && self.to.is_some() {
            bail!("--from is not before --to; the recording spans {} of time", span_text(span));
        }
        if to < span.0 || from > span.1 || from > to {
            bail!("nothing was recorded in that time; {}", recorded_text(meta, span));
        }
        if (self.from.is_some() && from < span.0) || (self.to.is_some() && to > span.1) {
            terminal::note(&format!("only a part of that time was recorded: {}", recorded_text(meta, span)));
        }
        Ok((from.max(span.0), to.min(span.1)))
    }
}

/// What lies beside MongoDB's flight recorder.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Beside {
    /// Beside MongoDB's flight recorder: the same server's log file, whose slow operations then stand on the same axis.
    /// Again for each file that was rotated
    #[arg(long = "log", value_name = "FILE")]
    pub(crate) logs: Vec<PathBuf>,
}

impl Beside {
    /// Refuses log files beside something that has none.
    pub(crate) fn refuse(&self) -> anyhow::Result<()> {
        match self.logs.first() {
            Some(log) => bail!(
                "--log {} goes with MongoDB's flight recorder (a diagnostic.data): a recording holds what was in the log, \
                 and the log of a server that is watched is read by itself",
                log.display()
            ),
            None => Ok(()),
        }
    }
}

fn span_text(span: (Moment, Moment)) -> String {
    backwater_model::Unit::Seconds.show(span.1.seconds_since(span.0))
}

fn recorded_text(meta: &Meta, span: (Moment, Moment)) -> String {
    let wall = |at| meta.unix_us(at).and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
    match (wall(span.0), wall(span.1)) {
        (Some(from), Some(to)) => format!("the recording spans {from:.0} to {to:.0}"),
        _ => format!("the recording spans {}", span_text(span)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::ClockAnchor;

    #[test]
    fn sessions_are_looked_at_a_hundred_times_a_second_at_most() {
        assert_eq!((look_period("10ms"), look_period("1s")), (Ok(0.01), Ok(1.0)));
        for text in ["9ms", "0", "2s", "often"] {
            assert!(look_period(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_was_not_recorded_is_not_examined() {
        let span = (Moment::from_seconds(1_000.0), Moment::from_seconds(1_060.0));
        let moments = |from: Option<&str>, to: Option<&str>| {
            let stretch = Stretch { from: from.map(str::to_owned), to: to.map(str::to_owned) };
            stretch.moments(&Meta::default(), span)
        };
        assert_eq!(moments(None, None).unwrap(), span);
        assert_eq!(moments(Some("-10min"), None).unwrap(), span);
        assert_eq!(moments(Some("-30s"), Some("-10s")).unwrap().1, Moment::from_seconds(1_050.0));
        assert!(moments(Some("-10s"), Some("-30s")).is_err());
        assert!(moments(None, Some("-3h")).unwrap_err().to_string().contains("nothing was recorded in that time"));
        let error = moments(Some("-3h"), Some("-2h")).unwrap_err().to_string();
        assert!(error.contains("nothing was recorded") && error.contains("spans"), "{error}");
    }

    #[test]
    fn times_of_day_the_wrong_way_round_are_refused_also_where_the_recording_ends_before_both() {
        let end = Moment::from_seconds(1_000.0);
        let anchor = ClockAnchor { boot: end, unix_us: 1_795_262_400_000_000 };
        let meta = Meta { anchors: vec![anchor], ..Meta::default() };
        let wall = jiff::Timestamp::from_microsecond(anchor.unix_us).unwrap().to_zoned(jiff::tz::TimeZone::system());
        let time =
            |minutes: i64| Some(wall.checked_add(jiff::Span::new().minutes(minutes)).unwrap().time().to_string());
        let moments = |from: i64, to: i64| {
            let stretch = Stretch { from: time(from), to: time(to) };
            stretch.moments(&meta, (Moment::from_seconds(580.0), end))
        };
        assert!(moments(3, -2).unwrap_err().to_string().contains("--from is not before --to"));
        assert_eq!(moments(-2, 3).unwrap(), (Moment::from_seconds(880.0), end));
    }

    #[test]
    fn a_rating_that_no_volume_has_is_refused() {
        let told = |volume_iops, volume_bps: &str, burst_iops| {
            let volume_bps = Some(volume_bps.to_owned()).filter(|text| !text.is_empty());
            VolumeArguments { volume_iops, volume_bps, burst_iops, volumes: None }.declared()
        };
        assert_eq!(told(Some(3_000.0), "125MiB", Some(6_000.0)).unwrap()[0].iops, Some(3_000.0));
        for (iops, bps, burst) in [
            (Some(-5.0), "", None),
            (Some(0.0), "", None),
            (Some(f64::NAN), "", None),
            (None, "0B", None),
            (None, "", Some(f64::INFINITY)),
        ] {
            let error = told(iops, bps, burst).unwrap_err().to_string();
            assert!(error.contains("more than 0"), "{error}");
        }
        let error = told(Some(3_000.0), "", Some(300.0)).unwrap_err().to_string();
        assert!(error.contains("less than iops"), "{error}");
    }
}
