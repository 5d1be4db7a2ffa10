//! Style as a test: which crate may depend on which, and a ratchet on long functions and long files of Rust below `crates/`. The
//! numbers may go down, never up.

use crate::run;
use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Who may depend on whom, beside everybody on `model`. ARCHITECTURE.md draws it.
const ARROWS: &[(&str, &[&str])] = &[
    ("backwater-model", &[]),
    ("backwater-socket", &[]),
    ("backwater-undo", &["backwater-socket"]),
    ("ftdc", &[]),
    ("backwater-tls", &[]),
    ("backwater-probe", &["backwater-model", "backwater-tls", "ftdc"]),
    ("backwater-record", &["backwater-model"]),
    ("backwater-diagnose", &["backwater-model"]),
    ("backwater-flow", &["backwater-model"]),
    ("backwater-gate", &["backwater-model", "backwater-flow", "backwater-socket", "backwater-tls", "backwater-undo"]),
    (
        "backwater-lab",
        &["backwater-model", "backwater-probe", "backwater-record", "backwater-diagnose", "backwater-undo"],
    ),
    ("backwater-report", &["backwater-model", "backwater-diagnose"]),
    (
        "backwater-live",
        &["backwater-model", "backwater-probe", "backwater-record", "backwater-diagnose", "backwater-report"],
    ),
];

/// Lines of a function beyond which it counts as long, and how many such functions there may be.
const LONG_FUNCTION_LINES: usize = 70;
const LONG_FUNCTIONS_ALLOWED: usize = 0;
/// Lines of a file beyond which it counts as long, and how many such files there may be.
const LONG_FILE_LINES: usize = 600;
const LONG_FILES_ALLOWED: usize = 0;

pub(crate) fn check() -> anyhow::Result<()> {
    run::say("style");
    let mut faults = arrows()?;
    let mut files = Vec::new();
    rust_files(&run::workspace()?.join("crates"), &mut files)?;
    let (mut long_files, mut long_functions) = (Vec::new(), Vec::new());
    for path in &files {
        let text = std::fs::read_to_string(path)?;
        let lines = text.lines().count();
        if lines > LONG_FILE_LINES {
            long_files.push(format!("{}: {lines} lines", path.display()));
        }
        if !text.starts_with("//!") && !text.starts_with("#!") {
            faults.push(format!("{}: does not begin with what it is (//!)", path.display()));
        }
        long_functions
            .extend(functions_over(&text, LONG_FUNCTION_LINES).iter().map(|f| format!("{}: {f}", path.display())));
    }
    if long_files.len() > LONG_FILES_ALLOWED {
        faults.extend(long_files);
    }
    if long_functions.len() > LONG_FUNCTIONS_ALLOWED {
        faults.extend(long_functions);
    }
    if !faults.is_empty() {
        bail!("style:\n  {}", faults.join("\n  "));
    }
    Ok(())
}

/// Dependencies between crates that ARCHITECTURE.md does not draw.
fn arrows() -> anyhow::Result<Vec<String>> {
    let text = run::output("cargo", &["metadata", "--format-version", "1", "--no-deps", "--offline"], &[])?;
    undrawn(&serde_json::from_str(&text)?)
}

/// Those among what `cargo metadata` tells.
fn undrawn(metadata: &Value) -> anyhow::Result<Vec<String>> {
    let allowed: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().context("cargo metadata has no packages")? {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(may) = allowed.get(name) else { continue };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            let ordinary = dependency["kind"].is_null();
            // The workspace's own, which are not all named after the program.
            let own = on.starts_with("backwater") || allowed.contains_key(on);
            if ordinary && own && !may.contains(&on) {
                faults.push(format!("{name} must not depend on {on} (see ARCHITECTURE.md)"));
            }
        }
    }
    Ok(faults)
}

fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            rust_files(&path, into)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

/// Names and lengths of functions of more than `limit` lines, by rustfmt's indentation: a function ends at the first
/// closing brace that stands as far in as its first line.
fn functions_over(text: &str, limit: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut long = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let before = trimmed.split("fn ").next().unwrap_or_default();
        let starts = trimmed.contains("fn ")
            && before
                .split_whitespace()
                .all(|word| matches!(word, "async" | "const" | "unsafe") || word.starts_with("pub"));
        // A trait's function may have no body.
        if !starts || trimmed.ends_with(';') {
            continue;
        }
        let indent = &line[..line.len() - trimmed.len()];
        let end = format!("{indent}}}");
        let length = lines[start..].iter().position(|line| *line == end).map_or(1, |offset| offset + 1);
        if length > limit {
            long.push(format!("line {}: a function of {length} lines", start + 1));
        }
    }
    long
}

#[cfg(test)]
mod tests {
    use super::{functions_over, undrawn};
    use serde_json::{Value, json};

    #[test]
    fn a_crate_with_another_name_is_held_to_its_arrows_too() {
        let depends = |name: &str, on: &str, kind: Value| {
            let dependencies = [json!({"name": on, "kind": kind}), json!({"name": "serde", "kind": null})];
            let found = undrawn(&json!({"packages": [{"name": name, "dependencies": dependencies}]}));
            found.unwrap_or_else(|error| vec![error.to_string()])
        };
        let fault = "backwater-model must not depend on ftdc (see ARCHITECTURE.md)";
        assert_eq!(depends("backwater-model", "ftdc", Value::Null), [fault]);
        assert_eq!(depends("backwater-probe", "ftdc", Value::Null), [""; 0]);
        assert_eq!(depends("backwater-live", "ftdc", json!("dev")), [""; 0], "what tests alone use is free");
        let fault = "backwater-flow must not depend on backwater-gate (see ARCHITECTURE.md)";
        assert_eq!(depends("backwater-flow", "backwater-gate", Value::Null), [fault]);
    }

    #[test]
    fn a_function_ends_at_its_own_brace() {
        let text = "impl X {\n    pub fn long() {\n        if a {\n        }\n        b();\n    }\n    fn short() {\n    }\n}\n";
        assert_eq!(functions_over(text, 4), ["line 2: a function of 5 lines"]);
        let promised = format!("trait X {{\n    fn a();\n}}\nimpl Y {{\n{}    }}\n}}\n", "    b;\n".repeat(9));
        assert_eq!(functions_over(&promised, 4), [""; 0]);
    }
}
