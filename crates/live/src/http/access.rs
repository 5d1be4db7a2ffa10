//! Who may look: a judgement of a request's method, host, origin and token, without any I/O.
//!
//! The token keeps out other users of the host and other pages of the browser; the host's name keeps out pages that point a name of
//! their own at this address (DNS rebinding); the origin and the fetch metadata keep out requests that another page sends.

use crate::LiveError;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, Uri};
use rand::RngExt;
use std::net::IpAddr;
use subtle::ConstantTimeEq;

/// Letters and digits that a token needs at least.
const LEAST_TOKEN: usize = 16;
/// Letters and digits of a token that is made here: 160 bits.
const MADE_TOKEN: usize = 32;
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// A token that cannot be guessed.
pub fn new_token() -> String {
    const SIGNS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut rng = rand::rng();
    (0..MADE_TOKEN).map(|_| char::from(SIGNS[rng.random_range(0..SIGNS.len())])).collect()
}

/// What is to become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is answered.
    Allowed,
    /// The token stands in the address: it becomes a cookie, and the address loses it.
    SignIn,
    /// It would change something.
    OnlyReads,
    /// It was sent to another name than this server's.
    OtherHost,
    /// Another page sent it.
    OtherOrigin,
    /// It has no token.
    NoToken,
    /// Its token is not the one.
    WrongToken,
}

/// Who may look.
#[derive(Clone, Debug)]
pub struct Access {
    token: Option<String>,
    hosts: Vec<String>,
    cookie: String,
    open_metrics: bool,
}

impl Access {
    /// Whoever has the token (everybody, without one), by one of these names beside `localhost` and addresses. Browsers share
    /// cookies between ports, so that the cookie's name has the port.
    ///
    /// Errors: the token could be guessed.
    pub fn new(token: Option<String>, hosts: Vec<String>, port: u16, open_metrics: bool) -> Result<Access, LiveError> {
        let weak = |token: &String| token.len() < LEAST_TOKEN || !token.chars().all(|c| c.is_ascii_alphanumeric());
        if token.as_ref().is_some_and(weak) {
            return Err(LiveError::WeakToken { least: LEAST_TOKEN });
        }
        Ok(Access { token, hosts, cookie: format!("backwater-{port}"), open_metrics })
    }

    /// The cookie that stands for the token: for this server alone, never to be read by a script.
    pub fn set_cookie(&self, secure: bool) -> Option<String> {
        let token = self.token.as_ref()?;
        let secure = if secure { "; Secure" } else { "" };
        Some(format!("{}={token}; Path=/; HttpOnly; SameSite=Strict{secure}", self.cookie))
    }

    /// What is to become of this request.
    pub fn judge(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Verdict {
        if method != Method::GET && method != Method::HEAD {
            return Verdict::OnlyReads;
        }
        let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return Verdict::OtherHost };
        if !self.is_own(host) {
            return Verdict::OtherHost;
        }
        if !same_site(headers, host) {
            return Verdict::OtherOrigin;
        }
        let Some(token) = &self.token else { return Verdict::Allowed };
        if self.open_metrics && uri.path() == "/metrics" {
            return Verdict::Allowed;
        }
        let is_token = |given: &str| bool::from(given.as_bytes().ct_eq(token.as_bytes()));
        if let Some(given) = in_query(uri) {
            return if is_token(given) { Verdict::SignIn } else { Verdict::WrongToken };
        }
        let given = bearer(headers).or_else(|| self.in_cookies(headers));
        match given {
            None => Verdict::NoToken,
            Some(given) if is_token(given) => Verdict::Allowed,
            Some(_) => Verdict::WrongToken,
        }
    }

    /// An address is nobody's trick: who rebinds needs a name.
    fn is_own(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host();
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        address.is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    fn in_cookies<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let texts = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == self.cookie).map(|(_, value)| value)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim)
}

fn in_query(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix("token="))
}

/// Whether a request comes from this server's own page, from a person who followed a link, or from no browser.
fn same_site(headers: &HeaderMap, host: &str) -> bool {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let own = |origin: &str| origin.split_once("://").is_some_and(|(_, name)| name.eq_ignore_ascii_case(host));
    let navigates = text(&FETCH_MODE) == Some("navigate");
    let site = text(&FETCH_SITE).is_none_or(|site| matches!(site, "same-origin" | "none") || navigates);
    site && text(&ORIGIN).is_none_or(own)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TOKEN: &str = "abcdefghijklmnop1234";

    fn judged(method: &Method, uri: &str, pairs: &[(&'static str, &str)]) -> Verdict {
        let access = Access::new(Some(TOKEN.to_owned()), vec!["db1.example".to_owned()], 7979, false).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        access.judge(method, &uri.parse().unwrap(), &headers)
    }

    #[test]
    fn only_who_has_the_token_may_look() {
        let host = ("host", "127.0.0.1:7979");
        let cookie = format!("other=1; backwater-7979={TOKEN}");
        let get = |uri: &str, pairs: &[(&'static str, &str)]| judged(&Method::GET, uri, pairs);
        assert_eq!(get("/", &[host]), Verdict::NoToken);
        assert_eq!(get("/", &[host, ("cookie", &cookie)]), Verdict::Allowed);
        assert_eq!(get("/", &[host, ("cookie", "backwater-7979=abcdefghijklmnop1235")]), Verdict::WrongToken);
        assert_eq!(get("/", &[host, ("cookie", &format!("backwater-80={TOKEN}"))]), Verdict::NoToken);
        assert_eq!(get("/metrics", &[host, ("authorization", &format!("Bearer {TOKEN}"))]), Verdict::Allowed);
        assert_eq!(get(&format!("/?token={TOKEN}"), &[host]), Verdict::SignIn);
        assert_eq!(get("/?token=", &[host, ("cookie", &cookie)]), Verdict::WrongToken);
        assert_eq!(judged(&Method::POST, "/", &[host, ("cookie", &cookie)]), Verdict::OnlyReads);
    }

    #[test]
    fn no_other_page_may_ask() {
        let cookie = ("cookie", format!("backwater-7979={TOKEN}"));
        let with = |pairs: &[(&'static str, &str)]| {
            let pairs: Vec<_> = pairs.iter().copied().chain([(cookie.0, cookie.1.as_str())]).collect();
            judged(&Method::GET, "/view/0/document", &pairs)
        };
        assert_eq!(with(&[]), Verdict::OtherHost);
        assert_eq!(with(&[("host", "rebound.example:7979")]), Verdict::OtherHost);
        assert_eq!(with(&[("host", "DB1.example:7979")]), Verdict::Allowed);
        assert_eq!(with(&[("host", "[::1]:7979"), ("origin", "http://[::1]:7979")]), Verdict::Allowed);
        let host = ("host", "localhost:7979");
        assert_eq!(with(&[host, ("origin", "http://localhost:3000")]), Verdict::OtherOrigin);
        assert_eq!(with(&[host, ("origin", "null")]), Verdict::OtherOrigin);
        assert_eq!(
            with(&[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]),
            Verdict::OtherOrigin
        );
        assert_eq!(with(&[host, ("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")]), Verdict::OtherOrigin);
        assert_eq!(with(&[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]), Verdict::Allowed);
    }

    #[test]
    fn a_token_that_could_be_guessed_is_refused() {
        let with = |token: &str| Access::new(Some(token.to_owned()), vec![], 1, false);
        assert!(with("short").is_err() && with("abcdefghijklmnop; Path=/").is_err());
        assert_ne!(new_token(), new_token());
        assert!(with(&new_token()).is_ok());
    }
}
