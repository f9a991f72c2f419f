//! Expressions against RocketMQ's rules, one by one, and against a plain reading of their table.

use proptest::prelude::*;
use rocketmq_protocol::message::properties;

use super::*;

mod model;

use model::{mended, messages, models};

fn block(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in pairs {
        properties::append(&mut block, name, value);
    }
    block
}

fn parse(text: &str) -> Expression {
    Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The result for a message with properties that every rule below speaks of.
fn eval(text: &str) -> Result<Option<bool>, EvalError> {
    parse(text).evaluate(&block(&[
        ("a", "5"),
        ("b", "x"),
        ("c", "5.5"),
        ("big", "3000000000"),
        ("yes", "TRUE"),
        ("city", "it's Köln"),
        ("blank", " 7 "),
    ]))
}

#[test]
fn results_are_rocketmqs() {
    let cases: &[(&str, &[&str])] = &[
        (
            "true",
            &[
                "a = 5",
                "a=5L",
                "5 = a",
                "a <> 6",
                "a > 4 AND b = 'x'",
                "a >= 5 AND a <= 5",
                "a BETWEEN 5 AND 6",
                "a between 0 aNd 5",
                "a NOT BETWEEN 6 AND 7",
                "a NOT BETWEEN 7 AND 3",
                "big > 2147483648",
                "big BETWEEN 2147483648 AND 9223372036854775807",
                "c > 5.25",
                "a < 5.5",
                "blank = 7.0",
                "c > a",
                "b IN ('y', 'x')",
                "b NOT IN ('y')",
                "none IS NULL",
                "a IS NOT NULL",
                "NULL IS NULL",
                "(a > none) IS NULL",
                "yes = TRUE",
                "a = FALSE",
                "TRUE",
                "NOT FALSE",
                "NOT a",
                "a > 4 OR none > 1",
                "none > 1 OR a > 4",
                "none = none",
                "a > 4 AND a < 6 = TRUE",
                "city = 'it''s Köln'",
                "city CONTAINS 's K'",
                "city STARTSWITH 'it'",
                "city ENDSWITH 'öln'",
                "city NOT CONTAINS 'x'",
                "'abc' contains 'b'",
                "a = -5 OR a = +5",
                "-a IS NULL",
                "a <> -5",
                "a -- five\n = /* or */ 5",
                "TRUE = TRUE <> FALSE",
                "a = 5 = TRUE",
                "big = 3e9",
                "a = .5e1",
                "a = 5.",
                "NOT b = TRUE",
                // Where RocketMQ stops reading.
                "a = 5 foo",
                "a = 5 )",
                "a = 5 -- no line end",
            ],
        ),
        (
            "false",
            &[
                "a = 6",
                "b = 'X'",
                "B IS NOT NULL",
                "b = ''",
                "a <> 5",
                "FALSE",
                "NOT b = FALSE",
                "a",
                "a AND b",
                "b IN ('y')",
                "b NOT IN ('x')",
                "a BETWEEN 6 AND 7",
                "a = none",
                "5 = TRUE",
                "a = TRUE",
                "none > 1 AND a = 6",
                "a = 6 AND none > 1",
                "none CONTAINS 'x'",
                "none NOT CONTAINS 'x'",
                "city CONTAINS ''",
                "city NOT ENDSWITH ''",
                "(a = 5) CONTAINS 'x'",
                "5 NOT CONTAINS 'x'",
                // The bare property, as RocketMQ reads them.
                "b LIKE 'x'",
                "a + 1 = 6",
                "a .5",
            ],
        ),
        (
            "null",
            &[
                "none",
                "NULL",
                "NOT NULL",
                "none = 5",
                "none <> 5",
                "none > 5",
                "a > none",
                "none IN ('x')",
                "none NOT IN ('x')",
                "NOT none",
                "none BETWEEN 1 AND 2",
                "none > 1 AND a = 5",
                "none > 1 OR a = 6",
                "-a > 1",
                "- -a = 5",
                "a BETWEEN none AND 9",
                "a BETWEEN 1 AND none",
                "a NOT BETWEEN none AND 9",
            ],
        ),
        (
            "error",
            &[
                "c = 5",
                "c > 5",
                "big > 5",
                "b = 5",
                "b > 5",
                "blank = 7",
                "b > a",
                "a BETWEEN 1 AND b",
                "b BETWEEN 1 AND 9",
                "TRUE = b",
                "(a = 5) = b",
                "b > 5 OR a = 5",
                "a = 5 AND b = 5",
                "none > 1 AND b = 5",
                "b = 5 OR a = 5",
                "(b > 5) IS NULL",
            ],
        ),
    ];
    for (expected, texts) in cases {
        for text in *texts {
            let result = match eval(text) {
                Ok(Some(true)) => "true",
                Ok(Some(false)) => "false",
                Ok(None) => "null",
                Err(_) => "error",
            };
            assert_eq!(result, *expected, "{text}");
        }
    }
}

/// What Apache RocketMQ 5.3.3's own filter module made of these expressions and messages: a sample of
/// a quarter of a million random ones, on all of which the two agreed.
#[test]
fn results_are_those_that_rocketmq_gave() {
    #[derive(serde::Deserialize)]
    struct Case {
        sql: String,
        properties: std::collections::BTreeMap<String, String>,
        result: String,
    }
    let mut count = 0;
    for line in include_str!("golden.jsonl").lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let pairs: Vec<(&str, &str)> =
            case.properties.iter().map(|(name, value)| (&**name, &**value)).collect();
        let result = match Expression::parse(&case.sql).map(|e| e.evaluate(&block(&pairs))) {
            Err(_) => "refused",
            Ok(Err(_)) => "error",
            Ok(Ok(None)) => "null",
            Ok(Ok(Some(true))) => "true",
            Ok(Ok(Some(false))) => "false",
        };
        assert_eq!(result, case.result, "{line}");
        count += 1;
    }
    assert_eq!(count, 800);
}

