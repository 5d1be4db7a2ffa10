//! What is served: each source's document, made when somebody asks and shared by all who do, and word of newer ones.

use crate::metrics::{Format, Pulse, Subject, families, write};
use crate::{LiveError, Source};
use axum::body::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, watch};

/// What is told to Prometheus is of the last minute.
const LATELY_S: f64 = 60.0;

/// A document as it is sent.
pub(super) struct Made {
    at: Instant,
    pub(super) plain: Bytes,
    pub(super) zipped: Bytes,
    /// Whether there will be a newer one.
    pub(super) grows: bool,
}

/// A source with its newest document.
pub(super) struct Shown {
    pub(super) source: Source,
    made: Mutex<Option<Arc<Made>>>,
    news: watch::Sender<u64>,
    refresh: Duration,
    /// Whether more will come of it, as of the last look.
    grows: AtomicBool,
    /// Whether more came of it at any time since it is served.
    grew: AtomicBool,
}

impl Shown {
    fn new(source: Source, refresh: Duration) -> Shown {
        let grows = source.grows();
        Shown {
            source,
            made: Mutex::default(),
            news: watch::Sender::new(0),
            refresh,
            grows: AtomicBool::new(grows),
            grew: AtomicBool::new(grows),
        }
    }

    /// Whether more will come of it, as of the last look: that of the last tick, where somebody follows.
    pub(super) fn grows(&self) -> bool {
        self.grows.load(Ordering::Relaxed)
    }

    /// Looks whether more will come of it. That may read files, which is nothing for the thread that serves everybody.
    async fn look(&self) -> bool {
        let source = self.source.clone();
        match aside(move || Ok(source.grows())).await {
            Ok(grows) => {
                self.grows.store(grows, Ordering::Relaxed);
                self.grew.fetch_or(grows, Ordering::Relaxed);
            }
            Err(error) => tracing::warn!(source = self.source.name, %error, "cannot be looked at"),
        }
        self.grows()
    }

    /// Whether a look could tell anybody anything: those who follow whether more will come, everybody else that more ever did.
    fn is_worth_a_look(&self) -> bool {
        self.news.receiver_count() > 0 || !self.grew.load(Ordering::Relaxed)
    }

    /// Whether it has a present, if only one that has stopped: of a recording that had ended before it was served nobody waits
    /// for news.
    async fn has_present(&self) -> bool {
        self.grew.load(Ordering::Relaxed) || self.look().await
    }

    /// The newest document: that of somebody else, if it is fresh enough, else one that is made now while all others wait for it.
    pub(super) async fn document(self: Arc<Self>) -> Result<Arc<Made>, LiveError> {
        let mut made = self.made.lock().await;
        // One that will never change is made once; a tick that comes a little early is no reason to make it twice.
        if let Some(known) = made.as_ref()
            && (known.at.elapsed() < self.refresh * 3 / 4 || !(known.grows || self.look().await))
        {
            return Ok(Arc::clone(known));
        }
        let source = self.source.clone();
        let new = Arc::new(aside(move || make(&source)).await?);
        *made = Some(Arc::clone(&new));
        Ok(new)
    }

    /// Somebody who wants to know of newer documents.
    pub(super) fn follow(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Tells everybody who follows that there is something newer. Who has not yet heard of the last time hears of this one only.
    fn tell(&self) {
        if self.news.receiver_count() > 0 {
            self.news.send_modify(|number| *number += 1);
        }
    }
}

/// Everything that is served.
pub(super) struct Board {
    pub(super) shown: Vec<Arc<Shown>>,
    metrics: Mutex<Option<(Instant, Arc<Figures>)>>,
    refresh: Duration,
}

/// Figures for Prometheus, as each sort of client takes them.
pub(super) struct Figures {
    open: Bytes,
    plain: Bytes,
}

impl Figures {
    pub(super) fn text(&self, format: Format) -> Bytes {
        match format {
            Format::OpenMetrics => self.open.clone(),
            Format::Plain => self.plain.clone(),
        }
    }
}

impl Board {
    pub(super) fn new(sources: Vec<Source>, refresh: Duration) -> Board {
        let one = |source| Arc::new(Shown::new(source, refresh));
        Board { shown: sources.into_iter().map(one).collect(), metrics: Mutex::default(), refresh }
    }

