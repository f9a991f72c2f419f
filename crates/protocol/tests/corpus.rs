//! What the fuzz targets do with the cases that are kept of them.

#[macro_use]
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[path = "../../../fuzz/src/config.rs"]
mod config;
#[path = "../../../fuzz/src/fastjson.rs"]
mod fastjson;
#[path = "../../../fuzz/src/frame.rs"]
mod frame;
#[path = "../../../fuzz/src/header.rs"]
mod header;
#[path = "../../../fuzz/src/properties.rs"]
mod properties;
#[path = "../../../fuzz/src/record.rs"]
mod record;

replayed!(config, fastjson, frame, header, properties, record);
