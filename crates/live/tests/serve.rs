//! The server as a browser, a scraper, another page and a slow viewer meet it.

#![allow(clippy::unwrap_used)]

mod common;

use backwater_live::http::Tls;
use common::planted::MIB;
use common::{HOSTILE, LONG, Served, TOKEN, recording, stop_writing};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn served() -> (tempfile::TempDir, Served) {
    let dir = tempfile::tempdir().unwrap();
    recording(&dir.path().join("rec"), 90);
    let served = Served::start(&dir.path().join("rec"), LONG);
    (dir, served)
}

#[test]
fn whoever_has_no_token_learns_nothing() {
    let (_dir, served) = served();
    for path in ["/", "/view/0", "/view/0/document", "/view/0/events", "/metrics", "/no-such-thing"] {
        for headers in [&[][..], &["authorization: Bearer 0123456789abcdefghiX"], &["cookie: backwater=x"]] {
            let (status, _, body) = served.get(path, headers);
            assert_eq!(status, 401, "{path} {headers:?}");
            assert!(!body.contains("primary") && !body.contains(TOKEN), "{body}");
        }
    }
    let bearer = format!("authorization: Bearer {TOKEN}");
    assert_eq!(served.get("/", &[&bearer, "host: rebound.example"]).0, 421);
    assert_eq!(served.get("/view/0/document", &[&bearer, "origin: http://evil.example"]).0, 403);
}

#[test]
fn the_address_signs_in_and_the_page_asks_only_its_own_server() {
    let (_dir, served) = served();
    let (status, head, _) = served.get(&format!("/?token={TOKEN}"), &[]);
    assert_eq!((status, head.contains("location: /\r\n")), (303, true), "{head}");
    assert!(head.contains("httponly") && head.contains("samesite=strict"), "{head}");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = format!("cookie: {}", cookie.split(';').next().unwrap());
    let (status, head, page) = served.get("/", &[&cookie]);
    assert_eq!(status, 200);
    for wanted in
        ["connect-src 'self'", "frame-ancestors 'none'", "nosniff", "no-referrer", "no-store", "x-frame-options: deny"]
    {
        assert!(head.contains(wanted), "{wanted}: {head}");
    }
    assert_eq!(page.matches("<script").count(), 2, "what it is told, and its program");
    let (status, head, document) = served.get("/view/0/document", &[&cookie]);
    assert_eq!((status, head.contains("application/json")), (200, true));
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["format"], "backwater-page");
    assert_eq!(served.get("/view/7/document", &[&cookie]).0, 404);
    let (_, head, _) = served.get("//evil.example/?token=0123456789abcdefghij", &[]);
    assert!(head.contains("location: /evil.example/"), "no other server: {head}");
}

#[test]
fn a_page_learns_of_what_is_newer() {
    let (_dir, served) = served();
    let stream = served.ask("/view/0/events", &[&format!("authorization: Bearer {TOKEN}")]);
    let mut seen = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        seen.extend(line.strip_prefix("event: ").map(str::to_owned));
        if seen.len() == 3 {
            break;
        }
    }
    assert_eq!(seen, ["newer", "newer", "newer"]);
}

#[test]
fn a_page_learns_that_a_recording_has_ended() {
    let (dir, served) = served();
    let stream = served.ask("/view/0/events", &[&format!("authorization: Bearer {TOKEN}")]);
    let mut words =
        BufReader::new(stream).lines().filter_map(|line| line.unwrap().strip_prefix("event: ").map(str::to_owned));
    assert_eq!(words.next().unwrap(), "newer");
    stop_writing(&dir.path().join("rec"));
    assert_eq!(words.find(|word| word != "newer").unwrap(), "still");
}

#[test]
fn metrics_are_what_the_reader_reads_and_a_parser_takes_them() {
    let (_dir, served) = served();
    let (status, head, text) = served.metrics();
    assert_eq!(status, 200);
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    let parsed = openmetrics_parser::openmetrics::parse_openmetrics(&text).map_err(|error| format!("{error}\n{text}"));
    let parsed = parsed.unwrap();
    assert!(parsed.families.contains_key("backwater_queue_level_bytes"), "{text}");
    let value = |start: &str, holds: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(start) && line.contains(holds));
        line.unwrap_or_else(|| panic!("{start} {holds}: {text}")).rsplit(' ').next().unwrap().parse().unwrap()
    };
    let dirty = "queue=\"host.dirty@7:0\"";
    assert_eq!(value("backwater_queue_level_bytes{", dirty), 206.0 * MIB);
    assert_eq!(value("backwater_queue_hard_limit_bytes{", dirty), 256.0 * MIB);
    assert!((value("backwater_queue_inflow_bytes_per_second{", dirty) / (18.0 * MIB) - 1.0).abs() < 0.01);
    // Whoever writes is paused from half-way between 128 and 256 MiB on.
    assert_eq!(value("backwater_queue_held_from_bytes{", dirty), 192.0 * MIB);
    assert_eq!(value("backwater_queue_fill_ratio{", dirty), 206.0 / 192.0);
    assert_eq!(value("backwater_queue_time_to_limit_seconds{", dirty), 0.0);
    assert_eq!(value("backwater_source_up{", "source=\"rec\""), 1.0);
    assert_eq!(value("backwater_target_up{", "target=\"primary\""), 1.0);
    assert_eq!(value("backwater_source_age_seconds{", "source=\"rec\""), 0.0, "from a clock that is ahead");
    assert!(text.ends_with("# EOF\n") && !text.contains(HOSTILE), "{text}");
}

