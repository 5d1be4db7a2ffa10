//! MongoDB: live servers from 4.4 on, and from 3.6 on by the flight recorder (diagnostic.data) that every server keeps. One
//! table says which figure becomes which series, wherever it is read.

mod beside;
mod edges;
mod facts;
mod faults;
mod flight;
mod life;
mod live;
mod log;
mod plan;
mod reader;
mod state;
mod table;
mod table_engine;
mod table_host;

pub use flight::{Flight, Windows};
pub use live::{MongoProbe, MongoServer, capabilities, is_uri, servers};
#[cfg(fuzzing)]
pub use log::exercise as exercise_log;
pub use table_engine::{wired_tiger_descriptions, wired_tiger_series};
