//! What `rmq store` prints.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rocketmq_protocol::message::properties;
use rocketmq_protocol::message::record::MessageRecord;
use rocketmq_store::StoreConfig;
use rocketmq_store::checkpoint::CheckpointWords;
use rocketmq_store::inspect::dump::{IndexHit, LogPlace, QueueEntry};
use rocketmq_store::inspect::{CheckReport, Kept, Repaired};
use serde::Serialize;

use super::{FindingRow, severity_name, shown};
use crate::output::{self, Format};

fn rows(report: &CheckReport) -> Vec<FindingRow<'_>> {
    report
        .findings
        .iter()
        .map(|found| FindingRow {
            severity: severity_name(found.severity),
            file: shown(&found.path),
            byte: found.at,
            what: &found.what,
            repair: &found.repair,
        })
        .collect()
}

/// One line for each finding: file, byte, what is wrong, what a repair does.
pub fn findings(report: &CheckReport) -> anyhow::Result<()> {
    for row in rows(report) {
        let byte = row.byte.map_or_else(String::new, |byte| format!(" byte {byte}"));
        output::line(&format!(
            "{} {}{byte}: {}; repair: {}",
            row.severity, row.file, row.what, row.repair
        ))?;
    }
    if report.findings_dropped > 0 {
        output::line(&format!("and {} more findings", report.findings_dropped))?;
    }
    Ok(())
}

/// What was checked, in one line.
pub fn summary(config: &StoreConfig, report: &CheckReport) -> String {
    format!(
        "{} end; log {} to {} in {} files of {} bytes, {} messages from {} to {}; {} queues, {} \
         entries; {} index files, {} entries; {} messages of deleted topics; {} findings of damage",
        if report.clean { "clean" } else { "unclean" },
        report.log_start,
        report.log_end,
        report.log_files,
        config.commit_log_file_bytes,
        report.records,
        output::time(report.first_store_ms),
        output::time(report.last_store_ms),
        report.queues,
        report.entries,
        report.index_files,
        report.index_entries,
        report.records_of_deleted_topics,
        report.damage,
    )
}

/// A check as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckRow<'a> {
    clean_end: bool,
    damage: u64,
    log_start: u64,
    log_end: u64,
    log_files: usize,
    log_file_bytes: u64,
    messages: u64,
    message_bytes: u64,
    first_store_timestamp: i64,
    last_store_timestamp: i64,
    queues: usize,
    queue_entries: u64,
    index_files: usize,
    index_entries: u64,
    messages_of_deleted_topics: u64,
    findings: Vec<FindingRow<'a>>,
    more_findings: u64,
}

impl<'a> CheckRow<'a> {
    pub fn new(config: &StoreConfig, report: &'a CheckReport) -> CheckRow<'a> {
        CheckRow {
            clean_end: report.clean,
            damage: report.damage,
            log_start: report.log_start,
            log_end: report.log_end,
            log_files: report.log_files,
            log_file_bytes: config.commit_log_file_bytes,
            messages: report.records,
            message_bytes: report.record_bytes,
            first_store_timestamp: report.first_store_ms,
            last_store_timestamp: report.last_store_ms,
            queues: report.queues,
            queue_entries: report.entries,
            index_files: report.index_files,
            index_entries: report.index_entries,
            messages_of_deleted_topics: report.records_of_deleted_topics,
            findings: rows(report),
            more_findings: report.findings_dropped,
        }
    }
}

/// What a repair would do.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<CutRow>,
    /// Files that are taken out because nothing can be made of them.
    take_out: Vec<String>,
    /// Files that get their length.
    give_length: Vec<String>,
    /// Queues that are built anew.
    rebuild: Vec<String>,
    /// Whether the index is made from the log again.
    rebuild_index: bool,
    keep: bool,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct CutRow {
    file: String,
    physical_offset: u64,
    reason: String,
    bytes: u64,
    messages: u64,
    first_store_timestamp: i64,
    last_store_timestamp: i64,
    files: Vec<String>,
}

impl PlanRow {
    pub fn new(report: &CheckReport, kept: Kept) -> PlanRow {
        let all = |paths: &[PathBuf]| paths.iter().map(|path| shown(path)).collect();
        PlanRow {
            cut: report.cut.as_ref().map(|cut| CutRow {
                file: shown(&cut.path),
                physical_offset: cut.position,
                reason: cut.reason.clone(),
                bytes: cut.bytes,
                messages: cut.messages,
                first_store_timestamp: cut.first_store_ms,
                last_store_timestamp: cut.last_store_ms,
                files: all(&cut.files),
            }),
            take_out: all(&report.misplaced),
            give_length: all(&report.misshapen),
            rebuild: report
                .rebuild
                .iter()
                .map(|queue| format!("{}/{}", queue.topic, queue.queue_id))
                .collect(),
            rebuild_index: report.rebuild_index,
            keep: kept == Kept::Aside,
        }
    }

