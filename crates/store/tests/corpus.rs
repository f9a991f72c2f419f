//! What the fuzz targets do with the cases that are kept of them.

#[macro_use]
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[path = "../../../fuzz/src/consume_queue_ext.rs"]
mod consume_queue_ext;
#[path = "../../../fuzz/src/index.rs"]
mod index;

replayed!(consume_queue_ext, index);
