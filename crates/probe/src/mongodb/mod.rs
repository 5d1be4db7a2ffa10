//! MongoDB, from 3.6 to 8.x, by its flight recorder (diagnostic.data), which every server keeps. One table says which figure
//! becomes which series.

mod facts;
mod flight;
mod life;
mod plan;
mod reader;
mod table;
mod table_engine;
mod table_host;

pub use flight::{Flight, Windows};
pub use table_engine::{wired_tiger_descriptions, wired_tiger_series};
