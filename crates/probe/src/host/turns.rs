//! Which of many sessions a look reads, and which of their files.

/// Clients' sessions that did nothing since they were last read are read in turn, about so many at a look: most sessions of most
/// servers stand idle.
const QUIET_PER_LOOK: usize = 50;
/// Or more, on a host with several servers: each is read at every so many looks at least.
const MOST_TURNS: u32 = 4;
/// Those that did something are read at every look, unless there are more of them than this: then half by half, or recording
/// would cost a busy host what it must not.
const MOST_BUSY: usize = 64;

/// At every how many looks a client's session is read: one that did something when it was last read, and one that did not. Powers
/// of two, so that whoever has a turn in a longer round has one in a shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turns {
    busy: u32,
    quiet: u32,
}

impl Default for Turns {
    /// Every one at every look.
    fn default() -> Self {
        Turns { busy: 1, quiet: 1 }
    }
}

impl Turns {
    /// How so many that did something, and so many that did not, share the looks.
    pub(super) fn among(busy: usize, quiet: usize) -> Self {
        let quiet = quiet.div_ceil(QUIET_PER_LOOK).next_power_of_two() as u32;
        Turns { busy: if busy > MOST_BUSY { 2 } else { 1 }, quiet: quiet.min(MOST_TURNS) }
    }

    /// At every how many looks one is read that did something when it was last read, or did not.
    pub(super) fn of(self, moved: bool) -> u32 {
        if moved { self.busy } else { self.quiet }
    }
}

/// When something of a process is read again that not every reading has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Due {
    /// So many readings do without it.
    readings: u32,
    /// The process' look at which it was read last.
    since: u32,
}

impl Due {
    /// It is read at this look, and then at every so many readings.
    pub(super) fn read(look: u32, every: u32) -> Self {
        Due { readings: every.saturating_sub(1), since: look }
    }

    /// Whether a reading at this look does without it: the next one, so many looks later, still comes in time.
    pub(super) fn can_wait(self, look: u32, turns: u32, most_looks: u32) -> bool {
        self.readings > 0 && look.saturating_sub(self.since).saturating_add(turns) <= most_looks
    }

    /// A reading did without it.
    pub(super) fn passed(&mut self) {
        self.readings = self.readings.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sessions_are_read_at_every_look_and_many_in_turn() {
        let turns = |busy, quiet| {
            let Turns { busy, quiet } = Turns::among(busy, quiet);
            (busy, quiet)
        };
        assert_eq!((turns(0, 0), turns(MOST_BUSY, 50)), ((1, 1), (1, 1)));
        assert_eq!((turns(65, 51), turns(0, 100)), ((2, 2), (1, 2)));
        assert_eq!((turns(0, 101), turns(0, 200)), ((1, 4), (1, 4)));
        assert_eq!(turns(0, 800), (1, 4), "with other servers' sessions");
    }

    #[test]
    fn what_is_read_more_rarely_comes_every_ten_looks_however_many_share_them() {
        // At which looks of the forty, where readings come at every so many.
        let read_at = |turns: &dyn Fn(u32) -> u32| {
            let (mut due, mut next, mut at) = (Due::read(0, 5), turns(0), vec![]);
            while next <= 40 {
                if due.can_wait(next, turns(next), 10) {
                    due.passed();
                } else {
                    due = Due::read(next, 5);
                    at.push(next);
                }
                next += turns(next);
            }
            at
        };
        assert_eq!(read_at(&|_| 1), [5, 10, 15, 20, 25, 30, 35, 40]);
        assert_eq!(read_at(&|_| 2), [10, 20, 30, 40]);
        assert_eq!(read_at(&|_| 4), [8, 16, 24, 32, 40]);
        // It worked, and falls quiet after its second look.
        assert_eq!(read_at(&|look| if look < 2 { 1 } else { 4 })[0], 10);
    }
}
