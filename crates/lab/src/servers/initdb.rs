//! Makes a server's data directory with `initdb`.

use super::postgres::program_error;
use super::{PostgresSpec, ServerError, process, settings};
use backwater_undo::{Journal, Stop};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `initdb` and has `postgresql.conf` include the lab's settings. With a password, connections over TCP ask for
/// it; without one they are refused, whatever `listen_addresses` is later set to.
pub(crate) fn run(
    journal: &Journal,
    spec: &PostgresSpec,
    run_dir: &Path,
    password: Option<&str>,
) -> Result<(), ServerError> {
    let program = spec.installed.program("initdb");
    let mut command = process::clean(&program);
    process::as_user(&mut command, spec.user);
    command.arg("-D").arg(&spec.data_dir).args(["-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]);
    command.arg("--auth-local=trust");
    if let Some(wal_dir) = &spec.wal_dir {
        command.arg("--waldir").arg(wal_dir);
    }
    let password_file = run_dir.join("password");
    match password {
        Some(password) => {
            write_owned(&password_file, password, spec.user)?;
            command.arg("--auth-host=scram-sha-256").arg("--pwfile").arg(&password_file);
        }
        None => drop(command.arg("--auth-host=reject")),
    }
    let result = finish(journal, &mut command, &program);
    if password.is_some() {
        std::fs::remove_file(&password_file).map_err(ServerError::file("remove", &password_file))?;
    }
    result?;
    append(&spec.data_dir.join("postgresql.conf"), &format!("include '{}'", settings::FILE))?;
    if let Some(end) = &spec.network {
        // The network holds nobody but the two servers, or the server and the lab's own clients.
        let network = format!("{}/{}", end.address, crate::limits::network::PREFIX);
        let lines = format!("host replication postgres {network} trust\nhost all postgres {network} trust");
        append(&spec.data_dir.join("pg_hba.conf"), &lines)?;
    }
    Ok(())
}

fn finish(journal: &Journal, command: &mut Command, program: &Path) -> Result<(), ServerError> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let spawned = journal.spawn(command, "initdb of the lab's server", Stop::Terminate);
    let (child, entry) = spawned.map_err(|error| program_error(error, program))?;
    let output = child.wait_with_output().map_err(|source| ServerError::System { call: "waitpid", source })?;
    journal.undo(entry)?;
    if output.status.success() {
        return Ok(());
    }
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let output_text = process::last_lines(&said);
    Err(ServerError::Failed { program: program.to_path_buf(), status: output.status.to_string(), output: output_text })
}

fn append(path: &Path, line: &str) -> Result<(), ServerError> {
    let fail = |error| ServerError::file("write", path)(error);
    let mut file = OpenOptions::new().append(true).open(path).map_err(fail)?;
    writeln!(file, "\n{line}").map_err(fail)
}

/// Writes a file that only this user may read.
pub(crate) fn write_owned(path: &Path, text: &str, user: Option<(u32, u32)>) -> Result<(), ServerError> {
    let fail = |error| ServerError::file("write", path)(error);
    let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    open.and_then(|mut file| file.write_all(text.as_bytes())).map_err(fail)?;
    let Some((uid, gid)) = user else { return Ok(()) };
    chown(path, Some(uid), Some(gid)).map_err(fail)
}