    /// The plan for people.
    pub fn text(&self) -> String {
        let mut lines = vec!["repair would:".to_owned()];
        if let Some(cut) = &self.cut {
            lines.push(format!(
                "  cut the log at {} ({}: {}): {} bytes with {} sound messages from {} to {}",
                cut.physical_offset,
                cut.file,
                cut.reason,
                cut.bytes,
                cut.messages,
                output::time(cut.first_store_timestamp),
                output::time(cut.last_store_timestamp)
            ));
            lines.extend(cut.files.iter().map(|file| format!("    and take out {file}")));
        }
        lines.extend(self.take_out.iter().map(|file| format!("  take out {file}")));
        lines.extend(self.give_length.iter().map(|file| format!("  give {file} its length")));
        lines.extend(self.rebuild.iter().map(|queue| format!("  build queue {queue} anew")));
        lines.extend(self.rebuild_index.then(|| "  make the index from the log again".to_owned()));
        lines.push(match self.keep {
            true => "  and keep what it takes away in a directory repair-TIME".to_owned(),
            false => "  and remove what it takes away".to_owned(),
        });
        lines.join("\n")
    }
}

/// What a repair did, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RepairedRow<'a> {
    repaired: bool,
    plan: &'a PlanRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_in: Option<String>,
    kept_bytes: u64,
    log_end: i64,
    queues_rebuilt: usize,
    messages: u64,
    damage_left: u64,
}

