//! What comes at a proxy from outside and must leave it as it was: connections by the ten thousand, a server that is started anew,
//! a peer that vanishes without a word.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod elsewhere;
mod raw;
mod server;

use backwater_gate::proxy::{Proxy, ProxyConfig};
use elsewhere::Elsewhere;
use server::{Running, Server, complaint, psql, text, with_server};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that are allocated in this process, and not given back. What is resident says less: a heap keeps the room of its busiest
/// moment, which is another one each time.
static ALLOCATED_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: each call is handed on to the system's allocator as it is.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Attempts a second that are asked for, and for how many seconds. Where the proxy takes fewer (a build that is not optimised, a
/// busy machine), those that wait in the kernel's queue hold the storm back.
const RATE_PER_S: u32 = 10_000;
const SECONDS: u32 = 2;
/// Threads that make them.
const STORMERS: usize = 4;

/// What this process has open, and how much memory, is counted: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Raises a flag when it goes, also by a panic: else whoever waits for the flag would wait for ever.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn proxy(server: &Server, listen: &str) -> (Proxy, u16) {
    let written = format!("listen = '{listen}:0'\nserver = '{}'\n", server.address());
    let proxy = Proxy::start(&ProxyConfig::parse(&written, Path::new("test.toml")).unwrap()).unwrap();
    let port = proxy.addresses()[0].to_string().rsplit(':').next().unwrap().parse().unwrap();
    (proxy, port)
}

/// Open files of this process, which holds both ends of what clients open here.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// What is allocated once that has stayed as it is for a second.
fn at_rest() -> usize {
    let mut seen = (0, Instant::now());
    until("memory comes to rest", Duration::from_secs(60), || {
        let now = ALLOCATED_BYTES.load(Ordering::Relaxed);
        if now != seen.0 {
            seen = (now, Instant::now());
        }
        seen.1.elapsed() > Duration::from_secs(1)
    });
    seen.0
}

/// Waits until it is so.
fn until(what: &str, within: Duration, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < within, "{what}: not within {within:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What an attempt does before it is gone: nothing, noise, half an opening, a request for encryption; and of a hundred one logs
/// in as an unknown role, since the server itself has to make a process for each of these.
fn attempt(number: u32, port: u16) {
    let said: &[u8] = match number % 100 {
        99 => b"\0\0\0\x15\0\x03\0\0user\0nobody\0\0",
        kind if kind % 4 == 0 => b"",
        kind if kind % 4 == 1 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        kind if kind % 4 == 2 => b"\0\0\0\x2a\0\x03\0\0user\0nob",
        _ => b"\0\0\0\x08\x04\xd2\x16\x2f",
    };
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    // Half of them are reset: so many in TIME_WAIT would use up this host's ports.
    if number.is_multiple_of(2) {
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
    // Whoever is refused may be gone before it has said anything.
    let _gone = TcpStream::from(socket).write_all(said);
}

/// A statement every few milliseconds by one session, until told to end; the longest that one took.
fn longest_statement(port: u16, over: &AtomicBool) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let conninfo =
            format!("host=127.0.0.1 port={port} user=postgres dbname=postgres password={}", server::PASSWORD);
        let (client, connection) = tokio_postgres::connect(&conninfo, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let mut longest = Duration::ZERO;
        while !over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            client.simple_query("SELECT 1").await.unwrap();
            longest = longest.max(begun.elapsed());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert!(longest > Duration::ZERO, "none ran meanwhile");
        longest
    })
}

#[test]
fn a_storm_of_attempts_leaves_nothing_and_holds_up_nobody() {
    let _alone = alone();
    with_server("a_storm_of_attempts_leaves_nothing_and_holds_up_nobody", &[], |server| {
        let (_proxy, port) = proxy(server, "127.0.0.1");
        let over = AtomicBool::new(false);
        // What is made once is made now.
        (0..100).for_each(|number| attempt(number, port));
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
        server.until(sessions, "1");
        let files = open_files();
        let (seconds, longest) = std::thread::scope(|scope| {
            let urgent = scope.spawn(|| longest_statement(port, &over));
            let raise = Raise(&over);
            let begun = Instant::now();
            let storm = move |first: u32| {
                for number in (first..RATE_PER_S * SECONDS).step_by(STORMERS) {
                    let due = begun + Duration::from_secs(1) * number / RATE_PER_S;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    attempt(number, port);
                }
            };
            let stormers: Vec<_> = (0..STORMERS as u32).map(|first| scope.spawn(move || storm(first))).collect();
            stormers.into_iter().for_each(|stormer| stormer.join().unwrap());
            let seconds = begun.elapsed().as_secs_f64();
            until("a new session all the same", Duration::from_secs(20), || {
                psql("127.0.0.1", port, "SELECT 1").output().unwrap().status.success()
            });
            drop(raise);
            (seconds, urgent.join().unwrap())
        });
        let attempts = RATE_PER_S * SECONDS;
        eprintln!(
            "{attempts} attempts in {seconds:.2} s ({:.0}/s); the longest statement meanwhile took {longest:?}",
            f64::from(attempts) / seconds
        );
        assert!(longest < Duration::from_secs(2), "{longest:?}");
        until("what they opened is closed", Duration::from_secs(30), || open_files() <= files);
        server.until(sessions, "1");
        leave_nothing(files, 10_000, |number| attempt(number, port));
    });
}

