//! Bytes from a socket: frames are split off, decoded, written again and must read the same.

use bytes::BytesMut;
use rocketmq_protocol::frame::{self, Frame, LENGTH_BYTES, SerializeType, frame_len};

/// What the target does with its input.
pub fn run(stream: &[u8]) {
    let mut rest = stream;
    while let Ok(Some(len)) = frame_len(rest, 1 << 20) {
        read(&rest[LENGTH_BYTES..len]);
        rest = &rest[len..];
    }
    // And as if a length word had been in front of it.
    read(stream);
}

fn read(bytes: &[u8]) {
    let Ok(frame) = Frame::decode(bytes) else { return };
    assert_eq!(&bytes[frame.body_range()], frame.body);
    for serialize in [SerializeType::Json, SerializeType::Binary] {
        let mut out = BytesMut::new();
        let remark = frame.remark.as_deref();
        frame::encode(&mut out, serialize, frame.head(), remark, &frame.ext, frame.body);
        let again = Frame::decode(&out[LENGTH_BYTES..]).expect("what was written reads");
        assert_eq!((again.code, again.opaque, again.flag), (frame.code, frame.opaque, frame.flag));
        assert_eq!(again.body, frame.body);
        let names_fit = frame.ext.iter().all(|(name, _)| name.len() <= i16::MAX as usize);
        if names_fit {
            let pairs = again.ext.iter().zip(frame.ext.iter());
            assert!(pairs.into_iter().all(|(a, b)| a.0 == b.0 && a.1 == b.1));
            assert_eq!(again.ext.len(), frame.ext.len());
        }
    }
}
