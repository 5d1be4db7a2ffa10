//! What can be asked for: pages, their documents, word of newer ones, and figures. Every answer carries the headers that keep a
//! browser from doing anything else with it.

use super::access::{Access, Verdict};
use super::board::{Board, Shown};
use crate::metrics::Format;
use crate::{Kind, LiveError};
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, LOCATION, SET_COOKIE, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use backwater_report::html::{LivePage, LiveSource, live_html, live_policy};
use futures_util::{Stream, stream};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// What every request needs.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) board: Arc<Board>,
    pub(super) access: Arc<Access>,
    /// Whether connections are encrypted.
    pub(super) tls: bool,
}

/// Everything that can be asked for.
pub(super) fn routes(desk: Desk) -> Router {
    Router::new()
        .route("/", get(first))
        .route("/view/{place}", get(page))
        .route("/view/{place}/document", get(document))
        .route("/view/{place}/events", get(events))
        .route("/metrics", get(metrics))
        .fallback(nothing)
        .layer(from_fn_with_state(desk.clone(), guard))
        .with_state(desk)
}

/// Lets nobody in who may not look, and puts the same headers on every answer.
async fn guard(State(desk): State<Desk>, request: Request, next: Next) -> Response {
    let verdict = desk.access.judge(request.method(), request.uri(), request.headers());
    let refused = |status, words: &'static str| (status, words).into_response();
    let mut response = match verdict {
        Verdict::Allowed => next.run(request).await,
        Verdict::SignIn => sign_in(&desk, request.uri().path()),
        Verdict::OnlyReads => refused(StatusCode::METHOD_NOT_ALLOWED, "Nothing can be changed here.\n"),
        Verdict::OtherHost => refused(
            StatusCode::MISDIRECTED_REQUEST,
            "This server was not told that it has this name; add it with --host-name, or use its address.\n",
        ),
        Verdict::OtherOrigin => refused(StatusCode::FORBIDDEN, "Other pages may not ask for this.\n"),
        Verdict::NoToken => refused(
            StatusCode::UNAUTHORIZED,
            "A token is needed: open the address that `backwater serve` printed, or send `Authorization: Bearer TOKEN`.\n",
        ),
        Verdict::WrongToken => refused(
            StatusCode::UNAUTHORIZED,
            "This token is not the one (any more): open the address that `backwater serve` printed last.\n",
        ),
    };
    secure(response.headers_mut(), desk.tls);
    response
}

/// The token moves from the address, where others could read it, into a cookie.
fn sign_in(desk: &Desk, path: &str) -> Response {
    let cookie = desk.access.set_cookie(desk.tls).and_then(|text| HeaderValue::from_str(&text).ok());
    // A path of this server: two slashes would name another one.
    let path = HeaderValue::from_str(&format!("/{}", path.trim_start_matches('/')));
    match (cookie, path) {
        (Some(cookie), Ok(path)) => {
            (StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (LOCATION, path)], "Signed in.\n").into_response()
        }
        _ => StatusCode::BAD_REQUEST.into_response(),
    }
}

fn secure(headers: &mut HeaderMap, tls: bool) {
    const FIXED: [(&str, &str); 8] = [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-embedder-policy", "require-corp"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
        ("cache-control", "no-store"),
    ];
    for (name, value) in FIXED {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let policy = format!("{}; frame-ancestors 'none'", live_policy());
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(HeaderName::from_static("content-security-policy"), policy);
    }
    if tls {
        let value = HeaderValue::from_static("max-age=31536000");
        headers.insert(HeaderName::from_static("strict-transport-security"), value);
    }
}

/// Why something cannot be shown, in words.
struct Failed(StatusCode, String);

impl From<LiveError> for Failed {
    fn from(error: LiveError) -> Failed {
        Failed(StatusCode::SERVICE_UNAVAILABLE, format!("This cannot be read now: {error}\n"))
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

async fn nothing() -> Failed {
    Failed(StatusCode::NOT_FOUND, "There is nothing here.\n".to_owned())
}

fn shown(desk: &Desk, place: usize) -> Result<Arc<Shown>, Failed> {
    let missing = || Failed(StatusCode::NOT_FOUND, "There is no such thing to look at.\n".to_owned());
    desk.board.shown.get(place).map(Arc::clone).ok_or_else(missing)
}

async fn first(State(desk): State<Desk>) -> Result<Response, Failed> {
    page(State(desk), Path(0)).await
}

async fn page(State(desk): State<Desk>, Path(place): Path<usize>) -> Result<Response, Failed> {
    let here = shown(&desk, place)?;
    let one = |(number, shown): (usize, &Arc<Shown>)| LiveSource {
        name: shown.source.name.clone(),
        href: format!("/view/{number}"),
        kind: if matches!(shown.source.kind, Kind::Live(_)) { "live" } else { "recording" },
        here: number == place,
    };
    let live = LivePage {
        document: format!("/view/{place}/document"),
        events: format!("/view/{place}/events"),
        sources: desk.board.shown.iter().enumerate().map(one).collect(),
    };
    let html = live_html(&here.source.name, &live).map_err(LiveError::from)?;
    Ok(([(CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response())
}

async fn document(State(desk): State<Desk>, Path(place): Path<usize>, asked: HeaderMap) -> Result<Response, Failed> {
    let made = shown(&desk, place)?.document().await?;
    let zips =
        asked.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).is_some_and(|text| text.contains("gzip"));
    let json = [(CONTENT_TYPE, "application/json"), (VARY, "accept-encoding")];
    Ok(if zips {
        (json, [(CONTENT_ENCODING, "gzip")], made.zipped.clone()).into_response()
    } else {
        (json, made.plain.clone()).into_response()
    })
}

async fn events(
    State(desk): State<Desk>,
    Path(place): Path<usize>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Failed> {
    let here = shown(&desk, place)?;
    let word = |grows: bool, number: u64| {
        Ok(Event::default().event(if grows { "newer" } else { "still" }).data(number.to_string()))
    };
    let begin = stream::iter((!here.grows()).then(|| word(false, 0)));
    // Whoever was not fast enough for a word gets the next one only: nothing is kept for anybody.
    let news = stream::unfold((here.follow(), here), move |(mut news, here)| async move {
        news.changed().await.ok()?;
        let number = *news.borrow_and_update();
        Some((word(here.grows(), number), (news, here)))
    });
    let stream = futures_util::StreamExt::chain(begin, news);
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))))
}

async fn metrics(State(desk): State<Desk>, asked: HeaderMap) -> Result<Response, Failed> {
    let figures = desk.board.metrics().await?;
    let accept: Vec<&str> = asked.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = Format::accepted(&accept.join(","));
    let head = [(CONTENT_TYPE, format.content_type()), (CACHE_CONTROL, "no-store"), (VARY, "accept")];
    Ok((head, figures.text(format)).into_response())
}
