//! Entry point of the operator: settings, logs, signals.
fn main() {}
