//! How many tests passed and failed, read from what `cargo test` prints.

use std::fmt;
use std::ops::AddAssign;

/// Counts of tests and checks.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Those that ran and held.
    pub passed: u32,
    /// Those that ran and did not.
    pub failed: u32,
    /// Those that the source marks as ignored.
    pub skipped: u32,
}

impl Tally {
    /// Counts one check that is no test.
    pub fn check(&mut self, held: bool) {
        if held {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
    }

    /// Counts a line such as `test result: ok. 5 passed; 0 failed; 1 ignored; ...`;
    /// other lines count nothing.
    pub fn read(&mut self, line: &str) {
        let Some((_, counts)) =
            line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in counts.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u32>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_add_up_and_others_do_not_count() {
        let mut tally = Tally::default();
        for line in [
            "running 5 tests",
            "test message::tests::one ... ok",
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s",
            "test result: FAILED. 7 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s",
            "error: test failed, to rerun pass `-p e2e`",
        ] {
            tally.read(line);
        }
        assert_eq!(tally, Tally { passed: 12, failed: 2, skipped: 1 });
        assert_eq!(tally.to_string(), "12 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn nothing_skipped_is_not_mentioned() {
        let mut tally = Tally::default();
        tally.check(true);
        tally.check(false);
        assert_eq!(tally.to_string(), "1 passed, 1 failed");
    }
}
