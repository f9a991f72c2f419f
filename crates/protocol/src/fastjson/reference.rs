//! fastjson's references: `{"$ref":"$.a.b[0]"}` stands for what is at that path.
//!
//! fastjson writes one when the same object occurs twice, such as the attributes of a topic that
//! was copied from another.

use serde_json::Value;

/// How many values all references together may stand for; beyond it they become null, so that a
/// small text cannot grow without bound.
const VALUES_MAX: usize = 100_000;
/// How many references may lead from one to the next.
const CHAIN_MAX: usize = 8;

/// Puts in place of each reference what it stands for; null if there is no such thing.
pub(super) fn resolve(root: &mut Value) {
    let source = root.clone();
    let mut resolver = Resolver { source: &source, values_left: VALUES_MAX };
    resolver.walk(root, CHAIN_MAX);
}

struct Resolver<'a> {
    source: &'a Value,
    values_left: usize,
}

impl Resolver<'_> {
    fn walk(&mut self, value: &mut Value, chain_left: usize) {
        if let Some(path) = reference(value) {
            let found = chain_left.checked_sub(1).and_then(|chain_left| {
                let mut found = find(self.source, path)?.clone();
                self.values_left = self.values_left.checked_sub(count(&found))?;
                self.walk(&mut found, chain_left);
                Some(found)
            });
            *value = found.unwrap_or(Value::Null);
            return;
        }
        match value {
            Value::Array(elements) => {
                elements.iter_mut().for_each(|element| self.walk(element, chain_left));
            }
            Value::Object(members) => {
                members.values_mut().for_each(|member| self.walk(member, chain_left));
                members.retain(|_, member| !member.is_null());
            }
            _ => {}
        }
    }
}

fn reference(value: &Value) -> Option<&str> {
    let members = value.as_object()?;
    let path = members.get("$ref")?;
    if members.len() == 1 { path.as_str() } else { None }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(elements) => elements.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// Follows a path from the root. Paths relative to the reference (`@`, `..`) lead back to something
/// that contains it, which no type of RocketMQ can hold; they are not followed.
fn find<'v>(root: &'v Value, path: &str) -> Option<&'v Value> {
    let mut rest = path.strip_prefix('$')?;
    let mut value = root;
    while !rest.is_empty() {
        let name;
        (name, rest) = if let Some(after) = rest.strip_prefix('[') {
            let (index, after) = after.split_once(']')?;
            (index.trim_matches(['"', '\'']).to_owned(), after)
        } else {
            member_name(rest.strip_prefix('.')?)
        };
        value = match value {
            Value::Array(elements) => elements.get(name.parse::<usize>().ok()?)?,
            Value::Object(members) => members.get(&name)?,
            _ => return None,
        };
    }
    Some(value)
}

/// A name up to the next `.` or `[`; a backslash is in front of each character that is no letter
/// and no digit (`SerialContext.toString`).
fn member_name(path: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = path.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return (name, &path[at..]),
            '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
            _ => name.push(c),
        }
    }
    (name, "")
}
