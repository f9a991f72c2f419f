//! docs/storage-format.md says what the code does.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::Path;

use rocketmq_protocol::message::properties::PROPERTIES_BYTES_MAX;
use rocketmq_protocol::message::record::{self, place as record_place, sys_flag};
use rocketmq_protocol::message::{id, properties};
use rocketmq_store::StoreConfig;
use rocketmq_store::checkpoint::{self, place as checkpoint_place};
use rocketmq_store::consume_queue::{self, batch_place, ext_place, place as unit_place};
use rocketmq_store::index::file::{self as index, Layout, entry_place, header_place};

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/storage-format.md");
    std::fs::read_to_string(path).unwrap()
}

/// The rows `field, at, bytes` of the first table under a heading of either level.
fn table(page: &str, heading: &str) -> Vec<(String, usize, usize)> {
    let sections = || page.split("\n## ").chain(page.split("\n### "));
    let section = sections().find(|section| section.starts_with(heading)).unwrap();
    section
        .lines()
        .skip_while(|line| !line.starts_with("| field | at | bytes |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            (cells[1].to_owned(), cells[2].parse().unwrap(), cells[3].parse().unwrap())
        })
        .collect()
}

fn rows(rows: &[(&str, usize, usize)]) -> Vec<(String, usize, usize)> {
    rows.iter().map(|(name, at, bytes)| ((*name).to_owned(), *at, *bytes)).collect()
}

#[test]
fn the_record() {
    let expected = rows(&[
        ("TOTALSIZE", record_place::TOTAL_SIZE, 4),
        ("MAGICCODE", record_place::MAGIC, 4),
        ("BODYCRC", record_place::BODY_CRC, 4),
        ("QUEUEID", record_place::QUEUE_ID, 4),
        ("FLAG", record_place::FLAG, 4),
        ("QUEUEOFFSET", record_place::QUEUE_OFFSET, 8),
        ("PHYSICALOFFSET", record_place::PHYSICAL_OFFSET, 8),
        ("SYSFLAG", record_place::SYS_FLAG, 4),
        ("BORNTIMESTAMP", record_place::BORN_TIMESTAMP, 8),
        ("BORNHOST", record_place::BORN_HOST, 8),
        ("STORETIMESTAMP", record_place::STORE_TIMESTAMP_V4, 8),
        ("STOREHOST", record_place::STORE_TIMESTAMP_V4 + 8, 8),
        ("RECONSUMETIMES", record_place::STORE_TIMESTAMP_V4 + 16, 4),
        ("PREPAREDTRANSACTIONOFFSET", record_place::STORE_TIMESTAMP_V4 + 20, 8),
        ("BODYLENGTH", record_place::STORE_TIMESTAMP_V4 + 28, 4),
        ("TOPICLENGTH", record_place::STORE_TIMESTAMP_V4 + 32, 1),
        ("PROPERTIESLENGTH", record_place::STORE_TIMESTAMP_V4 + 33, 2),
    ]);
    let table = table(&page(), "CommitLog record");
    assert_eq!(table, expected);
    let mut end = 0;
    for (name, at, bytes) in &table {
        assert_eq!(*at, end, "{name} begins where the field in front ends");
        end = at + bytes;
    }
    assert_eq!(end, record::FIXED_BYTES_V1);
    assert_eq!(record_place::STORE_TIMESTAMP_V6, record_place::STORE_TIMESTAMP_V4 + 12);
}

