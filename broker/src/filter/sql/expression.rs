//! A compiled expression and its evaluation in three-valued logic (RocketMQ's `filter.expression`).

use std::cmp::Ordering;
use std::collections::HashMap;

use memchr::memmem::Finder;
use rocketmq_protocol::message::properties;
use smallvec::SmallVec;

use super::parser::{self, ParseError};
use super::value::{self, EvalError, Value};

/// A condition on the properties of a message.
#[derive(Clone, Debug)]
pub struct Expression {
    root: Node,
    /// Names of the properties that it speaks of, sorted; [`Node::Property`] holds a place in it.
    properties: Vec<Box<str>>,
    node_count: usize,
}

/// A part of an expression.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// The property at this place of [`Expression::properties`].
    Property(usize),
    Constant(Constant),
    /// `-`: of a number its negative, of anything else null.
    Negate(Box<Node>),
    Not(Box<Node>),
    /// A property where a condition is wanted. All are texts, and a text is not true.
    Cast(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    IsNull(Box<Node>),
    Equal(Box<Node>, Box<Node>),
    Compare(Relation, Box<Node>, Box<Node>),
    Between {
        not: bool,
        value: Box<Node>,
        low: Box<Node>,
        high: Box<Node>,
    },
    In {
        not: bool,
        property: usize,
        /// Sorted.
        list: Vec<Box<str>>,
    },
    Search {
        not: bool,
        place: Place,
        operand: Box<Node>,
        search: Box<Finder<'static>>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Constant {
    Null,
    Bool(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
}

/// Where in a text another one is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Anywhere,
    Start,
    End,
}

/// Up to so many properties are looked for one by one, and their values need no memory of their own.
const FEW: usize = 8;

/// The values of an expression's properties in one message.
type Properties<'a> = [Option<&'a [u8]>];

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// When it is not one, or exceeds [`parser::EXPRESSION_BYTES_MAX`] or [`parser::DEPTH_MAX`].
    pub fn parse(text: &str) -> Result<Expression, ParseError> {
        parser::parse(text)
    }

    /// An expression of its parts. `root` is a condition that knows its properties by the numbers
    /// given here, which are dense.
    pub(super) fn new(
        mut root: Node,
        properties: &HashMap<&str, usize>,
        node_count: usize,
    ) -> Expression {
        let mut sorted: Vec<(&str, usize)> =
            properties.iter().map(|(name, at)| (*name, *at)).collect();
        sorted.sort_unstable();
        let mut place_of = vec![0; sorted.len()];
        for (place, (_, number)) in sorted.iter().enumerate() {
            place_of[*number] = place;
        }
        root.renumber(&place_of);
        let properties = sorted.into_iter().map(|(name, _)| name.into()).collect();
        Expression { root, properties, node_count }
    }

    /// How many parts it has, which is about what an evaluation costs.
    pub fn node_count(&self) -> usize {
        self.node_count
    }

    /// Whether a message with this property block matches: whether the result is true. Null does not
    /// match, nor does an error.
    pub fn matches(&self, block: &[u8]) -> bool {
        self.evaluate(block) == Ok(Some(true))
    }

    /// The result for a message with this property block; none for null.
    ///
    /// # Errors
    /// When values meet that cannot be compared.
    pub fn evaluate(&self, block: &[u8]) -> Result<Option<bool>, EvalError> {
        let mut values: SmallVec<[Option<&[u8]>; FEW]> =
            SmallVec::from_elem(None, self.properties.len());
        for (name, value) in properties::iter(block) {
            // Of a name that occurs twice the last one counts.
            if let Some(place) = self.place_of(name) {
                values[place] = Some(value);
            }
        }
        self.root.condition(&values)
    }

    fn place_of(&self, name: &[u8]) -> Option<usize> {
        if self.properties.len() <= FEW {
            return self.properties.iter().position(|known| known.as_bytes() == name);
        }
        self.properties.binary_search_by(|known| known.as_bytes().cmp(name)).ok()
    }
}

impl Node {
    /// Whether it is a condition (RocketMQ's `BooleanExpression`): true, false or null.
    pub(super) fn is_condition(&self) -> bool {
        match self {
            Node::Constant(constant) => matches!(constant, Constant::Null | Constant::Bool(_)),
            Node::Property(_) | Node::Negate(_) => false,
            _ => true,
        }
    }

    fn renumber(&mut self, place_of: &[usize]) {
        match self {
            Node::Property(place) | Node::In { property: place, .. } => *place = place_of[*place],
            Node::Constant(_) => {}
            Node::Negate(node) | Node::Not(node) | Node::Cast(node) | Node::IsNull(node) => {
                node.renumber(place_of);
            }
            Node::Search { operand, .. } => operand.renumber(place_of),
            Node::And(nodes) | Node::Or(nodes) => {
                nodes.iter_mut().for_each(|node| node.renumber(place_of));
            }
            Node::Equal(left, right) | Node::Compare(_, left, right) => {
                left.renumber(place_of);
                right.renumber(place_of);
            }
            Node::Between { value, low, high, .. } => {
                [value, low, high].into_iter().for_each(|node| node.renumber(place_of));
            }
        }
    }

