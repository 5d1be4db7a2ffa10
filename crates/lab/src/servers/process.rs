//! Running programs of a server: with a clean environment, as an ordinary user, waited for without being slept for.

use super::ServerError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustix::time::Timespec;
use std::ffi::OsStr;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How much of the end of a log is shown.
const TAIL_BYTES: u64 = 8 << 10;
const TAIL_LINES: usize = 20;

/// A command that inherits nothing: no PG* variables, no locale, no terminal.
pub(crate) fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").env("PATH", "/usr/local/bin:/usr/bin:/bin").stdin(Stdio::null());
    command
}

/// Makes the command run as this user, in a process group of its own so that Ctrl-C in the terminal is the lab's to
/// handle, and from a directory that anybody may stand in.
pub(crate) fn as_user(command: &mut Command, user: Option<(u32, u32)>) {
    command.process_group(0).current_dir("/");
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
}

/// Does this in a network namespace (its name as `ip netns` has it), so that what is started there lives there; without
/// one, where we are. A thread that lives just as long is all that enters.
pub(crate) fn within<T: Send>(namespace: Option<&str>, act: impl FnOnce() -> T + Send) -> Result<T, ServerError> {
    let Some(name) = namespace else { return Ok(act()) };
    let path = Path::new("/run/netns").join(name);
    let namespace = std::fs::File::open(&path).map_err(ServerError::file("open", &path))?;
    let entered = std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(ServerError::system("setns"))?;
            Ok(act())
        });
        inside.join()
    });
    entered.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The ordinary user that a server runs as when this process is root: `postgres`, else `nobody`. None when this
/// process is an ordinary user itself.
pub fn ordinary_user() -> Result<Option<(u32, u32)>, ServerError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").map_err(ServerError::file("read", "/etc/passwd"))?;
    let found = ["postgres", "nobody"].iter().find_map(|name| user_in(&users, name));
    found.map(Some).ok_or(ServerError::NoOrdinaryUser)
}

/// The ids of a user, out of the text of `/etc/passwd`.
fn user_in(users: &str, name: &str) -> Option<(u32, u32)> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next()? == name;
        let (uid, gid): (u32, u32) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        (found && uid != 0).then_some((uid, gid))
    })
}

/// Waits for a child to end, at most so long; none while it still runs.
pub(crate) fn wait_for_end(child: &mut Child, longest: Duration) -> Result<Option<ExitStatus>, ServerError> {
    let deadline = Instant::now() + longest;
    let fail = |source| ServerError::System { call: "waitpid", source };
    if let Some(status) = child.try_wait().map_err(fail)? {
        return Ok(Some(status));
    }
    // Not reaped yet, so the id is still its own.
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(ServerError::system("pidfd_open"))?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(None),
            Ok(_) => return child.wait().map(Some).map_err(fail),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(ServerError::system("poll")(error)),
        }
    }
}

/// Signals a child that has not been reaped.
pub(crate) fn signal(child: &Child, signal: Signal) {
    // It may have ended by itself just now, which is what the signal is for.
    let _ = kill_process(Pid::from_child(child), signal);
}

/// The last lines of a log, from `start` bytes on.
pub(crate) fn tail(log: &Path, start: u64) -> String {
    let read = || {
        let mut file = std::fs::File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(start.max(length.saturating_sub(TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    match read() {
        Ok(bytes) => last_lines(&String::from_utf8_lossy(&bytes)),
        Err(error) => format!("(the log cannot be read: {error})"),
    }
}

/// The last lines of what a program said.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if lines.is_empty() {
        return "(it is empty)".to_owned();
    }
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn users_are_found_by_name_and_never_root() {
        let users = "root:x:0:0::/root:/bin/sh\nbad\npostgres:x:101:104::/:/bin/sh\nnobody:x:0:0::/:/bin/false\n";
        assert_eq!(user_in(users, "postgres"), Some((101, 104)));
        assert_eq!(user_in(users, "nobody"), None);
        assert_eq!(user_in(users, "root"), None);
    }

    #[test]
    fn an_end_is_seen_at_once_and_a_deadline_kept() {
        let mut child = clean("/bin/sleep").arg("60").spawn().unwrap();
        let began = Instant::now();
        assert!(wait_for_end(&mut child, Duration::from_millis(50)).unwrap().is_none());
        assert!(began.elapsed() >= Duration::from_millis(50));
        signal(&child, Signal::KILL);
        assert!(!wait_for_end(&mut child, Duration::from_secs(10)).unwrap().unwrap().success());
    }

    #[test]
    fn nothing_is_inherited() {
        let output = clean("/usr/bin/env").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut names: Vec<_> = text.lines().filter_map(|line| line.split('=').next()).collect();
        names.sort_unstable();
        assert_eq!(names, ["LC_ALL", "PATH"]);
    }

    #[test]
    fn the_end_of_a_log_is_shown_from_this_start_on() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "old\nnew\n").unwrap();
        assert_eq!(tail(file.path(), 4), "new");
        assert_eq!(last_lines(""), "(it is empty)");
        assert!(tail(Path::new("/nonexistent/log"), 0).contains("cannot be read"));
    }

    proptest! {
        #[test]
        fn any_passwd_is_survived(text in ".*") {
            let _ = user_in(&text, "postgres");
        }
    }
}