/// What each of so many adds, of which none may leave anything open. Tables have grown to what the busiest moment asked for, and
/// keep that: a leak is what each further storm adds, each twice as long as the one before, so that a table that grows by doubling
/// has to.
fn leave_nothing(files: usize, of: u32, one: impl Fn(u32)) {
    let leaks = |of: u32| {
        let before = at_rest();
        (0..of).for_each(&one);
        until("what they opened is closed", Duration::from_secs(30), || open_files() <= files);
        let added = at_rest().saturating_sub(before);
        eprintln!("{of} attempts more: {added} bytes more");
        added > of as usize
    };
    assert!((0..4).any(|round| !leaks(of << round)));
}

/// One of what goes wrong beside sessions that are well: a message that cannot be, a client that is gone amidst its result, a wrong
/// password at the console, and a name that it does not know.
fn fault(number: u32, port: u16, console: u16) {
    let visit = |user: &str| {
        let conninfo = format!("host=127.0.0.1 port={console} user={user} dbname=backwater password=wrong");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let refused = runtime.block_on(tokio_postgres::connect(&conninfo, tokio_postgres::NoTls)).err().unwrap();
        let said = refused.as_db_error().map(|error| (error.code().code().to_owned(), error.message().to_owned()));
        assert!(said.as_ref().is_some_and(|(code, _)| code == "28P01"), "{refused}");
    };
    match number % 4 {
        0 => {
            let (mut session, _) = raw::open(port, 0, "open_door");
            session.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            session.write_all(b"Q\xff\xff\xff\xff").unwrap();
            session.shutdown(Shutdown::Write).unwrap();
            // The server's words, or a reset where it did not read all; it ends.
            let read = session.read_to_end(&mut Vec::new());
            assert!(
                read.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true),
                "{read:?}"
            );
        }
        1 => {
            let (mut session, _) = raw::open(port, 0, "open_door");
            raw::ask(&mut session, "SELECT repeat('x', 1000) FROM generate_series(1, 1000)");
            let _kind = raw::message(&mut session).unwrap();
            // The rest of it is never read: it is reset.
        }
        2 => visit("dba"),
        _ => visit("stranger"),
    }
}

#[test]
fn what_goes_wrong_beside_it_disturbs_no_session_and_leaves_nothing() {
    let _alone = alone();
    with_server("what_goes_wrong_beside_it_disturbs_no_session_and_leaves_nothing", &[], |server| {
        server.make_open_door();
        let config = |most: u32| {
            let written = format!(
                "listen = '127.0.0.1:0'\nserver = '{}'\n[pools.default]\nmax_connections = {most}\n\
                 [admin]\nlisten = '127.0.0.1:0'\nusers = {{ dba = 'open sesame' }}\n",
                server.address()
            );
            ProxyConfig::parse(&written, Path::new("test.toml")).unwrap()
        };
        let configs = [100, 200].map(config);
        let proxy = Proxy::start(&configs[0]).unwrap();
        let [port, console] = [proxy.addresses(), proxy.console_addresses()]
            .map(|addresses| addresses[0].to_string().rsplit(':').next().unwrap().parse::<u16>().unwrap());
        let one = |number: u32| {
            fault(number, port, console);
            proxy.reload(&configs[number as usize % 2]).unwrap();
        };
        // What is made once is made now, and as much of what happened is kept as ever is.
        (0..8).for_each(one);
        (0..1_000).for_each(|number| drop(proxy.reload(&configs[number % 2]).unwrap()));
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
        server.until(sessions, "1");
        let files = open_files();
        let over = AtomicBool::new(false);
        let longest = std::thread::scope(|scope| {
            let urgent = scope.spawn(|| longest_statement(port, &over));
            let raise = Raise(&over);
            (0..200).for_each(one);
            drop(raise);
            urgent.join().unwrap()
        });
        eprintln!("200 faults; the longest statement meanwhile took {longest:?}");
        assert!(longest < Duration::from_secs(2), "{longest:?}");
        server.until(sessions, "1");
        leave_nothing(files, 200, one);
    });
}

