//! One client that carries out a script.

use super::expression::{Expression, Value, Variables};
use super::parse::{Action, Part};
use super::{Protocol, Script};
use crate::workloads::WorkloadError;
use crate::workloads::driver::{Failure, Local, Session};
use crate::workloads::error::reason;
use bytes::BytesMut;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::error::Error;
use std::time::Duration;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Statement};

/// Below this tokio's timer, which counts whole milliseconds, is too coarse; the thread has nothing else to do.
const SHORT_SLEEP: Duration = Duration::from_millis(20);

pub(super) struct ScriptSession {
    script: Script,
    connection: Client,
    /// The prepared statement of each step, where it is one that is prepared.
    prepared: Vec<Option<Statement>>,
    variables: Variables,
    dice: StdRng,
    begins: bool,
}

impl ScriptSession {
    pub(super) async fn new(
        script: Script,
        connection: Client,
        client: usize,
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        let given = [
            ("client_id", client as i64),
            ("default_seed", seed as i64),
            ("random_seed", seed as i64),
            ("scale", i64::from(script.scale)),
        ];
        let variables = given.into_iter().map(|(name, value)| (name.to_owned(), Value::Whole(value))).collect();
        let mut prepared = Vec::with_capacity(script.steps.len());
        for step in script.steps.iter() {
            prepared.push(match &step.action {
                Action::Sql(parts) if script.protocol == Protocol::Prepared => {
                    let statement = connection.prepare(&with_parameters(parts)).await;
                    let fail = |error| script.trouble(step.line, format!("the server refuses it: {}", reason(&error)));
                    Some(statement.map_err(fail)?)
                }
                _ => None,
            });
        }
        let begins = script.begins();
        Ok(ScriptSession { script, connection, prepared, variables, dice: StdRng::seed_from_u64(seed), begins })
    }

    async fn steps(&mut self) -> Result<(), Failure> {
        let steps = self.script.steps.clone();
        for (step, prepared) in steps.iter().zip(&self.prepared) {
            match &step.action {
                Action::Set(name, expression) => {
                    let value = value(&self.script, step.line, expression, &self.variables, &mut self.dice)?;
                    self.variables.insert(name.clone(), value);
                }
                Action::Sleep(amount, one) => {
                    let amount = value(&self.script, step.line, amount, &self.variables, &mut self.dice)?;
                    sleep(amount, *one).await;
                }
                Action::Sql(parts) => match prepared {
                    Some(statement) => self.execute(statement, parts).await?,
                    None => self.connection.batch_execute(&with_values(parts, &self.variables)).await?,
                },
            }
        }
        Ok(())
    }

    async fn execute(&self, statement: &Statement, parts: &[Part]) -> Result<(), Failure> {
        let values: Vec<AsText> = parts
            .iter()
            .filter_map(|part| match part {
                Part::Variable { name, .. } => Some(AsText(text_of(name, &self.variables))),
                Part::Text(_) => None,
            })
            .collect();
        let parameters: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        self.connection.execute(statement, &parameters).await?;
        Ok(())
    }
}

impl Session for ScriptSession {
    fn transaction(&mut self) -> Local<'_, Result<(), Failure>> {
        Box::pin(async {
            let result = self.steps().await;
            if matches!(result, Err(Failure::Statement(_))) && self.begins {
                self.connection.batch_execute("ROLLBACK").await?;
            }
            result
        })
    }
}

fn value(
    script: &Script,
    line: usize,
    expression: &Expression,
    variables: &Variables,
    dice: &mut StdRng,
) -> Result<Value, Failure> {
    expression.value(variables, dice).map_err(|message| Failure::Fatal(script.trouble(line, message)))
}

async fn sleep(amount: Value, one: Duration) {
    let amount = match amount {
        Value::Whole(amount) => amount as f64,
        Value::Fraction(amount) => amount,
    };
    // Negative, endless or no number: as pgbench, no sleep.
    let Ok(time) = Duration::try_from_secs_f64(amount * one.as_secs_f64()) else { return };
    if time < SHORT_SLEEP {
        std::thread::sleep(time);
    } else {
        tokio::time::sleep(time).await;
    }
}

fn text_of(name: &str, variables: &Variables) -> String {
    // The parser lets no variable through that has no value by then.
    variables.get(name).map_or_else(String::new, ToString::to_string)
}

fn with_values(parts: &[Part], variables: &Variables) -> String {
    let text = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Variable { name, .. } => text_of(name, variables),
    };
    parts.iter().map(text).collect()
}

fn with_parameters(parts: &[Part]) -> String {
    let mut number = 0;
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Text(part) => text.push_str(part),
            Part::Variable { .. } => {
                number += 1;
                text.push_str(&format!("${number}"));
            }
        }
    }
    text
}

/// A value sent as text, for whatever type the server takes the parameter to be.
#[derive(Debug)]
struct AsText(String);

impl ToSql for AsText {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_parameters_go_where_variables_stand() {
        let variable = |name: &str| Part::Variable { name: name.to_owned(), quoted: false };
        let parts =
            [Part::Text("select ".into()), variable("a"), Part::Text(", ".into()), variable("b"), variable("a")];
        let variables = Variables::from([("a".to_owned(), Value::Whole(-7)), ("b".to_owned(), Value::Fraction(0.5))]);
        assert_eq!(with_values(&parts, &variables), "select -7, 0.5-7");
        assert_eq!(with_parameters(&parts), "select $1, $2$3");
    }
}
