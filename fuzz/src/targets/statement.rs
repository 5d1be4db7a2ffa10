//! The console's statements: what is read can be printed and read back, and an error points into the text.

use backwater_flow::statement::{Statement, parse, parse_requests};

pub(crate) fn run(bytes: &[u8]) {
    let Some(text) = crate::taken::<&str>(bytes) else { return };
    match parse(text) {
        Ok(statements) => {
            assert!(parse_requests(text).is_ok(), "a client may say all of them");
            // A password is printed as stars, and is another one when it is read back.
            let secret = |statement: &Statement| {
                matches!(
                    statement,
                    Statement::CreateUser { password: Some(_), .. } | Statement::AlterUser { password: Some(_), .. }
                )
            };
            if statements.iter().any(secret) {
                return;
            }
            let printed: Vec<String> = statements.iter().map(Statement::to_string).collect();
            assert_eq!(parse(&printed.join(";")).as_ref(), Ok(&statements));
        }
        Err(_) => {
            // Which of it is no statement at all, a client may say of its own session.
            let Err(error) = parse_requests(text) else { return };
            assert!(error.position >= 1 && error.position <= text.chars().count() + 1);
        }
    }
}
