//! Whether pages can be tested in a browser here.

#![allow(clippy::print_stderr)]

use std::path::{Path, PathBuf};

/// The directory of the page and its tests; none, and said why, where there is no Chromium or its driver.
pub(crate) fn web(test: &str) -> Option<PathBuf> {
    let web = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../web");
    let places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let installed =
        std::env::var_os("BACKWATER_CHROMIUM").is_some() || places.iter().any(|path| Path::new(path).exists());
    if installed && web.join("node_modules/playwright-core").exists() {
        return Some(web);
    }
    eprintln!("skipped: {test}: needs Chromium, and `npm ci` in web/");
    None
}
