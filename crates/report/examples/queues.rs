//! Writes the reference of queues: `cargo run -q -p backwater-report --example queues > docs/reference/queues.md`.

use std::io::Write;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(backwater_report::html::queues_reference().as_bytes())
}
