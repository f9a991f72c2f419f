//! Permission bits of a topic or broker (PermName).

/// New topics inherit from this one.
pub const INHERIT: i32 = 1;
/// Producers may use it.
pub const WRITE: i32 = 2;
/// Consumers may use it.
pub const READ: i32 = 4;
/// All bits that exist, with the reserved priority bit.
pub const ALL: i32 = 15;
