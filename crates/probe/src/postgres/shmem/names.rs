//! What a session's wait_event_info means. The server numbers waits anew in each major, and locks of extensions at each start,
//! so the names are learned from the server's own answers: a number that stood there before an answer and after it is what the
//! answer named, unless the session waited for something else in between. So a name counts where it is nearly all that was
//! answered of its number. Waits that are much shorter than an answer never get one, and make looks that ask.

/// How often a name must have been answered, and how often for each other answer (another name, or none).
const ENOUGH: u32 = 2;
const FOR_EACH_OTHER: u32 = 5;
/// After so many answers older ones count half.
const MANY: u32 = 64;
/// No server has more waits; what its memory holds may be anything.
const MOST_NAMES: usize = 4_096;

/// A wait_event_info's wait_event_type by its first byte (src/include/utils/wait_classes.h); none for 0, which is no wait, and
/// for a class that is not known.
pub(super) fn class_of(number: u32) -> Option<&'static str> {
    Some(match number >> 24 {
        0x01 => "LWLock",
        0x03 => "Lock",
        0x04 => "BufferPin",
        0x05 => "Activity",
        0x06 => "Client",
        0x07 => "Extension",
        0x08 => "IPC",
        0x09 => "Timeout",
        0x0a => "IO",
        0x0b => "InjectionPoint",
        _ => return None,
    })
}

#[derive(Debug)]
struct Name {
    number: u32,
    event: Box<str>,
    /// How often it was answered, and how often something else.
    seen: u32,
    other: u32,
}

impl Name {
    fn counts(&self) -> bool {
        self.seen >= ENOUGH && self.seen >= FOR_EACH_OTHER * self.other
    }
}

/// Names in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: Vec<Name>,
}

impl Names {
    /// Takes what was answered while this number stood there: a wait's type and name, or none.
    pub(super) fn learn(&mut self, number: u32, answer: Option<(&str, &str)>) {
        let Some(class) = class_of(number) else { return };
        // What is another number's name already was waited for in between.
        let is_anothers = |event: &str| {
            let same = |name: &&Name| name.number >> 24 == number >> 24 && *name.event == *event;
            self.known.iter().filter(same).any(|name| name.number != number && name.counts())
        };
        let event = answer.filter(|(of, event)| *of == class && !is_anothers(event)).map(|(_, event)| event);
        match (self.place(number), event) {
            (Ok(place), event) => {
                let name = &mut self.known[place];
                if event == Some(&*name.event) {
                    name.seen += 1;
                } else {
                    name.other += 1;
                }
                if let Some(event) = event.filter(|_| name.other > name.seen) {
                    *name = Name { number, event: event.into(), seen: 1, other: 0 };
                }
                if name.seen + name.other > MANY {
                    (name.seen, name.other) = (name.seen / 2, name.other / 2);
                }
            }
            (Err(place), Some(event)) if self.known.len() < MOST_NAMES => {
                self.known.insert(place, Name { number, event: event.into(), seen: 1, other: 0 });
            }
            (Err(_), _) => {}
        }
    }

    fn place(&self, number: u32) -> Result<usize, usize> {
        self.known.binary_search_by_key(&number, |name| name.number)
    }

    /// A wait's type and name; none for what is not known.
    pub(super) fn of(&self, number: u32) -> Option<(&'static str, &str)> {
        let name = self.known.get(self.place(number).ok()?).filter(|name| name.counts())?;
        Some((class_of(number)?, &name.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: u32 = 0x0a00_0045;
    const SYNCED: Option<(&str, &str)> = Some(("IO", "WALSync"));
    const READ: Option<(&str, &str)> = Some(("IO", "DataFileRead"));

    fn learned(answers: &[(Option<(&str, &str)>, usize)]) -> Names {
        let mut names = Names::default();
        for (answer, times) in answers {
            (0..*times).for_each(|_| names.learn(SYNC, *answer));
        }
        names
    }

    #[test]
    fn a_name_counts_where_it_is_nearly_all_that_was_answered() {
        assert_eq!(learned(&[(SYNCED, 1)]).of(SYNC), None);
        assert_eq!(learned(&[(SYNCED, 2)]).of(SYNC), SYNCED);
        assert_eq!(learned(&[(SYNCED, 10), (None, 2)]).of(SYNC), SYNCED);
        assert_eq!(learned(&[(SYNCED, 10), (None, 1), (READ, 1), (Some(("Lock", "tuple")), 1)]).of(SYNC), None);
        assert_eq!(learned(&[(Some(("Lock", "tuple")), 9)]).of(SYNC), None, "of another class");
        assert_eq!(learned(&[(SYNCED, 9), (READ, 40)]).of(SYNC), READ, "it was wrong");
        // A wait that is over at once is answered as whatever comes then.
        let mixed = [(None, 5), (READ, 4), (SYNCED, 1)].repeat(200);
        assert_eq!(learned(&mixed).of(SYNC), None);
    }

    #[test]
    fn a_name_that_is_another_number_s_is_not_taken() {
        let mut names = learned(&[(READ, 9)]);
        (0..9).for_each(|_| names.learn(SYNC + 1, READ));
        assert_eq!((names.of(SYNC), names.of(SYNC + 1)), (READ, None));
    }
}
