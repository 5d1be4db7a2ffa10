//! The files libpq looks into: the password file and the service file.

use super::syntax::{self, Options};
use rustix::fs::{FileType, Mode};
use std::path::{Path, PathBuf};

/// What a password file has to say for one server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PasswordFile {
    lines: Vec<[String; 5]>,
}

impl PasswordFile {
    /// Reads a password file. A missing one is an empty one; one that others may read is left alone, with a
    /// warning, as libpq does.
    pub(super) fn read(path: &Path, warnings: &mut Vec<String>) -> Self {
        let Ok(status) = rustix::fs::stat(path) else { return PasswordFile::default() };
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            warnings.push(format!("the password file {} is not a plain file and was left alone", path.display()));
            return PasswordFile::default();
        }
        if Mode::from_raw_mode(status.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
            warnings.push(format!(
                "the password file {0} may be read by others and was left alone; run: chmod 600 {0}",
                path.display()
            ));
            return PasswordFile::default();
        }
        match std::fs::read_to_string(path) {
            Ok(text) => PasswordFile::parse(&text),
            Err(error) => {
                warnings.push(format!("the password file {} cannot be read: {error}", path.display()));
                PasswordFile::default()
            }
        }
    }

    /// `host:port:database:user:password` a line, `\` before a colon or backslash that stands for itself.
    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(fields);
        PasswordFile { lines: lines.collect() }
    }

    /// The password of the first line that fits.
    pub(super) fn find(&self, wanted: [&str; 4]) -> Option<&str> {
        let fits = |line: &&[String; 5]| line.iter().zip(wanted).all(|(have, want)| have == "*" || have == want);
        self.lines.iter().find(fits).map(|line| line[4].as_str())
    }
}

fn fields(line: &str) -> Option<[String; 5]> {
    let mut fields: [String; 5] = Default::default();
    let mut place = 0;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => fields[place].extend(chars.next()),
            // A colon in the password needs no backslash.
            ':' if place < 4 => place += 1,
            c => fields[place].push(c),
        }
    }
    (place == 4 && !fields[4].is_empty()).then_some(fields)
}

/// Finds a service in the first of these files that has it.
pub(super) fn service(name: &str, files: &[PathBuf]) -> Result<Options, String> {
    for path in files {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        let found = section(name, &text).map_err(|(line, what)| format!("{}, line {line}: {what}", path.display()))?;
        if let Some(options) = found {
            return Ok(options);
        }
    }
    let looked: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
    Err(format!("the service '{name}' is defined in none of: {}", looked.join(", ")))
}

/// The `[name]` section of a service file; an error carries the line, from 1.
fn section(name: &str, text: &str) -> Result<Option<Options>, (usize, String)> {
    let mut found: Option<Options> = None;
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            if found.is_some() {
                break;
            }
            found = (header.strip_suffix(']') == Some(name)).then(Options::new);
        } else if let Some(options) = &mut found {
            let (keyword, value) = line.split_once('=').ok_or((number, "expected keyword=value".to_owned()))?;
            let keyword = keyword.trim_end();
            if keyword == "service" || keyword == "servicefile" {
                return Err((number, "a service cannot name another service".to_owned()));
            }
            if !syntax::known(keyword) {
                return Err((number, "this is no connection keyword".to_owned()));
            }
            options.entry(keyword.to_owned()).or_insert_with(|| value.trim_start().to_owned());
        }
    }
    Ok(found)
}

/// Reads a text as a password file and as a service file. For the fuzzer.
#[cfg(fuzzing)]
pub(super) fn exercise(text: &str) {
    let _ = PasswordFile::parse(text).find(["h", "5432", "d", "u"]);
    let lines = text.lines().count();
    if let Err((line, _)) = section("s", text) {
        assert!((1..=lines).contains(&line));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_fitting_line_gives_the_password() {
        let file = PasswordFile::parse(
            "# comment\nh:5432:db:u:first\nh:*:*:u:se:cond\\\\\n*:*:*:*:last\na\\:b:1:d:u:colon\nbroken:line\n",
        );
        assert_eq!(file.find(["h", "5432", "db", "u"]), Some("first"));
        assert_eq!(file.find(["h", "5433", "db", "u"]), Some("se:cond\\"));
        assert_eq!(file.find(["x", "1", "d", "v"]), Some("last"));
        assert_eq!(PasswordFile::parse("a\\:b:1:d:u:colon").find(["a:b", "1", "d", "u"]), Some("colon"));
        assert_eq!(PasswordFile::parse("h:1:d:u:").find(["h", "1", "d", "u"]), None);
    }

    #[test]
    fn a_password_file_that_others_may_read_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pgpass");
        std::fs::write(&path, "*:*:*:*:secret\n").unwrap();
        for (mode, wanted) in [(0o600, Some("secret")), (0o640, None), (0o604, None)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let mut warnings = Vec::new();
            let file = PasswordFile::read(&path, &mut warnings);
            assert_eq!(file.find(["h", "1", "d", "u"]), wanted, "{mode:o}");
            assert_eq!(warnings.is_empty(), wanted.is_some());
            assert!(!warnings.concat().contains("secret"));
        }
    }

    #[test]
    fn services_are_sections_of_keywords() {
        let text = "[a]\nhost=h1\n\n# note\n[b]\nhost=h2\nport=7\nhost=h3\n[c]\nservice=a\n[d]\nnonsense\n";
        assert_eq!(section("a", text).unwrap().unwrap()["host"], "h1");
        assert_eq!(section("b", text).unwrap().unwrap()["host"], "h2");
        assert_eq!(section("z", text).unwrap(), None);
        assert_eq!(section("c", text).unwrap_err().0, 10);
        assert_eq!(section("d", text).unwrap_err().0, 12);
    }
}
