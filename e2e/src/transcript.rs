//! What a tool prints, made comparable: texts without what differs from run to run, kept by the call
//! that brought them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// Marks the line of a call in a transcript.
const CALL: &str = "$ ";
/// Marks why a call prints something else with our servers.
const REASON: &str = "# ";

/// Lines of a stack trace, and the addresses of help that servers and clients add to an error.
const IGNORED: [&str; 4] =
    ["\tat ", "\t... ", "See http", "For more information, please visit the url"];

/// What one call prints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Printed {
    /// Why it is not what Apache's servers make it print; empty for these.
    pub reason: String,
    /// Line by line, normalised.
    pub lines: Vec<String>,
}

/// Reads a transcript: calls in any order, each once.
pub fn read(text: &str) -> Result<BTreeMap<String, Printed>> {
    let mut calls = BTreeMap::new();
    let mut current: Option<(String, Printed)> = None;
    for line in text.lines() {
        if let Some(call) = line.strip_prefix(CALL) {
            if let Some((call, printed)) = current.replace((call.to_owned(), Printed::default())) {
                ensure!(calls.insert(call.clone(), printed).is_none(), "{call} is there twice");
            }
            continue;
        }
        let Some((_, printed)) = &mut current else { continue };
        match line.strip_prefix(REASON) {
            Some(reason) if printed.lines.is_empty() => reason.clone_into(&mut printed.reason),
            _ => printed.lines.push(line.to_owned()),
        }
    }
    let last = current.context("a transcript without a call")?;
    calls.insert(last.0, last.1);
    Ok(calls)
}

/// Writes what [`read`] reads.
pub fn write(head: &str, calls: &[(String, Printed)]) -> String {
    let mut text = format!("{head}\n");
    for (call, printed) in calls {
        text += &format!("{CALL}{call}\n");
        if !printed.reason.is_empty() {
            text += &format!("{REASON}{}\n", printed.reason);
        }
        for line in &printed.lines {
            text += line;
            text.push('\n');
        }
    }
    text
}

/// The lines of `text` without what differs from run to run: `known` values become their names in
/// braces, and so do times, addresses, ids of clients and of messages; columns are one space apart,
/// and of an exception the first line stays.
pub fn normalise(text: &str, known: &[(&str, &str)]) -> Vec<String> {
    let mut text = text.to_owned();
    for (name, value) in known.iter().filter(|(_, value)| !value.is_empty()) {
        text = text.replace(value, &format!("{{{name}}}"));
    }
    text.lines()
        .filter(|line| !IGNORED.iter().any(|beginning| line.starts_with(beginning)))
        .map(|line| sorted_properties(&words(&without_rate(&without_remark(line)))))
        .filter(|line| !line.is_empty())
        .collect()
}

/// Every number as `N`.
pub fn without_figures(lines: &mut [String]) {
    /// Stands for a number until all are found: no tool prints it, as it does the letter.
    const NUMBER: char = '\u{1}';
    for line in lines {
        let mut out = String::with_capacity(line.len());
        for c in line.chars() {
            let is_digit = c.is_ascii_digit() || (c == '.' && out.ends_with(NUMBER));
            match is_digit {
                true if out.ends_with(NUMBER) => {}
                true => out.push(NUMBER),
                false => out.push(c),
            }
        }
        out = out.replace("-\u{1}", "\u{1}");
        // How many rates there are depends on how long there have been some.
        while out.contains("\u{1} \u{1}") {
            out = out.replace("\u{1} \u{1}", "\u{1}");
        }
        *line = out.replace(NUMBER, "N");
    }
}

/// A server says in words of its own why it refuses; the code before them counts.
fn without_remark(line: &str) -> String {
    match line.split_once("DESC: ") {
        Some((before, _)) if before.contains("CODE: ") => format!("{before}DESC: {{remark}}"),
        _ => line.to_owned(),
    }
}

/// A rate depends on when it is asked for.
fn without_rate(line: &str) -> String {
    match line.split_once("TPS: ") {
        Some((before, _)) => format!("{before}TPS: {{rate}}"),
        None => line.to_owned(),
    }
}

/// Properties of a message come in the order of a hash map.
fn sorted_properties(line: &str) -> String {
    let begin = ["Properties: {", "properties={"].iter().find_map(|name| {
        let at = line.find(name)?;
        Some(at + name.len())
    });
    let Some(begin) = begin else { return line.to_owned() };
    let mut depth = 1;
    let end = line[begin..].char_indices().find_map(|(at, c)| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        (depth == 0).then_some(begin + at)
    });
    let Some(end) = end else { return line.to_owned() };
    let mut properties: Vec<&str> = line[begin..end].split(", ").collect();
    properties.sort_unstable();
    format!("{}{}{}", &line[..begin], properties.join(", "), &line[end..])
}

