//! Compression of message bodies.
//!
//! A producer compresses large bodies with zlib; a consumer reads every kind that RocketMQ's clients write.
//! Which kind it is stands in the message's sysFlag (RocketMQ's MessageSysFlag); the broker never looks.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rocketmq_protocol::message::record::sys_flag;

/// Most bytes that a compressed body may become; a message is 4 MiB by default before compression.
pub const DECOMPRESSED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Sets a body's kind of compression to zlib. 4.9 clients write only the first bit.
pub const ZLIB_FLAGS: i32 = sys_flag::COMPRESSED | sys_flag::COMPRESSION_ZLIB;

/// Compresses as RocketMQ's producer does: zlib, level 5.
pub fn compress(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(body.len() / 2), Compression::new(5));
    let written = encoder.write_all(body).and_then(|()| encoder.finish());
    written.expect("writing to memory does not fail")
}

/// Undoes the compression that `flags` (a message's sysFlag) tell of.
///
/// # Errors
/// When the body is not what the flags say, or becomes larger than [`DECOMPRESSED_BYTES_MAX`].
pub fn decompress(body: &[u8], flags: i32) -> io::Result<Vec<u8>> {
    decompress_within(body, flags, DECOMPRESSED_BYTES_MAX)
}

fn decompress_within(body: &[u8], flags: i32, max: usize) -> io::Result<Vec<u8>> {
    match flags & sys_flag::COMPRESSION_MASK {
        // 4.9 clients say only that it is compressed; their one kind is zlib.
        0 | sys_flag::COMPRESSION_ZLIB => read_bounded(ZlibDecoder::new(body), max),
        sys_flag::COMPRESSION_LZ4 => read_bounded(lz4_flex::frame::FrameDecoder::new(body), max),
        sys_flag::COMPRESSION_ZSTD => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(body)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
            read_bounded(decoder, max)
        }
        unknown => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("compression kind {:#x} is unknown", unknown),
        )),
    }
}

fn read_bounded(reader: impl Read, max: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    reader.take(max as u64 + 1).read_to_end(&mut out)?;
    if out.len() > max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the body becomes larger than {max} bytes"),
        ));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Vec<u8> {
        "one lamp, two lamps, ".repeat(500).into_bytes()
    }

    #[test]
    fn zlib_is_undone_with_and_without_its_kind() {
        let packed = compress(&sample());
        assert!(packed.len() < sample().len() / 10);
        assert_eq!(decompress(&packed, ZLIB_FLAGS).expect("zlib"), sample());
        assert_eq!(decompress(&packed, sys_flag::COMPRESSED).expect("zlib"), sample());
    }

    #[test]
    fn lz4_frames_are_undone() {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(&sample()).expect("memory");
        let packed = encoder.finish().expect("memory");
        let flags = sys_flag::COMPRESSED | sys_flag::COMPRESSION_LZ4;
        assert_eq!(decompress(&packed, flags).expect("lz4"), sample());
    }

    #[test]
    fn zstd_frames_are_undone() {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let packed = ruzstd::encoding::compress_to_vec(sample().as_slice(), level);
        let flags = sys_flag::COMPRESSED | sys_flag::COMPRESSION_ZSTD;
        assert_eq!(decompress(&packed, flags).expect("zstd"), sample());
    }

    #[test]
    fn a_bomb_ends_at_the_bound() {
        let packed = compress(&sample());
        let max = sample().len();
        assert!(decompress_within(&packed, ZLIB_FLAGS, max).is_ok());
        let error = decompress_within(&packed, ZLIB_FLAGS, max - 1).expect_err("too large");
        assert!(error.to_string().contains(&(max - 1).to_string()), "{error}");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_an_error_or_bytes(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            kind in 0..8,
        ) {
            let _ = decompress(&bytes, sys_flag::COMPRESSED | (kind << 8));
        }
    }
}