impl<'a> RepairedRow<'a> {
    pub fn new(plan: &'a PlanRow, repaired: &Repaired) -> RepairedRow<'a> {
        RepairedRow {
            repaired: true,
            plan,
            kept_in: repaired.kept_in.as_deref().map(shown),
            kept_bytes: repaired.kept_bytes,
            log_end: repaired.recovery.log_end,
            queues_rebuilt: repaired.recovery.queues_rebuilt,
            messages: repaired.check.records,
            damage_left: repaired.check.damage,
        }
    }
}

/// A record.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordRow<'a> {
    file: String,
    byte: u64,
    size: usize,
    magic: String,
    body_crc: u32,
    queue: i32,
    flag: i32,
    queue_offset: i64,
    physical_offset: i64,
    sys_flag: i32,
    born_timestamp: i64,
    born_host: String,
    store_timestamp: i64,
    store_host: String,
    reconsume_times: i32,
    prepared_transaction_offset: i64,
    topic: &'a str,
    properties: BTreeMap<&'a str, &'a str>,
    body_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

/// Prints the record that lies at `place`.
pub fn record(bytes: &[u8], place: &LogPlace, format: Format) -> anyhow::Result<()> {
    let record = MessageRecord::decode(bytes)?;
    let body = std::str::from_utf8(record.body).ok();
    let row = RecordRow {
        file: shown(&place.path),
        byte: place.at,
        size: record.size,
        magic: format!("{:#010x}", record.magic),
        body_crc: record.body_crc,
        queue: record.queue_id,
        flag: record.flag,
        queue_offset: record.queue_offset,
        physical_offset: record.physical_offset,
        sys_flag: record.sys_flag,
        born_timestamp: record.born_timestamp_ms,
        born_host: record.born_host.to_string(),
        store_timestamp: record.store_timestamp_ms,
        store_host: record.store_host.to_string(),
        reconsume_times: record.reconsume_times,
        prepared_transaction_offset: record.prepared_transaction_offset,
        topic: record.topic,
        properties: properties::iter_str(record.properties).collect(),
        body_bytes: record.body.len(),
        body,
        body_base64: body.is_none().then(|| output::base64(record.body)),
    };
    if format == Format::Json {
        return Ok(output::json(&row)?);
    }
    let mut lines = vec![
        ("file".to_owned(), format!("{} byte {}", row.file, row.byte)),
        ("topic".to_owned(), row.topic.to_owned()),
        ("queue".to_owned(), format!("{} offset {}", row.queue, row.queue_offset)),
        ("physical offset".to_owned(), format!("{}, {} bytes", row.physical_offset, row.size)),
        (
            "stored".to_owned(),
            format!("{} by {}", output::time(row.store_timestamp), row.store_host),
        ),
        ("born".to_owned(), format!("{} at {}", output::time(row.born_timestamp), row.born_host)),
        ("magic".to_owned(), format!("{}, body CRC {:#010x}", row.magic, row.body_crc)),
        ("flags".to_owned(), format!("system {:#x}, producer {}", row.sys_flag, row.flag)),
        ("reconsumed".to_owned(), format!("{} times", row.reconsume_times)),
        ("prepared at".to_owned(), row.prepared_transaction_offset.to_string()),
    ];
    for (name, value) in &row.properties {
        lines.push((format!("property {name}"), (*value).to_owned()));
    }
    let text = String::from_utf8_lossy(record.body);
    lines.push((format!("body, {} bytes", row.body_bytes), text.into_owned()));
    for (name, value) in lines {
        output::line(&format!("{name:<24} {value}"))?;
    }
    Ok(())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryRow {
    queue_offset: i64,
    messages: i64,
    physical_offset: i64,
    size: i32,
    tags_code: i64,
    filler: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    store_timestamp: Option<i64>,
}

/// Prints entries of a queue. One whose record is not there has no store time.
pub fn entries(entries: &[QueueEntry], format: Format) -> anyhow::Result<()> {
    let rows: Vec<_> = entries
        .iter()
        .map(|entry| EntryRow {
            queue_offset: entry.queue_offset,
            messages: entry.message_count,
            physical_offset: entry.unit.physical_offset,
            size: entry.unit.size,
            tags_code: entry.unit.tags_code,
            filler: entry.unit.is_filler(),
            store_timestamp: entry.store_timestamp_ms,
        })
        .collect();
    match format {
        Format::Json => output::json(&rows)?,
        Format::Text => output::table(
            &["OFFSET", "MESSAGES", "PHYSICAL", "SIZE", "TAGS CODE", "STORED"],
            &rows
                .iter()
                .map(|row| {
                    let stored = match row.store_timestamp {
                        Some(stored_ms) => output::time(stored_ms),
                        None if row.filler => "filler".to_owned(),
                        None => "no such record".to_owned(),
                    };
                    let numbers = [
                        row.queue_offset.to_string(),
                        row.messages.to_string(),
                        row.physical_offset.to_string(),
                        row.size.to_string(),
                        row.tags_code.to_string(),
                    ];
                    numbers.into_iter().chain([stored]).collect()
                })
                .collect::<Vec<_>>(),
        )?,
    }
    Ok(())
}

/// Prints the checkpoint under RocketMQ's names of its words.
pub fn checkpoint(words: &CheckpointWords, format: Format) -> anyhow::Result<()> {
    let times = [
        ("physicMsgTimestamp", words.physic_msg_timestamp_ms),
        ("logicsMsgTimestamp", words.logics_msg_timestamp_ms),
        ("indexMsgTimestamp", words.index_msg_timestamp_ms),
    ];
    let offsets = [
        ("masterFlushedOffset", words.master_flushed_offset),
        ("confirmPhyOffset", words.confirm_phy_offset),
    ];
    match format {
        Format::Json => {
            let all: BTreeMap<_, _> = times.into_iter().chain(offsets).collect();
            output::json(&all)?;
        }
        Format::Text => {
            for (name, word) in times {
                output::line(&format!("{name:<20} {word}  {}", output::time(word)))?;
            }
            for (name, word) in offsets {
                output::line(&format!("{name:<20} {word}"))?;
            }
        }
    }
    Ok(())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IndexHitRow {
    file: String,
    physical_offset: i64,
    key_hash: i32,
    stored_from: i64,
    /// Absent when no sound record lies there.
    #[serde(skip_serializing_if = "Option::is_none")]
    has_key: Option<bool>,
}

/// Prints entries of the index in the chains of a key.
pub fn index_hits(hits: &[IndexHit], format: Format) -> anyhow::Result<()> {
    let rows: Vec<_> = hits
        .iter()
        .map(|hit| IndexHitRow {
            file: hit.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            physical_offset: hit.entry.physical_offset,
            key_hash: hit.entry.key_hash,
            stored_from: hit.store_timestamp_ms,
            has_key: hit.has_key,
        })
        .collect();
    match format {
        Format::Json => output::json(&rows)?,
        Format::Text => output::table(
            &["INDEX FILE", "PHYSICAL", "HASH", "STORED FROM", "RECORD"],
            &rows
                .iter()
                .map(|row| {
                    let record = match row.has_key {
                        Some(true) => "has the key",
                        Some(false) => "has another key of this slot",
                        None => "no such record",
                    };
                    vec![
                        row.file.clone(),
                        row.physical_offset.to_string(),
                        row.key_hash.to_string(),
                        output::time(row.stored_from),
                        record.to_owned(),
                    ]
                })
                .collect::<Vec<_>>(),
        )?,
    }
    Ok(())
}
