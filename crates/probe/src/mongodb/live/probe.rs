//! The probe of a live server: serverStatus and the replica set's state each second, the oplog and the log's new lines in
//! between, settings each minute.

use super::link::{AskError, Link};
use super::look::{self, Look};
use super::runtime::Background;
use super::server::{self, Facts, Part};
use super::slow::SlowLog;
use super::tell;
use super::uri::MongoServer;
use crate::host::{Roots, ThreadWaits};
use crate::mongodb::life::Life;
use crate::mongodb::plan::Planner;
use crate::mongodb::state::State;
use crate::{Probe, ProbeError, Sink};
use backwater_model::{Epoch, Moment, Target, Text, catalogue};
use mongodb::bson::doc;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const OPLOG_PERIOD_S: f64 = 10.0;
const SETTINGS_PERIOD_S: f64 = 60.0;

/// Something read less often than each second, or not at all where it was refused for good.
#[derive(Debug)]
struct Due {
    period_s: f64,
    next: Moment,
    off: bool,
}

impl Due {
    fn every(period_s: f64) -> Self {
        Due { period_s, next: Moment(0), off: false }
    }

    /// Whether it is due; if so, the next time is set.
    fn is_due(&mut self, now: Moment) -> bool {
        // A look begins a few milliseconds sooner or later.
        if self.off || now < self.next {
            return false;
        }
        self.next = Moment(now.0 + (self.period_s * 1e6) as i64 - 100_000);
        true
    }
}

/// What is true of one connection.
#[derive(Debug)]
struct Live {
    link: Link,
    facts: Facts,
    members: Due,
    oplog: Due,
    settings: Due,
}

/// Watches one MongoDB server.
pub struct MongoProbe {
    name: String,
    target: String,
    server: MongoServer,
    roots: Roots,
    runtime: Arc<Background>,
    planner: Planner,
    live: Option<Live>,
    /// Whether the facts of the present connection were put down.
    told: bool,
    life: Life,
    settings: BTreeMap<String, String>,
    state: State,
    /// None until the first look, and after it was refused.
    slow: Option<SlowLog>,
    threads: ThreadWaits,
}

impl MongoProbe {
    /// How often a server is looked at; its flight recorder does the same.
    pub(crate) const PERIOD: Duration = Duration::from_secs(1);

    /// Connects, and learns what is to be known of the server. Blocks for as long as connecting takes, and must not be
    /// called from inside an async runtime.
    ///
    /// # Errors
    /// [`ProbeError::Connect`] with what to do next: refused, older than 4.4, no right to serverStatus;
    /// [`ProbeError::Unreached`] where it is away.
    pub fn connect(server: MongoServer, roots: &Roots) -> Result<(MongoProbe, Target), ProbeError> {
        let runtime = Arc::new(Background::start()?);
        let live = runtime.block_on(Live::open(&server, roots))?;
        let target = live.facts.target.clone();
        let probe = MongoProbe {
            name: format!("mongodb.{}", target.name),
            target: target.name.clone(),
            server,
            roots: roots.clone(),
            runtime,
            planner: look::planner(),
            live: Some(live),
            told: false,
            life: Life::default(),
            settings: target.settings.clone(),
            state: State::default(),
            slow: None,
            threads: ThreadWaits::new(roots),
        };
        Ok((probe, target))
    }

    /// Of a router: the members of the shards behind it, to be watched beside it.
    pub fn behind(&self) -> Vec<MongoServer> {
        let shards = self.live.iter().flat_map(|live| &live.facts.shards);
        shards.flat_map(|(shard, hosts)| hosts.iter().filter_map(move |host| self.server.behind(host, shard))).collect()
    }