/// Words one space apart, each normalised.
fn words(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line.trim();
    while let Some(c) = rest.chars().next() {
        if let Some(after) = date_and_time(rest) {
            out.push_str("{time}");
            rest = after;
            continue;
        }
        if c.is_whitespace() {
            out.push(' ');
            rest = rest.trim_start();
            continue;
        }
        let end = rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end.max(c.len_utf8()));
        out.push_str(&word_normalised(word));
        rest = after;
    }
    out
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '@' | '#' | '_')
}

fn word_normalised(word: &str) -> String {
    let is_digits = word.bytes().all(|byte| byte.is_ascii_digit());
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 13 && word.starts_with('1') {
        return format!("{{ms}}{}", &word[digits..]);
    }
    if is_digits && matches!(word.len(), 14 | 17) && word.starts_with("20") {
        return "{time}".to_owned();
    }
    if word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return "{id}".to_owned();
    }
    let Some(address) = dotted_quad(word) else { return word.to_owned() };
    match &word[address..] {
        rest if rest.starts_with('@') => "{client}".to_owned(),
        rest => {
            let port = rest
                .strip_prefix(':')
                .filter(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
            if rest.is_empty() || port.is_some() {
                "{address}".to_owned()
            } else {
                format!("{{address}}{rest}")
            }
        }
    }
}

/// How many bytes of an IPv4 address `word` begins with.
fn dotted_quad(word: &str) -> Option<usize> {
    let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
    let parts: Vec<&str> = word[..end].split('.').collect();
    let is_quad = parts.len() == 4 && parts.iter().all(|part| part.parse::<u8>().is_ok());
    is_quad.then_some(end)
}

/// What follows a date with a time: `2024-01-31 01:02:03,456` and its like.
fn date_and_time(text: &str) -> Option<&str> {
    const PATTERN: &[u8] = b"dddd-dd-dd.dd:dd:dd";
    let bytes = text.as_bytes();
    let matches = bytes.len() >= PATTERN.len()
        && PATTERN.iter().zip(bytes).all(|(pattern, byte)| match pattern {
            b'd' => byte.is_ascii_digit(),
            b'.' => matches!(byte, b' ' | b'#' | b'T'),
            other => byte == other,
        });
    if !matches {
        return None;
    }
    let rest = &text[PATTERN.len()..];
    let fraction = rest.strip_prefix([',', '.', ':']).unwrap_or(rest);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    Some(if digits > 0 { &fraction[digits..] } else { rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_run_to_run_is_named() {
        let text = "#Broker  127.0.0.1:10911   V5\t 2024-01-31 01:02:03,456 x\n\
                    10.0.0.2@4711#123456 /10.0.0.2:40000 1700000000000.x 7F00000100002A9F0000000000000123\n\
                    MQClientException: CODE: 17  DESC: topic[x] not exist\nSee https://x.y\n\tat X(X.java:1)\nConsume TPS: 0.3\n\n\
                    Properties: {WAIT=true, KEYS={b}, A=1} x";
        assert_eq!(
            normalise(text, &[("broker", "127.0.0.1:10911")]),
            [
                "#Broker {broker} V5 {time} x",
                "{client} /{address} {ms}.x {id}",
                "MQClientException: CODE: 17 DESC: {remark}",
                "Consume TPS: {rate}",
                "Properties: {A=1, KEYS={b}, WAIT=true} x"
            ]
        );
    }

    #[test]
    fn figures_can_be_left_out() {
        for (line, wanted) in [
            ("tps : 12.5 -1.0 99", "tps : N"),
            ("Orders 0 0.00 0 NO_CONSUMER", "Orders N NO_CONSUMER"),
            ("TBW102 0 NO_CONSUMER", "TBWN NO_CONSUMER"),
            ("ADMIN1. SYN-N 7", "ADMINN SYN-N N"),
        ] {
            let mut lines = vec![line.to_owned()];
            without_figures(&mut lines);
            assert_eq!(lines, [wanted], "{line}");
        }
    }

    #[test]
    fn a_transcript_is_read_as_it_was_written() -> Result<()> {
        let printed = Printed { reason: "why".into(), lines: vec!["a".into(), "# b".into()] };
        let calls = [("one -t x".to_owned(), printed), ("two".to_owned(), Printed::default())];
        let read = read(&write("# Head", &calls))?;
        assert_eq!(read.into_iter().collect::<Vec<_>>(), calls);
        assert!(super::read("").is_err());
        Ok(())
    }
}
