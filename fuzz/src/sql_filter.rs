//! An SQL92 filter as a client writes it, and a message's property string: the text ends at the first
//! zero byte.

use rocketmq_broker::filter::sql::Expression;

/// What the target does with its input.
pub fn run(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let block = parts.next().unwrap_or_default();
    if let Ok(expression) = Expression::parse(&text) {
        let result = expression.evaluate(block);
        assert_eq!(expression.matches(block), result == Ok(Some(true)));
        // What stands behind a complete expression is not looked at, so words may follow it.
        if let Ok(longer) = Expression::parse(&format!("{text}\n)")) {
            assert_eq!(longer.evaluate(block), result);
        }
    }
}
