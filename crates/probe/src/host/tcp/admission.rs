//! Which connections are read: each has more than a dozen series, so short ones and idle ones must not fill the
//! recording, and the few that carry a server's WAL must never be left out.

use super::super::allowance::Allowance;
use super::owners::Owner;
use super::wire::Socket;
use backwater_model::Moment;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// Client connections that are read at once: of more, those that moved the most bytes lately.
pub(super) const MOST_AT_ONCE: usize = 300;
/// Looks for which a client's connection must have been there before it is read, so that short ones make no series.
const LOOKS_BEFORE_READING: u32 = 3;

/// What is known of the connections of all servers.
#[derive(Debug, Default)]
pub(super) struct Admission {
    known: HashMap<u64, Known>,
    clients: Allowance,
    replication: Allowance,
}

#[derive(Debug, Default)]
struct Known {
    looks: u32,
    /// Sent and received, as of the last look.
    moved_bytes: u64,
    /// Bytes moved lately: each look counts half as much as the next.
    lately: u64,
    /// Whether it is read now, and whether it ever was.
    read: bool,
    ever: bool,
}

impl Known {
    fn look(&mut self, socket: &Socket) {
        let info = &socket.info;
        let moved = info.bytes_acked.unwrap_or_default().saturating_add(info.bytes_received.unwrap_or_default());
        let step = if self.looks == 0 { 0 } else { moved.saturating_sub(self.moved_bytes) };
        self.looks = self.looks.saturating_add(1);
        self.lately = (self.lately / 2).saturating_add(step);
        self.moved_bytes = moved;
    }

    /// One that is read already stays unless another moves more than twice as much.
    fn rank(&self) -> (u64, bool) {
        (self.lately.saturating_mul(1 + u64::from(self.read)), self.read)
    }
}

impl Admission {
    /// Which of these connections are to be read now, and whether some were left out for want of room.
    pub(super) fn choose(&mut self, now: Moment, sockets: &[(&Socket, &Owner)]) -> (HashSet<u64>, bool) {
        let mut ready = Vec::new();
        for (socket, owner) in sockets {
            let known = self.known.entry(socket.inode).or_default();
            known.look(socket);
            if owner.replicates || known.looks >= LOOKS_BEFORE_READING {
                ready.push((Reverse((owner.replicates, known.rank())), socket.inode, owner.replicates));
            }
        }
        // Of equals, always the same.
        ready.sort_unstable();
        let (mut chosen, mut clients, mut left_out) = (HashSet::new(), 0, false);
        for (_, inode, replicates) in ready {
            let room = replicates || clients < MOST_AT_ONCE;
            let read = room && self.may_read(now, inode, replicates);
            left_out |= !read;
            clients += usize::from(read && !replicates);
            if read {
                chosen.insert(inode);
            }
            if let Some(known) = self.known.get_mut(&inode) {
                known.read = read;
            }
        }
        (chosen, left_out)
    }

    /// Whether a connection has its series already, or may still have some.
    fn may_read(&mut self, now: Moment, inode: u64, replicates: bool) -> bool {
        let Some(known) = self.known.get_mut(&inode) else { return false };
        let allowance = if replicates { &mut self.replication } else { &mut self.clients };
        known.ever = known.ever || allowance.take(now);
        known.ever
    }

    /// Forgets connections that are gone.
    pub(super) fn retain(&mut self, present: &HashSet<u64>) {
        self.known.retain(|inode, _| present.contains(inode));
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::Info;
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    fn socket(inode: u64, moved_bytes: u64) -> Socket {
        let place = SocketAddr::from((Ipv4Addr::LOCALHOST, 5432));
        let info = Info { bytes_acked: Some(moved_bytes), bytes_received: Some(0), ..Info::default() };
        Socket { inode, local: place, peer: place, send_queue_bytes: 0, info }
    }

    /// Looks at connections, each given by inode, bytes moved and whether it carries WAL.
    fn look(admission: &mut Admission, sockets: &[(u64, u64, bool)]) -> (HashSet<u64>, bool) {
        look_at(Moment(0), admission, sockets)
    }

    fn look_at(at: Moment, admission: &mut Admission, sockets: &[(u64, u64, bool)]) -> (HashSet<u64>, bool) {
        let owner = |replicates| Owner { target: "a".into(), pid: 1, replicates };
        let list: Vec<_> = sockets.iter().map(|(inode, bytes, wal)| (socket(*inode, *bytes), owner(*wal))).collect();
        admission.choose(at, &list.iter().map(|(socket, owner)| (socket, owner)).collect::<Vec<_>>())
    }

    #[test]
    fn a_connection_is_read_once_it_has_stayed() {
        let mut admission = Admission::default();
        let seen: Vec<bool> = (0..4).map(|_| !look(&mut admission, &[(7, 10, false)]).0.is_empty()).collect();
        assert_eq!(seen, [false, false, true, true]);
        admission.retain(&HashSet::new());
        assert!(look(&mut admission, &[(7, 10, false)]).0.is_empty(), "a number used again is another connection");
    }

    #[test]
    fn of_too_many_those_that_move_most_are_read_and_those_of_wal_always() {
        let mut admission = Admission::default();
        let all = |factor: u64| -> Vec<(u64, u64, bool)> {
            (1..=400).map(|inode| (inode, factor * inode, inode == 1)).collect()
        };
        look(&mut admission, &all(1));
        look(&mut admission, &all(2));
        let (chosen, left_out) = look(&mut admission, &all(3));
        assert!(left_out && chosen.len() == MOST_AT_ONCE + 1);
        assert!(chosen.contains(&1) && chosen.contains(&400) && !chosen.contains(&50));
        // One that begins to move far more takes the place of the least.
        let mut later = all(4);
        later[49].1 = 1_000_000;
        let (chosen, _) = look(&mut admission, &later);
        assert!(chosen.contains(&50) && !chosen.contains(&101) && chosen.contains(&102));
    }

    #[test]
    fn endless_connections_make_only_so_many_series_but_one_that_moves_much_and_wal_are_still_seen() {
        let mut admission = Admission::default();
        let mut read = 0;
        for inode in 1..=4_020 {
            (0..3).for_each(|_| read += look(&mut admission, &[(inode, 0, false)]).0.len());
            admission.retain(&HashSet::new());
        }
        assert_eq!(read, 4_000);
        assert_eq!(look(&mut admission, &[(1, 0, true), (2, 0, false)]).0, HashSet::from([1]), "WAL is read at once");
        // Ten minutes later there is room for a few, and the one that moves most comes first.
        let many = |bytes| -> Vec<(u64, u64, bool)> {
            (5_100..5_200).map(|inode| (inode, if inode == 5_150 { bytes } else { 0 }, false)).collect()
        };
        let mut chosen = (HashSet::new(), false);
        for step in 0..3 {
            chosen = look_at(Moment((600 + step) * 1_000_000), &mut admission, &many(step as u64 * 1_000));
        }
        assert!(chosen.1 && chosen.0.len() <= 10 && chosen.0.contains(&5_150));
    }
}
