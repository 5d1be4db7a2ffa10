//! What is printed is read back; nothing makes the parser panic; errors point at the place; passwords do not show.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::pool::{MOST_WEIGHT, Priority};
use crate::rule::{Action, Attribute};
use proptest::prelude::*;

fn names() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_][a-z0-9_$]{0,12}", "[^\\p{C}]{1,15}"]
}

fn rates() -> impl Strategy<Value = u64> {
    prop_oneof![1_024..1u64 << 40, (1..1u64 << 20).prop_map(|mb| mb << 20), (1..1u64 << 30).prop_map(|kb| kb << 10)]
}

fn rule_options() -> impl Strategy<Value = Vec<RuleOption>> {
    let threshold = (prop::sample::select(Attribute::ALL), prop::option::of(0.0..1.0f64), any::<bool>());
    let threshold = threshold.prop_map(|(attribute, share, whole)| {
        let (least, most) = attribute.range();
        let value = share.map(|share| least + (most - least) * share * share * share);
        RuleOption::Threshold(attribute, value.map(|value| if whole { value.ceil().min(most.floor()) } else { value }))
    });
    let action = prop::sample::select(Action::ALL).prop_map(RuleOption::Action);
    let cooldown = (0.0..86_400.0f64).prop_map(RuleOption::Cooldown);
    prop::collection::vec(prop_oneof![4 => threshold, 1 => action, 1 => cooldown], 1..8)
        .prop_map(|options| once(options, RuleOption::name))
}

fn pool_options() -> impl Strategy<Value = Vec<PoolOption>> {
    let limit = || prop::option::of(1..1_000_000u32);
    let rules = prop::collection::btree_set(names(), 0..16)
        .prop_map(|names| PoolOption::ExceptRules(names.into_iter().collect()));
    let option = prop_oneof![
        rules,
        (1..=MOST_WEIGHT).prop_map(PoolOption::Weight),
        prop::sample::select(Priority::ALL).prop_map(PoolOption::Priority),
        limit().prop_map(PoolOption::MaxConnections),
        limit().prop_map(PoolOption::MaxActive),
        prop::option::of(rates()).prop_map(PoolOption::Bandwidth),
    ];
    prop::collection::vec(option, 1..6).prop_map(|options| once(options, PoolOption::name))
}

fn once<T>(options: Vec<T>, name: impl Fn(&T) -> &'static str) -> Vec<T> {
    let mut seen = Vec::new();
    options
        .into_iter()
        .filter(|option| {
            !seen.contains(&name(option)) && {
                seen.push(name(option));
                true
            }
        })
        .collect()
}

