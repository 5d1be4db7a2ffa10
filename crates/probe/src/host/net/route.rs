//! Asks a network namespace for its interfaces' queueing disciplines.

use super::shaper;
use super::wire::{
    ADDRESS, CLASS, Class, Discipline, GET_ADDRESS, GET_CLASS, GET_LINK, GET_QDISC, LINK, QDISC, address,
    addresses_request, class, discipline, link, links_request, traffic_request,
};
use crate::ProbeError;
use crate::host::Roots;
use crate::host::netlink::{Netlink, ROUTE};
use std::collections::HashMap;
use std::net::IpAddr;

/// Interfaces whose classes are asked for.
const MOST_WITH_CLASSES: usize = 32;

/// A way to ask one namespace, and what it said.
#[derive(Debug)]
pub(super) struct Route {
    netlink: Netlink,
    numbers: HashMap<String, i32>,
    /// By the interface's number.
    addresses: HashMap<i32, Vec<IpAddr>>,
    disciplines: Vec<Discipline>,
    classes: HashMap<i32, Vec<Class>>,
}

/// What is known of one interface's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    /// Number of the interface and of its root discipline: another one has counters of its own.
    pub(super) identity: (i32, u32),
    pub(super) backlog_bytes: Option<u32>,
    pub(super) drops: Option<u32>,
    pub(super) shaper_bytes_per_s: Option<u64>,
}

impl Route {
    /// A way to ask the namespace of a process, or this process' own.
    pub(super) fn open(roots: &Roots, inside: Option<(i32, u64)>) -> Result<Self, ProbeError> {
        let netlink = match inside {
            Some((pid, namespace)) => Netlink::open(roots, pid, namespace, ROUTE)?,
            None => Netlink::here(ROUTE)?,
        };
        let addresses = HashMap::new();
        Ok(Route { netlink, numbers: HashMap::new(), addresses, disciplines: Vec::new(), classes: HashMap::new() })
    }

    /// Reads all queues, and with `survey` also the numbers of interfaces, their addresses and the classes.
    pub(super) fn look(&mut self, survey: bool) -> Result<(), ProbeError> {
        let mut disciplines = Vec::new();
        let mut take = |kind: u16, body: &[u8]| disciplines.extend((kind == QDISC).then(|| discipline(body)).flatten());
        self.netlink.dump(GET_QDISC, &traffic_request(0), &mut take)?;
        self.disciplines = disciplines;
        if survey {
            self.survey()?;
        }
        Ok(())
    }

    fn survey(&mut self) -> Result<(), ProbeError> {
        let mut numbers = HashMap::new();
        let mut take = |kind: u16, body: &[u8]| {
            if let Some((number, name)) = (kind == LINK).then(|| link(body)).flatten() {
                numbers.insert(name, number);
            }
        };
        self.netlink.dump(GET_LINK, &links_request(), &mut take)?;
        self.numbers = numbers;
        let mut addresses: HashMap<i32, Vec<IpAddr>> = HashMap::new();
        self.netlink.dump(GET_ADDRESS, &addresses_request(), &mut |kind, body| {
            if let Some((number, address)) = (kind == ADDRESS).then(|| address(body)).flatten() {
                addresses.entry(number).or_default().push(address);
            }
        })?;
        self.addresses = addresses;
        self.classes.clear();
        let with_classes = self.disciplines.iter().filter(|discipline| discipline.kind == "htb");
        let interfaces: Vec<i32> = with_classes.map(|discipline| discipline.interface).collect();
        for interface in interfaces.into_iter().take(MOST_WITH_CLASSES) {
            let mut classes = Vec::new();
            let mut take = |kind: u16, body: &[u8]| classes.extend((kind == CLASS).then(|| class(body)).flatten());
            self.netlink.dump(GET_CLASS, &traffic_request(interface), &mut take)?;
            self.classes.insert(interface, classes);
        }
        Ok(())
    }

    /// What is known of an interface; none of one that has come since the last survey.
    pub(super) fn queue(&self, name: &str) -> Option<Queue> {
        let number = *self.numbers.get(name)?;
        let root = shaper::root(&self.disciplines, number)?;
        let classes = self.classes.get(&number).map(Vec::as_slice).unwrap_or_default();
        Some(Queue {
            identity: (number, root.handle),
            backlog_bytes: root.backlog_bytes,
            drops: root.drops,
            shaper_bytes_per_s: shaper::rate_bytes_per_s(&self.disciplines, classes, number),
        })
    }

    /// The addresses that an interface had at the last survey.
    pub(super) fn addresses(&self, name: &str) -> &[IpAddr] {
        self.numbers.get(name).and_then(|number| self.addresses.get(number)).map_or(&[], Vec::as_slice)
    }

    /// Whether an interface of this name was there at the last survey.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.numbers.contains_key(name)
    }
}
