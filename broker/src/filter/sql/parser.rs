//! Reads an SQL92 expression as RocketMQ's `SelectorParser` does, and refuses what its expressions
//! refuse when they are made (`ComparisonExpression.check…`).
//!
//! From weak to strong: `OR`; `AND`; `=`, `<>`, `IS [NOT] NULL`; order, `BETWEEN`, `IN`, `CONTAINS` and
//! its siblings; `+`, `-` and `NOT`; parentheses. So `NOT a = 5` is `(NOT a) = 5`. Reading ends with the
//! first complete expression: what follows is ignored if its first word could not have gone on with
//! it. RocketMQ ignores it too, and clients' expressions rest on it.

use std::collections::HashMap;
use std::fmt;

use memchr::memmem::Finder;

use super::expression::{Constant, Expression, Node, Place, Relation};
use super::lexer::{Lexer, Token};
use super::value;

/// Longest expression, in bytes. RocketMQ has no bound of its own.
pub const EXPRESSION_BYTES_MAX: usize = 65_535;
/// Deepest nesting, and longest chain of `=`, `IS NULL` or `CONTAINS`; `AND` and `OR` chain without
/// a bound. RocketMQ ends somewhere with its stack.
pub const DEPTH_MAX: usize = 128;

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at character {character}")]
pub struct ParseError {
    pub(super) kind: ErrorKind,
    /// Place in the text, from 1 on.
    pub(super) character: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ErrorKind {
    /// A character that begins no word.
    Character(char),
    /// A quoted text without its end.
    OpenText,
    /// Another word than could stand there.
    Expected {
        expected: &'static str,
        found: String,
    },
    /// A number out of range.
    Number(String),
    /// Something that is neither a condition nor a property where a condition is wanted.
    NoCondition,
    /// Only numbers and properties have an order.
    NoOrder,
    /// `=` and `<>` with NULL.
    EqualNull,
    /// `TRUE = 5`.
    EqualConstants,
    /// IN behind something that is no property.
    InWithoutProperty,
    /// BETWEEN with bounds in the wrong order.
    Bounds,
    TooLong(usize),
    TooDeep,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Character(found) => write!(f, "`{found}` is not part of SQL92 expressions"),
            ErrorKind::OpenText => f.write_str("the text has no closing quote, which begins"),
            ErrorKind::Expected { expected, found } => {
                write!(f, "expected {expected}, found {found}")
            }
            ErrorKind::Number(number) => write!(f, "the number {number} is out of range"),
            ErrorKind::NoCondition => {
                f.write_str("expected something that is true or false, found a number or a text")
            }
            ErrorKind::NoOrder => {
                f.write_str("only numbers and properties can be compared by order, not the operand")
            }
            ErrorKind::EqualNull => f.write_str("NULL cannot be compared, write IS NULL,"),
            ErrorKind::EqualConstants => {
                f.write_str("TRUE and FALSE cannot be compared with a number or a text")
            }
            ErrorKind::InWithoutProperty => f.write_str("IN must stand behind a property,"),
            ErrorKind::Bounds => {
                f.write_str("the bounds of BETWEEN must be numbers, the lower one first,")
            }
            ErrorKind::TooLong(bytes) => write!(
                f,
                "the expression has {bytes} bytes, at most {EXPRESSION_BYTES_MAX} are allowed; it ends"
            ),
            ErrorKind::TooDeep => {
                write!(f, "the expression is nested deeper than {DEPTH_MAX} levels")
            }
        }
    }
}

/// Reads `text` as an expression.
pub(super) fn parse(text: &str) -> Result<Expression, ParseError> {
    read(text).map_err(|error| *error)
}

fn read(text: &str) -> Parsed<Expression> {
    let lexer = Lexer::new(text);
    if text.len() > EXPRESSION_BYTES_MAX {
        return Err(lexer.error(ErrorKind::TooLong(text.len()), text.len()).into());
    }
    let mut parser = Parser {
        lexer,
        token: Token::End,
        at: 0,
        nesting: 0,
        properties: HashMap::new(),
        node_count: 0,
    };
    parser.step()?;
    let root = parser.or()?;
    let root = parser.condition(root)?;
    Ok(Expression::new(*root.node, &parser.properties, parser.node_count))
}

