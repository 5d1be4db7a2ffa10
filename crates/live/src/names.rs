//! Names that tell sources apart: two recordings may lie in directories of the same name, and figures of one must not pass for
//! the other's.

use crate::{Kind, Source};

/// Gives recordings of the same name as much of their path as tells them apart: `one/rec` and `two/rec`. What is still the same
/// (one directory given twice) is numbered.
pub fn tell_apart(sources: &mut [Source]) {
    let parts: Vec<Vec<String>> = sources.iter().map(parts).collect();
    for (source, name) in sources.iter_mut().zip(apart(&parts)) {
        source.name = name;
    }
}

/// What a source's name may be made of, the last part first.
fn parts(source: &Source) -> Vec<String> {
    let (Kind::Recording { dir, .. } | Kind::Flight { path: dir, .. }) = &source.kind else {
        return vec![source.name.clone()];
    };
    let whole = dir.canonicalize().unwrap_or_else(|_| dir.clone());
    // The last part is what it was called by, which may be a link to it.
    let above = whole.components().rev().skip(1).map(|part| part.as_os_str().to_string_lossy().into_owned());
    [source.name.clone()].into_iter().chain(above.filter(|part| part != "/")).collect()
}

/// A name from each of these, no two alike.
fn apart(parts: &[Vec<String>]) -> Vec<String> {
    let mut taken = vec![1; parts.len()];
    loop {
        let name = |(parts, taken): (&Vec<String>, &usize)| {
            parts.iter().take(*taken).rev().map(String::as_str).collect::<Vec<_>>().join("/")
        };
        let names: Vec<String> = parts.iter().zip(&taken).map(name).collect();
        let shared = |place: &usize| names.iter().filter(|name| **name == names[*place]).count() > 1;
        let longer: Vec<usize> =
            (0..parts.len()).filter(shared).filter(|place| taken[*place] < parts[*place].len()).collect();
        if longer.is_empty() {
            return numbered(&names);
        }
        longer.iter().for_each(|place| taken[*place] += 1);
    }
}

fn numbered(names: &[String]) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for name in names {
        let others = (2..).map(|number| format!("{name} ({number})"));
        let free = |name: &String| !told.contains(name);
        // The first that is free; there always is one.
        let new = [name.clone()].into_iter().chain(others).find(free).unwrap_or_default();
        told.push(new);
    }
    told
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    fn named(paths: &[&str]) -> Vec<String> {
        let parts = |path: &&str| -> Vec<String> { path.split('/').rev().map(str::to_owned).collect() };
        apart(&paths.iter().map(parts).collect::<Vec<_>>())
    }

    #[test]
    fn each_name_is_as_short_as_tells_it_from_the_others() {
        assert_eq!(named(&["a/rec", "a/last"]), ["rec", "last"]);
        assert_eq!(named(&["a/one/rec", "a/two/rec", "a/last"]), ["one/rec", "two/rec", "last"]);
        assert_eq!(named(&["a/x/rec", "b/x/rec", "b/y/rec"]), ["a/x/rec", "b/x/rec", "y/rec"]);
        assert_eq!(named(&["a/rec", "a/rec", "rec"]), ["a/rec", "a/rec (2)", "rec"]);
        assert_eq!(named(&["rec", "rec", "rec"]), ["rec", "rec (2)", "rec (3)"]);
        assert_eq!(named(&["db1", "x/db1"]), ["db1", "x/db1"], "a server keeps its name");
    }

    #[test]
    fn recordings_have_the_names_of_their_directories() {
        let dir = tempfile::tempdir().unwrap();
        let source = |path: &Path| Source {
            name: path.file_name().unwrap().to_string_lossy().into_owned(),
            kind: Kind::Recording { dir: path.to_owned(), history_s: 60.0 },
        };
        let paths = ["one/rec", "two/rec"].map(|path| dir.path().join(path));
        paths.iter().for_each(|path| std::fs::create_dir_all(path).unwrap());
        let mut sources: Vec<Source> = paths.iter().map(|path| source(path)).collect();
        tell_apart(&mut sources);
        assert_eq!(sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>(), ["one/rec", "two/rec"]);
    }
}
