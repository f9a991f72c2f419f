//! What the fuzz targets do with the cases that are kept of them.

#[macro_use]
#[path = "../../fuzz/src/replay.rs"]
mod replay;

#[path = "../../fuzz/src/sql_filter.rs"]
mod sql_filter;

replayed!(sql_filter);
