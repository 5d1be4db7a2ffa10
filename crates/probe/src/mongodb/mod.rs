//! MongoDB: a live server by the official driver, and any server of the last years by its flight recorder
//! (diagnostic.data). One table gives both the same series, so that one set of rules reads them.

mod facts;
mod flight;
mod life;
mod plan;
mod reader;
mod table;
mod table_engine;
mod table_host;

pub use flight::{Flight, Windows};
