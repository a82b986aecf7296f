//! Counter pages of a worker's ranks: made, leased and read by the agent.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dem_page::{LEVELS, PAGE_BYTES, Page, State, file_name, load_f64};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::protocol::RankFigures;

/// A lease that has ended; not 0, which a rank that comes up takes for "no agent".
const ENDED: u64 = 1;

/// One mapped page.
struct Mapped {
    page: NonNull<Page>,
    inode: u64,
}

#[expect(unsafe_code, reason = "a page is shared memory")]
// SAFETY: the mapping belongs to no thread, and all fields of a page are atomics.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Maps the file, made and lengthened where needed; never truncated, so what a rank wrote stays.
    fn open(path: &Path) -> io::Result<Self> {
        let file: File = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() < PAGE_BYTES as u64 {
            file.set_len(PAGE_BYTES as u64)?;
        }
        let length = NonZeroUsize::new(PAGE_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        #[expect(unsafe_code, reason = "a page is shared memory")]
        // SAFETY: a new shared mapping of a whole file of at least that length, at an address that the kernel chooses.
        let address = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, &file, 0)? };
        Ok(Self { page: address.cast(), inode: file.metadata()?.ino() })
    }

    fn page(&self) -> &Page {
        #[expect(unsafe_code, reason = "a page is shared memory")]
        // SAFETY: mapped with the size and alignment of a memory page until drop; all fields are atomics, for which any
        // bytes are valid and which other processes may change.
        unsafe {
            self.page.as_ref()
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "a page is shared memory")]
        // SAFETY: mapped in `open` with this length; no reference to the page outlives `self`.
        let _ = unsafe { munmap(self.page.cast(), PAGE_BYTES) };
    }
}

/// Pages of one attempt's ranks on this worker.
pub struct Pages {
    folder: PathBuf,
    mapped: Vec<(u32, Mapped)>,
}

impl Pages {
    /// Makes a page for every rank in `folder`. The lease is there before the rank is.
    pub fn create(folder: PathBuf, ranks: &[u32], lease_end_ns: u64) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let mut mapped = Vec::with_capacity(ranks.len());
        for &rank in ranks {
            mapped.push((rank, Mapped::open(&folder.join(file_name(rank)))?));
        }
        let pages = Self { folder, mapped };
        pages.set_lease(lease_end_ns);
        Ok(pages)
    }

    /// Maps again what a rank has replaced by a file of its own.
    pub fn refresh(&mut self) {
        for (rank, mapped) in &mut self.mapped {
            let path = self.folder.join(file_name(*rank));
            if std::fs::metadata(&path).is_ok_and(|m| m.ino() != mapped.inode)
                && let Ok(new) = Mapped::open(&path)
            {
                *mapped = new;
            }
        }
    }

    /// Stores the lease's end (`CLOCK_BOOTTIME`, nanoseconds) in every page.
    pub fn set_lease(&self, end_ns: u64) {
        for (_, mapped) in &self.mapped {
            mapped.page().lease_end_ns.store(end_ns, Relaxed);
        }
    }

    /// Ends the lease in every page.
    pub fn end_lease(&self) {
        self.set_lease(ENDED);
    }

    /// Asks all ranks to stop; returns those that have no page of their own (yet) and so will not see it.
    pub fn request_stop(&self) -> Vec<u32> {
        for (_, mapped) in &self.mapped {
            mapped.page().stop_request.store(1, Relaxed);
        }
        self.mapped.iter().filter(|(_, m)| !m.page().is_valid()).map(|(rank, _)| *rank).collect()
    }

    /// Figures of the ranks that have written their page.
    pub fn figures(&self) -> Vec<RankFigures> {
        let valid = self.mapped.iter().filter(|(_, m)| m.page().is_valid());
        valid.map(|(rank, m)| figures(*rank, m.page())).collect()
    }

    /// Removes the folder.
    pub fn remove(self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn figures(rank: u32, page: &Page) -> RankFigures {
    let state = page.state();
    let levels = |words: &[AtomicU64; LEVELS]| std::array::from_fn(|i| words[i].load(Relaxed));
    // A rank may write any bits; what is not a number would not survive JSON.
    let seconds = |word: &AtomicU64| Some(load_f64(word)).filter(|s| s.is_finite()).unwrap_or_default();
    RankFigures {
        rank,
        state: page.state.load(Relaxed),
        exit_code: page.exit_code.load(Relaxed),
        step: page.step.load(Relaxed),
        end_step: page.end_step.load(Relaxed),
        start_step: page.start_step.load(Relaxed),
        checkpoint_step: Some(page.checkpoint_step.load(Relaxed)).filter(|step| *step != u64::MAX),
        particles: page.particles.load(Relaxed),
        ghosts: page.ghosts.load(Relaxed),
        start_ghosts_received: levels(&page.start_ghosts_received),
        ghosts_received: levels(&page.ghosts_received),
        bytes_received: levels(&page.bytes_received),
        messages_received: levels(&page.messages_received),
        bytes_sent: levels(&page.bytes_sent),
        contacts: page.contacts.load(Relaxed),
        rebuilds: page.rebuilds.load(Relaxed),
        migrated: page.migrated.load(Relaxed),
        rebalances: page.rebalances.load(Relaxed),
        calc_seconds: seconds(&page.calc_seconds),
        calc_wall_seconds: seconds(&page.calc_wall_seconds),
        comm_seconds: seconds(&page.comm_seconds),
        wait1_seconds: seconds(&page.wait1_seconds),
        wait2_seconds: seconds(&page.wait2_seconds),
        wall_seconds: seconds(&page.wall_seconds),
        message: if state == Some(State::Failed) { page.message() } else { String::new() },
    }
}
