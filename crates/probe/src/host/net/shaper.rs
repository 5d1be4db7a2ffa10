//! How fast the shaper on an interface lets it send: one rate, or nothing is said.

use super::wire::{Class, Discipline, ROOT};

/// Disciplines on disciplines: no deeper than this.
const DEEPEST: usize = 8;

/// The discipline that hangs directly at the interface: what stands in those below it is counted in it.
pub(super) fn root(disciplines: &[Discipline], interface: i32) -> Option<&Discipline> {
    disciplines.iter().find(|discipline| discipline.interface == interface && discipline.parent == ROOT)
}

/// The smallest rate on the way of every packet, in bytes a second: from the root discipline down, as long as all pass
/// through the only one below. `classes` are those of this interface.
pub(super) fn rate_bytes_per_s(disciplines: &[Discipline], classes: &[Class], interface: i32) -> Option<u64> {
    let mut place = root(disciplines, interface)?;
    let mut least: Option<u64> = None;
    for _ in 0..DEEPEST {
        let own = if place.kind == "htb" { only_ceiling(classes, place.handle) } else { place.rate_bytes_per_s };
        least = least.into_iter().chain(own).min();
        // Through these two passes everything; of others, nobody knows what goes where.
        if !matches!(place.kind.as_str(), "tbf" | "netem") {
            break;
        }
        let here = |below: &&Discipline| below.interface == interface && is_below(below, place);
        match only(disciplines.iter().filter(here)) {
            Some(below) => place = below,
            None => break,
        }
    }
    least
}

/// HTB shapes to its root class's ceiling. With several root classes each has a limit of its own and the interface has
/// none.
fn only_ceiling(classes: &[Class], handle: u32) -> Option<u64> {
    only(classes.iter().filter(|class| class.parent == ROOT && major(class.handle) == major(handle)))?
        .ceiling_bytes_per_s
}

fn is_below(below: &Discipline, place: &Discipline) -> bool {
    below.parent != ROOT && place.handle != 0 && major(below.parent) == major(place.handle)
}

fn only<T>(mut list: impl Iterator<Item = T>) -> Option<T> {
    let first = list.next()?;
    list.next().is_none().then_some(first)
}

fn major(handle: u32) -> u32 {
    handle >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discipline(kind: &str, handle: u32, parent: u32, rate: Option<u64>) -> Discipline {
        let kind = kind.to_owned();
        Discipline { interface: 2, kind, handle, parent, backlog_bytes: None, drops: None, rate_bytes_per_s: rate }
    }

    const ONE: u32 = 0x0001_0000;
    const TWO: u32 = 0x0002_0000;

    #[test]
    fn the_smallest_rate_on_the_only_way_counts() {
        let tbf = discipline("tbf", ONE, ROOT, Some(3_000_000));
        let netem = discipline("netem", TWO, ONE + 1, Some(1_000_000));
        assert_eq!(rate_bytes_per_s(std::slice::from_ref(&tbf), &[], 2), Some(3_000_000));
        assert_eq!(rate_bytes_per_s(&[tbf.clone(), netem], &[], 2), Some(1_000_000));
        assert_eq!(rate_bytes_per_s(&[tbf], &[], 3), None, "another interface's");
    }

    #[test]
    fn below_several_bands_nobody_knows() {
        let prio = discipline("prio", ONE, ROOT, None);
        let tbf = discipline("tbf", TWO, ONE + 3, Some(1_000));
        assert_eq!(rate_bytes_per_s(&[prio, tbf], &[], 2), None);
    }

    #[test]
    fn htb_is_as_fast_as_its_only_root_class() {
        let htb = [discipline("htb", ONE, ROOT, None), discipline("tbf", TWO, ONE + 2, Some(1))];
        let class = |handle, parent, ceiling| Class { handle, parent, ceiling_bytes_per_s: Some(ceiling) };
        let top = class(ONE + 1, ROOT, 5_000);
        let leaf = class(ONE + 2, ONE + 1, 100);
        assert_eq!(rate_bytes_per_s(&htb, &[top.clone(), leaf.clone()], 2), Some(5_000));
        assert_eq!(rate_bytes_per_s(&htb, &[top, leaf, class(ONE + 9, ROOT, 7_000)], 2), None);
        assert_eq!(rate_bytes_per_s(&htb, &[], 2), None);
    }

    #[test]
    fn disciplines_that_name_each_other_end() {
        let list = [discipline("tbf", ONE, ROOT, Some(9)), discipline("tbf", ONE, ONE, Some(8))];
        assert_eq!(rate_bytes_per_s(&list, &[], 2), Some(8));
    }
}
