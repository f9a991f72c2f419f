//! What the fuzz targets do with the cases that are kept of them.

#[macro_use]
#[path = "../../fuzz/src/replay.rs"]
mod replay;

#[path = "../../fuzz/src/ha_stream.rs"]
mod ha_stream;
#[path = "../../fuzz/src/sql_filter.rs"]
mod sql_filter;

replayed!(ha_stream, sql_filter);
