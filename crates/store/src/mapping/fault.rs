//! What happens when a mapped page cannot be had: the file was truncated from outside, or its disk
//! failed. The kernel then sends SIGBUS to the thread that reads.
//!
//! Owns a table of all mappings with the names of their files, and the handler that looks a fault
//! up in it, says which file it was, and ends the process with [`EXIT_CODE`]. There is nothing to
//! go back to: bytes that were handed out as a slice are gone, and whoever holds the slice cannot
//! be told. Faults elsewhere go to whoever handled them before.
//!
//! The handler may interrupt any code, so it takes no lock and allocates nothing: it reads atomics,
//! calls `writev` and `_exit`. Readers of mapped files pay nothing.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering::SeqCst};

use parking_lot::Mutex;

/// Exit code of a process that lost a page of a mapped file; `EX_IOERR` of BSD's sysexits.h.
pub const EXIT_CODE: i32 = 74;

/// Mappings in one block of the table.
const BLOCK_SLOTS: usize = 256;

/// One mapping, or none while `start` is 0.
struct Slot {
    /// Odd while the other fields change.
    version: AtomicUsize,
    start: AtomicUsize,
    bytes: AtomicUsize,
    path: AtomicPtr<u8>,
    path_bytes: AtomicUsize,
}

/// The table grows by blocks, which are never given back: a handler may be reading them.
struct Block {
    slots: [Slot; BLOCK_SLOTS],
    next: AtomicPtr<Block>,
}

static TABLE: Block = Block::new();
/// Held by whoever changes the table. The handler does not take it.
static CHANGE: Mutex<()> = Mutex::new(());

impl Slot {
    const fn new() -> Slot {
        Slot {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            path: AtomicPtr::new(ptr::null_mut()),
            path_bytes: AtomicUsize::new(0),
        }
    }

    /// For the holder of [`CHANGE`].
    fn set(&self, start: usize, bytes: usize, path: *mut u8, path_bytes: usize) {
        self.version.fetch_add(1, SeqCst);
        self.start.store(start, SeqCst);
        self.bytes.store(bytes, SeqCst);
        self.path.store(path, SeqCst);
        self.path_bytes.store(path_bytes, SeqCst);
        self.version.fetch_add(1, SeqCst);
    }

    /// The mapping, if `address` lies in it. A slot that changes meanwhile is passed over.
    fn holds(&self, address: usize) -> Option<Found> {
        let version = self.version.load(SeqCst);
        let found = Found {
            at: address.wrapping_sub(self.start.load(SeqCst)),
            path: self.path.load(SeqCst),
            path_bytes: self.path_bytes.load(SeqCst),
        };
        let is_free = self.start.load(SeqCst) == 0;
        let inside = found.at < self.bytes.load(SeqCst);
        let steady = version.is_multiple_of(2) && self.version.load(SeqCst) == version;
        (steady && inside && !is_free).then_some(found)
    }
}

impl Block {
    const fn new() -> Block {
        Block { slots: [const { Slot::new() }; BLOCK_SLOTS], next: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The block behind this one.
    fn next(&self) -> Option<&'static Block> {
        let next = self.next.load(SeqCst);
        // SAFETY: null, or a block that `free_slot` leaked, which lives as long as the process.
        unsafe { next.as_ref() }
    }
}

/// A place in a mapped file.
struct Found {
    /// Bytes from the beginning of the file.
    at: usize,
    path: *const u8,
    path_bytes: usize,
}

/// Looks an address up. Safe in a signal handler.
fn find(address: usize) -> Option<Found> {
    let mut block = Some(&TABLE);
    while let Some(present) = block {
        if let Some(found) = present.slots.iter().find_map(|slot| slot.holds(address)) {
            return Some(found);
        }
        block = present.next();
    }
    None
}

/// A slot that is free; for the holder of [`CHANGE`].
fn free_slot() -> &'static Slot {
    let mut block: &'static Block = &TABLE;
    loop {
        if let Some(slot) = block.slots.iter().find(|slot| slot.start.load(SeqCst) == 0) {
            return slot;
        }
        block = block.next().unwrap_or_else(|| {
            let made: &'static Block = Box::leak(Box::new(Block::new()));
            block.next.store(ptr::from_ref(made).cast_mut(), SeqCst);
            made
        });
    }
}

/// A mapping's entry in the table. Drop it before the mapping goes.
pub(super) struct Registration {
    slot: &'static Slot,
    /// What the slot points at.
    path: Box<[u8]>,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Registration").field(&String::from_utf8_lossy(&self.path)).finish()
    }
}

