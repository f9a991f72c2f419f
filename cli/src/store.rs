//! `rmq store`: check, dump and repair a store directory that no broker uses.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Subcommand;
use rocketmq_broker::config::LoadedConfig;
use rocketmq_store::inspect::dump::LogPlaceItem;
use rocketmq_store::inspect::{self, CheckReport, InspectionLock, Kept, Repaired, Severity, dump};
use rocketmq_store::{FileSystem, RealFileSystem, StoreConfig};
use serde::Serialize;

use crate::exit::{self, Exit};
use crate::output::{self, Format};

mod print;

#[derive(Subcommand)]
pub enum Command {
    /// Verify every file, record and queue entry; writes nothing
    Check(CheckArgs),
    /// Print a record, entries of a queue, a chain of the index, or the checkpoint; writes nothing
    Dump(DumpArgs),
    /// Cut the log at its first bad byte and build damaged queues anew, after saying so
    Repair(RepairArgs),
}

#[derive(clap::Args)]
struct Directory {
    /// The store directory (storePathRootDir); its broker must be stopped
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The broker's configuration file; without it the lengths of files are those that most have
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct CheckArgs {
    #[command(flatten)]
    directory: Directory,
}

#[derive(clap::Args)]
pub struct DumpArgs {
    #[command(flatten)]
    directory: Directory,
    #[command(flatten)]
    what: What,
    /// First queue offset to print; the queue's first entry without it
    #[arg(long, value_name = "N", requires = "queue", value_parser = clap::value_parser!(i64).range(0..))]
    from: Option<i64>,
    /// Entries to print
    #[arg(long, value_name = "N", default_value_t = 32, requires = "queue")]
    count: usize,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct What {
    /// The record that begins at this byte of the CommitLog
    #[arg(long, value_name = "N")]
    physical_offset: Option<u64>,
    /// Entries of this queue
    #[arg(long, value_name = "TOPIC/ID", value_parser = parse_queue)]
    queue: Option<(String, i32)>,
    /// Entries of the index in the chains of this key, which may hold slashes
    #[arg(long, value_name = "TOPIC/KEY", value_parser = parse_key)]
    key: Option<(String, String)>,
    /// The checkpoint
    #[arg(long)]
    checkpoint: bool,
}

#[derive(clap::Args)]
pub struct RepairArgs {
    #[command(flatten)]
    directory: Directory,
    /// Do it without asking
    #[arg(long)]
    yes: bool,
    /// Remove what is cut instead of keeping it in DIR/repair-TIME
    #[arg(long)]
    discard: bool,
}

fn parse_queue(text: &str) -> Result<(String, i32), String> {
    let parts = text.rsplit_once('/').filter(|(topic, _)| !topic.is_empty());
    let queue = parts.and_then(|(topic, id)| Some((topic.to_owned(), id.parse().ok()?)));
    queue.filter(|(_, id)| *id >= 0).ok_or_else(|| "write TOPIC/ID, such as orders/0".to_owned())
}

fn parse_key(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('/').filter(|(topic, key)| !topic.is_empty() && !key.is_empty());
    let key = parts.map(|(topic, key)| (topic.to_owned(), key.to_owned()));
    key.ok_or_else(|| "write TOPIC/KEY, such as orders/4711".to_owned())
}

pub fn run(command: Command, format: Format) -> anyhow::Result<()> {
    match command {
        Command::Check(args) => check(&args, format),
        Command::Dump(args) => dump(&args, format),
        Command::Repair(args) => repair(&args, format),
    }
}

impl Directory {
    /// Where the files lie and how long they are.
    fn store_config(&self) -> anyhow::Result<StoreConfig> {
        if !self.dir.is_dir() {
            let text = format!("store directory {} does not exist", self.dir.display());
            return Err(exit::error(Exit::NotFound, text));
        }
        let Some(path) = &self.config else {
            return Ok(inspect::found_config(&RealFileSystem, &self.dir)?);
        };
        let mut config = LoadedConfig::from_file(path)
            .with_context(|| format!("cannot use {}", path.display()))?
            .config;
        config.store_path_root_dir = self.dir.to_string_lossy().into_owned();
        Ok(config.store_config()?)
    }

