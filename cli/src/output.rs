//! What `rmq` prints: tables for people, JSON for scripts.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

/// `-o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables and sentences.
    Text,
    /// JSON: one value, or one line for each message.
    Json,
}

/// Writes a line to standard output and flushes it, so that a pipe sees it at once.
///
/// # Errors
/// Standard output is closed or full.
pub fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes a value as one line of JSON.
///
/// # Errors
/// Standard output is closed or full.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// Writes rows below a head, columns aligned; numbers to the right. Prints the head even without
/// rows.
///
/// # Errors
/// Standard output is closed or full.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    line(&render(head, rows))
}

fn render(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let numeric: Vec<bool> = (0..head.len())
        .map(|column| {
            let mut cells = rows.iter().filter_map(|row| row.get(column)).peekable();
            cells.peek().is_some() && cells.all(|cell| cell == "-" || cell.parse::<i64>().is_ok())
        })
        .collect();
    let lines = std::iter::once(head.iter().map(|cell| (*cell).to_owned()).collect())
        .chain(rows.iter().cloned())
        .map(|row: Vec<String>| {
            let cells: Vec<String> =
                row.iter()
                    .zip(widths.iter().zip(&numeric))
                    .map(|(cell, (&width, &numeric))| {
                        if numeric { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
                    })
                    .collect();
            cells.join("  ").trim_end().to_owned()
        });
    lines.collect::<Vec<_>>().join("\n")
}

/// A time stamp as people read it, in UTC; `-` when there is none.
pub fn time(timestamp_ms: i64) -> String {
    if timestamp_ms <= 0 {
        return "-".to_owned();
    }
    jiff::Timestamp::from_millisecond(timestamp_ms)
        .map_or_else(|_| timestamp_ms.to_string(), |time| format!("{time:.3}"))
}

/// Bytes as base64 with padding (RFC 4648), for bodies that are no text.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            if digit <= chunk.len() {
                let value = group >> (18 - 6 * digit) & 63;
                text.push(char::from(DIGITS[value as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_numbers_stand_right() {
        let rows = vec![
            vec!["orders".to_owned(), "8".to_owned(), "-".to_owned()],
            vec!["ü".to_owned(), "16".to_owned(), "5".to_owned()],
        ];
        let text = render(&["TOPIC", "QUEUES", "LAG"], &rows);
        assert_eq!(text, "TOPIC   QUEUES  LAG\norders       8    -\nü           16    5");
        assert_eq!(render(&["A", "B"], &[]), "A  B");
    }

    #[test]
    fn base64_of_rfc_4648() {
        let of = |text: &str| base64(text.as_bytes());
        assert_eq!(of(""), "");
        assert_eq!(of("f"), "Zg==");
        assert_eq!(of("fo"), "Zm8=");
        assert_eq!(of("foo"), "Zm9v");
        assert_eq!(of("foobar"), "Zm9vYmFy");
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(time(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(time(0), "-");
        assert_eq!(time(i64::MAX), i64::MAX.to_string());
    }
}
