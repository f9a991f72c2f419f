//! What fastjson accepts and writes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::body::MessageQueue;

fn read(text: &str) -> Value {
    from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn keys_may_be_integers_bare_words_or_single_quoted() {
    let expected = json!({"0": "a", "-1": "b", "word_1": 2, "q": [true]});
    assert_eq!(read(r#"{0:"a",-1:'b',word_1:2,'q':[true]}"#), expected);
    assert_eq!(read("{ 0 : 'a' , -1:\"b\",\n word_1 : 2, \"q\":[ true ] }"), expected);
}

#[test]
fn extra_commas_and_comments_do_not_matter() {
    assert_eq!(read(r#"{,,"a":1,,"b":[,1,,2,],}"#), json!({"a": 1, "b": [1, 2]}));
    assert_eq!(read("/* x */{\"a\":1,// y\n\"b\":2}"), json!({"a": 1, "b": 2}));
}

#[test]
fn null_members_are_absent_and_null_elements_stay() {
    assert_eq!(read(r#"{"a":null,"b":1,"c":null,"d":[null,1]}"#), json!({"b": 1, "d": [null, 1]}));
    assert_eq!(read(r#"{"a":null}"#), json!({}));
}

#[test]
fn strings_take_more_escapes_than_json_has() {
    assert_eq!(read(r#"'a"b\'c\x41\v\0\u4e2d\ud83d\ude00\ud83dx'"#), "a\"b'cA\u{b}\0中😀\u{fffd}x");
    assert_eq!(read("\"raw\ttab\u{1}\""), "raw\ttab\u{1}");
}

#[test]
fn numbers_take_more_forms_than_json_has() {
    assert_eq!(read("[007,1L,+2,.5,1.,-0.25e2,3D]"), json!([7, 1, 2, 0.5, 1.0, -25.0, 3]));
    for bad in ["--1", "1e", "1.2.3", "-", "1x", "0x10"] {
        assert!(from_str::<Value>(bad).is_err(), "{bad}");
    }
}

#[test]
fn broken_text_is_refused_at_its_place() {
    for (text, at) in [
        ("{\"a\" 1}", 5),
        ("[1 2]", 3),
        ("{\"a\":1", 6),
        ("\"abc", 1),
        ("{} x", 3),
        ("", 0),
        ("{\"a\":\"\\q\"}", 6),
        ("[tru]", 1),
    ] {
        match from_str::<Value>(text) {
            Err(JsonError::Syntax { at: found, .. }) => assert_eq!(found, at, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    assert!(matches!(from_slice::<Value>(b"\"\xff\""), Err(JsonError::Utf8 { at: 1 })));
    assert!(matches!(from_str::<u8>("300"), Err(JsonError::Shape(_))));
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    assert!(from_str::<Value>(&nested(DEPTH_MAX)).is_ok());
    assert!(from_str::<Value>(&nested(DEPTH_MAX + 1)).is_err());
    assert!(from_str::<Value>(&nested(1_000_000)).is_err());
    let keys = |depth: usize| format!("{}1{}", "{".repeat(depth), "}:1}".repeat(depth));
    assert!(from_str::<Value>(&keys(5)).is_err());
}

#[test]
fn an_object_can_be_a_key() {
    let queue = |id| MessageQueue { topic: "T".into(), broker_name: "b".into(), queue_id: id };
    let table: BTreeMap<MessageQueue, i64> = BTreeMap::from([(queue(0), 5), (queue(1), 6)]);
    let literal = r#"{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"brokerName":"b","queueId":1,"topic":"T"}:6}"#;
    assert_eq!(String::from_utf8(to_vec(&table)).unwrap(), literal);
    assert_eq!(from_str::<BTreeMap<MessageQueue, i64>>(literal).unwrap(), table);
    let quoted = r#"{"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"}":5,"{queueId:1,topic:'T',brokerName:'b'}":6}"#;
    assert_eq!(from_str::<BTreeMap<MessageQueue, i64>>(quoted).unwrap(), table);
}

#[test]
fn references_stand_for_what_they_point_at() {
    let text = r#"{"t":{"%A-b":{"attributes":{"k":"v"}},"c":{"attributes":{"$ref":"$.t.\\%A\\-b.attributes"}}},
        "l":[{"x":1},{"$ref":"$.l[0]"}],"up":{"$ref":".."},"gone":{"$ref":"$.nope"}}"#;
    let expected = json!({
        "t": {"%A-b": {"attributes": {"k": "v"}}, "c": {"attributes": {"k": "v"}}},
        "l": [{"x": 1}, {"x": 1}],
    });
    assert_eq!(read(text), expected);
}

#[test]
fn references_cannot_grow_without_bound() {
    let mut text = String::from(r#"{"a0":[1,1,1,1,1,1,1,1,1,1]"#);
    for level in 1..=30 {
        let reference = format!(r#"{{"$ref":"$.a{}"}}"#, level - 1);
        text += &format!(r#","a{level}":[{}]"#, vec![reference; 10].join(","));
    }
    text.push('}');
    let bytes = serde_json::to_vec(&read(&text)).unwrap();
    assert!(bytes.len() < 4_000_000, "{} bytes", bytes.len());
    assert_eq!(read(r#"{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}"#), json!({}));
}

#[derive(Serialize)]
enum Kind {
    Unit,
    New(i32),
    Pair(i32, i32),
    Named { x: i32 },
}

#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
struct Everything {
    text: String,
    number: f64,
    list: Vec<(i32, bool)>,
    map: BTreeMap<i64, Option<String>>,
    none: Option<i32>,
}

#[test]
fn the_writer_agrees_with_serde_json_where_keys_are_plain() {
    let value = Everything {
        text: "a\"\u{1}é".to_owned(),
        number: 0.0,
        list: vec![(1, true), (-2, false)],
        map: BTreeMap::from([(0, Some("x".to_owned())), (-1, None)]),
        none: None,
    };
    assert_eq!(to_vec(&value), serde_json::to_vec(&value).unwrap());
    let kinds = [Kind::Unit, Kind::New(1), Kind::Pair(1, 2), Kind::Named { x: 3 }];
    assert_eq!(to_vec(&kinds), serde_json::to_vec(&kinds).unwrap());
    let pretty = String::from_utf8(to_vec_pretty(&value)).unwrap();
    assert!(pretty.starts_with("{\n\t\"text\":"), "{pretty}");
    let read_back: Everything = from_str(&pretty).unwrap();
    // A null entry of a map is an absent one.
    let expected = Everything { map: BTreeMap::from([(0, Some("x".to_owned()))]), ..value };
    assert_eq!(read_back, expected);
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        let _ = from_str::<Value>(&text);
    }

    #[test]
    fn any_json_like_text_is_read_or_refused(text in r#"[\[\]{}:,"'0-9a-z\\u$ \-]{0,80}"#) {
        if let Ok(normal) = normalize(&text) {
            // What is given on is strict JSON.
            serde_json::from_str::<Value>(&normal.json).unwrap();
        }
    }

    #[test]
    fn strict_json_means_the_same(text in ".{0,40}", number: i64, flag: bool) {
        let value = json!({"a": [text, number, flag], "b": {"c": text}});
        proptest::prop_assert_eq!(read(&value.to_string()), value);
    }
}