pub(crate) fn statements() -> impl Strategy<Value = Statement> {
    let setting = prop_oneof![Just(LowPriorityBandwidth::Auto), rates().prop_map(LowPriorityBandwidth::Fixed)];
    prop_oneof![
        (names(), rule_options()).prop_map(|(name, options)| Statement::CreateRule { name, options }),
        (names(), rule_options()).prop_map(|(name, options)| Statement::AlterRule { name, options }),
        names().prop_map(|name| Statement::DropRule { name }),
        (names(), pool_options()).prop_map(|(name, options)| Statement::CreatePool { name, options }),
        names().prop_map(|name| Statement::CreatePool { name, options: Vec::new() }),
        (names(), pool_options()).prop_map(|(name, options)| Statement::AlterPool { name, options }),
        names().prop_map(|name| Statement::DropPool { name }),
        (names(), names()).prop_map(|(user, pool)| Statement::CreateUser { user, pool, password: None }),
        (names(), names()).prop_map(|(user, pool)| Statement::AlterUser { user, pool, password: None }),
        names().prop_map(|user| Statement::DropUser { user }),
        setting.prop_map(|value| Statement::Set(Setting::LowPriorityBandwidth(value))),
        prop::sample::select(Show::ALL).prop_map(Statement::Show),
    ]
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(all in prop::collection::vec(statements(), 1..4)) {
        let text = all.iter().map(Statement::to_string).collect::<Vec<_>>().join(";\n");
        prop_assert_eq!(parse(&text).map_err(|error| format!("{error}: {text}")).unwrap(), all);
    }

    #[test]
    fn any_text_is_survived(text in ".{0,200}") {
        for error in [parse(&text).err(), parse_requests(&text).err()].into_iter().flatten() {
            prop_assert!(error.position >= 1 && error.position <= text.chars().count() + 1);
        }
    }

    #[test]
    fn any_words_are_survived(words in prop::collection::vec(prop::sample::select(&[
        "CREATE", "alter", "DROP", "EXCEPT", "RULE", "RESOURCE", "POOL", "USER", "WITH", "(", ")", "=", ",", ";", "-", "--\n",
        "/*", "*/", "'x'", "'", "\"", "\"Y\"", "1", "1.5.2", "9e9", "99999999999999999999", "bandwidth", "action", "'penalty'",
        "PASSWORD", "SET", "low_priority_bandwidth", "TO", "'auto'", "SHOW", "pools", "weight", "BEGIN", "READ",
        "SESSION", "TIME", "ZONE", "RESET", "ALL", "SELECT", "ß", "\u{0}", "é$",
    ]), 0..30)) {
        for text in [words.join(" "), words.concat()] {
            prop_assert!(parse(&text).is_err() || parse_requests(&text).is_ok(), "{text}");
        }
    }

    /// Whatever stands where a password does, no error, print or debug repeats it.
    #[test]
    fn a_password_never_shows(end in prop::sample::select(&["", "'", ";", " x", " RESOURCE", " WITH", ")"]), quote in any::<bool>(), first in any::<bool>()) {
        let secret = "hunter2secret";
        let written = if quote { format!("'{secret}'") } else { secret.to_owned() };
        let text = match first {
            true => format!("CREATE USER u PASSWORD {written}{end}"),
            false => format!("CREATE USER u RESOURCE POOL p PASSWORD {written}{end}"),
        };
        let shown = match parse(&text) {
            Ok(statements) => format!("{statements:?} {}", statements[0]),
            Err(error) => format!("{error} {error:?}"),
        };
        prop_assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn no_piece_of_a_password_that_is_not_quoted_right_shows() {
    let wrong = ["7hunter", "hunter 7secret", "'it's hunter'", "'it's' hunter", "'x' hunter", "hunter!", "$hunter"];
    for written in wrong {
        let last = refused(&format!("CREATE USER u RESOURCE POOL p PASSWORD {written}"));
        let first = refused(&format!("ALTER USER u PASSWORD {written} RESOURCE POOL p"));
        for told in [last, first] {
            assert!(!told.contains("hunter") && !told.contains("secret"), "{told}");
        }
    }
}

fn refused(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn the_three_published_statements_are_read_as_they_stand() {
    let text = "CREATE EXCEPT RULE bandwidth_rule1 WITH (bandwidth=128, ELAPSEDTIME=60, action='penalty');\n\
                CREATE RESOURCE POOL rp1 WITH (EXCEPT_RULE='bandwidth_rule1');\n\
                CREATE USER user1 RESOURCE POOL 'rp1' PASSWORD 'xxxxxxxx';";
    let statements = parse(text).unwrap();
    let options = vec![
        RuleOption::Threshold(Attribute::Bandwidth, Some(128.0)),
        RuleOption::Threshold(Attribute::ElapsedTime, Some(60.0)),
        RuleOption::Action(Action::Penalty),
    ];
    assert_eq!(statements[0], Statement::CreateRule { name: "bandwidth_rule1".to_owned(), options });
    let options = vec![PoolOption::ExceptRules(vec!["bandwidth_rule1".to_owned()])];
    assert_eq!(statements[1], Statement::CreatePool { name: "rp1".to_owned(), options });
    let Statement::CreateUser { user, pool, password } = &statements[2] else { panic!("{statements:?}") };
    assert_eq!((user.as_str(), pool.as_str()), ("user1", "rp1"));
    assert_eq!(password.as_ref().unwrap().expose(), "xxxxxxxx");
    assert_eq!(statements[2].to_string(), "CREATE USER user1 RESOURCE POOL rp1 PASSWORD '********'");
}

#[test]
fn keywords_names_and_comments_are_as_in_sql() {
    let one = parse("/* a */ create except rule \"My Rule\" with (rows = 5) -- b\n").unwrap();
    assert_eq!(one[0].to_string(), "CREATE EXCEPT RULE \"My Rule\" WITH (rows=5)");
    assert_eq!(
        parse("SET LOW_PRIORITY_BANDWIDTH TO '64MB'").unwrap()[0].to_string(),
        "SET low_priority_bandwidth = 64"
    );
    assert_eq!(
        parse("set low_priority_bandwidth = DEFAULT").unwrap()[0].to_string(),
        "SET low_priority_bandwidth = 256"
    );
    assert_eq!(
        parse("ALTER USER U WITH PASSWORD 'x' RESOURCE POOL \"P\"").unwrap()[0].to_string(),
        "ALTER USER u RESOURCE POOL \"P\" PASSWORD '********'"
    );
    assert_eq!(parse(" ; ;").unwrap(), []);
    assert_eq!(parse("/* later: /* ticket 7 */\nDROP RESOURCE POOL batch;\n-- */").unwrap(), []);
    assert_eq!(parse("/*/**/ DROP USER u */ DROP USER é").unwrap()[0].to_string(), "DROP USER é");
    assert!(refused("/* a /* b */ DROP USER u").starts_with("a comment is not closed (at character 1"));
}

#[test]
fn errors_say_where_and_what_would_have_done() {
    assert_eq!(refused("DELETE"), "CREATE, ALTER, DROP, SET, SHOW is expected here, not 'DELETE' (at character 1)");
    assert_eq!(refused("SET x = 1"), "unknown setting 'x': there is low_priority_bandwidth (at character 5)");
    assert_eq!(
        refused("CREATE EXCEPT RULE é WITH (speed=1)"),
        "unknown attribute 'speed': there are elapsedtime, blocktime, bandwidth, cputime, cpuavgpercent, spillsize, \
         memsize, walrate, walsize, rows, action, cooldown (at character 28)"
    );
    assert_eq!(refused("CREATE EXCEPT RULE r WITH (rows=1, ROWS=2)"), "rows is given twice (at character 36)");
    assert_eq!(
        refused("SET low_priority_bandwidth = 256MB"),
        "a value with a unit stands in single quotes: '256MB' (at character 30)"
    );
    assert!(refused("SHOW TABLES").starts_with("'tables' is not something that can be shown: there are pools, rules"));
    assert!(refused("CREATE USER u PASSWORD 'x'").starts_with("RESOURCE POOL is expected here"));
    assert!(
        refused("CREATE RESOURCE POOL p WITH (weight=0)")
            .contains("weight cannot be 0: it must be a whole number from 1 to 100")
    );
    let many = (0..17).map(|number| format!("r{number}")).collect::<Vec<_>>().join(",");
    assert!(refused(&format!("CREATE RESOURCE POOL p WITH (except_rule='{many}')")).contains("at most 16 rules"));
}