#[test]
fn the_words_of_the_record() {
    let page = page();
    let says = |text: String| assert!(page.contains(&text), "the page lacks {text}");
    says(format!("`{:#010X}` (V1)", record::MAGIC_V1).replace("0X", "0x"));
    says(format!("`{:#010X}` (V2)", record::MAGIC_V2).replace("0X", "0x"));
    says(format!("`{:#010X}`; the rest means nothing", record::MAGIC_BLANK).replace("0X", "0x"));
    says(format!("at most {PROPERTIES_BYTES_MAX}"));
    says(format!("at most {}", record::TOPIC_BYTES_MAX_V1));
    says(format!("The smallest record has {} bytes", record::FIXED_BYTES_V1));
    says(format!("and {} bytes stay free behind it", record::BLANK_BYTES_MIN));
    for (bits, meaning) in [
        (sys_flag::COMPRESSED, "body compressed"),
        (sys_flag::MULTI_TAGS, "several tags"),
        (sys_flag::TRANSACTION_MASK, "mask: 0x4 half message, 0x8 committed, 0xC rolled back"),
        (sys_flag::BORN_HOST_V6, "born host is IPv6"),
        (sys_flag::STORE_HOST_V6, "store host is IPv6"),
        (sys_flag::NEED_UNWRAP, "client must unwrap an inner batch"),
        (sys_flag::INNER_BATCH, "inner batch"),
        (
            sys_flag::COMPRESSION_MASK,
            "mask of the compression: 0x100 LZ4, 0x200 ZSTD, 0x300 ZLIB, 0 ZLIB of old clients",
        ),
    ] {
        says(format!("| 0x{bits:X} | {meaning} |"));
    }
    assert_eq!(
        [
            sys_flag::TRANSACTION_PREPARED,
            sys_flag::TRANSACTION_COMMIT,
            sys_flag::TRANSACTION_ROLLBACK,
            sys_flag::COMPRESSION_LZ4,
            sys_flag::COMPRESSION_ZSTD,
            sys_flag::COMPRESSION_ZLIB,
        ],
        [0x4, 0x8, 0xC, 0x100, 0x200, 0x300]
    );
    assert_eq!((properties::NAME_VALUE_SEPARATOR, properties::PROPERTY_SEPARATOR), (1, 2));
    says(format!("{} characters, {} for IPv6", id::ID_CHARS_V4, id::ID_CHARS_V6));
    let (_, last, bytes) = table(&page, "Message ids").pop().unwrap();
    assert_eq!((last + bytes) * 2, id::ID_CHARS_V4);
}

#[test]
fn the_queue_entry() {
    let expected = rows(&[
        ("PHYSICALOFFSET", unit_place::PHYSICAL_OFFSET, 8),
        ("SIZE", unit_place::SIZE, 4),
        ("TAGSCODE", unit_place::TAGS_CODE, 8),
    ]);
    assert_eq!(table(&page(), "ConsumeQueue entry"), expected);
    assert_eq!(consume_queue::UNIT_BYTES, 20);
    assert_eq!(consume_queue::FILLER_SIZE, 0x7FFF_FFFF);
}

#[test]
fn the_batch_queue_entry() {
    let expected = rows(&[
        ("PHYSICALOFFSET", batch_place::PHYSICAL_OFFSET, 8),
        ("SIZE", batch_place::SIZE, 4),
        ("TAGSCODE", batch_place::TAGS_CODE, 8),
        ("STORETIME", batch_place::STORE_TIME, 8),
        ("MSGBASEOFFSET", batch_place::MSG_BASE_OFFSET, 8),
        ("BATCHSIZE", batch_place::BATCH_SIZE, 2),
        ("COMPACTEDOFFSET", batch_place::COMPACTED_OFFSET, 4),
        ("RESERVED", batch_place::RESERVED, 4),
    ]);
    let page = page();
    assert_eq!(table(&page, "BatchConsumeQueue entry"), expected);
    assert_eq!(consume_queue::BATCH_UNIT_BYTES, batch_place::RESERVED + 4);
    assert_eq!(consume_queue::NOT_COMPACTED, -1);
    for text in [
        format!("n lies at byte n × {} of the queue", consume_queue::BATCH_UNIT_BYTES),
        format!("(1 to {})", consume_queue::INNER_BATCH_MAX),
    ] {
        assert!(page.contains(&text), "the page lacks {text}");
    }
}

