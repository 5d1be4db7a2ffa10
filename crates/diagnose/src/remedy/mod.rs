//! Remedies as commands: what to run now, what keeps it so, and what takes it back.

pub(crate) mod checkpoint;
pub(crate) mod commit;
pub(crate) mod dirty;
pub(crate) mod engine;
pub(crate) mod iops;
pub(crate) mod mongod;
pub(crate) mod replication;
pub(crate) mod retention;
pub(crate) mod ttl;
