//! Terminal text: findings, tables, plots, a lab run's outcome, queues and sessions, as strings for people; and [`html`], the
//! same as a page in one file.
//!
//! Nothing here prints, reads a clock or looks at the environment: the binary decides the [`Style`] and writes the
//! text. Whatever comes from outside (query texts, names, log lines) is cleaned on the way, so that no control
//! character or escape sequence of somebody else reaches the terminal, and no line of a table or plot is wider than
//! the style allows. (Commands to copy are the one exception: they stay on one line, whole.)

mod advice;
mod advised;
mod ash;
mod canvas;
mod check;
mod commits;
mod comparison;
mod engine_advice;
mod examined;
mod findings;
pub mod html;
mod lag;
mod metric;
mod outcome;
mod overload;
mod page;
mod plot;
mod published;
mod queues;
mod relief;
mod remedies;
mod scale;
mod shards;
mod side_by_side;
mod standby_advice;
mod style;
mod table;
pub mod text;
mod top;
mod when;

#[cfg(test)]
mod samples_for_tests;

pub use advice::advice;
pub use ash::{ash, ash_over_time};
pub use check::{CheckRow, check};
pub use comparison::comparison;
pub use engine_advice::engine_advice;
pub use examined::{findings_in, no_sessions, unseen_in, unseen_text};
pub use findings::{Judged, finding_text, findings, none_found};
pub use outcome::{outcome, outcome_beside, stampede_table};
pub use plot::{Curve, Panel, panels, plot};
pub use published::{Published, PublishedRow, published};
pub use queues::queues;
pub use shards::shards;
pub use side_by_side::outcomes_side_by_side;
pub use standby_advice::standby_advice;
pub use style::Style;
pub use table::table;
pub use top::{TOP_MARGIN, TopSort, TopView, top, top_of, top_unseen};
pub use when::DatedFinding;