#[test]
fn what_is_decided_is_not_looked_at_further() {
    assert_eq!(eval("a = 6 AND b > 5"), Ok(Some(false)));
    assert_eq!(eval("a = 5 OR b > 5"), Ok(Some(true)));
    assert_eq!(eval("none > b"), Ok(None));
    assert_eq!(eval("a BETWEEN 6 AND b"), Ok(Some(false)), "the upper bound is an error");
    assert_eq!(eval("a NOT BETWEEN 6 AND b"), Ok(Some(true)));
}

#[test]
fn texts_that_are_none_are_refused() {
    for text in [
        "",
        "   ",
        "a >",
        "a = ",
        "= 5",
        "a != 5",
        "a == 5",
        "a.b",
        "a = 5 ;",
        "a = 5 .",
        "\"x\" = 5",
        "*",
        "(a = 5",
        "a NOT 5",
        "a = 5 NOT",
        "a = 5 IS",
        "a IS 5",
        "a IS NOT 5",
        "a = 5 AND",
        "a = 5 OR OR b",
        "5",
        "'x'",
        "-a",
        "a AND 5",
        "NOT 5",
        "a > 'x'",
        "a > TRUE",
        "a > NULL",
        "TRUE > a",
        "a > (b = 5)",
        "a > 4 > 3",
        "NOT b > 5",
        "a = NULL",
        "NULL <> a",
        "TRUE = 5",
        "FALSE <> 'x'",
        "a IN ()",
        "a IN (5)",
        "a IN (b)",
        "a IN 'x'",
        "a IN ('x'",
        "5 IN ('x')",
        "-a IN ('x')",
        "(a = 5) IN ('x')",
        "a BETWEEN 5 AND 4",
        "a BETWEEN NULL AND 4",
        "a BETWEEN 4",
        "a BETWEEN 4 OR 5",
        "a BETWEEN 'a' AND 'b'",
        "a BETWEEN 1 AND TRUE",
        "(a = 5) BETWEEN 1 AND 2",
        "a CONTAINS b",
        "a CONTAINS 5",
        "a = 9223372036854775808",
        "a = -9223372036854775808",
        "a = 0.0",
        "a = 1E400",
        "a = 1E-400",
        "a = 'x",
        "a = 5 'x",
        "a /* b",
        "grün = 5",
    ] {
        let error = Expression::parse(text).expect_err(text).to_string();
        assert!(error.contains("character "), "{text}: {error}");
    }
}

