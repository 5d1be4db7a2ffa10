//! What the server itself says of its sessions, by a connection of the proxy's own: locks that are waited for, temporary
//! files, WAL, and of those that are encrypted through to it all that they do; and what only the server can do: end a session, make
//! a role. Without `[server_account]` there is none of it,
//! and rules that need it are told to be blind.
//!
//! The server is asked only while a rule looks at such a figure or a session is held. Figures older than [`STALE`] count as
//! not known.

use super::control::Control;
use super::hidden::{self, Activity};
use super::live::{Identity, Live};
use super::orders::{AWAY, Made, Order, ROLE_WITHIN, carry_out};
use super::reach::reach;
use super::worker::Phase;
use crate::in_line::WAITS_BESIDES;
use crate::{GateError, clock};
use backwater_flow::rule::{Attribute, Rule};
use backwater_model::{Moment, Span};
use serde::Deserialize;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_postgres::{Client, NoTls, Row};

/// How often the server is asked, and for how long what it said is believed.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const STALE: Span = Span::from_millis(2_000);
/// How old a process is, is told a moment after it was asked: so much later at most.
pub(super) const SLACK: Span = Span::from_millis(5_000);
/// A server that is away is tried again after this; an answer is waited for so long.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// `application_name` of the connection.
const NAME: &str = "backwater-proxy";
/// The release from which a server tells the WAL of each session.
const TELLS_WAL: i32 = 180_000;

/// `[server_account]`: who the proxy is to the server.
#[derive(Clone, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ServerAccount {
    pub(super) user: String,
    #[serde(default)]
    password: String,
    #[serde(default = "maintenance_database")]
    database: String,
}

fn maintenance_database() -> String {
    "postgres".to_owned()
}

impl std::fmt::Debug for ServerAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServerAccount({} in {})", self.user, self.database)
    }
}

/// What the server said of one session.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    /// When it was asked: what it says may be of the statement that ran then.
    pub(super) asked_at: Moment,
    /// Process ids of those that hold what it waits for.
    pub(super) blocked_by: Vec<i32>,
    pub(super) spill_bytes: Option<f64>,
    /// WAL that it wrote since it began.
    pub(super) wal_bytes: Option<f64>,
    /// What it does, where sessions are asked for that only the server sees.
    pub(super) activity: Option<Activity>,
}

/// The view. One for a proxy.
pub(super) struct ServerView {
    inner: Mutex<Inner>,
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Default)]
struct Inner {
    /// The server's release, while there is a connection.
    version: Option<i32>,
    told_at: Option<Moment>,
    told: HashMap<i32, Told>,
    /// Processes by our end of their connection; of several the youngest, since an old one may not know yet that it has no client.
    by_our_end: HashMap<SocketAddr, i32>,
}

/// What is to be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Wanted {
    locks: bool,
    spill: bool,
    wal: bool,
    hidden: bool,
}

/// The end that carries orders out.
pub(super) struct Orders(mpsc::UnboundedReceiver<Order>);

impl ServerView {
    pub(super) fn new() -> (ServerView, Orders) {
        let (orders, ordered) = mpsc::unbounded_channel();
        (ServerView { inner: Mutex::default(), orders }, Orders(ordered))
    }

    /// The server's release; None while there is no connection.
    pub(super) fn version(&self) -> Option<i32> {
        self.lock().version
    }

    /// What the server said of a session, by its process id; None where that is not known, or too old.
    pub(super) fn told(&self, pid: i32, now: Moment) -> Option<Told> {
        let inner = self.lock();
        inner.told_at.filter(|at| now - *at < STALE)?;
        inner.told.get(&pid).cloned()
    }

    /// When the server told what is believed now.
    pub(super) fn told_at(&self, now: Moment) -> Option<Moment> {
        self.lock().told_at.filter(|at| now - *at < STALE)
    }

    /// The same of a session whose messages nobody sees, with its process.
    pub(super) fn told_of_hidden(&self, live: &Live, now: Moment) -> Option<(i32, Told)> {
        let our_end = live.identity.our_end?;
        let inner = self.lock();
        inner.told_at.filter(|at| now - *at < STALE)?;
        let pid = *inner.by_our_end.get(&our_end)?;
        let told = inner.told.get(&pid)?;
        // One that was there before this connection is of another that had the same port.
        let age = told.activity.as_ref()?.session_age;
        (told.asked_at - age >= live.identity.server_since - SLACK).then(|| (pid, told.clone()))
    }

