//! A plain reading of the table of rules, and random expressions and messages for it.

use proptest::prelude::*;

/// An expression as the table of rules has it.
#[derive(Clone, Debug)]
pub(super) enum Model {
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

pub(super) type Pairs = Vec<(&'static str, &'static str)>;

impl Model {
    /// Its text with the parentheses that it needs to stand where `level` or more is wanted.
    pub(super) fn text(&self, level: u8) -> String {
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

    pub(super) fn is_condition(&self) -> bool {
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
    pub(super) fn is_valid_condition(&self) -> bool {
        (self.is_condition() || matches!(self, Model::Property(_))) && self.is_valid()
    }

    pub(super) fn has_order(&self) -> bool {
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

    pub(super) fn is_valid(&self) -> bool {
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

    pub(super) fn truth(&self, message: &Pairs) -> Result<Option<bool>, ()> {
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

pub(super) fn models() -> impl Strategy<Value = Model> {
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

pub(super) fn messages() -> impl Strategy<Value = Pairs> {
    let name = prop::sample::select(&NAMES[..]);
    // An empty value is no value.
    prop::collection::vec((name, prop::sample::select(&TEXTS[1..])), 0..6)
}

/// The share of random trees that compile would be small: parts that may not stand where they are
/// are replaced by ones that may, most of the time.
pub(super) fn mended(model: Model, keep: bool) -> Model {
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
