//! Calls of an open file on the simulated disk.

use super::*;

/// An open file, of one generation.
#[derive(Debug)]
pub(super) struct SimulatedFile {
    pub(super) disk: SimulatedDisk,
    pub(super) path: PathBuf,
    pub(super) id: NodeId,
    pub(super) generation: u64,
    pub(super) handle: u64,
}

impl SimulatedFile {
    /// Makes a call: `works` when it is let through, `breaks` when only a part of it is done.
    fn call<T>(
        &self,
        call: Call,
        works: impl FnOnce(&mut FileNode) -> io::Result<T>,
        breaks: impl FnOnce(&mut FileNode, &mut Random),
    ) -> io::Result<T> {
        let mut state = self.disk.lock();
        let fate = state.enter(self.generation, call, &self.path)?;
        if call.is_change() && call != Call::Sync {
            state.touch(self.id);
        }
        match fate {
            Fate::Works => works(state.file(self.id)?),
            Fate::Breaks(error) => {
                let mut random = state.random.fork();
                breaks(state.file(self.id)?, &mut random);
                Err(error)
            }
        }
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let mut state = self.disk.lock();
        if state.generation == self.generation
            && let Ok(file) = state.file(self.id)
            && file.locked_by == Some(self.handle)
        {
            file.locked_by = None;
        }
    }
}

impl StoreFile for SimulatedFile {
    fn len_bytes(&self) -> io::Result<u64> {
        self.call(Call::Length, |file| Ok(file.cache.len() as u64), |_, _| {})
    }

    fn modified_ms(&self) -> io::Result<i64> {
        self.call(Call::Modified, |file| Ok(file.modified_ms), |_, _| {})
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let position = position as usize;
        self.call(
            Call::Write,
            |file| {
                file.write(bytes, position);
                Ok(())
            },
            |file, random| {
                let done = random.below(bytes.len() as u64 + 1) as usize;
                file.write(&bytes[..done], position);
            },
        )
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        self.call(
            Call::Read,
            |file| {
                let start = position as usize;
                let from = file.cache.get(start..start + buffer.len());
                buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            },
            |_, _| {},
        )
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.call(
            Call::Allocate,
            |file| {
                if bytes as usize > file.cache.len() {
                    file.set_length(bytes as usize);
                }
                Ok(())
            },
            |_, _| {},
        )
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.call(
            Call::SetLength,
            |file| {
                file.set_length(bytes as usize);
                Ok(())
            },
            |_, _| {},
        )
    }

    fn zero_range(&self, position: u64, bytes: u64) -> io::Result<()> {
        // Zeros are pages like others: a file system without the call writes them, and one that
        // has it does so at the edges.
        let (position, bytes) = (position as usize, bytes as usize);
        let zero = |file: &mut FileNode, bytes: usize| {
            let end = (position + bytes).min(file.cache.len());
            if position < end {
                file.write(&vec![0; end - position], position);
            }
        };
        self.call(
            Call::Zero,
            |file| {
                zero(file, bytes);
                Ok(())
            },
            |file, random| zero(file, random.below(bytes as u64 + 1) as usize),
        )
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let fate = state.enter(self.generation, Call::Sync, &self.path);
        let off = state.off;
        let mut random = state.random.fork();
        let file = state.file(self.id)?;
        match fate {
            Ok(Fate::Works) => file.sync(),
            // The power went: everything is still to be chosen.
            Ok(Fate::Breaks(error)) | Err(error) if off => return Err(error),
            Ok(Fate::Breaks(error)) | Err(error) => {
                // The kernel forgets that the pages were dirty: a part is on the disk, and no
                // later sync will write the rest.
                file.disk = power_cut::surviving_contents(file, &mut random);
                file.pending.clear();
                return Err(error);
            }
        }
        Ok(())
    }

    fn map(&self, bytes: usize) -> io::Result<Mapping> {
        self.call(
            Call::Map,
            |file| {
                if file.view.is_none() {
                    let memory = rustix::fs::memfd_create("simulated", MemfdFlags::CLOEXEC)?;
                    let memory = File::from(memory);
                    memory.write_all_at(&file.cache, 0)?;
                    file.view = Some(memory);
                }
                let view = file.view.as_ref().ok_or_else(missing)?;
                Mapping::of_file(view, &self.path, bytes)
            },
            |_, _| {},
        )
    }

    fn try_lock(&self) -> io::Result<bool> {
        let handle = self.handle;
        self.call(Call::Lock, |file| Ok(*file.locked_by.get_or_insert(handle) == handle), |_, _| {})
    }
}