    /// Cancels the statement that a session ran when it was asked, or ends the session: where the server still finds that one.
    pub(super) fn stop(&self, pid: i32, activity: &Activity, whole_session: bool) {
        let Activity { began_us, statement_us, .. } = *activity;
        // An error means that the proxy is ending.
        let _ = self.orders.send(Order::Stop { pid, began_us, statement_us, whole_session });
    }

    /// Ends a session whose process is said to be this one: where the server has that one for it.
    pub(super) fn terminate(&self, pid: i32, of: &Identity) {
        // What comes by a Unix socket has this for a port.
        let our_port = of.our_end.map_or(-1, |end| i32::from(end.port()));
        // An error means that the proxy is ending.
        let _ = self.orders.send(Order::Terminate { pid, our_port, since: of.server_since });
    }

    /// Makes a role that may log in. As an error what the server said.
    pub(super) async fn make_role(&self, user: &str, password: Option<&str>) -> Result<Made, String> {
        let (user, password) = (user.to_owned(), password.map(str::to_owned));
        self.order(|done| Order::MakeRole { user, password, done }).await
    }

    /// Gives a role another password.
    pub(super) async fn set_password(&self, user: &str, password: &str) -> Result<Made, String> {
        let (user, password) = (user.to_owned(), password.to_owned());
        self.order(|done| Order::SetPassword { user, password, done }).await
    }

    /// Whether there is a role of this name. As an error what the server said.
    pub(super) async fn find_role(&self, user: &str) -> Result<Made, String> {
        let user = user.to_owned();
        // What is told of it is a courtesy, for which nobody waits long.
        let found = tokio::time::timeout(ROLE_WITHIN, self.order(|done| Order::FindRole { user, done })).await;
        found.unwrap_or_else(|_| Err(AWAY.to_owned()))
    }

    async fn order(&self, order: impl FnOnce(oneshot::Sender<Result<Made, String>>) -> Order) -> Result<Made, String> {
        const UNKNOWN: &str = "no answer came of the server: see whether the role is so already before you try again";
        if self.version().is_none() {
            return Err(AWAY.to_owned());
        }
        let (done, answer) = oneshot::channel();
        if self.orders.send(order(done)).is_err() {
            return Err(AWAY.to_owned());
        }
        match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(answer)) => answer,
            _ => Err(UNKNOWN.to_owned()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Attributes of rules that only the server can tell, and since which release.
pub(super) fn tells(attribute: Attribute, version: Option<i32>) -> bool {
    match attribute {
        Attribute::SpillSize => version.is_some(),
        Attribute::WalRate | Attribute::WalSize => version.is_some_and(|version| version >= TELLS_WAL),
        _ => false,
    }
}

/// Starts the thread. It ends with the proxy.
pub(super) fn start(control: Arc<Control>, orders: Orders, mut phase: watch::Receiver<Phase>) -> Result<(), GateError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().enable_time().build().map_err(GateError::system("start the server's view"))?;
    let looking = async move {
        tokio::select! {
            biased;
            // An error means that the proxy was dropped, which is the same.
            _ = phase.wait_for(|phase| *phase == Phase::Ending) => {}
            () = look_on(&control, orders) => {}
        }
    };
    let thread = std::thread::Builder::new().name("server-view".to_owned());
    thread.spawn(move || runtime.block_on(looking)).map_err(GateError::system("start the server's view"))?;
    Ok(())
}

async fn look_on(control: &Control, Orders(mut orders): Orders) {
    // What was complained of last: once is enough, it is tried again and again.
    let mut complained: Option<String> = None;
    loop {
        let terms = control.terms();
        if let Some(account) = &terms.server_account {
            match connect(control, account).await {
                Ok((client, version)) => {
                    tracing::info!(version, "the server tells of its sessions");
                    control.server_view.lock().version = Some(version);
                    let why = serve(control, account, &client, version, &mut orders).await;
                    *control.server_view.lock() = Inner::default();
                    complain(why, &mut complained);
                }
                Err(why) => complain(why, &mut complained),
            }
        }
        drop(terms);
        tokio::time::sleep(AGAIN_AFTER).await;
        refuse_all(&mut orders);
    }
}

/// What was ordered before the server was known to be away.
fn refuse_all(orders: &mut mpsc::UnboundedReceiver<Order>) {
    while let Ok(order) = orders.try_recv() {
        order.refuse();
    }
}

fn complain(why: String, before: &mut Option<String>) {
    if before.as_ref() != Some(&why) {
        tracing::warn!("the server tells nothing of its sessions: {why}");
        *before = Some(why);
    }
}

async fn connect(control: &Control, account: &ServerAccount) -> Result<(Client, i32), String> {
    let terms = control.terms();
    let mut config = tokio_postgres::Config::new();
    config.user(&account.user).dbname(&account.database).application_name(NAME);
    if !account.password.is_empty() {
        config.password(&account.password);
    }
    let stream = reach(&terms).await.map_err(|error| error.to_string())?;
    let connected = async {
        // Whatever encryption there is has been agreed upon already.
        let (client, connection) = config.connect_raw(stream, NoTls).await?;
        // Its end shows in the next answer.
        drop(tokio::spawn(connection));
        let row = client.query_one("SELECT current_setting('server_version_num')::int4", &[]).await?;
        Ok::<_, tokio_postgres::Error>((client, row.try_get(0)?))
    };
    match tokio::time::timeout(terms.limits.login_timeout(), connected).await {
        Ok(connected) => connected.map_err(|error| reason(&error)),
        Err(_) => Err("it does not answer".to_owned()),
    }
}

/// Asks and carries out orders until the connection breaks, or the configuration names another account. Why it ended.
async fn serve(
    control: &Control,
    account: &ServerAccount,
    client: &Client,
    version: i32,
    orders: &mut mpsc::UnboundedReceiver<Order>,
) -> String {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(order) = orders.recv() => {
                if tokio::time::timeout(ANSWER_WITHIN, carry_out(client, order)).await.is_err() {
                    return "it does not answer".to_owned();
                }
            }
            _ = ticks.tick() => {
                if control.terms().server_account.as_ref() != Some(account) {
                    return "the configuration has another account".to_owned();
                }
                let wanted = wanted(control, version);
                if wanted == Wanted::default() {
                    if client.is_closed() {
                        return "its connection ended".to_owned();
                    }
                    continue;
                }
                let asked_at = clock::now();
                match tokio::time::timeout(ANSWER_WITHIN, client.query(&sql(wanted), &[])).await {
                    Ok(Ok(rows)) => {
                        let told: HashMap<i32, Told> = rows.iter().filter_map(|row| told(row, asked_at)).collect();
                        let (by_our_end, told_at) = (by_our_end(&told), Some(clock::now()));
                        let mut inner = control.server_view.lock();
                        *inner = Inner { told, by_our_end, told_at, version: inner.version };
                    }
                    Ok(Err(error)) => return reason(&error),
                    Err(_) => return "it does not answer".to_owned(),
                }
            }
        }
    }
}