/// A part that was read. It is kept small, as are errors: what is nested lies on the stack, with
/// many of them.
struct Part {
    node: Box<Node>,
    /// Levels of nodes.
    depth: usize,
    /// Where it begins.
    at: usize,
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The word that was not taken yet, and where it begins.
    token: Token<'a>,
    at: usize,
    /// How many operands the parser is inside of.
    nesting: usize,
    /// By name, each with its number.
    properties: HashMap<&'a str, usize>,
    node_count: usize,
}

type Parsed<T = Part> = Result<T, Box<ParseError>>;

impl<'a> Parser<'a> {
    fn step(&mut self) -> Parsed<()> {
        (self.token, self.at) = self.lexer.next().map_err(Box::new)?;
        Ok(())
    }

    /// Takes the word if it is this one.
    fn take(&mut self, token: Token<'_>) -> Parsed<bool> {
        let is_it = self.token == token;
        if is_it {
            self.step()?;
        }
        Ok(is_it)
    }

    fn expect(&mut self, token: Token<'_>, expected: &'static str) -> Parsed<()> {
        if self.take(token)? { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn unexpected(&self, expected: &'static str) -> Box<ParseError> {
        let found = match self.token {
            Token::End => "the end".to_owned(),
            Token::Text(text) => format!("'{text}'"),
            Token::Name(text) | Token::Decimal(text) | Token::Float(text) => format!("`{text}`"),
            token => format!("{token:?}"),
        };
        self.error(ErrorKind::Expected { expected, found }, self.at)
    }

    fn error(&self, kind: ErrorKind, at: usize) -> Box<ParseError> {
        self.lexer.error(kind, at).into()
    }

    /// A part over others, of which the deepest has `depth` levels.
    fn part(&mut self, node: Node, depth: usize, at: usize) -> Parsed {
        self.node_count += 1;
        if depth >= DEPTH_MAX {
            return Err(self.error(ErrorKind::TooDeep, at));
        }
        Ok(Part { node: node.into(), depth: depth + 1, at })
    }

    fn or(&mut self) -> Parsed {
        let first = self.and()?;
        self.chain(first, Token::Or, Parser::and, Node::Or)
    }

    fn and(&mut self) -> Parsed {
        let first = self.equality()?;
        self.chain(first, Token::And, Parser::equality, Node::And)
    }

    /// Conditions with `token` between them. Taken together they are what they are two by two from
    /// the left, without being that deep.
    fn chain(
        &mut self,
        first: Part,
        token: Token<'static>,
        operand: fn(&mut Parser<'a>) -> Parsed,
        node: fn(Vec<Node>) -> Node,
    ) -> Parsed {
        if self.token != token {
            return Ok(first);
        }
        let Part { node: first, mut depth, at } = self.condition(first)?;
        let mut operands = vec![*first];
        while self.take(token)? {
            let next = operand(self)?;
            let next = self.condition(next)?;
            depth = depth.max(next.depth);
            operands.push(*next.node);
        }
        self.part(node(operands), depth, at)
    }

    /// The part as a condition (`SelectorParser.asBooleanExpression`).
    fn condition(&mut self, part: Part) -> Parsed {
        match &*part.node {
            node if node.is_condition() => Ok(part),
            Node::Property(_) => self.part(Node::Cast(part.node), part.depth, part.at),
            _ => Err(self.error(ErrorKind::NoCondition, part.at)),
        }
    }

    fn equality(&mut self) -> Parsed {
        let mut left = self.comparison()?;
        loop {
            let at = left.at;
            left = match self.token {
                Token::Equal | Token::NotEqual => {
                    let not = self.token == Token::NotEqual;
                    self.step()?;
                    let right = self.comparison()?;
                    self.check_equal(&left, &right)?;
                    let depth = left.depth.max(right.depth);
                    let node = Node::Equal(left.node, right.node);
                    let equal = self.part(node, depth, at)?;
                    self.negated(not, equal)?
                }
                Token::Is => {
                    self.step()?;
                    let not = self.take(Token::Not)?;
                    self.expect(Token::Null, if not { "NULL" } else { "NULL or NOT NULL" })?;
                    let is_null = self.part(Node::IsNull(left.node), left.depth, at)?;
                    self.negated(not, is_null)?
                }
                _ => return Ok(left),
            }
        }
    }

    fn negated(&mut self, not: bool, part: Part) -> Parsed {
        if !not {
            return Ok(part);
        }
        self.part(Node::Not(part.node), part.depth, part.at)
    }

    fn comparison(&mut self) -> Parsed {
        let mut left = self.unary()?;
        loop {
            let not = self.take(Token::Not)?;
            let token = self.token;
            left = match token {
                Token::Greater if !not => self.relation(left, Relation::Greater)?,
                Token::GreaterEqual if !not => self.relation(left, Relation::GreaterEqual)?,
                Token::Less if !not => self.relation(left, Relation::Less)?,
                Token::LessEqual if !not => self.relation(left, Relation::LessEqual)?,
                Token::Contains => self.search(left, not, Place::Anywhere)?,
                Token::StartsWith => self.search(left, not, Place::Start)?,
                Token::EndsWith => self.search(left, not, Place::End)?,
                Token::Between => self.between(left, not)?,
                Token::In => self.in_list(left, not)?,
                _ if not => {
                    return Err(self.unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH"));
                }
                _ => return Ok(left),
            }
        }
    }

    fn relation(&mut self, left: Part, relation: Relation) -> Parsed {
        self.step()?;
        let right = self.unary()?;
        self.check_order(&left)?;
        self.check_order(&right)?;
        let depth = left.depth.max(right.depth);
        let node = Node::Compare(relation, left.node, right.node);
        self.part(node, depth, left.at)
    }

    fn search(&mut self, operand: Part, not: bool, place: Place) -> Parsed {
        self.step()?;
        let text = self.text()?;
        let search = Box::new(Finder::new(text.as_bytes()).into_owned());
        let node = Node::Search { not, place, operand: operand.node, search };
        self.part(node, operand.depth, operand.at)
    }

    fn between(&mut self, value: Part, not: bool) -> Parsed {
        self.step()?;
        let low = self.unary()?;
        self.expect(Token::And, "AND and the upper bound")?;
        let high = self.unary()?;
        // RocketMQ looks at the order of constant bounds under BETWEEN alone.
        if let (false, Node::Constant(low_value), Node::Constant(high_value)) =
            (not, &*low.node, &*high.node)
        {
            let is_ordered = low_value.is_number()
                && high_value.is_number()
                && low_value.value().zip(high_value.value()).is_some_and(|(low, high)| {
                    value::compare(low, high).is_ok_and(|order| order.is_le())
                });
            if !is_ordered {
                return Err(self.error(ErrorKind::Bounds, low.at));
            }
        }
        for operand in [&value, &low, &high] {
            self.check_order(operand)?;
        }
        let depth = value.depth.max(low.depth).max(high.depth);
        let at = value.at;
        let (value, low, high) = (value.node, low.node, high.node);
        self.part(Node::Between { not, value, low, high }, depth, at)
    }

    fn in_list(&mut self, left: Part, not: bool) -> Parsed {
        let in_at = self.at;
        self.step()?;
        self.expect(Token::Open, "`(` and a list of texts")?;
        let mut list = vec![self.text()?.into_boxed_str()];
        while self.take(Token::Comma)? {
            list.push(self.text()?.into_boxed_str());
        }
        self.expect(Token::Close, "`,` or `)`")?;
        let Node::Property(property) = *left.node else {
            return Err(self.error(ErrorKind::InWithoutProperty, in_at));
        };
        list.sort_unstable();
        self.part(Node::In { not, property, list }, left.depth, left.at)
    }

    fn unary(&mut self) -> Parsed {
        if self.nesting >= DEPTH_MAX {
            return Err(self.error(ErrorKind::TooDeep, self.at));
        }
        self.nesting += 1;
        let part = self.unary_within();
        self.nesting -= 1;
        part
    }

    fn unary_within(&mut self) -> Parsed {
        let at = self.at;
        if self.take(Token::Plus)? {
            return self.unary();
        }
        if self.take(Token::Minus)? {
            let operand = self.unary()?;
            return self.part(Node::Negate(operand.node), operand.depth, at);
        }
        if self.take(Token::Not)? {
            let operand = self.unary()?;
            let operand = self.condition(operand)?;
            return self.negated(true, Part { at, ..operand });
        }
        if self.take(Token::Open)? {
            let within = self.or()?;
            self.expect(Token::Close, "`)`")?;
            return Ok(Part { at, ..within });
        }
        let node = match self.token {
            Token::Name(name) => Node::Property(self.property(name)),
            Token::Text(_) => {
                let text = self.text()?.into_boxed_str();
                return self.part(Node::Constant(Constant::Text(text)), 0, at);
            }
            Token::Decimal(number) => Node::Constant(self.decimal(number)?),
            Token::Float(number) => Node::Constant(self.float(number)?),
            Token::True => Node::Constant(Constant::Bool(true)),
            Token::False => Node::Constant(Constant::Bool(false)),
            Token::Null => Node::Constant(Constant::Null),
            _ => return Err(self.unexpected("a property, a number, a text or `(`")),
        };
        self.step()?;
        self.part(node, 0, at)
    }

    fn property(&mut self, name: &'a str) -> usize {
        let next = self.properties.len();
        *self.properties.entry(name).or_insert(next)
    }

    /// The quoted text that stands next.
    fn text(&mut self) -> Parsed<String> {
        let Token::Text(text) = self.token else {
            return Err(self.unexpected("a text in quotes"));
        };
        self.step()?;
        Ok(text.replace("''", "'"))
    }

    fn decimal(&self, text: &str) -> Parsed<Constant> {
        let digits = text.strip_suffix(['l', 'L']).unwrap_or(text);
        let value: i64 = digits.parse().map_err(|_| self.out_of_range(text))?;
        Ok(i32::try_from(value).map_or(Constant::Long(value), Constant::Int))
    }

    /// RocketMQ refuses what is not above zero and below infinity, so `0.0` too.
    fn float(&self, text: &str) -> Parsed<Constant> {
        let value: f64 = text.parse().map_err(|_| self.out_of_range(text))?;
        if value > 0.0 && value.is_finite() {
            return Ok(Constant::Double(value));
        }
        Err(self.out_of_range(text))
    }

    fn out_of_range(&self, text: &str) -> Box<ParseError> {
        self.error(ErrorKind::Number(text.to_owned()), self.at)
    }

    /// `checkLessThanOperand`.
    fn check_order(&self, operand: &Part) -> Parsed<()> {
        let is_ordered = match &*operand.node {
            Node::Constant(constant) => constant.is_number(),
            node => !node.is_condition(),
        };
        if is_ordered { Ok(()) } else { Err(self.error(ErrorKind::NoOrder, operand.at)) }
    }

    /// `checkEqualOperand` and `checkEqualOperandCompatability`, which looks at the left side only:
    /// `5 = TRUE` is never true, and no error.
    fn check_equal(&self, left: &Part, right: &Part) -> Parsed<()> {
        for operand in [left, right] {
            if matches!(*operand.node, Node::Constant(Constant::Null)) {
                return Err(self.error(ErrorKind::EqualNull, operand.at));
            }
        }
        match (&*left.node, &*right.node) {
            (Node::Constant(Constant::Bool(_)), Node::Constant(constant))
                if !matches!(constant, Constant::Bool(_)) =>
            {
                Err(self.error(ErrorKind::EqualConstants, left.at))
            }
            _ => Ok(()),
        }
    }
}
