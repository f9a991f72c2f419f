//! Expressions against RocketMQ's rules, one by one, and against a plain reading of their table.

use proptest::prelude::*;
use rocketmq_protocol::message::properties;

use super::*;

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

/// An expression as the table of rules has it.
#[derive(Clone, Debug)]
enum Model {
    Property(&'static str),
    Whole(i64),
    Float(f64),
    Text(&'static str),
    Bool(bool),
    Null,
    Negate(Box<Model>),
    Not(Box<Model>),
    And(Box<Model>, Box<Model>),
    Or(Box<Model>, Box<Model>),
    IsNull(bool, Box<Model>),
    Equal(bool, Box<Model>, Box<Model>),
    Order(&'static str, Box<Model>, Box<Model>),
    Between(bool, Box<Model>, Box<Model>, Box<Model>),
    In(bool, Box<Model>, Vec<&'static str>),
    Search(bool, &'static str, Box<Model>, &'static str),
}

#[derive(Clone, Debug, PartialEq)]
enum Val {
    Null,
    Bool(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(String),
}

type Pairs = Vec<(&'static str, &'static str)>;

impl Model {
    /// Its text with the parentheses that it needs to stand where `level` or more is wanted.
    fn text(&self, level: u8) -> String {
        let not = |not: &bool| if *not { "NOT " } else { "" };
        let (own, text) = match self {
            Model::Property(name) => (5, (*name).to_owned()),
            Model::Whole(number) => (5, number.to_string()),
            Model::Float(number) => (5, format!("{number:?}")),
            Model::Text(text) => (5, format!("'{}'", text.replace('\'', "''"))),
            Model::Bool(value) => (5, value.to_string()),
            Model::Null => (5, "NULL".to_owned()),
            Model::Negate(of) => (4, format!("- {}", of.text(4))),
            Model::Not(of) => (4, format!("NOT {}", of.text(4))),
            Model::And(left, right) => (1, format!("{} AND {}", left.text(1), right.text(2))),
            Model::Or(left, right) => (0, format!("{} OR {}", left.text(0), right.text(1))),
            Model::IsNull(n, of) => (2, format!("{} IS {}NULL", of.text(2), not(n))),
            Model::Equal(n, left, right) => {
                let sign = if *n { "<>" } else { "=" };
                (2, format!("{} {sign} {}", left.text(2), right.text(3)))
            }
            Model::Order(sign, left, right) => {
                (3, format!("{} {sign} {}", left.text(3), right.text(4)))
            }
            Model::Between(n, value, low, high) => {
                let (low, high) = (low.text(4), high.text(4));
                (3, format!("{} {}BETWEEN {low} AND {high}", value.text(3), not(n)))
            }
            Model::In(n, left, list) => {
                let list: Vec<String> = list.iter().map(|text| Model::Text(text).text(0)).collect();
                (3, format!("{} {}IN ({})", left.text(3), not(n), list.join(",")))
            }
            Model::Search(n, word, left, text) => {
                (3, format!("{} {}{word} {}", left.text(3), not(n), Model::Text(text).text(0)))
            }
        };
        if own >= level { text } else { format!("({text})") }
    }

    fn is_condition(&self) -> bool {
        !matches!(
            self,
            Model::Property(_)
                | Model::Whole(_)
                | Model::Float(_)
                | Model::Text(_)
                | Model::Negate(_)
        )
    }

    /// Whether it compiles where a condition is wanted.
    fn is_valid_condition(&self) -> bool {
        (self.is_condition() || matches!(self, Model::Property(_))) && self.is_valid()
    }

    fn has_order(&self) -> bool {
        matches!(self, Model::Property(_) | Model::Whole(_) | Model::Float(_) | Model::Negate(_))
    }

    fn constant(&self) -> Option<Val> {
        match self {
            Model::Whole(_) | Model::Float(_) | Model::Text(_) | Model::Bool(_) | Model::Null => {
                self.value(&Vec::new()).ok()
            }
            _ => None,
        }
    }

    fn is_valid(&self) -> bool {
        match self {
            Model::Property(_) | Model::Text(_) | Model::Bool(_) | Model::Null => true,
            Model::Whole(_) => true,
            Model::Float(number) => *number > 0.0,
            Model::Negate(of) | Model::IsNull(_, of) | Model::Search(_, _, of, _) => of.is_valid(),
            Model::Not(of) => of.is_valid_condition(),
            Model::And(left, right) | Model::Or(left, right) => {
                left.is_valid_condition() && right.is_valid_condition()
            }
            Model::Equal(_, left, right) => {
                let (l, r) = (left.constant(), right.constant());
                let is_null = l == Some(Val::Null) || r == Some(Val::Null);
                let is_mixed = matches!(l, Some(Val::Bool(_)))
                    && r.is_some_and(|right| !matches!(right, Val::Bool(_)));
                left.is_valid() && right.is_valid() && !is_null && !is_mixed
            }
            Model::Order(_, left, right) => {
                [left, right].iter().all(|side| side.is_valid() && side.has_order())
            }
            Model::Between(n, value, low, high) => {
                let ordered = match (low.constant(), high.constant()) {
                    (Some(low), Some(high)) if !n => {
                        number(&low).zip(number(&high)).is_some_and(|(low, high)| low <= high)
                    }
                    _ => true,
                };
                ordered && [value, low, high].iter().all(|part| part.is_valid() && part.has_order())
            }
            Model::In(_, left, _) => matches!(**left, Model::Property(_)),
        }
    }

    fn truth(&self, message: &Pairs) -> Result<Option<bool>, ()> {
        match self.value(message)? {
            Val::Bool(value) => Ok(Some(value)),
            Val::Null => Ok(None),
            // A property where a condition is wanted.
            _ => Ok(Some(false)),
        }
    }

    fn value(&self, message: &Pairs) -> Result<Val, ()> {
        let truth = |value: Option<bool>| value.map_or(Val::Null, Val::Bool);
        Ok(match self {
            Model::Property(name) => {
                let found = message.iter().rev().find(|(known, _)| known == name);
                found.map_or(Val::Null, |(_, value)| Val::Text((*value).to_owned()))
            }
            Model::Whole(number) => i32::try_from(*number).map_or(Val::Long(*number), Val::Int),
            Model::Float(number) => Val::Double(*number),
            Model::Text(text) => Val::Text((*text).to_owned()),
            Model::Bool(value) => Val::Bool(*value),
            Model::Null => Val::Null,
            Model::Negate(of) => match of.value(message)? {
                Val::Int(number) => Val::Int(-number),
                Val::Long(number) => Val::Long(-number),
                Val::Double(number) => Val::Double(-number),
                _ => Val::Null,
            },
            Model::Not(of) => truth(of.truth(message)?.map(|value| !value)),
            Model::And(left, right) => {
                let left = left.truth(message)?;
                if left == Some(false) {
                    return Ok(Val::Bool(false));
                }
                truth(match (left, right.truth(message)?) {
                    (_, Some(false)) => Some(false),
                    (None, _) | (_, None) => None,
                    _ => Some(true),
                })
            }
            Model::Or(left, right) => {
                let left = left.truth(message)?;
                if left == Some(true) {
                    return Ok(Val::Bool(true));
                }
                truth(match (left, right.truth(message)?) {
                    (_, Some(true)) => Some(true),
                    (None, _) | (_, None) => None,
                    _ => Some(false),
                })
            }
            Model::IsNull(n, of) => Val::Bool((of.value(message)? == Val::Null) != *n),
            Model::Equal(n, left, right) => {
                let equal = match (left.value(message)?, right.value(message)?) {
                    (Val::Null, Val::Null) => Some(true),
                    (Val::Null, _) => None,
                    (_, Val::Null) => Some(false),
                    (Val::Text(left), Val::Text(right)) => Some(left == right),
                    (left, right) => Some(sign(&left, &right)? == 0),
                };
                truth(equal.map(|equal| equal != *n))
            }
            Model::Order(op, left, right) => truth(ordered(op, left, right, message)?),
            Model::Between(false, value, low, high) => {
                let above = Model::Order(">=", value.clone(), low.clone());
                let below = Model::Order("<=", value.clone(), high.clone());
                return Model::And(above.into(), below.into()).value(message);
            }
            Model::Between(true, value, low, high) => {
                let below = Model::Order("<", value.clone(), low.clone());
                let above = Model::Order(">", value.clone(), high.clone());
                return Model::Or(below.into(), above.into()).value(message);
            }
            Model::In(n, left, list) => match left.value(message)? {
                Val::Text(text) => Val::Bool(list.contains(&&*text) != *n),
                _ => Val::Null,
            },
            Model::Search(n, word, left, search) => {
                // Nothing to look for: the left side is not looked at.
                if search.is_empty() {
                    return Ok(Val::Bool(false));
                }
                match left.value(message)? {
                    Val::Text(text) => {
                        let found = match *word {
                            "CONTAINS" => text.contains(search),
                            "STARTSWITH" => text.starts_with(search),
                            _ => text.ends_with(search),
                        };
                        Val::Bool(found != *n)
                    }
                    _ => Val::Bool(false),
                }
            }
        })
    }
}

fn ordered(op: &str, left: &Model, right: &Model, message: &Pairs) -> Result<Option<bool>, ()> {
    let left = left.value(message)?;
    if left == Val::Null {
        return Ok(None);
    }
    let right = right.value(message)?;
    if right == Val::Null {
        return Ok(None);
    }
    let sign = match (&left, &right) {
        (Val::Text(left), Val::Text(right)) => sign(
            &Val::Double(left.trim().parse().map_err(|_| ())?),
            &Val::Double(right.trim().parse().map_err(|_| ())?),
        )?,
        _ => sign(&left, &right)?,
    };
    Ok(Some(match op {
        ">" => sign > 0,
        ">=" => sign >= 0,
        "<" => sign < 0,
        _ => sign <= 0,
    }))
}

fn number(value: &Val) -> Option<f64> {
    match value {
        Val::Int(number) => Some(f64::from(*number)),
        Val::Long(number) => Some(*number as f64),
        Val::Double(number) => Some(*number),
        _ => None,
    }
}

/// Less than, equal to or more than 0, for two values that are there and not both texts.
fn sign(left: &Val, right: &Val) -> Result<i32, ()> {
    if let Val::Text(text) = left {
        let read = match right {
            Val::Bool(_) => Val::Bool(text.to_lowercase() == "true"),
            Val::Int(_) => Val::Int(text.parse().map_err(|_| ())?),
            Val::Long(_) => Val::Long(text.parse().map_err(|_| ())?),
            _ => Val::Double(text.trim().parse().map_err(|_| ())?),
        };
        return sign(&read, right);
    }
    if let (Val::Text(_), Val::Bool(_)) | (Val::Bool(_), Val::Text(_)) = (left, right) {
        return Err(());
    }
    if let Val::Text(_) = right {
        return sign(right, left).map(|sign| -sign);
    }
    match (left, right) {
        (Val::Bool(left), Val::Bool(right)) => Ok(i32::from(*left) - i32::from(*right)),
        (Val::Bool(_), _) | (_, Val::Bool(_)) => Ok(-1),
        _ => {
            let (left, right) = (number(left).ok_or(())?, number(right).ok_or(())?);
            Ok(i32::from(left > right) - i32::from(left < right))
        }
    }
}

const NAMES: [&str; 4] = ["a", "b", "c", "Or_"];
const TEXTS: [&str; 12] =
    ["", "x", "x'y", "5", "-5", " 5 ", "5.5", "3000000000", "true", "FALSE", "ü", "1e3"];
const NUMBERS: [i64; 6] = [0, 1, 5, 1_000, 2_147_483_648, 3_000_000_000];

fn models() -> impl Strategy<Value = Model> {
    let names = prop::sample::select(&NAMES[..]);
    let texts = prop::sample::select(&TEXTS[..]);
    let leaf = prop_oneof![
        4 => names.clone().prop_map(Model::Property),
        2 => prop::sample::select(&NUMBERS[..]).prop_map(Model::Whole),
        1 => prop::sample::select(&[0.0, 0.5, 5.0, 5.5, 1e3][..]).prop_map(Model::Float),
        2 => texts.clone().prop_map(Model::Text),
        1 => any::<bool>().prop_map(Model::Bool),
        1 => Just(Model::Null),
    ];
    leaf.prop_recursive(5, 24, 3, move |inner| {
        let part = inner.prop_map(Box::new);
        let two = || (part.clone(), part.clone());
        let sign = prop::sample::select(&[">", ">=", "<", "<="][..]);
        let word = prop::sample::select(&["CONTAINS", "STARTSWITH", "ENDSWITH"][..]);
        let list = prop::collection::vec(texts.clone(), 1..7);
        let property = names.clone().prop_map(|name| Box::new(Model::Property(name)));
        prop_oneof![
            1 => part.clone().prop_map(Model::Negate),
            2 => part.clone().prop_map(Model::Not),
            4 => two().prop_map(|(left, right)| Model::And(left, right)),
            4 => two().prop_map(|(left, right)| Model::Or(left, right)),
            1 => (any::<bool>(), part.clone()).prop_map(|(n, of)| Model::IsNull(n, of)),
            3 => (any::<bool>(), two()).prop_map(|(n, (l, r))| Model::Equal(n, l, r)),
            3 => (sign, two()).prop_map(|(op, (l, r))| Model::Order(op, l, r)),
            2 => (any::<bool>(), part.clone(), two())
                .prop_map(|(n, value, (low, high))| Model::Between(n, value, low, high)),
            2 => (any::<bool>(), property, list).prop_map(|(n, l, list)| Model::In(n, l, list)),
            1 => (any::<bool>(), word, part.clone(), texts.clone())
                .prop_map(|(n, word, l, text)| Model::Search(n, word, l, text)),
        ]
    })
}

fn messages() -> impl Strategy<Value = Pairs> {
    let name = prop::sample::select(&NAMES[..]);
    // An empty value is no value.
    prop::collection::vec((name, prop::sample::select(&TEXTS[1..])), 0..6)
}

/// The share of random trees that compile would be small: parts that may not stand where they are
/// are replaced by ones that may, most of the time.
fn mended(model: Model, keep: bool) -> Model {
    let mend = |part: Box<Model>| Box::new(mended(*part, keep));
    let ordered = |part: Box<Model>| match mended(*part, keep) {
        part if part.has_order() || keep => Box::new(part),
        _ => Box::new(Model::Property("a")),
    };
    let condition = |part: Box<Model>| match mended(*part, keep) {
        part if part.is_condition() || matches!(part, Model::Property(_)) || keep => Box::new(part),
        part => Box::new(Model::IsNull(true, part.into())),
    };
    match model {
        Model::Negate(of) => Model::Negate(mend(of)),
        Model::Not(of) => Model::Not(condition(of)),
        Model::And(left, right) => Model::And(condition(left), condition(right)),
        Model::Or(left, right) => Model::Or(condition(left), condition(right)),
        Model::IsNull(n, of) => Model::IsNull(n, mend(of)),
        Model::Equal(n, left, right) => {
            let (left, right) = (mend(left), mend(right));
            match Model::Equal(n, left.clone(), right) {
                equal if equal.is_valid() || keep => equal,
                _ => Model::Equal(n, Box::new(Model::Property("b")), Box::new(Model::Text("x"))),
            }
        }
        Model::Order(op, left, right) => Model::Order(op, ordered(left), ordered(right)),
        Model::Between(n, value, low, high) => {
            Model::Between(n, ordered(value), ordered(low), ordered(high))
        }
        Model::Search(n, word, left, text) => Model::Search(n, word, mend(left), text),
        other => other,
    }
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
