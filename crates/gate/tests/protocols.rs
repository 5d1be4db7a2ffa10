//! What programs speak beside single statements comes through whole: base backups, pipelines and large objects.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod held;
mod raw;
mod server;

use backwater_model::{EventKind, FlowState};
use held::{PATIENCE, Session, before, proxy, until};
use raw::{ask, body, say, until_ready};
use server::{Server, text, with_server};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::future::poll_fn;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::task::Poll;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, SimpleQueryMessage, Statement};

/// Ways in which a session is relayed: as an urgent one, as one that waits for turns, and by the low class.
const RELAYED: [&str; 3] = [
    "",
    "[pools.default]\nmax_active = 1\n",
    "low_priority_bandwidth = '20MB'\n[pools.batch]\npriority = 'low'\n[users]\npostgres = 'batch'\n",
];

impl Session {
    fn prepare(&self, sql: &str) -> Statement {
        self.wait(self.client.prepare(sql)).unwrap()
    }
}

/// All answers, in the order of the questions. Every question is asked before the connection's task runs for the first
/// time, so that they stand in one pipeline.
async fn all<F: Future>(questions: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut asked: Vec<(_, Option<F::Output>)> = questions.map(|question| (Box::pin(question), None)).collect();
    poll_fn(|cx| {
        let mut done = true;
        for (question, answer) in &mut asked {
            if answer.is_none()
                && let Poll::Ready(found) = question.as_mut().poll(cx)
            {
                *answer = Some(found);
            }
            done &= answer.is_some();
        }
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    asked.into_iter().map(|(_, answer)| answer.unwrap()).collect()
}

/// A program of the server's own release, which lies beside it; none where it was not installed.
fn beside(server: &Server, program: &str) -> Option<String> {
    let dir = server.value("SELECT setting FROM pg_config WHERE name = 'BINDIR'");
    Some(format!("{dir}/{program}")).filter(|path| Path::new(path).exists())
}

/// Copies the server through a proxy: the files by one session, the WAL meanwhile by another.
fn base_backup(program: &str, port: u16, into: &Path) -> Command {
    let mut command = server::client(program, "127.0.0.1", port);
    command.args(["-X", "stream", "--checkpoint=fast", "--no-sync", "-D"]).arg(into);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A copy has these files as the server has them, and all the others as the server's manifest says.
fn compare(server: &Server, copy: &Path, files: &[&str]) {
    for file in files {
        let of = |dir: &Path| std::fs::read(dir.join(file)).unwrap();
        assert!(of(copy) == of(&server.data()), "{file} is another one");
    }
    if server.value("SELECT current_setting('server_version_num')::int >= 130000") != "t" {
        return eprintln!("not verified: the server makes no manifest");
    }
    let manifest = std::fs::read_to_string(copy.join("backup_manifest")).unwrap();
    assert!(files.iter().all(|file| manifest.contains(&format!("\"{file}\""))), "{manifest}");
    match beside(server, "pg_verifybackup") {
        Some(program) => drop(text(&Command::new(program).arg(copy).output().unwrap())),
        None => eprintln!("not verified: needs pg_verifybackup"),
    }
}

#[test]
fn a_base_backup_is_whole_and_in_the_pool_of_its_role() {
    // What changes pages afterwards would make the server's file another one than the copied.
    with_server("a_base_backup_is_whole_and_in_the_pool_of_its_role", &["autovacuum=off"], |server| {
        let Some(program) = beside(server, "pg_basebackup") else {
            return eprintln!("skipped: a_base_backup_is_whole_and_in_the_pool_of_its_role: needs pg_basebackup");
        };
        // 20 MB, with every hint bit set.
        server.value("CREATE TABLE t AS SELECT g, repeat(md5(g::text), 30) AS b FROM generate_series(1, 20000) g");
        server.value("VACUUM (FREEZE) t");
        let table = server.value("SELECT pg_relation_filepath('t')");
        let dir = tempfile::tempdir().unwrap();

        // Nobody said where its role belongs: a rule for statements does not concern it.
        let rule = "[rules.slow]\nelapsedtime = 0.02\naction = 'abort'\n[pools.default]\nexcept_rule = 'slow'\n";
        let held = proxy(server, rule);
        let copy = dir.path().join("exempt");
        text(&base_backup(&program, held.port, &copy).output().unwrap());
        compare(server, &copy, &["PG_VERSION", &table]);
        assert_eq!(held.events.try_iter().find(|event| event.kind == EventKind::Decision), None);

        // It has a pool, of the low class: its rule looks at it, and it is held for some seconds.
        let more = "low_priority_bandwidth = '20MB'\n[rules.seen]\nelapsedtime = 0.3\naction = 'dryrun'\n\
                    [pools.copies]\npriority = 'low'\nexcept_rule = 'seen'\n[users]\npostgres = 'copies'\n";
        let held = proxy(server, more);
        let copy = dir.path().join("held");
        let copying = base_backup(&program, held.port, &copy).spawn().unwrap();
        let mut glance = held.proxy.glance();
        until("files and WAL are held", || glance.look().held_in_all == 2);
        let mut events = std::iter::from_fn(|| held.events.recv_timeout(PATIENCE).ok());
        let seen = events.find(|event| event.kind == EventKind::Decision).unwrap();
        assert_eq!((seen.fields["rule"].as_str(), seen.fields["pool"].as_str()), ("seen", "copies"));
        text(&copying.wait_with_output().unwrap());
        compare(server, &copy, &["PG_VERSION", &table]);
        let sent = |state: &FlowState, from_it: bool| -> u64 {
            let pools = state.pools.iter().filter(|pool| (pool.name == "copies") == from_it);
            pools.map(|pool| pool.sent_bytes).sum()
        };
        // A session's bytes count for good once it is gone, a moment after its client.
        until("what was copied is counted", || sent(&glance.look(), true) > 20_000_000);
        assert_eq!(sent(&glance.look(), false), 0, "nothing went by another pool");
    });
}

/// Statements of a pipeline.
const STATEMENTS: i32 = 200;

/// What the server answers to this number: by the extended protocol, every fifth by the simple one.
async fn answer(client: &Client, statement: &Statement, number: i32) -> Result<String, Error> {
    let said = said(number);
    if number % 5 > 0 {
        return client.query_one(statement, &[&number, &said]).await?.try_get(0);
    }
    let told = client.simple_query(&format!("SELECT answer({number}, '{said}')")).await?;
    let row = told.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(row.unwrap_or_default().to_owned())
}

/// What goes along with a number, up to 20 KB: messages of a pipeline end anywhere in what the proxy reads at once.
fn said(number: i32) -> String {
    "x".repeat(number as usize * 100)
}

#[test]
fn answers_of_a_pipeline_come_in_the_order_of_its_statements() {
    with_server("answers_of_a_pipeline_come_in_the_order_of_its_statements", &[], |server| {
        // The sequence tells in which order the server was asked.
        server.value("CREATE SEQUENCE asked");
        server.value(
            "CREATE FUNCTION answer(number int, said text) RETURNS text LANGUAGE sql AS \
             $$ SELECT concat_ws(' ', number, nextval('asked'), said) $$",
        );
        for (round, more) in (0..).zip(RELAYED) {
            let held = proxy(server, more);
            let session = Session::open(held.port);
            let statement = session.prepare("SELECT answer($1, $2)");
            let asked = (1..=STATEMENTS).map(|number| answer(&session.client, &statement, number));
            let answers = session.wait(all(asked));
            assert_eq!(answers.len(), STATEMENTS as usize);
            for (number, answer) in (1..).zip(answers) {
                let wanted = format!("{number} {} {}", round * STATEMENTS + number, said(number));
                let answer = answer.unwrap();
                assert!(answer == wanted, "{more:?}: {answer} instead of {wanted}");
            }
        }
    });
}

#[test]
fn an_error_in_a_pipeline_fails_its_own_statement_alone() {
    with_server("an_error_in_a_pipeline_fails_its_own_statement_alone", &[], |server| {
        const WRONG: i32 = 25;
        for more in RELAYED {
            let held = proxy(server, more);
            let session = Session::open(held.port);
            let statement = session.prepare(&format!("SELECT 1000 / ($1::int4 - {WRONG})"));
            let (client, statement) = (&session.client, &statement);
            let divide = |number: i32| async move {
                let row = client.query_one(statement, &[&number]).await?;
                row.try_get::<_, i32>(0)
            };
            for (number, answer) in (1..).zip(session.wait(all((1..=60).map(divide)))) {
                match answer {
                    Ok(quotient) => assert_eq!(quotient, 1000 / (number - WRONG), "{more:?}: {number}"),
                    Err(error) => {
                        assert_eq!((number, error.code()), (WRONG, Some(&SqlState::DIVISION_BY_ZERO)), "{more:?}");
                    }
                }
            }
            assert!(session.wait(divide(WRONG)).is_err(), "the one that must fail");
            assert_eq!(session.wait(divide(WRONG + 1)).unwrap(), 1000);
        }
    });
}

const LARGE_OBJECT_BYTES: usize = 8 << 20;
/// What is read of it at once. No multiple of the 2 KiB in which the server keeps it, nor of the proxy's buffers.
const PIECE_BYTES: i32 = 300_007;

/// Bytes of one, and their digest as the server tells it.
fn large_object() -> (Vec<u8>, String) {
    let mut bytes = vec![0; LARGE_OBJECT_BYTES];
    File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    (bytes, digest)
}

#[test]
fn a_large_object_comes_back_as_it_was_sent() {
    with_server("a_large_object_comes_back_as_it_was_sent", &[], |server| {
        let (sent, digest) = large_object();
        for more in RELAYED {
            let held = proxy(server, more);
            let session = Session::open(held.port);
            let (client, make) = (&session.client, session.prepare("SELECT lo_from_bytea(0, $1)"));
            let id: u32 = session.wait(client.query_one(&make, &[&sent])).unwrap().get(0);
            // What the proxy sent up, the server tells of by another way.
            assert_eq!(server.value(&format!("SELECT encode(sha256(lo_get({id})), 'hex')")), digest, "{more:?}");
            let piece = session.prepare("SELECT lo_get($1, $2, $3)");
            let mut read: Vec<u8> = Vec::new();
            while read.len() < LARGE_OBJECT_BYTES {
                let from = read.len() as i64;
                let row = session.wait(client.query_one(&piece, &[&id, &from, &PIECE_BYTES])).unwrap();
                let part: &[u8] = row.get(0);
                assert!(!part.is_empty(), "{more:?}: it ends after {from} bytes");
                read.extend_from_slice(part);
            }
            assert!(read == sent, "{more:?}: it comes back as another one");
        }
    });
}

/// Functions of the server that libpq's lo_* call by their numbers (pg_proc.dat).
const LO_CREAT: u32 = 957;
const LO_OPEN: u32 = 952;
const LO_WRITE: u32 = 955;
const LO_LSEEK: u32 = 956;
const LO_READ: u32 = 954;
/// For reading and writing (libpq-fs.h).
const INV_READ_WRITE: i32 = 0x60000;

/// Calls one by the protocol's own message for that, as libpq does: arguments and result are binary.
fn call(stream: &mut TcpStream, function: u32, arguments: &[&[u8]]) -> Vec<u8> {
    let mut said = function.to_be_bytes().to_vec();
    said.extend_from_slice(&[0, 1, 0, 1]);
    said.extend_from_slice(&(arguments.len() as u16).to_be_bytes());
    for argument in arguments {
        said.extend_from_slice(&(argument.len() as u32).to_be_bytes());
        said.extend_from_slice(argument);
    }
    said.extend_from_slice(&[0, 1]);
    say(stream, b'F', &said);
    let answer = until_ready(stream);
    // Its length, and the result.
    body(&answer, b'V')[4..].to_vec()
}

#[test]
fn a_large_object_comes_through_by_function_calls() {
    with_server("a_large_object_comes_through_by_function_calls", &[], |server| {
        let (sent, digest) = large_object();
        // Who comes by the server's socket is asked for no password.
        let address = format!("{}/.s.PGSQL.{}", server.dir.path().display(), server.port);
        for more in RELAYED {
            let held = before(&address, more);
            let (mut stream, _) = raw::open(held.port, 0, "postgres");
            ask(&mut stream, "BEGIN");
            until_ready(&mut stream);
            let mode = INV_READ_WRITE.to_be_bytes();
            let id = call(&mut stream, LO_CREAT, &[&mode]);
            let object = call(&mut stream, LO_OPEN, &[&id, &mode]);
            for piece in sent.chunks(PIECE_BYTES as usize) {
                let written = call(&mut stream, LO_WRITE, &[&object, piece]);
                assert_eq!(written, (piece.len() as i32).to_be_bytes(), "{more:?}");
            }
            assert_eq!(call(&mut stream, LO_LSEEK, &[&object, &[0; 4], &[0; 4]]), [0; 4]);
            let mut read = Vec::new();
            while read.len() < LARGE_OBJECT_BYTES {
                let piece = call(&mut stream, LO_READ, &[&object, &PIECE_BYTES.to_be_bytes()]);
                assert!(!piece.is_empty(), "{more:?}: it ends after {} bytes", read.len());
                read.extend_from_slice(&piece);
            }
            assert!(read == sent, "{more:?}: it comes back as another one");
            ask(&mut stream, "COMMIT");
            until_ready(&mut stream);
            let id = u32::from_be_bytes(id.try_into().unwrap());
            assert_eq!(server.value(&format!("SELECT encode(sha256(lo_get({id})), 'hex')")), digest, "{more:?}");
            // A call is a statement like any other, which gives its turn back.
            let (mut other, _) = raw::open(held.port, 0, "postgres");
            ask(&mut other, "SELECT 1");
            assert_eq!(body(&until_ready(&mut other), b'D')[6..], *b"1", "{more:?}");
        }
    });
}
