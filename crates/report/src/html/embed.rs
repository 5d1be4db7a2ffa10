//! One HTML file: the built page of `web/dist`, and the document as data beside it; or, for a live page, where to ask for it.
//!
//! What a recording holds cannot run. The document stands in a block that no browser executes, with every `<` spelled so that
//! nothing in it ends that block; the policy lets run only the two texts whose hashes it names; and the page puts
//! words in as text. The policy allows no request at all.

use super::document::Document;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use sha2::{Digest, Sha256};

const SCRIPT: &str = include_str!("../../../../web/dist/page.js");
const STYLE: &str = include_str!("../../../../web/dist/page.css");
/// The mark of the page as an icon, so that a browser asks nobody for one.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
                    %3Cpath d='M1 12h5V5h9' fill='none' stroke='%232a78c8' stroke-width='3'/%3E%3C/svg%3E";

/// The file.
///
/// Errors: the document cannot be written as JSON.
pub fn html(document: &Document) -> serde_json::Result<String> {
    let data = inert(&serde_json::to_string(document)?);
    Ok(file(&document.about.title, &policy("'none'"), "document", &data))
}

/// Where a live page finds what it shows, as paths of its own server.
#[derive(Clone, Debug, Serialize)]
pub struct LivePage {
    /// The document.
    pub document: String,
    /// A stream of server-sent events: `newer` whenever there is a newer document, `still` when there will be none.
    pub events: String,
    /// What else can be looked at.
    pub sources: Vec<LiveSource>,
}

/// One thing that a server lets people look at.
#[derive(Clone, Debug, Serialize)]
pub struct LiveSource {
    /// What people call it.
    pub name: String,
    /// Path of its page.
    pub href: String,
    /// `live` or `recording`.
    pub kind: &'static str,
    /// Whether it is this page.
    pub here: bool,
}

/// The page without a document, which asks the server that it came from for one, and follows it.
///
/// Errors: what it is told cannot be written as JSON.
pub fn live_html(title: &str, live: &LivePage) -> serde_json::Result<String> {
    let data = inert(&serde_json::to_string(live)?);
    Ok(file(title, &live_policy(), "live", &data))
}

/// The policy of a live page: as that of a report, but it may ask its own server.
pub fn live_policy() -> String {
    policy("'self'")
}

fn policy(connect: &str) -> String {
    format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; connect-src {connect}; base-uri 'none'; \
         form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
}

fn file(title: &str, policy: &str, id: &str, data: &str) -> String {
    let title = text(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Backwater: {title}</title>\n<link rel=\"icon\" href=\"{ICON}\">\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <noscript>This page needs JavaScript; `backwater diagnose` prints the same findings as text.</noscript>\n\
         <main id=\"page\"></main>\n<script type=\"application/json\" id=\"{id}\">{data}</script>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// A text as a policy names it.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// JSON that cannot end the block it stands in. These signs occur only in strings, where an escape means the same.
fn inert(json: &str) -> String {
    let escaped = |c: char| match c {
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => format!("\\u{:04x}", c as u32),
        _ => c.to_string(),
    };
    if json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        json.chars().map(escaped).collect()
    } else {
        json.to_owned()
    }
}

/// Text between tags.
fn text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::document;
    use super::*;
    use crate::samples_for_tests::{finding, meta, stampede_outcome};
    use backwater_model::{Finding, Moment, Window};
    use std::sync::Arc;

    const HOSTILE: &str = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>&amp;\u{2028}";

    fn page() -> String {
        let window = Window::new(
            Moment::from_seconds(1_000.0),
            Moment::from_seconds(1_060.0),
            Arc::new(meta()),
            vec![],
            vec![],
            vec![],
        );
        let hostile = Finding { summary: HOSTILE.to_owned(), queue: HOSTILE.to_owned(), ..finding() };
        let mut outcome = stampede_outcome();
        outcome.scenario = HOSTILE.to_owned();
        html(&document(&window, &[hostile], Some(&outcome), &[HOSTILE.to_owned()])).unwrap()
    }

    #[test]
    fn hostile_words_stay_words() {
        let page = page();
        // Its own two, and no more.
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(!page.contains("<img") && !page.contains("<!--"));
        assert!(page.contains(r"\u003c/script\u003e"));
    }

    #[test]
    fn the_document_inside_is_whole() {
        let page = page();
        let begin = page.find("id=\"document\">").unwrap() + "id=\"document\">".len();
        let end = begin + page[begin..].find("</script>").unwrap();
        let value: serde_json::Value = serde_json::from_str(&page[begin..end]).unwrap();
        assert_eq!(value["findings"][0]["summary"], HOSTILE);
        assert_eq!(value["version"], 1);
        assert!(value["lab"]["arms"].as_array().is_some_and(|arms| !arms.is_empty()));
    }

    #[test]
    fn only_a_live_page_may_ask_and_only_its_own_server() {
        assert!(page().contains("connect-src 'none'"));
        let live = LivePage { document: "/view/0/document".to_owned(), events: HOSTILE.to_owned(), sources: vec![] };
        let live = live_html(HOSTILE, &live).unwrap();
        assert!(live.contains("connect-src 'self'") && !live.contains("id=\"document\""));
        assert_eq!(live.matches("<script").count(), 2);
    }

    #[test]
    fn the_built_page_can_stand_inside_a_file() {
        assert!(!SCRIPT.contains("</script") && !SCRIPT.contains("<!--") && !STYLE.contains("</style"));
        // Nothing of it names another place to load from: the one address in it is the name of SVG's elements.
        assert!(!STYLE.replace("url(#", "").contains("url(") && !SCRIPT.contains("import("));
        let named = SCRIPT.replace("http://www.w3.org/2000/svg", "");
        assert!(!named.contains("http://") && !named.contains("https://") && !named.contains("ws://"));
    }
}