    async fn look(&mut self, sink: &mut Sink<'_>) -> Result<(), AskError> {
        let mut live = match self.live.take() {
            Some(live) => live,
            None => {
                self.told = false;
                let begun = Instant::now();
                let opened = Live::open(&self.server, &self.roots).await;
                if let Err(error) = &opened {
                    self.put_silence(error, begun, sink);
                }
                opened.map_err(AskError::Lost)?
            }
        };
        if !std::mem::replace(&mut self.told, true) {
            tell::unseen(&self.target, &live.facts.unseen, sink);
            self.adopt_settings(live.facts.target.settings.clone(), sink);
            let (slow, unseen) = SlowLog::find(&live.facts, &self.roots, sink.at);
            tell::unseen(&self.target, unseen.as_slice(), sink);
            self.slow = Some(slow);
        }
        if let Some(pid) = live.facts.pid {
            self.threads.look(pid, &Text::from(self.target.as_str()), sink);
        }
        let result = self.all(&mut live, sink).await;
        // A connection that is lost is made anew at the next look, and the server met anew.
        if !matches!(result, Err(AskError::Lost(_))) {
            self.live = Some(live);
        }
        result
    }

    async fn all(&mut self, live: &mut Live, sink: &mut Sink<'_>) -> Result<(), AskError> {
        let begun = Instant::now();
        let status = live.link.ask(server::STATUS, "admin", server::server_status()).await;
        let took_us = begun.elapsed().as_secs_f64() * 1e6;
        if let Err(AskError::Lost(error)) = &status {
            self.put_silence(error, begun, sink);
        }
        let status = status?;
        let mut look = Look::default();
        look.add("serverStatus", &status);
        let number = |key| ftdc::find(&status, key).and_then(|element| element.integer());
        let uptime_ms = number("uptimeMillis").map(|ms| ms as f64);
        let belongs = self.life.of(&self.target, number("pid"), uptime_ms, sink.at);
        if belongs.restarted {
            tell::restarted(&self.target, sink);
            self.meet_again(live, sink).await?;
        }
        self.put_response(took_us, belongs.epoch, sink);
        // What was read before a connection breaks is kept.
        let rest = self.rest(live, &mut look, sink).await;
        look.put(&self.planner, &self.target, belongs, sink);
        rest
    }

    /// serverStatus takes at least as long as it was waited for: the worst stalls are readings too.
    fn put_silence(&self, error: &ProbeError, begun: Instant, sink: &mut Sink<'_>) {
        let silent = matches!(error, ProbeError::Timeout { what, .. } if *what == server::STATUS);
        if let Some(epoch) = self.life.epoch().filter(|_| silent) {
            self.put_response(begun.elapsed().as_secs_f64() * 1e6, epoch, sink);
        }
    }

    fn put_response(&self, took_us: f64, epoch: Epoch, sink: &mut Sink<'_>) {
        let labels = [("target", self.target.as_str())];
        sink.put(&catalogue::MONGO_PROBE_RESPONSE, &labels, epoch, took_us);
    }

    /// What is asked besides serverStatus.
    async fn rest(&mut self, live: &mut Live, look: &mut Look, sink: &mut Sink<'_>) -> Result<(), AskError> {
        if live.facts.part == Part::Member {
            self.members(live, look, sink).await?;
            self.oplog(live, look, sink).await?;
        }
        if let Some(slow) = &mut self.slow
            && let Some(refused) = slow.look(&self.target, &live.link, sink).await?
        {
            tell::unseen(&self.target, &[refused], sink);
            self.slow = None;
        }
        self.parameters(live, sink).await
    }

    /// Parameters again: they can be changed while the server runs.
    async fn parameters(&mut self, live: &mut Live, sink: &mut Sink<'_>) -> Result<(), AskError> {
        if !live.settings.is_due(sink.at) {
            return Ok(());
        }
        let asked = live.link.ask("getParameter", "admin", server::get_parameters()).await;
        if let Some(answer) = self.answered(server::PARAMETERS, asked, &mut live.settings, &live.link, sink)? {
            self.adopt_settings(server::with_parameters(&live.facts, answer), sink);
        }
        Ok(())
    }

    async fn members(&mut self, live: &mut Live, look: &mut Look, sink: &mut Sink<'_>) -> Result<(), AskError> {
        if !live.members.is_due(sink.at) {
            return Ok(());
        }
        let asked = live.link.ask("replSetGetStatus", "admin", doc! {"replSetGetStatus": 1}).await;
        let Some(answer) = self.answered("members of the replica set", asked, &mut live.members, &live.link, sink)?
        else {
            return Ok(());
        };
        let state = ftdc::find(&answer, "myState").and_then(|state| state.integer());
        if let Some(event) = self.state.take(&self.target, state, sink.at) {
            sink.event(event);
        }
        look.add("replSetGetStatus", &answer);
        Ok(())
    }

