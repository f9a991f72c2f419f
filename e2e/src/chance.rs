//! What is left to chance in a test, and how to repeat it.

/// Where a test's choices come from. `ROCKETMQ_E2E_SEED` repeats a run.
pub fn seed() -> u64 {
    number("ROCKETMQ_E2E_SEED").unwrap_or_else(rand::random)
}

/// How often something is done: as the variable says, for a quick look or a long run, or `usual`.
pub fn times(variable: &str, usual: u32) -> u32 {
    number(variable).and_then(|times| u32::try_from(times).ok()).unwrap_or(usual)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