    fn value<'a>(&'a self, properties: &Properties<'a>) -> Result<Option<Value<'a>>, EvalError> {
        Ok(match self {
            Node::Property(place) => properties[*place].map(Value::Text),
            Node::Constant(constant) => constant.value(),
            Node::Negate(operand) => operand.value(properties)?.and_then(negate),
            _ => self.condition(properties)?.map(Value::Bool),
        })
    }

    /// The result of a condition. What is none (it stands nowhere where one is wanted) is null.
    fn condition<'a>(&'a self, properties: &Properties<'a>) -> Result<Option<bool>, EvalError> {
        Ok(match self {
            Node::Property(_) | Node::Negate(_) => None,
            Node::Constant(constant) => match constant {
                Constant::Bool(value) => Some(*value),
                _ => None,
            },
            Node::Not(operand) => operand.condition(properties)?.map(|value| !value),
            Node::Cast(operand) => {
                operand.value(properties)?.map(|value| value == Value::Bool(true))
            }
            Node::And(operands) => chain(operands, properties, true)?,
            Node::Or(operands) => chain(operands, properties, false)?,
            Node::IsNull(operand) => Some(operand.value(properties)?.is_none()),
            Node::Equal(left, right) => match (left.value(properties)?, right.value(properties)?) {
                (None, None) => Some(true),
                (None, Some(_)) => None,
                (Some(_), None) => Some(false),
                (Some(left), Some(right)) => Some(value::compare(left, right)?.is_eq()),
            },
            Node::Compare(relation, left, right) => {
                let Some(left) = left.value(properties)? else { return Ok(None) };
                relation.holds(left, right.value(properties)?)?
            }
            Node::Between { not, value, low, high } => {
                let Some(value) = value.value(properties)? else { return Ok(None) };
                let below = if *not { Relation::Less } else { Relation::GreaterEqual };
                let above = if *not { Relation::Greater } else { Relation::LessEqual };
                let first = below.holds(value, low.value(properties)?)?;
                if first == Some(*not) {
                    return Ok(first);
                }
                let second = above.holds(value, high.value(properties)?)?;
                if second == Some(*not) { second } else { first.and(second) }
            }
            Node::In { not, property, list } => {
                let Some(value) = properties[*property] else { return Ok(None) };
                let found = list.binary_search_by(|listed| listed.as_bytes().cmp(value)).is_ok();
                Some(found != *not)
            }
            Node::Search { not, place, operand, search } => {
                // False where there is no text or nothing to look for, with NOT as well.
                if search.needle().is_empty() {
                    return Ok(Some(false));
                }
                let Some(Value::Text(text)) = operand.value(properties)? else {
                    return Ok(Some(false));
                };
                let found = match place {
                    Place::Anywhere => search.find(text).is_some(),
                    Place::Start => text.starts_with(search.needle()),
                    Place::End => text.ends_with(search.needle()),
                };
                Some(found != *not)
            }
        })
    }
}

/// The result of AND, where `neutral` is true, or OR, where it is false. The first operand that is
/// the opposite decides, and later ones are not looked at; else one that is null does.
fn chain<'a>(
    operands: &'a [Node],
    properties: &Properties<'a>,
    neutral: bool,
) -> Result<Option<bool>, EvalError> {
    let mut result = Some(neutral);
    for operand in operands {
        match operand.condition(properties)? {
            Some(value) if value == neutral => {}
            Some(value) => return Ok(Some(value)),
            None => result = None,
        }
    }
    Ok(result)
}

fn negate(value: Value<'_>) -> Option<Value<'_>> {
    match value {
        Value::Int(value) => Some(Value::Int(value.wrapping_neg())),
        Value::Long(value) => Some(Value::Long(value.wrapping_neg())),
        Value::Double(value) => Some(Value::Double(-value)),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

impl Constant {
    pub(super) fn value(&self) -> Option<Value<'_>> {
        match self {
            Constant::Null => None,
            Constant::Bool(value) => Some(Value::Bool(*value)),
            Constant::Int(value) => Some(Value::Int(*value)),
            Constant::Long(value) => Some(Value::Long(*value)),
            Constant::Double(value) => Some(Value::Double(*value)),
            Constant::Text(text) => Some(Value::Text(text.as_bytes())),
        }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Constant::Int(_) | Constant::Long(_) | Constant::Double(_))
    }
}

impl Relation {
    fn holds(self, left: Value<'_>, right: Option<Value<'_>>) -> Result<Option<bool>, EvalError> {
        let Some(right) = right else { return Ok(None) };
        let order: Ordering = value::order(left, right)?;
        Ok(Some(match self {
            Relation::Greater => order.is_gt(),
            Relation::GreaterEqual => order.is_ge(),
            Relation::Less => order.is_lt(),
            Relation::LessEqual => order.is_le(),
        }))
    }
}