impl Registration {
    /// Enters a mapping of `bytes` bytes at `start`, and installs the handler at the first time.
    ///
    /// # Errors
    /// When the operating system takes no handler.
    pub(super) fn new(start: *const u8, bytes: usize, path: &Path) -> io::Result<Registration> {
        install()?;
        let path: Box<[u8]> = path.as_os_str().as_bytes().into();
        let _change = CHANGE.lock();
        let slot = free_slot();
        slot.set(start.addr(), bytes, path.as_ptr().cast_mut(), path.len());
        Ok(Registration { slot, path })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _change = CHANGE.lock();
        self.slot.set(0, 0, ptr::null_mut(), 0);
    }
}

/// The action that was in place before ours: its handler and its flags.
static PREVIOUS: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static PREVIOUS_FLAGS: AtomicI32 = AtomicI32::new(0);

/// Puts the handler in place, once for the process.
fn install() -> io::Result<()> {
    static IS_INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut is_installed = IS_INSTALLED.lock();
    if *is_installed {
        return Ok(());
    }
    // SAFETY: `sigaction` is a plain structure of integers and pointers, for which zeros are
    // valid: the default action, no flags, an empty mask.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
    ours.sa_sigaction = handler as usize;
    // On the alternate stack where the thread has one, as Rust's own threads do.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: asks only, into a structure that lives through the call.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Before ours is in place, since it may be called at once.
    PREVIOUS.store(previous.sa_sigaction, SeqCst);
    PREVIOUS_FLAGS.store(previous.sa_flags, SeqCst);
    // SAFETY: `ours` holds a handler of the signature that SA_SIGINFO asks for; it restricts
    // itself to what a signal handler may do, see the head of this file.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *is_installed = true;
    Ok(())
}

/// The handler.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel hands over a structure that is valid during the call.
    let code = unsafe { (*info).si_code };
    // Other codes, such as that of `kill`, carry no address.
    if matches!(code, libc::BUS_ADRERR | libc::BUS_OBJERR | libc::BUS_MCEERR_AR) {
        // SAFETY: for these codes `si_addr` is the field in use.
        let address = unsafe { (*info).si_addr() };
        if let Some(found) = find(address.addr()) {
            stop(&found);
        }
    }
    pass_on(signal, code, info, context);
}

