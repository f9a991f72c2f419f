//! Which messages of a queue a subscription wants.
//!
//! - [`tag`]: by tag, decided from the ConsumeQueue entry.
//! - [`sql`]: by a condition on properties, decided from the record.
//! - [`bloom`]: bit maps beside ConsumeQueue entries, which spare a look at most records.
//! - [`by_expression`]: how the last two make the filter of a pull.
//!
//! What groups registered is in [`crate::metadata::consumer_filter`].

pub mod bloom;
pub mod by_expression;
mod cache;
pub mod sql;
pub mod tag;

use std::sync::Arc;

use rocketmq_protocol::subscription::SQL92;
use rocketmq_store::QueueFilter;

pub use by_expression::ExpressionFilter;
pub use cache::ExpressionCache;
pub use tag::TagFilter;

use sql::{Expression, ParseError};

/// The filter of a pull.
#[derive(Clone, Debug)]
pub enum PullFilter {
    /// By tag.
    Tags(Arc<TagFilter>),
    /// By an expression on properties.
    Expression(ExpressionFilter),
}

impl PullFilter {
    /// The filter as the store asks it.
    pub fn as_queue_filter(&self) -> &dyn QueueFilter {
        match self {
            PullFilter::Tags(filter) => &**filter,
            PullFilter::Expression(filter) => filter,
        }
    }

    /// Whether looking at all messages that one pull may look at takes too long for an I/O thread.
    pub fn is_costly(&self) -> bool {
        match self {
            PullFilter::Tags(_) => false,
            PullFilter::Expression(filter) => filter.is_costly(),
        }
    }
}

/// Why a filter by expression cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The expression is none.
    #[error("`{expression}` is not an SQL92 expression: {source}")]
    Parse {
        /// Its beginning.
        expression: String,
        /// What is wrong.
        source: ParseError,
    },
    /// There are no filters of this type.
    #[error("expression type `{0}` is unknown, allowed are TAG and SQL92")]
    Type(String),
}

/// Most characters of an expression that an error repeats.
const QUOTED_MAX: usize = 200;

/// Compiles an expression of this type.
///
/// # Errors
/// When there is no such type, or the expression is none of it.
pub fn compile(expression_type: &str, expression: &str) -> Result<Expression, FilterError> {
    if expression_type != SQL92 {
        return Err(FilterError::Type(expression_type.to_owned()));
    }
    Expression::parse(expression).map_err(|source| FilterError::Parse {
        expression: expression.chars().take(QUOTED_MAX).collect(),
        source,
    })
}
