//! Read-only mappings of preallocated files: the only unsafe code of the project.
//!
//! A mapping hands out slices of the *published* front of its file and of nothing else. Bytes are
//! written with `pwrite` behind that front and published after the call returned; from then on they
//! do not change. Reading and writing meet in one page cache, so a published byte is seen.
//!
//! A file that someone else truncates, or whose disk fails, takes pages away: `fault` names it and
//! ends the process.

#![allow(unsafe_code, reason = "the one place where files become slices")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};

mod fault;

pub use fault::EXIT_CODE as LOST_PAGE_EXIT_CODE;

/// A file mapped for reading.
///
/// Invariants, on which the slices rest:
/// - the file is as long as the mapping for as long as the mapping lives: the store never shrinks a
///   mapped file, and removing one only takes away its name. Should someone else shrink it, a read
///   of what is gone ends the process, so no code goes on with a slice that has no bytes;
/// - bytes in front of `published` are not written any more, unless `cut` took them back.
#[derive(Debug)]
pub struct Mapping {
    /// In front of `raw`, so that it is dropped first.
    _registration: fault::Registration,
    raw: MmapRaw,
    published: AtomicUsize,
}

impl Mapping {
    /// Maps the first `bytes` of `file`, of which nothing is published yet. `path` names it should
    /// a page be lost.
    ///
    /// # Errors
    /// When the file is shorter than that, or the operating system refuses.
    pub fn of_file(file: &File, path: &Path, bytes: usize) -> io::Result<Mapping> {
        let found = file.metadata()?.len();
        if found < bytes as u64 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("file has {found} bytes, {bytes} are to be mapped"),
            ));
        }
        let raw = MmapOptions::new().len(bytes).map_raw_read_only(file)?;
        let registration = fault::Registration::new(raw.as_ptr(), bytes, path)?;
        Ok(Mapping { _registration: registration, raw, published: AtomicUsize::new(0) })
    }

    /// How many bytes from the front may be read.
    pub fn published(&self) -> usize {
        self.published.load(Ordering::Acquire)
    }

    /// Lets readers see the first `bytes`. They must have been written before, and must not be
    /// written again. It never goes back and never beyond the end.
    pub fn publish(&self, bytes: usize) {
        self.published.fetch_max(bytes.min(self.raw.len()), Ordering::Release);
    }

    /// Takes back what was published behind the first `bytes`.
    ///
    /// For recovery, while nobody else reads, and for who cuts a log whose readers see less than that,
    /// and waits for the slices of those who see more before anything is written there: they would
    /// change under their owners.
    pub(crate) fn cut(&self, bytes: usize) {
        self.published.fetch_min(bytes, Ordering::Release);
    }

    /// The bytes of `range`, if all of them are published.
    pub fn slice(&self, range: Range<usize>) -> Option<&[u8]> {
        if range.start > range.end || range.end > self.published() {
            return None;
        }
        // SAFETY: `published` never exceeds the length of the mapping, so the range lies within
        // it; it is mapped readable for as long as `self` lives. Published bytes are not written
        // any more, and their writing happened before the publication that was just read
        // (release and acquire), see the invariants of the type. u8 has no alignment and no
        // invalid values.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.raw.as_ptr().add(range.start), range.end - range.start)
        };
        Some(bytes)
    }

    /// Asks the kernel to read a part into the page cache, in large steps and without waiting.
    pub fn will_need(&self, range: Range<usize>) {
        let end = range.end.min(self.raw.len());
        if range.start < end {
            // Advice that is not taken costs speed only.
            let _ = self.raw.advise_range(Advice::WillNeed, range.start, end - range.start);
        }
    }

    /// Lets go of the physical pages that this mapping holds, so that a long read does not count as
    /// memory of the process. The page cache keeps them as long as it likes.
    pub fn release_pages(&self) {
        // SAFETY: on a shared mapping of a file this drops page table entries only; the contents
        // stay in the page cache and the file, and the next access maps them again. Slices that
        // are alive keep reading the same bytes.
        let released = unsafe { self.raw.unchecked_advise(UncheckedAdvice::DontNeed) };
        // Advice that is not taken changes nothing but the numbers shown by the system.
        drop(released);
    }
}

/// Something that holds a mapping for as long as slices of it are alive.
pub trait HoldsMapping: Send + Sync + 'static {
    /// The mapping.
    fn mapping(&self) -> &Mapping;
}

/// A slice of `holder`'s mapping that keeps the holder alive; `None` if not all of it is
/// published.
pub fn shared_slice<H: HoldsMapping>(holder: &Arc<H>, range: Range<usize>) -> Option<Bytes> {
    struct Owner<H> {
        holder: Arc<H>,
        range: Range<usize>,
    }
    impl<H: HoldsMapping> AsRef<[u8]> for Owner<H> {
        fn as_ref(&self) -> &[u8] {
            self.holder.mapping().slice(self.range.clone()).unwrap_or(&[])
        }
    }
    holder.mapping().slice(range.clone())?;
    Some(Bytes::from_owner(Owner { holder: Arc::clone(holder), range }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    struct Holder(Mapping);

    impl HoldsMapping for Holder {
        fn mapping(&self) -> &Mapping {
            &self.0
        }
    }

    #[test]
    fn only_published_bytes_are_handed_out() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mapping = Mapping::of_file(&file, Path::new("x"), 8192).unwrap();
        assert_eq!(mapping.slice(0..1), None);
        file.write_all_at(b"hello", 4094).unwrap();
        mapping.publish(4099);
        assert_eq!(mapping.slice(4094..4099), Some(&b"hello"[..]));
        assert_eq!(mapping.slice(4094..4100), None);
        mapping.publish(10);
        assert_eq!(mapping.published(), 4099);
        mapping.publish(usize::MAX);
        assert_eq!(mapping.published(), 8192);
        assert_eq!(mapping.slice(8192..8192), Some(&[][..]));
        mapping.cut(4096);
        assert_eq!(mapping.slice(4094..4099), None);
        mapping.will_need(0..usize::MAX);
        mapping.will_need(8192..9000);
        mapping.release_pages();
        assert_eq!(mapping.slice(4094..4096), Some(&b"he"[..]));
    }

    #[test]
    fn a_short_file_is_not_mapped() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let error = Mapping::of_file(&file, Path::new("x"), 101).unwrap_err();
        assert_eq!(error.to_string(), "file has 100 bytes, 101 are to be mapped");
    }

    #[test]
    fn a_slice_keeps_its_file_alive() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        file.set_len(4096).unwrap();
        let holder = Arc::new(Holder(Mapping::of_file(&file, &path, 4096).unwrap()));
        file.write_all_at(b"kept", 0).unwrap();
        holder.0.publish(4);
        let slice = shared_slice(&holder, 0..4).unwrap();
        assert!(shared_slice(&holder, 0..5).is_none());
        drop((holder, file));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(&slice[..], b"kept");
    }
}
