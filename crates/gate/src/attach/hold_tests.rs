//! Whom a hold keeps and whom it lets go, with a helper that answers as it was told to.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::attach::message::{Answer, SocketLook, line};
use backwater_socket::{Socket, TcpInfo};
use std::process::Command;

const RATE: u64 = 2 << 20;

/// Says its first line at once and one more to each question, whatever it is; its standard input is the line to its master, both ways.
const SAYS: &str =
    r#"printf %s "$1" >&0; shift; for answer; do read -r question || exit; printf %s "$answer" >&0; done"#;

fn guardian(answers: &[Answer]) -> Guardian {
    let mut command = Command::new("sh");
    command.args(["-c", SAYS, "sh"]).arg(line(&Answer::Ready(PutBack::default())).unwrap());
    command.args(answers.iter().map(|answer| line(answer).unwrap()));
    Guardian::start(command).unwrap()
}

fn named(cookie: u64) -> Named {
    let [local, peer] = ["10.0.0.7:5432", "10.0.0.9:40000"].map(|address| address.parse().unwrap());
    let socket = Socket { pid: 7, start_time: 8, inode: 9, descriptor: None, cookie, local, peer };
    Named { socket, title: "postgres: etl".to_owned() }
}

fn read(established: bool) -> SocketLook {
    let info = TcpInfo { established, ..TcpInfo::default() };
    SocketLook::Read(Reading { rate_bps: Some(RATE), queued_bytes: 0, info })
}

fn failed() -> SocketLook {
    SocketLook::Failed("cannot take hold of process 7: Too many open files".to_owned())
}

/// The next looks, a tenth of a second apart: who is gone at each.
fn look(hold: &mut Hold, from: i64, looks: i64) -> Vec<Vec<u64>> {
    let next = |at: i64| hold.look(Moment(at * 100_000)).unwrap();
    let cookies = |gone: Vec<Paced>| gone.iter().map(|paced| paced.named.socket.cookie).collect::<Vec<u64>>();
    (from..from + looks).map(next).map(cookies).collect()
}

fn failures(hold: &Hold) -> Vec<(u64, u64)> {
    hold.paced().iter().map(|paced| (paced.named.socket.cookie, paced.failures())).collect()
}

#[test]
fn one_that_cannot_be_read_is_held_on_and_counted_and_one_that_is_gone_is_let_go() {
    let paced = || Answer::Each(vec![Answer::Done]);
    let mut hold = Hold::new(
        guardian(&[
            paced(),
            paced(),
            Answer::Readings(vec![read(true), read(true)]),
            Answer::Readings(vec![failed(), read(true)]),
            Answer::Readings(vec![failed(), failed()]),
            Answer::Readings(vec![read(true), SocketLook::Gone]),
            // It is asked to put back who is gone, and nobody else.
            Answer::Done,
            Answer::Readings(vec![failed()]),
            Answer::Readings(vec![read(false)]),
            Answer::Done,
        ]),
        Rates { each_bps: Some(RATE), class: None },
    );
    for cookie in [1, 2] {
        hold.add(Moment(0), named(cookie)).unwrap();
    }
    assert_eq!(look(&mut hold, 1, 3), [[0; 0]; 3]);
    assert_eq!(failures(&hold), [(1, 2), (2, 1)]);
    assert!(hold.paced().iter().all(|paced| paced.granted_bps == RATE && paced.is_unread));
    assert_eq!(look(&mut hold, 4, 2), [vec![2], vec![]]);
    assert_eq!((failures(&hold), hold.cookies()), (vec![(1, 3)], HashSet::from([1])));
    assert_eq!(look(&mut hold, 6, 1), [[1]], "its process has sent its last word");
    assert_eq!(hold.look_every(), None);
}

#[test]
fn a_rate_that_could_not_be_told_is_told_at_the_next_look() {
    let refused =
        || Answer::Each(vec![Answer::Refused("cannot take hold of process 7: Too many open files".to_owned())]);
    let readings = || Answer::Readings(vec![read(true)]);
    let paced = || Answer::Each(vec![Answer::Done]);
    let mut hold = Hold::new(
        guardian(&[paced(), readings(), readings(), refused(), readings(), refused(), readings(), paced(), readings()]),
        Rates { each_bps: None, class: Some(ClassRate::Fixed(RATE)) },
    );
    hold.add(Moment(0), named(1)).unwrap();
    assert_eq!(look(&mut hold, 1, 1), [[0; 0]]);
    hold.set_class(ClassRate::Fixed(RATE / 2));
    assert_eq!(look(&mut hold, 2, 2), [[0; 0]; 2]);
    assert_eq!((hold.paced()[0].told_bps, failures(&hold)), (RATE, vec![(1, 2)]), "what the kernel was told");
    assert_eq!(look(&mut hold, 4, 2), [[0; 0]; 2]);
    assert_eq!((hold.paced()[0].told_bps, failures(&hold)), (RATE / 2, vec![(1, 2)]));
}

#[test]
fn one_that_cannot_be_put_back_is_asked_for_again_and_the_others_are_held_on() {
    let refused = || Answer::Refused("cannot read /proc: Too many open files".to_owned());
    let paced = || Answer::Each(vec![Answer::Done]);
    let readings = |count: usize| Answer::Readings((0..count).map(|_| read(true)).collect());
    let mut hold = Hold::new(
        guardian(&[
            paced(),
            paced(),
            Answer::Readings(vec![SocketLook::Gone, read(true)]),
            refused(),
            // Not at once again.
            readings(1),
            readings(1),
            refused(),
            // It is held again, and nobody is to be put back.
            paced(),
            readings(2),
            // One is let go.
            refused(),
            readings(1),
            Answer::Done,
            readings(1),
        ]),
        Rates { each_bps: Some(RATE), class: None },
    );
    for cookie in [1, 2] {
        hold.add(Moment(0), named(cookie)).unwrap();
    }
    let left = |hold: &Hold| hold.to_put_back.iter().map(|socket| socket.cookie).collect::<Vec<u64>>();
    assert_eq!(look(&mut hold, 1, 2), [vec![1], vec![]]);
    assert_eq!((left(&hold), hold.cookies(), hold.trouble.count()), (vec![1], HashSet::from([2]), 1));
    assert_eq!(look(&mut hold, 11, 1), [[0; 0]]);
    assert_eq!((left(&hold), hold.trouble.count()), (vec![1], 2));
    hold.add(Moment(1_200_000), named(1)).unwrap();
    assert_eq!(left(&hold), [0; 0]);
    assert_eq!(look(&mut hold, 22, 1), [[0; 0]]);
    assert!(hold.release(Moment(2_300_000), 2).unwrap().is_some());
    assert_eq!((left(&hold), hold.cookies()), (vec![2], HashSet::from([1])));
    assert_eq!(look(&mut hold, 34, 1), [[0; 0]]);
    assert_eq!((left(&hold), hold.trouble.count()), (vec![], 3));
    assert_eq!(look(&mut hold, 45, 1), [[0; 0]]);
}
