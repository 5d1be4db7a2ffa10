//! The page in `web/`: that what is committed in `web/dist` is what the source builds.

use crate::{ci, run};
use anyhow::Context;

/// Builds the page and compares; installs what the browser's tests need. Without npm it says that it is skipped: the
/// committed page is what the program embeds, so nobody needs Node.js to build or run it.
#[allow(clippy::print_stdout)]
pub(crate) fn check() -> anyhow::Result<()> {
    if !ci::on_path("npm") {
        println!("skipped: that web/dist is what web/src builds: needs npm");
        return Ok(());
    }
    run::step("packages of the page", "npm", &["ci", "--prefix", "web", "--no-audit", "--no-fund"])?;
    run::step("the page", "npm", &["run", "--prefix", "web", "build"])?;
    let committed = run::step("the committed page", "git", &["diff", "--exit-code", "--stat", "--", "web/dist"]);
    committed.context("web/dist is not what web/src builds: commit what `npm run build` has just made")
}
