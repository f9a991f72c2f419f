//! A body from a client or a configuration file of a broker.

use rocketmq_protocol::body::topic::TopicStatsTable;
use rocketmq_protocol::body::{HeartbeatData, RegisterBrokerBody};
use rocketmq_protocol::fastjson;

/// What the target does with its input.
pub fn run(text: &[u8]) {
    if let Ok(text) = std::str::from_utf8(text)
        && let Ok(normal) = fastjson::normalize(text)
    {
        assert!(normal.json.len() <= 64 * text.len() + 64);
        // Strict JSON, but for numbers beyond a double.
        if let Ok(value) = serde_json::from_str::<serde_json::Value>(&normal.json) {
            // serde_json reads a fraction to the last bit but one, so it is not compared.
            let again = fastjson::to_vec(&value);
            let again: serde_json::Value = serde_json::from_slice(&again).expect("strict JSON");
            if !has_fraction(&value) {
                assert_eq!(again, value);
            }
        }
    }
    if let Ok(table) = fastjson::from_slice::<TopicStatsTable>(text) {
        let again: TopicStatsTable =
            fastjson::from_slice(&fastjson::to_vec(&table)).expect("what was written reads");
        assert_eq!(again.offset_table, table.offset_table);
    }
    let _ = fastjson::from_slice::<HeartbeatData>(text);
    let _ = RegisterBrokerBody::decode(text, true, 479);
}

fn has_fraction(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Number(number) => number.is_f64(),
        serde_json::Value::Array(elements) => elements.iter().any(has_fraction),
        serde_json::Value::Object(members) => members.values().any(has_fraction),
        _ => false,
    }
}