/// What rules look at now. Locks also matter while somebody is in the low class who may have one.
fn wanted(control: &Control, version: i32) -> Wanted {
    let terms = control.terms();
    let looks = |rule: &Rule, at: Attribute| matches!(rule.thresholds.get(&at), Some(Some(_)));
    let any = |at: Attribute| terms.state.rules().values().any(|rule| looks(rule, at));
    let sessions = control.sessions();
    let blocks = sessions.iter().any(|live| live.is_low()) && sessions.iter().any(|live| !live.is_low());
    let has_rules = |pool: &str| terms.state.rules_of(pool).next().is_some();
    Wanted {
        locks: any(Attribute::BlockTime) || blocks,
        spill: any(Attribute::SpillSize),
        wal: version >= TELLS_WAL && (any(Attribute::WalRate) || any(Attribute::WalSize)),
        hidden: sessions.iter().any(|live| live.is_encrypted_through() && (blocks || has_rules(&live.pool.name))),
    }
}

/// One row a client session, and who else may stand in line between two. What costs more is asked for only where it is wanted.
fn sql(wanted: Wanted) -> String {
    let locks = match wanted.locks {
        true => "CASE WHEN a.wait_event_type = 'Lock' THEN pg_catalog.pg_blocking_pids(a.pid) ELSE '{}'::int4[] END",
        false => "'{}'::int4[]",
    };
    // One look at the directory for all of them.
    let (spilled, files) = match wanted.spill {
        true => (
            "coalesce(f.bytes, 0)",
            "LEFT JOIN (SELECT substring(name FROM '^pgsql_tmp([0-9]+)[.]')::int4 AS pid, sum(size)::float8 AS bytes \
             FROM pg_catalog.pg_ls_tmpdir() GROUP BY 1) f ON f.pid = a.pid ",
        ),
        false => ("NULL::float8", ""),
    };
    let wal = match wanted.wal {
        true => "(SELECT wal_bytes::float8 FROM pg_catalog.pg_stat_get_backend_wal(a.pid))",
        false => "NULL::float8",
    };
    let hidden = if wanted.hidden { format!(", {}", hidden::columns()) } else { String::new() };
    format!(
        "SELECT a.pid, {locks}, {spilled}, {wal}{hidden} FROM pg_catalog.pg_stat_activity a {files}\
         WHERE coalesce(a.backend_type, 'client backend') = 'client backend' OR {WAITS_BESIDES} /* backwater */"
    )
}