    /// The same, with brokers kept out for as long as the lock lives.
    fn locked(&self) -> anyhow::Result<(StoreConfig, InspectionLock)> {
        let config = self.store_config()?;
        let lock = InspectionLock::take(&RealFileSystem, &config.root_dir)?;
        Ok((config, lock))
    }
}

fn check(args: &CheckArgs, format: Format) -> anyhow::Result<()> {
    let (config, _lock) = args.directory.locked()?;
    let report = inspect::check(&RealFileSystem, &config)?;
    match format {
        Format::Json => output::json(&print::CheckRow::new(&config, &report))?,
        Format::Text => {
            print::findings(&report)?;
            output::line(&print::summary(&config, &report))?;
        }
    }
    if report.damage == 0 {
        return Ok(());
    }
    let dir = args.directory.dir.display();
    let text = format!(
        "{} findings of damage in {dir}; rmq store repair {dir} says what it would do",
        report.damage
    );
    Err(exit::error(Exit::Damaged, text))
}

fn dump(args: &DumpArgs, format: Format) -> anyhow::Result<()> {
    let (config, _lock) = args.directory.locked()?;
    if let Some(physical_offset) = args.what.physical_offset {
        let place = dump::log_place(&RealFileSystem, &config, physical_offset)?;
        let Some(place) = place else {
            let text = format!("no file of the log holds byte {physical_offset}");
            return Err(exit::error(Exit::NotFound, text));
        };
        let (path, at) = (place.path.display(), place.at);
        return match &place.item {
            LogPlaceItem::Record(bytes) => print::record(bytes, &place, format),
            LogPlaceItem::Blank => Err(exit::error(
                Exit::NotFound,
                format!("a blank at byte {at} of {path}: the log goes on in the next file"),
            )),
            LogPlaceItem::Empty => Err(exit::error(
                Exit::NotFound,
                format!("nothing was written at byte {at} of {path}"),
            )),
            LogPlaceItem::Damaged(reason) => Err(exit::error(
                Exit::Damaged,
                format!("no record at byte {at} of {path}: {reason}"),
            )),
        };
    }
    if let Some((topic, queue_id)) = &args.what.queue {
        let entries =
            dump::queue_entries(&RealFileSystem, &config, topic, *queue_id, args.from, args.count)?;
        let Some(entries) = entries else {
            let text = format!("queue {topic}/{queue_id} does not exist");
            return Err(exit::error(Exit::NotFound, text));
        };
        return print::entries(&entries, format);
    }
    if let Some((topic, key)) = &args.what.key {
        let (hits, broken) = dump::index_chains(&RealFileSystem, &config, topic, key)?;
        print::index_hits(&hits, format)?;
        if broken.is_empty() {
            return Ok(());
        }
        return Err(exit::error(Exit::Damaged, broken.join("; ")));
    }
    let Some(words) = dump::checkpoint(&RealFileSystem, &config) else {
        let text = format!("{} has no checkpoint that can be read", config.root_dir.display());
        return Err(exit::error(Exit::NotFound, text));
    };
    print::checkpoint(&words, format)
}

fn repair(args: &RepairArgs, format: Format) -> anyhow::Result<()> {
    let config = args.directory.store_config()?;
    let file_system: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let kept = if args.discard { Kept::Discarded } else { Kept::Aside };
    let mut refusal = None;
    let mut plan = None;
    let repaired = inspect::repair(
        &file_system,
        &config,
        i64::try_from(now_ms).unwrap_or(i64::MAX),
        kept,
        |report| {
            plan = Some(print::PlanRow::new(report, kept));
            let agreed = agree(args, &config, report, kept, format);
            agreed.unwrap_or_else(|error| {
                refusal = Some(error);
                false
            })
        },
    )?;
    if let Some(error) = refusal {
        return Err(error);
    }
    match (&repaired, plan) {
        (Some(repaired), Some(plan)) => done(&plan, repaired, format),
        (_, Some(_)) => Err(exit::error(Exit::Failure, "nothing was changed")),
        (_, None) => match format {
            Format::Json => Ok(output::json(&serde_json::json!({"repaired": false}))?),
            Format::Text => Ok(output::line("nothing to repair")?),
        },
    }
}

/// Says what would be done, and asks if nobody has said yes.
fn agree(
    args: &RepairArgs,
    config: &StoreConfig,
    report: &CheckReport,
    kept: Kept,
    format: Format,
) -> anyhow::Result<bool> {
    if format == Format::Text {
        print::findings(report)?;
        output::line(&print::summary(config, report))?;
        output::line(&print::PlanRow::new(report, kept).text())?;
    }
    if args.yes {
        return Ok(true);
    }
    if format == Format::Json {
        output::json(&print::PlanRow::new(report, kept))?;
    }
    if format == Format::Json || !std::io::stdin().is_terminal() {
        let text = "nothing was changed; add --yes to do it";
        return Err(exit::error(Exit::Damaged, text));
    }
    let mut out = std::io::stdout().lock();
    write!(out, "do it? [y/N] ")?;
    out.flush()?;
    drop(out);
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn done(plan: &print::PlanRow, repaired: &Repaired, format: Format) -> anyhow::Result<()> {
    let left = repaired.check.damage;
    match format {
        Format::Json => output::json(&print::RepairedRow::new(plan, repaired))?,
        Format::Text => {
            if let Some(path) = &repaired.kept_in {
                let bytes = repaired.kept_bytes;
                output::line(&format!("kept {bytes} bytes in {}", path.display()))?;
            }
            output::line(&format!("recovered: {}", repaired.recovery))?;
        }
    }
    if left == 0 {
        return Ok(());
    }
    print::findings(&repaired.check)?;
    Err(exit::error(Exit::Damaged, format!("{left} findings are left that a repair cannot mend")))
}

/// A path as JSON and people get it.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// One finding, as a row of JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FindingRow<'a> {
    severity: &'static str,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    byte: Option<u64>,
    what: &'a str,
    repair: &'a str,
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Damage => "damage",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_named_by_topic_and_number() {
        assert_eq!(parse_queue("orders/3"), Ok(("orders".to_owned(), 3)));
        assert_eq!(parse_queue("%RETRY%g/0"), Ok(("%RETRY%g".to_owned(), 0)));
        for wrong in ["orders", "/3", "orders/", "orders/-1", "orders/x"] {
            assert!(parse_queue(wrong).is_err(), "{wrong}");
        }
    }
}