#[test]
fn sessions_end_with_their_server_and_begin_again_with_it() {
    let _alone = alone();
    with_server("sessions_end_with_their_server", &[], |server| {
        let (proxy, port) = proxy(server, "127.0.0.1");
        assert_eq!(text(&psql("127.0.0.1", port, "SELECT 1").output().unwrap()), "1");
        let sessions = || proxy.glance().look().pools.iter().map(|pool| pool.sessions).sum::<u64>();
        until("the first one is gone", Duration::from_secs(20), || sessions() == 0);
        let files = open_files();
        let spawn =
            |sql: &str| psql("127.0.0.1", port, sql).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let running = spawn("SELECT pg_sleep(600)");
        let mut sending = spawn("COPY (SELECT repeat('x', 1000), generate_series(1, 100000000)) TO STDOUT");
        let sent = sending.stdout.take().unwrap();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite'", "1");
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        server.stop_at_once();
        let said = complaint(&running.wait_with_output().unwrap());
        assert!(said.contains("terminat") || said.contains("closed the connection"), "{said}");
        // Its client stands at a pipe that nobody reads.
        drop(sent);
        assert!(!sending.wait().unwrap().success());
        drop(sending);
        let away = complaint(&psql("127.0.0.1", port, "SELECT 1").output().unwrap());
        assert!(away.contains("cannot be reached"), "{away}");
        server.start_again(&[]);
        assert_eq!(text(&psql("127.0.0.1", port, "SELECT 2").output().unwrap()), "2");
        until("what they opened is closed", Duration::from_secs(30), || open_files() <= files);
        until("no session is left", Duration::from_secs(20), || sessions() == 0);
    });
}

/// A server whose queue of connections is full: whoever needs one waits, and cannot be asked to make room.
fn full_server() -> (socket2::Socket, Vec<TcpStream>, SocketAddr) {
    let server = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    server.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    server.listen(0).unwrap();
    let to = server.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    while let Ok(one) = TcpStream::connect_timeout(&to, Duration::from_millis(300)) {
        queued.push(one);
    }
    (server, queued, to)
}

#[test]
fn who_said_in_time_who_he_is_hears_that_the_server_does_not_answer() {
    let _alone = alone();
    let (_server, _queued, to) = full_server();
    let limits = "[limits]\nlogin_timeout_s = 0.3\nconnect_timeout_s = 1.5\n";
    let written = format!("listen = '127.0.0.1:0'\nserver = '{to}'\n{limits}");
    let proxy = Proxy::start(&ProxyConfig::parse(&written, Path::new("test.toml")).unwrap()).unwrap();
    // Also where the server was to be asked for encryption first.
    for asks in [false, true] {
        let mut client = TcpStream::connect(proxy.addresses()[0].to_string()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        if asks {
            let mut answer = [0];
            client.write_all(b"\0\0\0\x08\x04\xd2\x16\x2f").unwrap();
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"N");
        }
        client.write_all(b"\0\0\0\x12\0\x03\0\0user\0dba\0\0").unwrap();
        let mut told = Vec::new();
        client.read_to_end(&mut told).unwrap();
        let told = String::from_utf8_lossy(&told);
        assert!(told.contains("08006") && told.contains("no answer in 1.5 s"), "{asks}: {told:?}");
    }
}

#[test]
fn a_flood_of_those_who_said_who_they_are_keeps_nobody_out_of_the_console() {
    let _alone = alone();
    let (_server, _queued, to) = full_server();
    let written = format!(
        "listen = '127.0.0.1:0'\nserver = '{to}'\n[limits]\nconnect_timeout_s = 600.0\nlogin_timeout_s = 600.0\n\
         [admin]\nlisten = '127.0.0.1:0'\nusers = {{ dba = 'open sesame' }}\n"
    );
    let proxy = Proxy::start(&ProxyConfig::parse(&written, Path::new("test.toml")).unwrap()).unwrap();
    let [port, console] = [proxy.addresses(), proxy.console_addresses()]
        .map(|addresses| addresses[0].to_string().rsplit(':').next().unwrap().parse::<u16>().unwrap());
    let say = |port: u16, words: &[u8]| {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.write_all(words).unwrap();
        client
    };
    let start_up = b"\0\0\0\x12\0\x03\0\0user\0dba\0\0";
    // As many as may be on their way to a session, and some more.
    let mut flood: Vec<_> = (0..4_120).map(|_| say(port, start_up)).collect();
    until("nobody more is heard", Duration::from_secs(60), || {
        // Whose words were not read yet had to make room for the looks before.
        flood.extend((0..10).map(|_| say(port, start_up)));
        let mut other = say(port, b"GET / HTTP/1.1\r\n\r\n");
        other.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        other.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    });
    let mut operator = say(console, start_up);
    operator.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut kind = [0];
    operator.read_exact(&mut kind).unwrap();
    assert_eq!(&kind, b"R", "the question for a password");
}

