//! One file a subcommand: nothing but arguments, calls and the exit code.

pub(crate) mod advise;
pub(crate) mod ash;
pub(crate) mod attach;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod demo;
pub(crate) mod diagnose;
pub(crate) mod export;
pub(crate) mod flight;
pub(crate) mod flights;
pub(crate) mod flow_record;
pub(crate) mod ftdc;
pub(crate) mod lab;
pub(crate) mod lab_blind;
pub(crate) mod lab_search;
pub(crate) mod lookout;
mod place;
pub(crate) mod proxy;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod seen;
pub(crate) mod serve;
pub(crate) mod source;
mod stretches;
pub(crate) mod top;
pub(crate) mod watch;
