//! Values of an evaluation and how two of them compare (RocketMQ's `ComparisonExpression.__compare`).
//!
//! A value that is not there is `None`; nothing compares with it here. Types meet in RocketMQ's own
//! way: a text is read as whatever stands on the other side, and where that makes no sense the
//! answer is "less" or an error, each where RocketMQ has it.

use std::cmp::Ordering;

use super::number;

/// A value that is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Bool(bool),
    /// A number that fits 32 bits; a text opposite it has to fit them, too.
    Int(i32),
    Long(i64),
    Double(f64),
    /// A property or a text of the expression. A property need not be UTF-8.
    Text(&'a [u8]),
}

/// Why an evaluation ends without a result; the message does not match then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A property compared with a number is none, or none of that type.
    #[error("a value compared with a number is not a number of that type")]
    NotANumber,
    /// Two texts were to be ordered, and one is not a number.
    #[error("texts that are no numbers have no order")]
    NoOrder,
    /// A condition stands on the left of `=` and a text on the right.
    #[error("a condition on the left cannot be compared with a text on the right")]
    ConditionWithText,
}

/// How two values compare.
///
/// # Errors
/// When one has to be read as the other's type and cannot be.
pub(super) fn compare(left: Value<'_>, right: Value<'_>) -> Result<Ordering, EvalError> {
    use Value::{Bool, Double, Int, Long, Text};
    Ok(match (left, right) {
        (Bool(left), Bool(right)) => left.cmp(&right),
        (Int(left), Int(right)) => left.cmp(&right),
        (Long(left), Long(right)) => left.cmp(&right),
        (Double(left), Double(right)) => compare_doubles(left, right),
        (Text(left), Text(right)) => left.cmp(right),

        (Int(left), Long(right)) => i64::from(left).cmp(&right),
        (Long(left), Int(right)) => left.cmp(&i64::from(right)),
        (Int(left), Double(right)) => compare_doubles(f64::from(left), right),
        (Double(left), Int(right)) => compare_doubles(left, f64::from(right)),
        (Long(left), Double(right)) => compare_doubles(left as f64, right),
        (Double(left), Long(right)) => compare_doubles(left, right as f64),

        (Text(left), Int(right)) => int(left)?.cmp(&right),
        (Int(left), Text(right)) => left.cmp(&int(right)?),
        (Text(left), Long(right)) => long(left)?.cmp(&right),
        (Long(left), Text(right)) => left.cmp(&long(right)?),
        (Text(left), Double(right)) => compare_doubles(double(left)?, right),
        (Double(left), Text(right)) => compare_doubles(left, double(right)?),
        (Text(left), Bool(right)) => left.eq_ignore_ascii_case(b"true").cmp(&right),
        // RocketMQ casts the wrong one of the two to a text there, which throws.
        (Bool(_), Text(_)) => return Err(EvalError::ConditionWithText),

        // Its answer to types that have nothing in common.
        (Bool(_), Int(_) | Long(_) | Double(_)) | (Int(_) | Long(_) | Double(_), Bool(_)) => {
            Ordering::Less
        }
    })
}

/// How two values compare under `<` and its siblings: two texts as numbers.
///
/// # Errors
/// As [`compare`]; and when one of two texts is not a number.
pub(super) fn order(left: Value<'_>, right: Value<'_>) -> Result<Ordering, EvalError> {
    let (Value::Text(left), Value::Text(right)) = (left, right) else {
        return compare(left, right);
    };
    let number = |text| number::double(text).ok_or(EvalError::NoOrder);
    Ok(compare_doubles(number(left)?, number(right)?))
}

/// `Double.compareTo`: -0 is less than 0, and NaN more than everything else.
fn compare_doubles(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).filter(|order| order.is_ne()).unwrap_or_else(|| {
        let bits =
            |value: f64| if value.is_nan() { f64::NAN.abs() } else { value }.to_bits() as i64;
        bits(left).cmp(&bits(right))
    })
}

fn int(text: &[u8]) -> Result<i32, EvalError> {
    number::int(text).ok_or(EvalError::NotANumber)
}

fn long(text: &[u8]) -> Result<i64, EvalError> {
    number::long(text).ok_or(EvalError::NotANumber)
}

fn double(text: &[u8]) -> Result<f64, EvalError> {
    number::double(text).ok_or(EvalError::NotANumber)
}

#[cfg(test)]
mod tests {
    use super::Value::{Bool, Double, Int, Long, Text};
    use super::*;

    #[test]
    fn a_text_is_read_as_the_type_of_the_other_side() {
        assert_eq!(compare(Text(b"5"), Int(5)), Ok(Ordering::Equal));
        assert_eq!(compare(Text(b"5.0"), Int(5)), Err(EvalError::NotANumber));
        assert_eq!(compare(Text(b"3000000000"), Int(5)), Err(EvalError::NotANumber));
        assert_eq!(compare(Text(b"3000000000"), Long(5)), Ok(Ordering::Greater));
        assert_eq!(compare(Text(b" 5 "), Double(5.0)), Ok(Ordering::Equal));
        assert_eq!(compare(Double(4.0), Text(b"5")), Ok(Ordering::Less));
        assert_eq!(compare(Text(b"TrUe"), Bool(true)), Ok(Ordering::Equal));
        assert_eq!(compare(Text(b"yes"), Bool(false)), Ok(Ordering::Equal));
        assert_eq!(compare(Bool(true), Text(b"true")), Err(EvalError::ConditionWithText));
        assert_eq!(compare(Bool(true), Int(1)), Ok(Ordering::Less));
        assert_eq!(compare(Int(1), Bool(true)), Ok(Ordering::Less));
        assert_eq!(order(Text(b"10"), Text(b"9")), Ok(Ordering::Greater));
        assert_eq!(order(Text(b"b"), Text(b"9")), Err(EvalError::NoOrder));
    }

    #[test]
    fn doubles_are_in_javas_order() {
        let sorted = [f64::NEG_INFINITY, -1.0, -0.0, 0.0, 1.0, f64::INFINITY, f64::NAN];
        for (left_at, left) in sorted.into_iter().enumerate() {
            for (right_at, right) in sorted.into_iter().enumerate() {
                assert_eq!(compare_doubles(left, right), left_at.cmp(&right_at), "{left} {right}");
                assert_eq!(compare_doubles(-(-left), right), left_at.cmp(&right_at));
            }
        }
        assert_eq!(compare_doubles(-f64::NAN, f64::NAN), Ordering::Equal);
    }
}