/// Waits until nothing is on its way by these connections: what is when the cable goes is sent again for a quarter of an hour.
fn all_is_acknowledged(of: &[&str]) {
    let on_its_way = || {
        let list = Command::new("ss").arg("-Htn").args(of).output().unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        let queued = list.lines().map(|line| line.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap());
        queued.reduce(|one, other| one + other)
    };
    until("all that was said is acknowledged", Duration::from_secs(60), || on_its_way() == Some(0));
}

#[test]
fn a_peer_that_vanished_is_let_go_after_a_minute() {
    let _alone = alone();
    let Some(elsewhere) = Elsewhere::make() else {
        return eprintln!("skipped: a_peer_that_vanished_is_let_go_after_a_minute: needs root and ip");
    };
    with_server("a_peer_that_vanished_is_let_go_after_a_minute", &[], |server| {
        let (_proxy, port) = proxy(server, Elsewhere::HERE);
        let mut far = Command::new("ip");
        far.args(["netns", "exec", &elsewhere.name, "psql", "-X", "-h", Elsewhere::HERE, "-p", &port.to_string()]);
        far.args(["-U", "postgres", "postgres"]).env("PGPASSWORD", server::PASSWORD);
        // A namespace stays as long as somebody is in it.
        let mut far = Running(far.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
        let mut says = far.0.stdin.take().unwrap();
        writeln!(says, "SET application_name = 'far away';").unwrap();
        let there = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'far away'";
        server.until(there, "1");
        all_is_acknowledged(&["src", &format!("{}:{port}", Elsewhere::HERE)]);
        elsewhere.cut();
        let begun = Instant::now();
        until("its session ends", Duration::from_secs(90), || server.value(there) == "0");
        assert!(begun.elapsed() > Duration::from_secs(20), "it was asked first: {:?}", begun.elapsed());
    });
}

/// Passes on to a server of this host what comes to a port that is elsewhere, so that the server is away when the cable is.
fn pass_on_from(elsewhere: &Elsewhere, to: u16) -> u16 {
    let listener = elsewhere.make_there(|| TcpListener::bind((Elsewhere::THERE, 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for from in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            for (mut from, mut to) in
                [(&from, &server), (&server, &from)].map(|(a, b)| (a.try_clone().unwrap(), b.try_clone().unwrap()))
            {
                std::thread::spawn(move || {
                    let _ended = std::io::copy(&mut from, &mut to);
                    let _told = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    port
}

#[test]
fn a_server_that_vanished_is_given_up_after_a_minute() {
    let _alone = alone();
    let Some(elsewhere) = Elsewhere::make() else {
        return eprintln!("skipped: a_server_that_vanished_is_given_up_after_a_minute: needs root and ip");
    };
    with_server("a_server_that_vanished_is_given_up_after_a_minute", &[], |server| {
        let there = pass_on_from(&elsewhere, server.port);
        let written = format!("listen = '127.0.0.1:0'\nserver = '{}:{there}'\n", Elsewhere::THERE);
        let proxy = Proxy::start(&ProxyConfig::parse(&written, Path::new("test.toml")).unwrap()).unwrap();
        let port = proxy.addresses()[0].to_string().rsplit(':').next().unwrap().parse().unwrap();
        let sessions = || proxy.glance().look().pools.iter().map(|pool| pool.sessions).sum::<u64>();
        let mut waiting = psql("127.0.0.1", port, "SELECT pg_sleep(3600)");
        let waiting = waiting.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        assert_eq!(sessions(), 1);
        all_is_acknowledged(&["dst", &format!("{}:{there}", Elsewhere::THERE)]);
        elsewhere.cut();
        let begun = Instant::now();
        until("the session ends", Duration::from_secs(120), || sessions() == 0);
        assert!(begun.elapsed() > Duration::from_secs(20), "it was asked first: {:?}", begun.elapsed());
        let told = complaint(&waiting.wait_with_output().unwrap());
        assert!(told.contains("closed the connection") || told.contains("terminat"), "{told}");
        // Whoever comes meanwhile is told, and not kept.
        let away = complaint(&psql("127.0.0.1", port, "SELECT 1").output().unwrap());
        assert!(away.contains("cannot be reached"), "{away}");
    });
}