#[test]
fn the_index_file() {
    let expected = rows(&[
        ("beginTimestamp", header_place::BEGIN_TIMESTAMP, 8),
        ("endTimestamp", header_place::END_TIMESTAMP, 8),
        ("beginPhyOffset", header_place::BEGIN_PHY_OFFSET, 8),
        ("endPhyOffset", header_place::END_PHY_OFFSET, 8),
        ("hashSlotCount", header_place::HASH_SLOT_COUNT, 4),
        ("indexCount", header_place::INDEX_COUNT, 4),
    ]);
    let page = page();
    assert_eq!(table(&page, "IndexFile"), expected);
    let expected = rows(&[
        ("keyHash", entry_place::KEY_HASH, 4),
        ("phyOffset", entry_place::PHY_OFFSET, 8),
        ("timeDiff", entry_place::TIME_DIFF, 4),
        ("prevIndexNo", entry_place::PREV_INDEX_NO, 4),
    ]);
    assert_eq!(table(&page, "Index entry"), expected);
    let config = StoreConfig::new("/x");
    let layout = Layout { slots: config.index_slots, entries: config.index_entries };
    for text in [
        format!("The header** takes the first {} bytes", index::HEADER_BYTES),
        format!("Slots** follow, {} bytes each", index::SLOT_BYTES),
        format!("Entries** follow the slots, {} bytes each", index::ENTRY_BYTES),
        format!("{} bytes by default", layout.file_bytes()),
    ] {
        assert!(page.contains(&text), "the page lacks {text}");
    }
    assert_eq!(layout.slot_position(7), 40 + 7 * 4);
    assert_eq!(layout.entry_position(7), 40 + 4 * 5_000_000 + 7 * 20);
    assert_eq!(layout.slot_of(5_000_003), 3);
}

#[test]
fn the_ext_unit() {
    let expected = rows(&[
        ("size", ext_place::SIZE, 2),
        ("tagsCode", ext_place::TAGS_CODE, 8),
        ("msgStoreTime", ext_place::MSG_STORE_TIME, 8),
        ("bitMapSize", ext_place::BIT_MAP_SIZE, 2),
        ("filterBitMap", ext_place::FILTER_BIT_MAP, 0),
    ]);
    let page = page();
    assert_eq!(table(&page, "ConsumeQueueExt unit"), expected);
    let says = |text: String| assert!(page.contains(&text), "the page lacks {text}");
    let (min, max) = (consume_queue::EXT_UNIT_BYTES_MIN, consume_queue::EXT_UNIT_BYTES_MAX);
    says(format!("the whole unit, {min} to {max}"));
    assert_eq!(min, ext_place::FILTER_BIT_MAP);
    says(format!("up to −{} is an address", consume_queue::ADDRESS_MAX.unsigned_abs()));
    says(format!("and {} bytes stay free behind it: where", consume_queue::END_BYTES));
    says(format!("the 2 bytes −{}", consume_queue::END_MARK.unsigned_abs()));
    assert_eq!(consume_queue::address_of(0), Some(i64::MIN));
}

#[test]
fn the_checkpoint() {
    let expected = rows(&[
        ("physicMsgTimestamp", checkpoint_place::PHYSIC_MSG_TIMESTAMP, 8),
        ("logicsMsgTimestamp", checkpoint_place::LOGICS_MSG_TIMESTAMP, 8),
        ("indexMsgTimestamp", checkpoint_place::INDEX_MSG_TIMESTAMP, 8),
        ("masterFlushedOffset", checkpoint_place::MASTER_FLUSHED_OFFSET, 8),
        ("confirmPhyOffset", checkpoint_place::CONFIRM_PHY_OFFSET, 8),
    ]);
    assert_eq!(table(&page(), "checkpoint"), expected);
    assert!(page().contains(&format!("{} bytes, the rest zero", checkpoint::FILE_BYTES)));
}

#[test]
fn the_file_sizes() {
    let config = StoreConfig::new("/x");
    assert_eq!(config.commit_log_file_bytes, 1 << 30);
    assert_eq!(config.consume_queue_file_bytes, 6_000_000);
    assert_eq!(config.batch_consume_queue_file_bytes, 13_800_000);
    assert_eq!(config.consume_queue_ext_file_bytes, 50_331_648);
}
