//! How often a table has changed (`DataVersion`).

use serde::{Deserialize, Serialize};

/// Version of a table of a broker. Two tables are the same if all of it is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVersion {
    /// Counts changes.
    pub counter: i64,
    /// Master epoch, in controller mode (5.x).
    pub state_version: i64,
    /// Time of the last change, in ms.
    pub timestamp: i64,
}

impl DataVersion {
    /// Counts a change at a time in ms.
    pub fn next(&mut self, now_ms: i64) {
        self.timestamp = now_ms;
        self.counter += 1;
    }
}
