//! Runs other programs, with errors that name the command line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The command line as a person would type it.
fn line(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs to the end, its output going where ours goes. Fails unless it exits with 0.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("start `{}`", line(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", line(command));
    }
    Ok(())
}

/// Runs to the end and returns what it printed. Its output is shown only in the
/// error of a failure.
pub fn capture(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start `{}`", line(command)))?;
    if !output.status.success() {
        bail!(
            "`{}` failed: {}\n{}{}",
            line(command),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` printed bytes that are no UTF-8", line(command)))
}

/// Whether it exits with 0; a program that cannot be started does not.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs to the end, passing each line of its standard output on as it comes and
/// to `see`. Returns whether it exited with 0.
pub fn watch(command: &mut Command, mut see: impl FnMut(&str)) -> Result<bool> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start `{}`", line(command)))?;
    let output = child.stdout.take().context("a piped standard output is there to be taken")?;
    let mut reader = BufReader::new(output);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes)? > 0 {
        std::io::stdout().write_all(&bytes)?;
        see(String::from_utf8_lossy(&bytes).trim_end());
        bytes.clear();
    }
    Ok(child.wait()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_and_shows_its_output() {
        let error = capture(Command::new("sh").args(["-c", "echo seen; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("exit 3") && text.contains("seen"), "{text}");
    }

    #[test]
    fn watched_lines_arrive_in_order_without_their_ends() {
        let mut lines = Vec::new();
        let command = &mut Command::new("printf");
        let success = watch(command.arg("one\ntwo"), |line| lines.push(line.to_owned())).unwrap();
        assert!(success);
        assert_eq!(lines, ["one", "two"]);
    }
}
