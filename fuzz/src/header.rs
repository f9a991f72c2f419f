//! Bytes of a header in either encoding, read as the typed headers of the hot path.

use rocketmq_protocol::ext::{ExtFields, to_pairs};
use rocketmq_protocol::frame::Frame;
use rocketmq_protocol::header::Header;
use rocketmq_protocol::header::offset::UpdateConsumerOffsetRequest;
use rocketmq_protocol::header::pull::PullMessageRequest;
use rocketmq_protocol::header::registration::RegisterBrokerRequest;
use rocketmq_protocol::header::send::SendMessageRequest;

/// What the target does with its input.
pub fn run(header: &[u8]) {
    for serialize_type in [0_u32, 1] {
        let word = header.len() as u32 & 0xFF_FFFF | serialize_type << 24;
        let bytes = [&word.to_be_bytes(), header].concat();
        let Ok(frame) = Frame::decode(&bytes) else { continue };
        round_trip::<SendMessageRequest<'_>>(&frame);
        round_trip::<PullMessageRequest<'_>>(&frame);
        round_trip::<UpdateConsumerOffsetRequest<'_>>(&frame);
        round_trip::<RegisterBrokerRequest<'_>>(&frame);
    }
}

fn round_trip<'a, H: Header<'a>>(frame: &Frame<'a>) {
    let Ok(header) = frame.header::<H>() else { return };
    let pairs = to_pairs(&header);
    let again = ExtFields::from_pairs(&pairs);
    for (name, value) in again.iter() {
        // Each field that is written stands in the frame, or is a default.
        assert_eq!(again.get(&name), Some(value));
    }
}