/// Says what was lost and ends the process.
fn stop(found: &Found) -> ! {
    static IS_STOPPING: AtomicBool = AtomicBool::new(false);
    if IS_STOPPING.swap(true, SeqCst) {
        // Another thread is saying it already.
        loop {
            // SAFETY: waits for a signal; the process ends meanwhile.
            unsafe { libc::pause() };
        }
    }
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = found.at;
    while first == digits.len() || rest > 0 {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let part = |bytes: &[u8]| libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let line = [
        part(b"mapped file "),
        libc::iovec { iov_base: found.path.cast_mut().cast(), iov_len: found.path_bytes },
        part(b" was truncated or its disk failed at byte "),
        part(&digits[first..]),
        part(b"; the broker stops; run rmq store check\n"),
    ];
    // SAFETY: the parts point at constants, at `digits`, and at the path of a slot that was read
    // in one piece and holds the address of the fault. The thread that faults reads a slice of
    // that mapping, so the mapping, its registration and with it the path live until the handler
    // returns, which it does not. `writev` and `_exit` are bare system calls; what is written
    // nowhere (a closed standard error) cannot be said.
    unsafe {
        libc::writev(libc::STDERR_FILENO, line.as_ptr(), line.len() as c_int);
        libc::_exit(EXIT_CODE);
    }
}

/// Does what would have been done without this handler.
fn pass_on(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = PREVIOUS.load(SeqCst);
    let by_kernel = code > 0;
    match previous {
        // The kernel does not let a fault be ignored.
        libc::SIG_IGN if !by_kernel => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: zeros are the default action, see `install`; `raise` sends the signal to
            // this thread, where it waits until this handler returns and then ends the process.
            // Both may be called in a handler.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                libc::raise(signal);
            }
        }
        handler if PREVIOUS_FLAGS.load(SeqCst) & libc::SA_SIGINFO != 0 => {
            // SAFETY: it was installed with SA_SIGINFO, so it is a function of this signature, and
            // gets what the kernel would have handed it.
            unsafe {
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
        }
        handler => {
            // SAFETY: it was installed without SA_SIGINFO, so it is a function of this signature.
            unsafe {
                let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};

    use super::*;
    use crate::mapping::Mapping;

    fn mapped(path: &Path, bytes: usize) -> (File, Mapping) {
        let file = File::options().create(true).truncate(true).read(true).write(true).open(path);
        let file = file.unwrap();
        file.set_len(bytes as u64).unwrap();
        let mapping = Mapping::of_file(&file, path, bytes).unwrap();
        mapping.publish(bytes);
        (file, mapping)
    }

    /// Runs one of the ignored tests below in a process of its own, since it ends it.
    fn child(name: &str, path: &Path) -> Output {
        Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                &format!("mapping::fault::tests::{name}"),
                "--ignored",
                "--nocapture",
            ])
            .env("FAULT_TEST_FILE", path)
            .output()
            .unwrap()
    }

    fn child_path() -> std::path::PathBuf {
        std::env::var_os("FAULT_TEST_FILE").expect("run by its parent").into()
    }

    #[test]
    fn addresses_are_found_while_they_are_mapped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let (_file, mapping) = mapped(&path, 8192);
        let start = mapping.slice(0..8192).unwrap().as_ptr().addr();
        let found = find(start + 8191).expect("it is mapped");
        assert_eq!((found.at, found.path_bytes), (8191, path.as_os_str().len()));
        assert!(
            find(start.wrapping_sub(1))
                .is_none_or(|found| found.path_bytes != path.as_os_str().len())
        );
        drop(mapping);
        assert!(find(start + 8191).is_none_or(|other| other.path != found.path));
    }

    #[test]
    fn the_table_grows_and_its_slots_are_used_again() {
        // Made-up addresses, of which nothing is read.
        let page = |n: usize| ptr::without_provenance::<u8>((n + 1) << 12);
        for _ in 0..2 {
            let made: Vec<_> = (0..3 * BLOCK_SLOTS)
                .map(|n| Registration::new(page(n), 4096, Path::new("/x")).unwrap())
                .collect();
            for n in 0..made.len() {
                assert_eq!(find(page(n).addr() + 7).expect("it is entered").at, 7);
            }
            drop(made);
            assert!(find(page(0).addr()).is_none());
        }
        let mut blocks = 1;
        let mut block = &TABLE;
        while let Some(next) = block.next() {
            blocks += 1;
            block = next;
        }
        assert!((3..=4).contains(&blocks), "{blocks} blocks");
    }

    #[test]
    fn a_truncated_file_ends_the_process_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("00000000000000000000");
        let output = child("truncates_what_it_reads", &path);
        assert_eq!(output.status.code(), Some(EXIT_CODE), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        let line = format!(
            "mapped file {} was truncated or its disk failed at byte 8192; the broker stops; run \
             rmq store check\n",
            path.display()
        );
        assert!(text.ends_with(&line), "{text}");
    }

    #[test]
    #[ignore = "ends its process; run by another test"]
    fn truncates_what_it_reads() {
        let (file, mapping) = mapped(&child_path(), 16_384);
        file.set_len(5000).unwrap();
        let bytes = mapping.slice(0..16_384).unwrap();
        // The rest of the last page that is left reads as zeros.
        assert_eq!(bytes[8191], 0);
        assert_eq!(std::hint::black_box(bytes)[8192], 0);
        unreachable!("the byte is gone");
    }

    #[test]
    fn several_threads_say_it_once() {
        let directory = tempfile::tempdir().unwrap();
        let output = child("truncates_what_threads_read", &directory.path().join("file"));
        assert_eq!(output.status.code(), Some(EXIT_CODE), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.matches("was truncated or its disk failed").count(), 1, "{text}");
    }

    #[test]
    #[ignore = "ends its process; run by another test"]
    fn truncates_what_threads_read() {
        let (file, mapping) = mapped(&child_path(), 1 << 20);
        file.set_len(0).unwrap();
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (start, mapping) = (&start, &mapping);
                scope.spawn(move || {
                    let bytes = mapping.slice(0..1 << 20).unwrap();
                    start.wait();
                    std::hint::black_box(bytes[n << 12]);
                });
            }
        });
    }

    #[test]
    fn a_fault_elsewhere_ends_the_process_as_before() {
        let directory = tempfile::tempdir().unwrap();
        let output = child("truncates_another_mapping", &directory.path().join("file"));
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
        assert!(!String::from_utf8(output.stderr).unwrap().contains("was truncated"));
    }

    #[test]
    #[ignore = "ends its process; run by another test"]
    fn truncates_another_mapping() {
        let path = child_path();
        let (_ours, _mapping) = mapped(&path, 4096);
        let other = File::options()
            .create_new(true)
            .read(true)
            .write(true)
            .open(path.with_extension("other"))
            .unwrap();
        other.set_len(8192).unwrap();
        let raw = memmap2::MmapOptions::new().len(8192).map_raw_read_only(&other).unwrap();
        other.set_len(0).unwrap();
        // SAFETY: mapped for 8192 bytes; the page behind it is gone, which is what is tested.
        std::hint::black_box(unsafe { raw.as_ptr().add(4096).read_volatile() });
    }
}
