//! Frames of every shape: written and read back, broken in every way, and as clients other than
//! the recorded ones write them.

use bytes::BytesMut;
use proptest::prelude::*;
use rocketmq_protocol::code::ResponseCode;
use rocketmq_protocol::ext::{EXT_FIELDS_MAX, ExtSource, to_pairs};
use rocketmq_protocol::frame::{
    self, FLAG_ONEWAY, FLAG_RESPONSE, Frame, FrameError, Head, LENGTH_BYTES, MAX_FRAME_BYTES,
    SerializeType, Ticket, frame_len,
};
use rocketmq_protocol::header::pull::PullMessageRequest;
use rocketmq_protocol::header::send::SendMessageRequest;
use rocketmq_protocol::language::LanguageCode;
use rocketmq_protocol::response::Response;

/// A frame without its length word, with a JSON header.
fn json(header: &str) -> Vec<u8> {
    let mut frame = (header.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(header.as_bytes());
    frame
}

/// A frame without its length word, with a binary header of these pieces.
fn binary(pieces: &[&[u8]]) -> Vec<u8> {
    let header = pieces.concat();
    let mut frame = (header.len() as u32 | 1 << 24).to_be_bytes().to_vec();
    frame.extend_from_slice(&header);
    frame
}

/// code 310, language Rust, version 479, opaque 7, flag 0
const FIXED: &[u8] = &[1, 54, 12, 1, 223, 0, 0, 0, 7, 0, 0, 0, 0];
const EMPTY: &[u8] = &[0, 0, 0, 0];

#[test]
fn the_go_client_writes_this() {
    let header = r#"{"code":34,"language":"GO","version":317,"opaque":3,"flag":0,"remark":"","extFields":{"a":"b"}}"#;
    let bytes = json(header);
    let frame = Frame::decode(&bytes).unwrap();
    assert_eq!((frame.code, frame.language, frame.version), (34, LanguageCode::Go, 317));
    assert_eq!(frame.remark.as_deref(), Some(""));
    assert_eq!(frame.ext.get("a").as_deref(), Some("b"));
}

#[test]
fn a_json_header_may_be_written_in_many_ways() {
    let header = " {\n\"extFields\" : { \"n\" : 12 , \"b\":true,\"gone\":null,\"f\":-1.5e3 },\
        \"unknown\":{\"x\":[1,{\"y\":null}]},\"opaque\":\"-5\",\"flag\":null,\"version\" : 1,\
        \"language\":\"COBOL\",\"remark\":null,\"code\":10 } ";
    let bytes = json(header);
    let frame = Frame::decode(&bytes).unwrap();
    assert_eq!((frame.code, frame.opaque, frame.flag), (10, -5, 0));
    assert_eq!(frame.language, LanguageCode::Other);
    assert_eq!(frame.remark, None);
    let fields: Vec<_> = frame.ext.iter().map(|(n, v)| format!("{n}={v}")).collect();
    assert_eq!(fields, ["n=12", "b=true", "f=-1.5e3"]);
    let bytes = json(r#"{"code":1,"extFields":null,"language":9}"#);
    let frame = Frame::decode(&bytes).unwrap();
    assert!(frame.ext.is_empty());
    assert_eq!(frame.language, LanguageCode::Go);
}

#[test]
fn escapes_in_names_and_values_are_undone() {
    let bytes = json(r#"{"code":1,"extFields":{"\u0062":"T","properties":"k\u0001v\u0002\"中"}}"#);
    let frame = Frame::decode(&bytes).unwrap();
    assert_eq!(frame.ext.get("b").as_deref(), Some("T"));
    assert_eq!(frame.ext.get("properties").as_deref(), Some("k\u{1}v\u{2}\"中"));
    let error = frame.header::<SendMessageRequest<'_>>().unwrap_err();
    assert_eq!(error.to_string(), "mandatory header field e or queueId is missing");
}

#[test]
fn broken_json_headers_are_refused_with_the_place() {
    let refused = |header: &str| Frame::decode(&json(header)).unwrap_err().to_string();
    assert!(refused("").contains("`{` expected at byte 0"));
    assert!(refused("{\"code\":1").contains("`,` or `}` expected at byte 9"));
    assert!(refused("{\"code\" 1}").contains("`:` expected at byte 8"));
    assert!(refused("{\"code\":1}x").contains("the end of the header expected at byte 10"));
    assert!(refused("{\"code\":1,}").contains("`\"` expected at byte 10"));
    assert!(refused("{\"code\":[]}").contains("a string, a number"));
    assert!(refused("{\"code\":99999999999}").contains("field code is `99999999999`"));
    assert!(refused("{\"code\":1.5}").contains("a 32-bit integer expected"));
    assert!(refused("{\"version\":1}").contains("no field `code`"));
    assert!(refused("{\"code\":1,\"extFields\":[]}").contains("`{` expected"));
    assert!(refused("{\"code\":1,\"extFields\":{\"a\":{}}}").contains("a string, a number"));
    let deep = format!("{{\"code\":1,\"x\":{}}}", "[".repeat(100_000));
    assert!(refused(&deep).contains("nests less deep"));
    let mut not_utf8 = json("{\"code\":1,\"remark\":\"?\"}");
    *not_utf8.iter_mut().find(|byte| **byte == b'?').unwrap() = 0xFF;
    assert_eq!(Frame::decode(&not_utf8).unwrap_err(), FrameError::Utf8 { field: "the header" });
}

#[test]
fn extension_fields_are_bounded_in_number() {
    let header = |count: usize| {
        let fields: Vec<_> = (0..count).map(|n| format!("\"f{n}\":\"\"")).collect();
        json(&format!("{{\"code\":1,\"extFields\":{{{}}}}}", fields.join(",")))
    };
    assert_eq!(Frame::decode(&header(EXT_FIELDS_MAX)).unwrap().ext.len(), EXT_FIELDS_MAX);
    let many = Frame::decode(&header(EXT_FIELDS_MAX + 1)).map(|frame| frame.ext.len());
    assert_eq!(many, Err(FrameError::TooManyExtFields));
    let pairs = [0, 0, 0, 0, 0, 0].repeat(EXT_FIELDS_MAX + 1);
    let len = (pairs.len() as u32).to_be_bytes();
    let many = binary(&[FIXED, EMPTY, &len, &pairs]);
    assert_eq!(Frame::decode(&many).unwrap_err(), FrameError::TooManyExtFields);
}

#[test]
fn broken_binary_headers_are_refused_with_the_field() {
    let refused = |pieces: &[&[u8]]| Frame::decode(&binary(pieces)).unwrap_err();
    assert!(Frame::decode(&binary(&[FIXED, EMPTY, EMPTY])).is_ok());
    for len in 0..FIXED.len() {
        assert!(matches!(refused(&[&FIXED[..len]]), FrameError::Truncated { .. }), "{len}");
    }
    let truncated = |field, need, left| FrameError::Truncated { field, need, left };
    assert_eq!(refused(&[FIXED]), truncated("remark", 4, 0));
    assert_eq!(refused(&[FIXED, &[0, 0, 0, 9], b"x"]), truncated("remark", 9, 1));
    let negative = FrameError::Negative { field: "remark", length: -1 };
    assert_eq!(refused(&[FIXED, &[0xff; 4]]), negative);
    let ext = |pairs: &[u8]| refused(&[FIXED, EMPTY, &(pairs.len() as u32).to_be_bytes(), pairs]);
    assert_eq!(ext(&[0]), truncated("the length of a field name", 2, 1));
    assert_eq!(ext(&[0, 5, b'a']), truncated("a field name", 5, 1));
    let negative = FrameError::Negative { field: "a field name", length: -1 };
    assert_eq!(ext(&[0xff, 0xff]), negative);
    assert_eq!(
        ext(&[0, 1, b'a', 0x7f, 0xff, 0xff, 0xff]),
        truncated("a field value", 0x7FFF_FFFF, 0)
    );
    assert_eq!(ext(&[0, 1, 0xff, 0, 0, 0, 0]), FrameError::Utf8 { field: "a field name" });
}

#[test]
fn the_header_word_is_checked() {
    let error = |bytes: &[u8]| Frame::decode(bytes).unwrap_err();
    assert!(matches!(error(&[]), FrameError::Truncated { field: "the header word", .. }));
    assert!(matches!(error(&[0, 0, 0]), FrameError::Truncated { .. }));
    let beyond = FrameError::Truncated { field: "the header", need: 0xFF_FFFF, left: 1 };
    assert_eq!(error(&[0, 0xff, 0xff, 0xff, b'{']), beyond);
    assert_eq!(error(&[2, 0, 0, 0]), FrameError::SerializeType(2));
}

#[test]
fn the_length_word_is_checked_before_the_bytes_are_there() {
    assert_eq!(frame_len(&[], MAX_FRAME_BYTES), Ok(None));
    assert_eq!(frame_len(&[0, 0, 0], MAX_FRAME_BYTES), Ok(None));
    assert_eq!(frame_len(&[0, 0, 0, 0], MAX_FRAME_BYTES), Ok(Some(4)));
    assert_eq!(frame_len(&[0, 0, 0, 2, 9], MAX_FRAME_BYTES), Ok(None));
    assert_eq!(frame_len(&[0, 0, 0, 2, 9, 9, 9], MAX_FRAME_BYTES), Ok(Some(6)));
    let negative = FrameError::NegativeLength(-1);
    assert_eq!(frame_len(&[0xff; 4], MAX_FRAME_BYTES), Err(negative));
    // The bound holds for the whole frame: 16 MiB - 4 may follow the word.
    assert_eq!(frame_len(&[0, 0xff, 0xff, 0xfc], MAX_FRAME_BYTES), Ok(None));
    let long = FrameError::TooLong { bytes: 16_777_217, max_bytes: MAX_FRAME_BYTES };
    assert_eq!(frame_len(&[0, 0xff, 0xff, 0xfd], MAX_FRAME_BYTES), Err(long));
}

#[test]
fn codes_beyond_16_bits_go_in_json() {
    let mut out = BytesMut::new();
    let head = Head { code: 200_050, ..head() };
    frame::encode(&mut out, SerializeType::Binary, head, None, &(), b"body");
    let frame = Frame::decode(&out[LENGTH_BYTES..]).unwrap();
    assert_eq!((frame.serialize, frame.code), (SerializeType::Json, 200_050));
    assert_eq!(frame.body, b"body");
}

#[test]
fn answers_go_out_in_the_encoding_of_their_request() {
    for serialize in [SerializeType::Json, SerializeType::Binary] {
        let ticket = Ticket { opaque: -9, code: 310, serialize, oneway: false, version: 479 };
        let response = Response::error(ResponseCode::SYSTEM_BUSY, "too many waiting")
            .with_field("a", "1")
            .with_header(&PullMessageRequest { topic: "T".into(), ..Default::default() })
            .with_json(&["x"]);
        let mut out = BytesMut::from(&b"before"[..]);
        frame::encode(
            &mut out,
            ticket.serialize,
            Head::response(ticket, response.code),
            response.remark.as_deref(),
            &response,
            &response.body,
        );
        let out = out.split_off(b"before".len());
        let frame = Frame::decode(&out[LENGTH_BYTES..]).unwrap();
        assert!(frame.is_response() && !frame.is_oneway());
        assert_eq!((frame.serialize, frame.opaque), (serialize, -9));
        assert_eq!(frame.response_code(), ResponseCode::SYSTEM_BUSY);
        assert_eq!(frame.remark.as_deref(), Some("too many waiting"));
        assert_eq!(frame.language, LanguageCode::Rust);
        assert_eq!(frame.ext.get("a").as_deref(), Some("1"));
        assert_eq!(frame.ext.get("topic").as_deref(), Some("T"));
        assert_eq!(frame.body, b"[\"x\"]");
    }
}

fn head() -> Head {
    Head { code: 310, language: LanguageCode::Rust, version: 479, opaque: 7, flag: 0 }
}

prop_compose! {
    fn heads()(
        code in 0..=i32::from(i16::MAX), language in 0_u8..14, version in 0..=i32::from(i16::MAX),
        opaque: i32, flag in 0..=(FLAG_RESPONSE | FLAG_ONEWAY)
    ) -> Head {
        Head { code, language: LanguageCode::from_code(language), version, opaque, flag }
    }
}

fn serialize_types() -> impl Strategy<Value = SerializeType> {
    prop_oneof![Just(SerializeType::Json), Just(SerializeType::Binary)]
}

fn text() -> impl Strategy<Value = String> {
    // Quotes, backslashes and control characters more often than chance has them.
    proptest::collection::vec(
        prop_oneof![any::<char>(), proptest::char::range('\0', '"'), Just('\\')],
        0..24,
    )
    .prop_map(String::from_iter)
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_to_the_same(
        head in heads(),
        serialize in serialize_types(),
        remark in proptest::option::of(text()),
        fields in proptest::collection::vec((text(), text()), 0..20),
        body: Vec<u8>,
    ) {
        let mut out = BytesMut::new();
        frame::encode(&mut out, serialize, head, remark.as_deref(), &fields, &body);
        prop_assert_eq!(frame_len(&out, MAX_FRAME_BYTES), Ok(Some(out.len())));
        let frame = Frame::decode(&out[LENGTH_BYTES..]).unwrap();
        prop_assert_eq!(frame.serialize, serialize);
        prop_assert_eq!(frame.head(), head);
        // The binary encoding cannot tell an empty remark from none.
        let remark = remark.filter(|text| serialize == SerializeType::Json || !text.is_empty());
        prop_assert_eq!(frame.remark.as_deref(), remark.as_deref());
        let read: Vec<(String, String)> =
            frame.ext.iter().map(|(n, v)| (n.into_owned(), v.into_owned())).collect();
        prop_assert_eq!(read, fields);
        prop_assert_eq!(frame.body, body);
    }

    #[test]
    fn a_send_header_survives_both_encodings(
        serialize in serialize_types(), topic in text(), properties in proptest::option::of(text()),
        queue_id: i32, born_timestamp: i64, batch in proptest::option::of(any::<bool>()),
    ) {
        let request = SendMessageRequest {
            topic: topic.into(),
            properties: properties.map(Into::into),
            queue_id,
            born_timestamp,
            batch,
            ..Default::default()
        };
        let mut out = BytesMut::new();
        frame::encode(&mut out, serialize, head(), None, &request, &[]);
        let frame = Frame::decode(&out[LENGTH_BYTES..]).unwrap();
        prop_assert_eq!(frame.header::<SendMessageRequest<'_>>().unwrap(), request);
    }

    #[test]
    fn any_bytes_decode_or_are_refused(bytes: Vec<u8>) {
        let _ = frame_len(&bytes, MAX_FRAME_BYTES);
        read(&bytes);
    }

    #[test]
    fn any_header_decodes_or_is_refused(bytes: Vec<u8>, serialize in 0_u8..3) {
        let mut frame = (bytes.len() as u32 | u32::from(serialize) << 24).to_be_bytes().to_vec();
        frame.extend_from_slice(&bytes);
        read(&frame);
    }

    #[test]
    fn a_damaged_frame_decodes_or_is_refused(
        serialize in serialize_types(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index,
    ) {
        let fields = [("a", "pg"), ("b", "T"), ("i", "k\u{1}v\u{2}\"\\"), ("g", "1700000000000")];
        let mut out = BytesMut::new();
        frame::encode(&mut out, serialize, head(), Some("remark"), &fields, b"body");
        let at = at.index(out.len());
        out[at] = byte;
        read(&out[LENGTH_BYTES..]);
        read(&out[LENGTH_BYTES..][..cut.index(out.len() - LENGTH_BYTES)]);
    }
}

/// Decodes what there is; all that matters is that it returns.
fn read(bytes: &[u8]) {
    if let Ok(frame) = Frame::decode(bytes) {
        assert_eq!(&bytes[frame.body_range()], frame.body);
        let _ = to_pairs(&frame.ext as &dyn ExtSource);
        let _ = frame.header::<SendMessageRequest<'_>>();
        let _ = frame.header::<PullMessageRequest<'_>>();
    }
}
