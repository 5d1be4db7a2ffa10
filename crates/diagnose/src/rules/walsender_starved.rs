//! walsender-starved: WAL stands on the primary though the network could carry more: the walsender itself does not fill its
//! socket, because it reads old WAL from a slow disk or gets too little of a processor.

use super::wal_evidence::{Behind, most, of_lag, rate, tcp_figures};
use crate::figures::Figures;
use crate::remedy::replication as remedy;
use crate::replication::{Doing, walsender_activity};
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, RuledOut, Unit, catalogue as cat};

/// Share of its samples in which it must wait for a read of WAL from its files.
const READS: f64 = 0.4;
/// Share of one processor that it must use to be its own limit.
const BUSY: f64 = 0.8;
/// Share of its samples in which it runs or wants to, from which a processor is what it lacks.
const RUNS: f64 = 0.6;

/// The findings of a window: at most one a standby.
pub(super) fn find(scene: &Scene<'_>, all: &[Behind]) -> Vec<Finding> {
    all.iter().filter_map(|behind| of_standby(scene, behind)).collect()
}

fn of_standby(scene: &Scene<'_>, behind: &Behind) -> Option<Finding> {
    let standby = &behind.standby;
    let lag = behind.lags.stream.as_ref()?;
    // Only what stands before the walsender is its own.
    let own = lag.binding.as_ref().is_some_and(|binding| binding.stage.starts_with("walsender@"));
    if !own || standby.hops.send.mean(&lag.range) < standby.hops.in_flight.mean(&lag.range) {
        return None;
    }
    let seen = walsender_activity(scene, standby, &lag.range);
    let share = |test: fn(&Doing) -> bool| seen.as_ref().and_then(|seen| seen.share(test));
    let reads = share(|doing| matches!(doing, Doing::WalRead | Doing::Data));
    let runs = share(|doing| *doing == Doing::Running);
    let cpu = cpu(scene, behind);
    let cause = if reads.is_some_and(|share| share >= READS) {
        "wal-read"
    } else if cpu.mean(&lag.range).is_some_and(|cpu| cpu >= BUSY) || runs.is_some_and(|share| share >= RUNS) {
        "cpu"
    } else {
        "unknown"
    };
    let mut finding = of_lag(scene, behind, "walsender-starved", cause, "send", lag);
    finding.confidence = if cause == "unknown" { Confidence::Low } else { Confidence::Medium };
    let mut figures = Figures::default();
    figures.add("wal_read_ratio", reads, Unit::Ratio, "time in which the walsender waited for reads of WAL");
    figures.add("walsender_cpu_ratio", cpu.mean(&lag.range), Unit::Ratio, "of one processor, used by the walsender");
    finding.evidence.extend(figures.list());
    finding.evidence.extend(tcp_figures(standby, &lag.range));
    finding.summary = format!(
        "The walsender of standby {} sends {} while {} is made, and its socket has room: up to {} waited unsent.{}",
        standby.name,
        rate(&standby.hops.sent_rate, &lag.range),
        rate(&standby.hops.flushed_rate, &lag.range),
        most(&standby.hops.send, &lag.range),
        match cause {
            "wal-read" => " It reads WAL that has left the page cache, from disk.",
            "cpu" => " It is on a processor, or wants to be, all the time.",
            _ => "",
        },
    );
    let tcp = standby.tcp.shares(&lag.range);
    let because =
        tcp.map(|tcp| format!("the connection had nothing to send {} of the time", Unit::Ratio.show(1.0 - tcp.busy)));
    finding.ruled_out =
        because.map(|because| RuledOut { cause: "network-narrow".to_owned(), because }).into_iter().collect();
    finding.remedies = remedy::of_walsender(scene, standby, cause);
    Some(finding)
}

/// Processor time of the standby's walsender, seconds a second.
fn cpu(scene: &Scene<'_>, behind: &Behind) -> crate::grid::Lane {
    let standby = &behind.standby;
    let Some(primary) = standby.primary.as_deref() else { return scene.grid.unknown() };
    let labels = [("target", primary), ("standby", standby.name.as_str())];
    let pid = scene.window.track(cat::PG_REPL_PID.name, &labels).and_then(backwater_model::Track::last);
    let Some(pid) = pid.map(|pid| (pid as i64).to_string()) else { return scene.grid.unknown() };
    scene.grid.rate(scene.window.track(cat::PROC_CPU.name, &[("target", primary), ("pid", &pid)]))
}