fn told(row: &Row, asked_at: Moment) -> Option<(i32, Told)> {
    let told = Told {
        asked_at,
        blocked_by: row.try_get(1).ok()?,
        spill_bytes: row.try_get(2).ok()?,
        wal_bytes: row.try_get(3).ok()?,
        activity: (row.len() > 4).then(|| Activity::read(row, 4)).flatten(),
    };
    Some((row.try_get(0).ok()?, told))
}

fn by_our_end(told: &HashMap<i32, Told>) -> HashMap<SocketAddr, i32> {
    let mut ends: Vec<(i64, SocketAddr, i32)> = Vec::new();
    ends.extend(told.iter().filter_map(|(pid, told)| told.activity.as_ref().map(|a| (a.began_us, a.our_end, *pid))));
    // The last of several with one end stays.
    ends.sort_unstable();
    ends.into_iter().map(|(_, end, pid)| (end, pid)).collect()
}

/// What the server said, or why it cannot be spoken to. Never a password: neither holds one.
pub(super) fn reason(error: &tokio_postgres::Error) -> String {
    let cause =
        || std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
    error.as_db_error().map_or_else(cause, |said| format!("{} [{}]", said.message(), said.code().code()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::ProxyConfig;
    use super::*;
    use backwater_flow::statement::parse;

    #[test]
    fn what_costs_is_asked_for_only_where_it_is_wanted() {
        let nothing = sql(Wanted::default());
        let costs = ["pg_blocking_pids", "tmpdir", "wal_bytes", "query_start"];
        assert!(costs.iter().all(|word| !nothing.contains(word)), "{nothing}");
        let all = sql(Wanted { locks: true, spill: true, wal: true, hidden: true });
        assert!(costs.iter().all(|word| all.contains(word)), "{all}");
    }

    #[test]
    fn an_order_that_was_never_sent_is_known_not_to_be_done() {
        let (view, Orders(mut orders)) = ServerView::new();
        view.lock().version = Some(TELLS_WAL);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let told = runtime.block_on(async {
            let refused = async {
                while orders.is_empty() {
                    tokio::task::yield_now().await;
                }
                refuse_all(&mut orders);
            };
            tokio::join!(view.make_role("u", None), refused).0
        });
        assert_eq!(told, Err(AWAY.to_owned()));
        drop(orders);
        assert_eq!(runtime.block_on(view.set_password("u", "s3cret")), Err(AWAY.to_owned()));
    }

    #[test]
    fn a_role_is_noted_before_the_server_is_asked_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let written =
            "listen = 'a:1'\nserver = 'b:2'\nstate_file = 'state.toml'\n[server_account]\nuser = 'u'\n[pools.p]\n";
        let config = ProxyConfig::parse(written, &dir.path().join("proxy.toml")).unwrap();
        let (view, Orders(mut orders)) = ServerView::new();
        view.lock().version = Some(TELLS_WAL);
        let (visits, _visited) = mpsc::unbounded_channel();
        let control = Control::new(&config, Arc::new(|_| ()), visits, view, None);
        let statements = parse("CREATE USER r RESOURCE POOL p").unwrap();
        let is_kept = || config.restored().unwrap().state.users().contains_key("r");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for answer in [Err("no".to_owned()), Ok(Made::Done)] {
            let is_made = answer.is_ok();
            let server = async {
                let Some(Order::MakeRole { done, .. }) = orders.recv().await else { panic!("no role is asked for") };
                assert_eq!((config.restored().unwrap().roles_under_way(), is_kept()), (vec!["r".to_owned()], false));
                done.send(answer).unwrap();
            };
            let (changed, ()) = runtime.block_on(async { tokio::join!(control.change("dba", &statements), server) });
            assert_eq!((changed.is_ok(), is_kept()), (is_made, is_made));
            assert!(config.restored().unwrap().roles_under_way().is_empty());
        }
    }

    #[test]
    fn an_account_is_told_without_its_password() {
        let account = ServerAccount { user: "u".into(), password: "secret".into(), database: "d".into() };
        assert!(!format!("{account:?}").contains("secret"));
    }
}
