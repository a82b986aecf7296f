//! The rank's counter page: in the pages' folder where an agent reads it, or private.
#![expect(unsafe_code, reason = "the page is mapped memory")]

use std::fs::OpenOptions;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::path::Path;
use std::ptr::NonNull;

use dem_page::{PAGE_BYTES, Page};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::failure::Failure;

/// A mapped page of counters.
pub struct Counters {
    page: NonNull<Page>,
}

// SAFETY: all fields of a page are atomics, and the mapping lives as long as its one owner.
unsafe impl Send for Counters {}
// SAFETY: as above.
unsafe impl Sync for Counters {}

const LENGTH: NonZeroUsize = match NonZeroUsize::new(PAGE_BYTES) {
    Some(length) => length,
    None => panic!("a page has bytes"),
};

impl Counters {
    /// A page that only this process sees.
    ///
    /// # Errors
    /// When memory cannot be mapped.
    pub fn private() -> Result<Self, Failure> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: an anonymous mapping of one page, zeroed by the kernel, aligned to pages.
        let memory = unsafe { mmap_anonymous(None, LENGTH, access, MapFlags::MAP_PRIVATE) };
        let memory = memory.map_err(|e| Failure::write(Path::new("the counter page"), e.into()))?;
        Ok(Self { page: memory.cast() })
    }

    /// The page of `rank` in `folder`; an existing file (made by the agent, which may have granted a lease in it)
    /// is taken over.
    ///
    /// # Errors
    /// When the file cannot be made or mapped.
    pub fn shared(folder: &Path, rank: u32) -> Result<Self, Failure> {
        let path = folder.join(dem_page::file_name(rank));
        let failed = |source| Failure::write(&path, source);
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        file.set_len(PAGE_BYTES as u64).map_err(failed)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the file has the length of the mapping; it is only ever accessed through atomics, by us and by
        // the agent. If somebody truncated it we would get SIGBUS, as with any shared mapping.
        let memory = unsafe { mmap(None, LENGTH, access, MapFlags::MAP_SHARED, &file, 0) };
        Ok(Self { page: memory.map_err(|e| failed(e.into()))?.cast() })
    }
}

impl Deref for Counters {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: mapped until drop, aligned to a page, at least as long as `Page`, every bit pattern is valid.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length; no reference outlives `self`. A failure would leak one page.
        let _ = unsafe { munmap(self.page.cast(), PAGE_BYTES) };
    }
}
