//! Enumerations that people spell: one word each, read in any case, written in lower case, the same in statements,
//! TOML, JSON and the console.

/// Declares an enumeration with one word a variant, with `word`, `ALL`, `Display`, `FromStr` and serde.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident: $what:literal { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant),+ }

        impl $name {
            /// Every one, in the order in which they are listed to people.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// How it is spelled.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::word::UnknownWord;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.iter().find(|known| known.word().eq_ignore_ascii_case(text));
                found.copied().ok_or_else(|| $crate::word::UnknownWord {
                    found: text.to_owned(),
                    what: $what,
                    known: Self::ALL.iter().map(|known| known.word()).collect::<Vec<_>>().join(", "),
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.word())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use words;

/// A word that is none of those expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{found}' is not {what}: there are {known}")]
pub struct UnknownWord {
    /// What was written.
    pub found: String,
    /// What it should have been.
    pub what: &'static str,
    /// The words there are.
    pub known: String,
}
