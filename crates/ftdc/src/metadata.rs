//! What a server said of itself: metadata, with the changes applied that follow it.

use crate::bson::{Element, elements, find, find_path, kind};
use crate::{Builder, Damage, Document, DocumentKind};
use std::collections::{HashMap, VecDeque};

/// Parts that a server tells of itself by its roles, below which its samples and metadata stand since MongoDB 8.0.
pub const ROLES: [&str; 3] = ["common", "shard", "router"];
/// How deep a change of metadata goes: to the fields of a command's answer, be that below a role.
const DEEPEST_CHANGE: usize = 2;

/// Metadata as of the last document taken in.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    whole: Option<Vec<u8>>,
    periodic: Option<Vec<u8>>,
}

impl Metadata {
    /// Takes in a document of metadata or a change of it; others change nothing.
    ///
    /// A file's metadata (type 0) replaces what was. Periodic metadata (type 2, since MongoDB 8.0) stands beside it:
    /// number 0 is whole, each later one has only the fields that changed, two levels down, or three where the first
    /// is a role's (mongod's `metadata_compressor.cpp`).
    pub fn take(&mut self, document: &Document) -> Result<(), Damage> {
        match document.kind() {
            DocumentKind::Metadata => {
                elements(document.body())?;
                self.whole = Some(document.body().to_vec());
            }
            DocumentKind::MetadataDelta => {
                elements(document.body())?;
                self.periodic = Some(match &self.periodic {
                    Some(before) if document.index() != Some(0) => merged(before, document.body(), DEEPEST_CHANGE)?,
                    _ => document.body().to_vec(),
                });
            }
            DocumentKind::Chunk | DocumentKind::Other(_) => {}
        }
        Ok(())
    }

    /// The last file's metadata, a BSON document.
    pub fn document(&self) -> Option<&[u8]> {
        self.whole.as_deref()
    }

    /// Periodic metadata as it stood at last, a BSON document.
    pub fn periodic(&self) -> Option<&[u8]> {
        self.periodic.as_deref()
    }

    /// The server's version, such as 7.0.12.
    pub fn version(&self) -> Option<String> {
        self.text(&["buildInfo", "version"])
    }

    /// The host's name, with the port where there is one.
    pub fn host(&self) -> Option<String> {
        self.text(&["hostInfo", "system", "hostname"])
    }

    /// How many processors the host has.
    pub fn cores(&self) -> Option<i64> {
        self.find(&["hostInfo", "system", "numCores"])?.integer()
    }

    /// The element at this path: below the document itself, or below its parts of a role ([`ROLES`], since MongoDB
    /// 8.0); in periodic metadata if the file's has none.
    pub fn find(&self, path: &[&str]) -> Option<Element<'_>> {
        [self.document(), self.periodic()].into_iter().flatten().find_map(|document| {
            find_path(document, path).or_else(|| {
                ROLES.iter().find_map(|role| {
                    let part = find(document, role).filter(|element| element.kind == kind::DOCUMENT)?;
                    find_path(part.value, path)
                })
            })
        })
    }

    fn text(&self, path: &[&str]) -> Option<String> {
        self.find(path)?.text().map(|text| text.into_owned())
    }
}

