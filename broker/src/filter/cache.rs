//! Compiled expressions of pulls that bring their own, as Java's pull consumers do with each pull.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rocketmq_protocol::subscription::SQL92;

use super::sql::Expression;
use super::{FilterError, compile};

/// Most expressions that are kept, as in `SelectorParser`.
const KEPT_MAX: usize = 100;

/// The SQL92 expressions used last, by text.
#[derive(Debug, Default)]
pub struct ExpressionCache(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    expressions: HashMap<String, Entry>,
    /// How often an expression was asked for.
    turn: u64,
}

#[derive(Debug)]
struct Entry {
    used: u64,
    compiled: Result<Arc<Expression>, FilterError>,
}

impl ExpressionCache {
    /// The compiled expression.
    ///
    /// # Errors
    /// As [`compile`].
    pub fn get(&self, expression_type: &str, text: &str) -> Result<Arc<Expression>, FilterError> {
        if expression_type != SQL92 {
            return Err(FilterError::Type(expression_type.to_owned()));
        }
        let mut kept = self.0.lock();
        kept.turn += 1;
        let used = kept.turn;
        if let Some(entry) = kept.expressions.get_mut(text) {
            entry.used = used;
            return entry.compiled.clone();
        }
        drop(kept);
        let compiled = compile(expression_type, text).map(Arc::new);
        let mut kept = self.0.lock();
        if kept.expressions.len() >= KEPT_MAX {
            let oldest = kept.expressions.iter().min_by_key(|(_, entry)| entry.used);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                kept.expressions.remove(&key);
            }
        }
        kept.expressions.insert(text.to_owned(), Entry { used, compiled: compiled.clone() });
        compiled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expressions_used_last_are_kept() {
        let cache = ExpressionCache::default();
        let first = cache.get("SQL92", "a = 0").unwrap();
        let second = cache.get("SQL92", "a = 1").unwrap();
        for n in 2..KEPT_MAX + 1 {
            cache.get("SQL92", &format!("a = {n}")).unwrap();
            let again = cache.get("SQL92", "a = 0").unwrap();
            assert!(Arc::ptr_eq(&first, &again));
        }
        assert!(!Arc::ptr_eq(&second, &cache.get("SQL92", "a = 1").unwrap()), "the oldest went");
        assert_eq!(cache.0.lock().expressions.len(), KEPT_MAX);
    }

    #[test]
    fn errors_are_kept_too() {
        let cache = ExpressionCache::default();
        for _ in 0..2 {
            assert!(matches!(cache.get("SQL92", "a >"), Err(FilterError::Parse { .. })));
            assert!(matches!(cache.get("XPATH", "a"), Err(FilterError::Type(_))));
        }
    }
}