    async fn oplog(&mut self, live: &mut Live, look: &mut Look, sink: &mut Sink<'_>) -> Result<(), AskError> {
        if !live.oplog.is_due(sink.at) {
            return Ok(());
        }
        let asked = live.link.ask("collStats of the oplog", "local", doc! {"collStats": "oplog.rs"}).await;
        if let Some(answer) = self.answered("size of the oplog", asked, &mut live.oplog, &live.link, sink)? {
            look.add(look::OPLOG_STATS, &answer);
        }
        Ok(())
    }

    /// An answer, or none where it was refused: for good, then it is said once and not asked again on this connection; or
    /// this time.
    fn answered(
        &self,
        what: &'static str,
        asked: Result<Vec<u8>, AskError>,
        due: &mut Due,
        link: &Link,
        sink: &mut Sink<'_>,
    ) -> Result<Option<Vec<u8>>, AskError> {
        match asked {
            Ok(answer) => Ok(Some(answer)),
            Err(AskError::Lost(error)) => Err(AskError::Lost(error)),
            Err(AskError::Failed(error)) => {
                tracing::debug!(%error, what, "not answered this time");
                Ok(None)
            }
            Err(refusal) => {
                due.off = true;
                tell::unseen(&self.target, &[server::refused(what, refusal, link)], sink);
                Ok(None)
            }
        }
    }

    /// The server was started anew behind a connection that the driver made good again: it may have other settings.
    async fn meet_again(&mut self, live: &mut Live, sink: &mut Sink<'_>) -> Result<(), AskError> {
        live.facts = met(&live.link, &self.server, &self.roots).await.map_err(AskError::Lost)?;
        live.settings.next = Moment(sink.at.0 + (SETTINGS_PERIOD_S * 1e6) as i64);
        // Its log is that of another process now.
        let (slow, unseen) = SlowLog::find(&live.facts, &self.roots, sink.at);
        tell::unseen(&self.target, unseen.as_slice(), sink);
        self.slow = Some(slow);
        self.adopt_settings(live.facts.target.settings.clone(), sink);
        Ok(())
    }

    fn adopt_settings(&mut self, settings: BTreeMap<String, String>, sink: &mut Sink<'_>) {
        tell::settings(&self.target, &self.settings, &settings, sink);
        self.settings = settings;
    }
}

/// A server as it is met, with what a router told of it.
async fn met(link: &Link, server: &MongoServer, roots: &Roots) -> Result<Facts, ProbeError> {
    let mut facts = server::meet(link, &server.name, roots).await?;
    if let Some(shard) = &server.shard {
        server::adopt_shard(&mut facts.target, shard);
    }
    Ok(facts)
}

impl Live {
    async fn open(server: &MongoServer, roots: &Roots) -> Result<Self, ProbeError> {
        let link = Link::new(server)?;
        let facts = met(&link, server, roots).await?;
        let next = Moment(crate::now().0 + (SETTINGS_PERIOD_S * 1e6) as i64);
        let settings = Due { next, off: facts.part == Part::Router, ..Due::every(SETTINGS_PERIOD_S) };
        let members = Due::every(MongoProbe::PERIOD.as_secs_f64());
        Ok(Live { link, facts, members, oplog: Due::every(OPLOG_PERIOD_S), settings })
    }
}

impl std::fmt::Debug for MongoProbe {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("MongoProbe").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Probe for MongoProbe {
    fn name(&self) -> &str {
        &self.name
    }

    fn period(&self) -> Duration {
        MongoProbe::PERIOD
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        let runtime = Arc::clone(&self.runtime);
        runtime.block_on(self.look(sink)).map_err(ProbeError::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_once_a_period_though_looks_waver() {
        let mut due = Due::every(10.0);
        let count = (0..100).filter(|second| due.is_due(Moment(second * 1_000_000 + (second % 3) * 20_000))).count();
        assert_eq!(count, 10);
        due.off = true;
        assert!(!due.is_due(Moment::from_seconds(1_000.0)));
    }
}
