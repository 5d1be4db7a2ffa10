//! The queue of each wait, found once: at ten looks a second the same few waits come again and again, of every session.

use super::waits::{Wait, place, queue_name};
use backwater_model::Text;
use std::collections::HashMap;

/// How many waits are remembered before all are forgotten.
const MOST: usize = 1_024;

/// What one session waits for, in shared texts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asleep<'a> {
    pub(super) backend_type: &'a Option<Text>,
    pub(super) event: &'a Option<Text>,
    pub(super) kernel: &'a Option<Text>,
}

impl Asleep<'_> {
    fn key(&self) -> [usize; 3] {
        // The address of a shared text stands for it as long as the text is kept.
        let address = |text: &Option<Text>| text.as_ref().map_or(0, |text| text.as_ptr() as usize);
        [address(self.backend_type), address(self.event), address(self.kernel)]
    }
}

/// A queue, and the texts whose addresses are its key: while they are kept, no other text has their addresses.
#[derive(Debug)]
struct Found {
    queue: Option<Text>,
    _kept: [Option<Text>; 3],
}

/// Queues of the waits seen so far, of one server with its settings.
#[derive(Debug, Default)]
pub(super) struct Queues {
    known: HashMap<([usize; 3], bool), Found>,
    names: HashMap<String, Text>,
}

impl Queues {
    /// The queue of a wait; none where the waits do not tell, or the queue is a device's and the device is not known.
    pub(super) fn of(&mut self, wait: Asleep<'_>, commit_delay: bool, data_device: Option<&str>) -> Option<Text> {
        let key = (wait.key(), commit_delay);
        if let Some(found) = self.known.get(&key) {
            return found.queue.clone();
        }
        let (kind, event, kernel) = (wait.backend_type.as_deref(), wait.event.as_deref(), wait.kernel.as_deref());
        let place = place(Wait { backend_type: kind, event, kernel, commit_delay });
        let name = place.and_then(|place| queue_name(place, data_device));
        let queue = name.map(|name| {
            let text = Text::from(name.as_str());
            Text::clone(self.names.entry(name).or_insert(text))
        });
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let kept = [wait.backend_type.clone(), wait.event.clone(), wait.kernel.clone()];
        self.known.insert(key, Found { queue: queue.clone(), _kept: kept });
        queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_was_seen_has_the_queue_it_had_and_others_have_theirs() {
        let text = |text: &str| Some(Text::from(text));
        let (client, checkpointer) = (text("client backend"), text("checkpointer"));
        let (sync, none, dirty) = (text("DataFileSync"), None, text("balance_dirty_pages"));
        let mut queues = Queues::default();
        for _ in 0..2 {
            let mut of = |backend_type, event, kernel| {
                queues.of(Asleep { backend_type, event, kernel }, false, Some("8:0")).map(|queue| queue.to_string())
            };
            assert_eq!(of(&client, &sync, &none), None);
            assert_eq!(of(&checkpointer, &sync, &none).as_deref(), Some("pg.checkpoint"));
            assert_eq!(of(&client, &none, &dirty).as_deref(), Some("host.dirty@8:0"));
        }
        assert_eq!(queues.known.len(), 3);
        let nap = text("hrtimer_nanosleep");
        let napping = Asleep { backend_type: &client, event: &none, kernel: &nap };
        let commit = queues.of(napping, true, None);
        assert_eq!((commit.as_deref(), queues.of(napping, false, None)), (Some("pg.commit"), None));
    }

    #[test]
    fn endless_texts_do_not_fill_memory() {
        let (mut queues, kind) = (Queues::default(), Some(Text::from("client backend")));
        for number in 0..3 * MOST {
            let event = Some(Text::from(format!("event {number}")));
            queues.of(Asleep { backend_type: &kind, event: &event, kernel: &None }, false, None);
        }
        assert!(queues.known.len() <= MOST);
    }
}
