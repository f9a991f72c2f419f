//! SQL92 filters: a condition on the properties of a message, as RocketMQ's `filter` module reads and
//! evaluates it.
//!
//! A text is parsed once into an [`Expression`] ([`Expression::parse`]), which then looks at property
//! blocks as they lie in records: no map is made, nothing is copied. Length and depth of a text are
//! bounded, so neither reading nor evaluating one can exhaust the stack.

mod expression;
mod lexer;
mod number;
mod parser;
mod value;

pub use expression::Expression;
pub use parser::{DEPTH_MAX, EXPRESSION_BYTES_MAX, ParseError};
pub use value::EvalError;

#[cfg(test)]
mod tests;
