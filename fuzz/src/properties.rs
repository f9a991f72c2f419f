//! A message's property string, as it comes from a client or a disk.

use rocketmq_protocol::message::properties;

/// What the target does with its input.
pub fn run(bytes: &[u8]) {
    let found = properties::find_each(bytes, ["TAGS", "a", "UNIQ_KEY"]);
    assert_eq!(found, ["TAGS", "a", "UNIQ_KEY"].map(|name| properties::find_bytes(bytes, name)));
    for (name, value) in properties::iter_str(bytes) {
        // As bytes: the last value of that name counts, and need not be UTF-8.
        assert!(properties::find_bytes(bytes, name).is_some());
        if properties::is_clean(name) && properties::is_clean(value) && !name.is_empty() {
            let mut block = bytes.to_vec();
            properties::append(&mut block, name, value);
            assert_eq!(properties::find(&block, name), Some(value));
        }
    }
}
