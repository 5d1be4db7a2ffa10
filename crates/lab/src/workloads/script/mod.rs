//! A load out of an SQL file, as pgbench takes them with `-f`: a useful part of its language, whose random numbers,
//! arithmetic and substitution are the same.

mod draw;
mod expression;
#[cfg(test)]
mod expression_tests;
mod parse;
#[cfg(test)]
mod parse_tests;
mod quotes;
mod session;

use super::WorkloadError;
use super::driver::{Local, Session, Workload};
use parse::{Action, Part, Step};
use std::path::Path;
use std::sync::Arc;
use tokio_postgres::Client;

/// Variables that have a value from the start.
const GIVEN: [&str; 4] = ["client_id", "default_seed", "random_seed", "scale"];

/// How statements are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// As text, with values in it: the server parses and plans each.
    Simple,
    /// Prepared once in each session, with values as parameters.
    #[default]
    Prepared,
}

/// An SQL file that clients carry out over and over, a transaction each time through.
#[derive(Clone, Debug)]
pub struct Script {
    name: String,
    protocol: Protocol,
    scale: u32,
    steps: Arc<[Step]>,
}

impl Script {
    /// Reads a script. `scale` is the value of `:scale`.
    pub fn load(path: &Path, protocol: Protocol, scale: u32) -> Result<Script, WorkloadError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| WorkloadError::Read { path: path.to_path_buf(), source })?;
        Script::parse(&path.display().to_string(), &text, protocol, scale)
    }

    /// A script from its text; `name` is for messages.
    pub fn parse(name: &str, text: &str, protocol: Protocol, scale: u32) -> Result<Script, WorkloadError> {
        let trouble = |line, message| WorkloadError::Script { path: name.to_owned(), line, message };
        let steps = parse::parse(text, &GIVEN).map_err(|error| trouble(error.line, error.message))?;
        if protocol == Protocol::Prepared
            && let Some((line, variable)) = steps.iter().find_map(quoted_variable)
        {
            let message = format!(
                "':{variable}' stands inside quotes, where a prepared statement takes no value: use the simple protocol, or \
                 put it outside (format('%s', :{variable}))"
            );
            return Err(trouble(line, message));
        }
        Ok(Script { name: name.to_owned(), protocol, scale, steps: steps.into() })
    }

    /// An error at one of its lines.
    fn trouble(&self, line: usize, message: String) -> WorkloadError {
        WorkloadError::Script { path: self.name.clone(), line, message }
    }

    /// Whether it begins transactions itself, so that one may be open after a failure.
    fn begins(&self) -> bool {
        let begins = |word: &str| word.eq_ignore_ascii_case("begin") || word.eq_ignore_ascii_case("start");
        self.steps.iter().any(|step| match &step.action {
            Action::Sql(parts) => {
                matches!(parts.first(), Some(Part::Text(text)) if text.split_whitespace().next().is_some_and(begins))
            }
            _ => false,
        })
    }
}

fn quoted_variable(step: &Step) -> Option<(usize, &str)> {
    let Action::Sql(parts) = &step.action else { return None };
    parts.iter().find_map(|part| match part {
        Part::Variable { name, quoted: true } => Some((step.line, name.as_str())),
        _ => None,
    })
}

impl Workload for Script {
    fn name(&self) -> &str {
        &self.name
    }

    fn session(
        &self,
        connection: Client,
        client: usize,
        seed: u64,
    ) -> Local<'_, Result<Box<dyn Session>, WorkloadError>> {
        Box::pin(async move {
            let session = session::ScriptSession::new(self.clone(), connection, client, seed).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }
}