/// Lines of figures that are of this name.
fn lines<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).collect()
}

#[test]
fn who_has_stopped_is_told_as_such_and_who_had_ended_before_is_history() {
    let (dir, served) = served();
    let (_, _, text) = served.metrics();
    assert!(!lines(&text, "backwater_queue_level_bytes").is_empty(), "{text}");
    stop_writing(&dir.path().join("rec"));
    // Figures are made once a second at most.
    let begun = Instant::now();
    let text = loop {
        let (_, _, text) = served.metrics();
        if lines(&text, "backwater_source_up") != ["backwater_source_up{source=\"rec\"} 1"] {
            break text;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{text}");
    };
    assert_eq!(lines(&text, "backwater_source_up"), ["backwater_source_up{source=\"rec\"} 0"], "{text}");
    assert_eq!(lines(&text, "backwater_target_up"), ["backwater_target_up{source=\"rec\",target=\"primary\"} 0"]);
    assert_eq!(lines(&text, "backwater_source_age_seconds").len(), 1);
    for stale in ["backwater_queue_level_bytes", "backwater_finding"] {
        assert_eq!(lines(&text, stale), [""; 0], "nothing is known of now");
    }
    let history = Served::start(&dir.path().join("rec"), LONG);
    let (_, _, text) = history.metrics();
    assert_eq!(lines(&text, "backwater_source_up"), [""; 0], "{text}");
    assert_eq!(lines(&text, "backwater_build_info").len(), 1, "{text}");
}

#[test]
fn who_does_not_ask_for_open_metrics_gets_the_older_text() {
    let (_dir, served) = served();
    let (status, head, text) = served.with_token("/metrics");
    assert_eq!(status, 200);
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(text.contains("# TYPE backwater_self_dropped_batches_total counter\n"), "{text}");
    assert!(text.contains("# TYPE backwater_build_info gauge\n"), "{text}");
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
}

/// The certificate in tests/tls was made for this test alone.
#[test]
fn with_a_certificate_nothing_is_readable_on_the_way() {
    let dir = tempfile::tempdir().unwrap();
    recording(&dir.path().join("rec"), 30);
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name);
    let tls = Tls { certificate: file("cert.pem"), key: file("key.pem") };
    let served = Served::start_with(&dir.path().join("rec"), LONG, Some(tls));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("ca.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut socket = TcpStream::connect(served.address).unwrap();
    let mut stream = rustls::Stream::new(&mut client, &mut socket);
    let ask = format!("GET /?token={TOKEN} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).unwrap();
    let mut answer = String::new();
    // A server that closes without saying so is no fault here.
    let _closed = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    assert!(answer.contains("; Secure") && answer.contains("strict-transport-security"), "{answer}");
    // Who speaks without it learns nothing.
    let mut plain = served.ask("/", &[]);
    let mut bytes = Vec::new();
    let _reset = plain.read_to_end(&mut bytes);
    assert!(!bytes.starts_with(b"HTTP"));
}

#[test]
fn a_slow_viewer_is_dropped_and_the_others_do_not_wait() {
    let dir = tempfile::tempdir().unwrap();
    recording(&dir.path().join("rec"), 600);
    let served = Served::start(&dir.path().join("rec"), Duration::from_secs(1));
    let bearer = format!("authorization: Bearer {TOKEN}");
    // Asks for page after page without taking any, until both sides' buffers are full and the server gives up.
    let mut slow = served.ask("/", &[&bearer]);
    slow.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let more = format!("GET / HTTP/1.1\r\nhost: {}\r\n{bearer}\r\n\r\n", served.address).repeat(1_000);
    let dropped = std::thread::spawn(move || {
        let begun = Instant::now();
        loop {
            if let Err(error) = slow.write_all(more.as_bytes()) {
                return (error.kind(), begun.elapsed());
            }
        }
    });
    for _ in 0..5 {
        let (status, _, document) = served.with_token("/view/0/document");
        assert_eq!(status, 200);
        assert!(document.len() > 10_000);
    }
    let (why, after) = dropped.join().unwrap();
    assert!(matches!(why, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{why} after {after:?}");
    assert!(after >= Duration::from_millis(900), "no sooner than its patience: {after:?}");
}
