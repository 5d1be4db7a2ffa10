//! What a suite said of each of its tests: one reader for each way of saying it.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// Every test by its name, and how long all of them took.
#[derive(Clone)]
pub(super) struct Outcome {
    pub(super) tests: BTreeMap<String, Verdict>,
    pub(super) took: Duration,
}

impl Outcome {
    pub(super) fn count(&self, verdict: Verdict) -> usize {
        self.tests.values().filter(|found| **found == verdict).count()
    }

    pub(super) fn passed(&self) -> usize {
        self.count(Verdict::Passed)
    }
}

/// pg_regress: `     boolean                      ... ok           58 ms`, or with `test ` before where it runs alone.
pub(super) fn pg_regress(text: &str) -> BTreeMap<String, Verdict> {
    let tests = text.lines().filter_map(|line| {
        let (name, verdict) = line.split_once(" ... ")?;
        let name = name.trim();
        let name = name.strip_prefix("test ").unwrap_or(name).trim();
        let passed = verdict.split_whitespace().next()? == "ok";
        let whole = !name.is_empty() && !name.contains(' ');
        whole.then(|| (name.to_owned(), if passed { Verdict::Passed } else { Verdict::Failed }))
    });
    tests.collect()
}

/// `go test -json`: one event a line. A package that fails by none of its tests, as it does not come to them, is a test that failed.
pub(super) fn go(text: &str) -> BTreeMap<String, Verdict> {
    let (mut tests, mut by_a_test) = (BTreeMap::new(), BTreeSet::new());
    for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let verdict = match event["Action"].as_str() {
            Some("pass") => Verdict::Passed,
            Some("fail") => Verdict::Failed,
            Some("skip") => Verdict::Skipped,
            _ => continue,
        };
        let package = event["Package"].as_str().unwrap_or_default();
        let test = event["Test"].as_str().map(without_long_numbers);
        let package = package.rsplit_once("/v5").map_or(package, |(_, rest)| rest.trim_start_matches('/'));
        let name = match test {
            Some(test) => format!("{package}/{test}").trim_start_matches('/').to_owned(),
            None if verdict == Verdict::Failed && !by_a_test.contains(package) => format!("package {package}"),
            None => continue,
        };
        if verdict == Verdict::Failed {
            by_a_test.insert(package.to_owned());
        }
        tests.insert(name, verdict);
    }
    tests
}

/// A name without what is another in every run: the number of a temporary directory.
fn without_long_numbers(name: &str) -> String {
    let mut without = String::new();
    for piece in name.split_inclusive(|byte: char| !byte.is_ascii_digit()) {
        let digits = piece.trim_end_matches(|byte: char| !byte.is_ascii_digit());
        without += if digits.len() > 6 { &piece[digits.len()..] } else { piece };
    }
    without
}

/// `pytest -v`: `tests/test_a.py::A::test_one PASSED   [ 10%]`, or `SKIPPED (why) [ 10%]`. An error while it is taken
/// down comes on a line of its own, after its verdict.
pub(super) fn pytest(text: &str) -> BTreeMap<String, Verdict> {
    let tests = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        let verdict = match rest.split_whitespace().next()? {
            "PASSED" | "XFAIL" => Verdict::Passed,
            "FAILED" | "ERROR" | "XPASS" => Verdict::Failed,
            "SKIPPED" => Verdict::Skipped,
            _ => return None,
        };
        name.contains("::").then(|| (name.trim_start_matches("tests/").to_owned(), verdict))
    });
    tests.collect()
}

#[cfg(test)]
mod tests {
    use super::{Verdict, go, pg_regress, pytest};

    #[test]
    fn pg_regress_tells_alone_and_in_groups() {
        let text = "parallel group (2 tests):  int2 float8\n     int2                         ... ok           58 ms\n     \
                    float8                       ... FAILED      101 ms\ntest fast_default                 ... ok          135 ms\n";
        let found: Vec<_> = pg_regress(text).into_iter().collect();
        let told = [("fast_default", Verdict::Passed), ("float8", Verdict::Failed), ("int2", Verdict::Passed)];
        assert_eq!(found, told.map(|(name, verdict)| (name.to_owned(), verdict)));
    }

    #[test]
    fn go_tells_tests_by_package_and_packages_that_do_not_build() {
        let text = r#"{"Action":"run","Package":"github.com/jackc/pgx/v5","Test":"TestA"}
{"Action":"pass","Package":"github.com/jackc/pgx/v5","Test":"TestA"}
{"Action":"skip","Package":"github.com/jackc/pgx/v5/pgconn","Test":"TestA/b"}
{"Action":"pass","Package":"github.com/jackc/pgx/v5/pgconn"}
{"Action":"fail","Package":"github.com/jackc/pgx/v5/pgtype"}
{"Action":"fail","Package":"github.com/jackc/pgx/v5/pgxpool","Test":"TestB"}
{"Action":"fail","Package":"github.com/jackc/pgx/v5/pgxpool"}
no json"#;
        let found: Vec<_> = go(text).into_iter().collect();
        let told = [
            ("TestA", Verdict::Passed),
            ("package pgtype", Verdict::Failed),
            ("pgconn/TestA/b", Verdict::Skipped),
            ("pgxpool/TestB", Verdict::Failed),
        ];
        assert_eq!(found, told.map(|(name, verdict)| (name.to_owned(), verdict)));
    }

    #[test]
    fn a_temporary_directory_is_no_part_of_a_name() {
        let event = |number: &str| {
            format!(r#"{{"Action":"pass","Package":"a/v5","Test":"TestA/x='/tmp/TestA{number}/001/c'_2"}}"#)
        };
        let names: Vec<_> = go(&event("593880328")).into_keys().collect();
        assert_eq!(names, ["TestA/x='/tmp/TestA/001/c'_2"]);
        assert_eq!(names, go(&event("3431250182")).into_keys().collect::<Vec<_>>());
    }

    #[test]
    fn pytest_tells_each_on_its_line_and_an_error_after_it() {
        let text = "tests/test_a.py::A::test_one PASSED                 [ 10%]\n\
                    tests/test_a.py::A::test_two SKIPPED (unmanaged) [ 20%]\n\
                    tests/test_a.py::A::test_three PASSED [ 30%]\n\
                    tests/test_a.py::A::test_three ERROR [ 30%]\n\
                    FAILED tests/test_a.py::A::test_one - no verdict, but the summary\n";
        let found: Vec<_> = pytest(text).into_iter().collect();
        let told = [("one", Verdict::Passed), ("three", Verdict::Failed), ("two", Verdict::Skipped)];
        assert_eq!(found, told.map(|(name, verdict)| (format!("test_a.py::A::test_{name}"), verdict)));
    }
}