#[test]
fn errors_say_what_where() {
    for (text, error) in [
        ("a != 5", "`!` is not part of SQL92 expressions at character 3"),
        ("a = ", "expected a property, a number, a text or `(`, found the end at character 5"),
        ("ö", "`ö` is not part of SQL92 expressions at character 1"),
        (
            "city = 'Köln' AND 5",
            "expected something that is true or false, found a number or a text at character 19",
        ),
        ("a IN (5)", "expected a text in quotes, found `5` at character 7"),
        (
            "a = 99999999999999999999",
            "the number 99999999999999999999 is out of range at character 5",
        ),
    ] {
        assert_eq!(Expression::parse(text).unwrap_err().to_string(), error);
    }
}

#[test]
fn names_are_case_sensitive_and_the_last_of_two_counts() {
    let expression = parse("A = 1 AND a = 2");
    assert!(expression.matches(&block(&[("A", "1"), ("a", "2")])));
    assert!(!expression.matches(&block(&[("a", "1"), ("A", "2")])));
    assert!(parse("a = 2").matches(&block(&[("a", "1"), ("a", "2")])));
    // More properties than are compared one by one.
    let names: Vec<String> = (0..20).map(|n| format!("p{n}")).collect();
    let all = names.iter().map(|name| format!("{name} = 7")).collect::<Vec<_>>().join(" AND ");
    let mut pairs: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "7")).collect();
    assert!(parse(&all).matches(&block(&pairs)));
    pairs[13].1 = "8";
    assert!(!parse(&all).matches(&block(&pairs)));
}

/// On a stack smaller than any of the broker's threads has.
#[test]
fn neither_depth_nor_length_exhausts_the_stack() {
    let small_stack = || {
        let deep = DEPTH_MAX - 4;
        for (open, close) in [("(", ")"), ("NOT ", ""), ("- ", ""), ("+", "")] {
            let text = format!("{}a{} IS NULL", open.repeat(deep), close.repeat(deep));
            assert_eq!(parse(&text).evaluate(&[]), Ok(Some(true)), "{open}");
            let beyond = format!("{}a", open.repeat(15_000));
            let error = Expression::parse(&beyond).unwrap_err().to_string();
            assert!(error.contains("deeper"), "{error}");
        }
        let chain = format!("a{}", " IS NULL".repeat(DEPTH_MAX));
        assert!(Expression::parse(&chain).unwrap_err().to_string().contains("deeper"));
        let long = vec!["a = 1"; 7_000].join(" OR ");
        assert_eq!(parse(&long).evaluate(&block(&[("a", "2")])), Ok(Some(false)));
        let longer = vec!["a = 1"; 8_000].join(" AND ");
        assert!(Expression::parse(&longer).unwrap_err().to_string().contains("65535"));
        // Each level reads its operand twice in RocketMQ.
        let nested = (0..60).fold("a".to_owned(), |inner, _| format!("-({inner} BETWEEN 1 AND 2)"));
        let began = std::time::Instant::now();
        assert_eq!(parse(&format!("{nested} IS NULL")).evaluate(&[]), Ok(Some(true)));
        assert!(began.elapsed().as_secs() < 5);
    };
    let thread = std::thread::Builder::new().stack_size(768 << 10).spawn(small_stack).unwrap();
    thread.join().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn the_evaluator_agrees_with_the_table(
        model in models(),
        keep in prop::bool::weighted(0.1),
        message in messages(),
    ) {
        let model = mended(model, keep);
        let text = model.text(0);
        match Expression::parse(&text) {
            Ok(expression) => {
                prop_assert!(model.is_valid_condition(), "{text} compiles");
                let found = expression.evaluate(&block(&message)).map_err(|_| ());
                prop_assert_eq!(found, model.truth(&message), "{} on {:?}", text, message);
            }
            Err(error) => {
                prop_assert!(!model.is_valid_condition(), "{text} does not compile: {error}");
            }
        }
    }

    #[test]
    fn arbitrary_texts_end(text in "[aOR<>=() '.0-9NTIS*/\n-]{0,60}", bytes: Vec<u8>) {
        if let Ok(expression) = Expression::parse(&text) {
            let _ = expression.evaluate(&bytes);
        }
    }
}
