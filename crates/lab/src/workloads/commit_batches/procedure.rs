//! The procedure: its text, and what it says of itself while it runs.

use super::Done;
use std::time::Duration;

/// What a notice of the procedure begins with.
const MARK: &str = "backwater commit-batches:";
/// Rows between two looks at the clock: progress is told within large transactions too.
const PIECE: u64 = 1_000;
/// How often it tells how far it is, in milliseconds.
const TELL_MS: u64 = 200;

/// The text of `my_insert(rows_per_call, rows_per_xact)`, in the schema of this quoted name.
pub(super) fn text(schema: &str) -> String {
    format!(
        "CREATE PROCEDURE {schema}.my_insert(rows_per_call bigint, rows_per_xact bigint) LANGUAGE plpgsql AS $backwater$
DECLARE
  done bigint := 0;
  commits bigint := 0;
  upto bigint;
  began timestamptz;
  told timestamptz := clock_timestamp();
  in_commits interval := '0';
BEGIN
  WHILE done < rows_per_call LOOP
    upto := least(done - done % rows_per_xact + rows_per_xact, done + {PIECE}, rows_per_call);
    FOR n IN done + 1 .. upto LOOP
      INSERT INTO {schema}.batch_rows (n, note) VALUES (n, 'a row of the experiment');
    END LOOP;
    done := upto;
    began := clock_timestamp();
    IF done % rows_per_xact = 0 OR done = rows_per_call THEN
      COMMIT;
      commits := commits + 1;
      in_commits := in_commits + (clock_timestamp() - began);
    END IF;
    IF began > told + interval '{TELL_MS} milliseconds' OR done = rows_per_call THEN
      told := began;
      RAISE NOTICE '{MARK} % % %', done, commits, (date_part('epoch', in_commits) * 1000000)::bigint;
    END IF;
  END LOOP;
END $backwater$"
    )
}

/// How far the procedure says that it is; none for any other notice.
pub(super) fn heard(notice: &str) -> Option<Done> {
    let mut numbers = notice.strip_prefix(MARK)?.split_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    let done = Done { rows: next()?, commits: next()?, in_commits: Duration::from_micros(next()?) };
    numbers.next().is_none().then_some(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn notices_are_understood() {
        let done = Done { rows: 1_000, commits: 10, in_commits: Duration::from_micros(54_321) };
        assert_eq!(heard("backwater commit-batches: 1000 10 54321"), Some(done));
        assert_eq!(heard("backwater commit-batches: 1000 10"), None);
        assert_eq!(heard("backwater commit-batches: 1000 10 -1"), None);
        assert_eq!(heard("there is no transaction in progress"), None);
    }

    proptest! {
        #[test]
        fn any_notice_is_survived(text in ".*", rest in ".*") {
            let _ = (heard(&text), heard(&format!("{MARK}{rest}")));
        }
    }
}
