//! One HTML file: the built page of `web/dist`, and the document as data beside it.
//!
//! What a recording holds cannot run. The document stands in a block that no browser executes, with every `<` spelled so that
//! nothing in it ends that block; the policy lets run only the two texts whose hashes it names; and the page puts
//! words in as text. The policy allows no request at all.

use super::document::Document;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
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
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    let data = inert(&serde_json::to_string(document)?);
    let title = text(&document.about.title);
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Backwater: {title}</title>\n<link rel=\"icon\" href=\"{ICON}\">\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <noscript>This page needs JavaScript; `backwater diagnose` prints the same findings as text.</noscript>\n\
         <main id=\"page\"></main>\n<script type=\"application/json\" id=\"document\">{data}</script>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n"
    ))
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
    fn the_built_page_can_stand_inside_a_file() {
        assert!(!SCRIPT.contains("</script") && !SCRIPT.contains("<!--") && !STYLE.contains("</style"));
        // Nothing of it names another place to load from.
        assert!(
            !STYLE.replace("url(#", "").contains("url(") && !SCRIPT.contains("import(") && !SCRIPT.contains("fetch(")
        );
    }
}