/// `before` with the fields of `change` put in their places, so many levels deep below a role and one less elsewhere; what
/// is new comes last.
fn merged(before: &[u8], change: &[u8], levels: usize) -> Result<Vec<u8>, Damage> {
    let changed: Vec<Element<'_>> = elements(change)?.collect::<Result<_, _>>()?;
    // A key may be there more than once; each is used for one of the same name, in their order.
    let mut places: HashMap<&[u8], VecDeque<usize>> = HashMap::new();
    changed.iter().enumerate().for_each(|(place, new)| places.entry(new.key).or_default().push_back(place));
    let mut used = vec![false; changed.len()];
    let mut built = Builder::new();
    for element in elements(before)? {
        let element = element?;
        let Some(place) = places.get_mut(element.key).and_then(VecDeque::pop_front) else {
            built = built.element(&element);
            continue;
        };
        used[place] = true;
        let new = changed[place];
        let both = new.kind == kind::DOCUMENT && element.kind == kind::DOCUMENT;
        if both && levels > 0 {
            let is_role = ROLES.iter().any(|role| role.as_bytes() == element.key);
            let inside = merged(element.value, new.value, if is_role { levels - 1 } else { 0 })?;
            built = built.element(&Element { value: &inside, ..new });
        } else {
            built = built.element(&new);
        }
    }
    for (new, _) in changed.iter().zip(&used).filter(|(_, used)| !**used) {
        built = built.element(new);
    }
    Ok(built.finish())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Documents, Limits, encode};
    use std::path::Path;

    fn taken(documents: &[Vec<u8>]) -> Metadata {
        let mut metadata = Metadata::default();
        let bytes = documents.concat();
        for document in Documents::new(&bytes[..], Path::new("f"), Limits::default()) {
            metadata.take(&document.unwrap()).unwrap();
        }
        metadata
    }

    #[test]
    fn changes_are_put_in_their_places() {
        let first =
            Builder::new().date("start", 1).document("getParameter", |p| p.int32("a", 1).int32("b", 2)).finish();
        let change = Builder::new().date("start", 2).document("getParameter", |p| p.int32("b", 3)).finish();
        let metadata = taken(&[encode::metadata_delta(1, 0, &first), encode::metadata_delta(2, 1, &change)]);
        let now = metadata.periodic().unwrap();
        let expected =
            Builder::new().date("start", 2).document("getParameter", |p| p.int32("a", 1).int32("b", 3)).finish();
        assert_eq!(now, expected);
        assert_eq!(metadata.find(&["getParameter", "b"]).unwrap().integer(), Some(3));
        let anew = taken(&[encode::metadata_delta(1, 0, &first), encode::metadata_delta(2, 0, &change)]);
        assert_eq!(anew.periodic().unwrap(), change);
    }

    #[test]
    fn changes_below_a_role_are_put_in_their_places_too() {
        let nested = |b: Builder, value: i32| b.document("d", |d| d.int32("x", value));
        let of = |role: &str, fill: &dyn Fn(Builder) -> Builder| {
            Builder::new().document(role, |r| r.document("getParameter", fill)).finish()
        };
        let whole = |p: Builder| nested(p.int32("a", 1).int32("b", 2), 3).int32("c", 4);
        let change = |p: Builder| nested(p.int32("b", 5), 6);
        let both = |p: Builder| nested(p.int32("a", 1).int32("b", 5), 6).int32("c", 4);
        let merged = |role: &str| {
            let documents =
                [encode::metadata_delta(1, 0, &of(role, &whole)), encode::metadata_delta(2, 1, &of(role, &change))];
            taken(&documents).periodic().unwrap().to_vec()
        };
        for role in ROLES {
            assert_eq!(merged(role), of(role, &both), "{role}");
        }
        // What is no role holds what is compared itself.
        assert_eq!(merged("storage"), of("storage", &change));
    }

    #[test]
    fn what_lies_deeper_than_a_change_goes_is_replaced_whole() {
        let of = |x: i32, y: Option<i32>| {
            let inner = |d: Builder| y.iter().fold(d.int32("x", x), |d, y| d.int32("y", *y));
            Builder::new().document("shard", |s| s.document("getParameter", |p| p.document("d", inner))).finish()
        };
        let metadata =
            taken(&[encode::metadata_delta(1, 0, &of(1, Some(2))), encode::metadata_delta(2, 1, &of(3, None))]);
        assert_eq!(metadata.periodic().unwrap(), of(3, None));
    }

    #[test]
    fn a_server_of_many_roles_is_found_too() {
        let build = |b: Builder| b.document("buildInfo", |b| b.string("version", "8.0.1"));
        let plain = build(Builder::new()).finish();
        let roles = Builder::new().document("common", build).finish();
        for document in [plain, roles] {
            assert_eq!(taken(&[encode::metadata(1, &document)]).version().unwrap(), "8.0.1");
        }
    }
}
