//! A host that can vanish without a word.
#![allow(unreachable_pub, dead_code)]

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A network namespace of the test's own, joined by a cable. It goes when this is dropped.
pub struct Elsewhere {
    pub name: String,
    _alone: MutexGuard<'static, ()>,
}

/// One at a time: they have the same addresses.
static ALONE: Mutex<()> = Mutex::new(());

impl Elsewhere {
    pub const HERE: &'static str = "10.91.7.1";
    pub const THERE: &'static str = "10.91.7.2";

    /// None where the host has no right or no program for it.
    pub fn make() -> Option<Elsewhere> {
        let own = std::process::id();
        let name = format!("backwater-test-{own}");
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let elsewhere = Elsewhere { name: name.clone(), _alone: alone };
        let (here, there) = (elsewhere.cable(), format!("bwt{own}b"));
        let steps = [
            format!("netns add {name}"),
            format!("link add {here} type veth peer name {there} netns {name}"),
            format!("addr add {}/30 dev {here}", Self::HERE),
            format!("link set {here} up"),
            format!("-n {name} addr add {}/30 dev {there}", Self::THERE),
            format!("-n {name} link set {there} up"),
            format!("netns exec {name} true"),
        ];
        let root = rustix::process::geteuid().is_root();
        (root && steps.iter().all(|step| ip(step))).then_some(elsewhere)
    }

    /// This end's interface.
    fn cable(&self) -> String {
        format!("bwt{}a", std::process::id())
    }

    /// What is made there: a socket stays where the thread was that made it.
    pub fn make_there<S: Send + 'static>(&self, make: impl FnOnce() -> S + Send + 'static) -> S {
        let namespace = std::fs::File::open(format!("/run/netns/{}", self.name)).unwrap();
        let making = std::thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            make()
        });
        making.join().unwrap()
    }

    /// Takes the cable out: nobody there says anything any more, nor that it is gone.
    pub fn cut(&self) {
        assert!(ip(&format!("link set {} down", self.cable())));
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // A socket that is still open keeps a namespace, and the cable in it, after its name has gone.
        ip(&format!("link del {}", self.cable()));
        ip(&format!("netns del {}", self.name));
    }
}

fn ip(words: &str) -> bool {
    Command::new("ip").args(words.split(' ')).output().is_ok_and(|output| output.status.success())
}
