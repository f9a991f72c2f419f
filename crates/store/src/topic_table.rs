//! What the broker's table says of topics: `config/topics.json`, which the broker alone writes.
//!
//! The store reads it where the log does not say enough: a Java broker appends single messages to a
//! topic of batch queues too, and gives them no entry.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use foldhash::HashSet;
use rocketmq_protocol::body::TopicConfigSerializeWrapper;
use rocketmq_protocol::body::topic::TopicConfig;
use rocketmq_protocol::fastjson;

use crate::error::StoreError;
use crate::file_system::FileSystem;
use crate::small_file::read_whole;

/// The attribute that says which kind of queues a topic has.
const QUEUE_TYPE: &str = "queue.type";
/// Its value for batch queues.
const BATCH_CQ: &str = "BatchCQ";

/// The topics of the broker; `None` if there is no table, or it is damaged. The broker itself says
/// which file is.
///
/// # Errors
/// What the operating system says.
pub(crate) fn topics(
    file_system: &dyn FileSystem,
    root_dir: &Path,
) -> Result<Option<BTreeMap<String, TopicConfig>>, StoreError> {
    let path = root_dir.join("config/topics.json");
    for path in [&path, &path.with_extension("json.bak")] {
        let bytes = match read_whole(file_system, path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(StoreError::io("read", path)(error)),
        };
        if let Ok(table) = fastjson::from_slice::<TopicConfigSerializeWrapper>(&bytes) {
            return Ok(Some(table.topic_config_table.into_iter().collect()));
        }
    }
    Ok(None)
}

/// The topics that have batch queues, as far as there is a table.
///
/// # Errors
/// What the operating system says.
pub(crate) fn batch_topics(
    file_system: &dyn FileSystem,
    root_dir: &Path,
) -> Result<HashSet<String>, StoreError> {
    let is_batch =
        |topic: &TopicConfig| topic.attributes.get(QUEUE_TYPE).is_some_and(|kind| kind == BATCH_CQ);
    let topics = topics(file_system, root_dir)?.unwrap_or_default();
    Ok(topics.into_iter().filter(|(_, topic)| is_batch(topic)).map(|(name, _)| name).collect())
}