    /// Tells of newer documents, again and again. While nobody follows, of what had ended only whether it goes on.
    pub(super) async fn tick(&self) {
        let mut ticks = tokio::time::interval(self.refresh);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut grew: Vec<bool> = self.shown.iter().map(|shown| shown.grows()).collect();
        loop {
            ticks.tick().await;
            for (shown, grew) in self.shown.iter().zip(&mut grew) {
                if !shown.is_worth_a_look() {
                    continue;
                }
                let grows = shown.look().await;
                // Once more when it has ended: then it is shown whole.
                if std::mem::replace(grew, grows) || grows {
                    shown.tell();
                }
            }
        }
    }

    /// Figures for Prometheus; several scrapers within a second get the same ones.
    pub(super) async fn metrics(&self) -> Result<Arc<Figures>, LiveError> {
        let mut known = self.metrics.lock().await;
        if let Some((_, figures)) = known.as_ref().filter(|(at, _)| at.elapsed() < Duration::from_secs(1)) {
            return Ok(Arc::clone(figures));
        }
        let mut sources: Vec<(Source, usize)> = Vec::new();
        for shown in &self.shown {
            if shown.has_present().await {
                sources.push((shown.source.clone(), shown.news.receiver_count()));
            }
        }
        let new = Arc::new(aside(move || Ok(figures(&sources))).await?);
        *known = Some((Instant::now(), Arc::clone(&new)));
        Ok(new)
    }
}

/// Work that takes a while, on a thread for such work and behind everything else that the host has to do.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LiveError> + Send + 'static,
) -> Result<T, LiveError> {
    let politely = move || {
        // Of this thread alone, and only ever lower: where it is refused, the work is done all the same.
        let _stays_as_it_is = rustix::process::setpriority_process(None, POLITE);
        work()
    };
    match tokio::task::spawn_blocking(politely).await {
        Ok(done) => done,
        Err(error) => {
            Err(LiveError::System { what: "a document could not be made", source: std::io::Error::other(error) })
        }
    }
}

/// Niceness of those threads.
const POLITE: i32 = 10;

fn make(source: &Source) -> Result<Made, LiveError> {
    let (document, grows) = source.document()?;
    let plain = serde_json::to_vec(&document)?;
    let mut zip = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    let zipped = zip.write_all(&plain).and_then(|()| zip.finish()).map_err(LiveError::system("cannot compress"))?;
    Ok(Made { at: Instant::now(), plain: plain.into(), zipped: zipped.into(), grows })
}

fn figures(sources: &[(Source, usize)]) -> Figures {
    let (mut read, mut viewers, mut down) = (Vec::new(), Vec::new(), Vec::new());
    for (source, looking) in sources {
        match source.lately(LATELY_S) {
            Ok(seen) => {
                let pulse = Pulse::of(&seen.window, seen.now, seen.grows);
                read.push((source.name.as_str(), seen, pulse));
                viewers.push(*looking);
            }
            Err(error) => {
                tracing::warn!(source = source.name, %error, "cannot be read");
                down.push(source.name.as_str());
            }
        }
    }
    let mut subjects = Vec::new();
    for (source, seen, pulse) in &read {
        subjects.push(Subject { source, window: &seen.window, findings: &seen.findings, pulse });
    }
    let families = families(&subjects, &viewers, &down);
    let text = |format| Bytes::from(write(&families, format));
    Figures { open: text(Format::OpenMetrics), plain: text(Format::Plain) }
}
