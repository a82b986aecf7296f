//! Files that appear whole or not at all, and only while the rank's lease holds.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::Ordering;

use dem_page::Page;

use crate::clock::boottime_ns;
use crate::failure::Failure;

/// Whether the lease in `page` still holds.
pub fn lease_holds(page: &Page) -> bool {
    boottime_ns() < page.lease_end_ns.load(Ordering::Relaxed)
}

fn fenced(page: &Page) -> Failure {
    Failure::Fenced {
        rank: page.rank.load(Ordering::Relaxed) as u32,
        attempt: page.attempt.load(Ordering::Relaxed),
        step: page.step.load(Ordering::Relaxed),
    }
}

/// Fails when the lease in `page` has ended.
///
/// # Errors
/// [`Failure::Fenced`].
pub fn check_lease(page: &Page) -> Result<(), Failure> {
    if lease_holds(page) { Ok(()) } else { Err(fenced(page)) }
}

/// Writes `path` by way of a temporary name beside it: contents, sync, lease check, rename, sync of the folder. After a
/// crash at any point readers find the old file, the new one, or none.
///
/// # Errors
/// System errors, and [`Failure::Fenced`] when the lease ended meanwhile (the file is then not published).
pub fn commit(
    page: &Page,
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let failed = |source| Failure::write(path, source);
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    let temporary = folder.join(name);
    let mut file = BufWriter::new(File::create(&temporary).map_err(failed)?);
    write(&mut file).map_err(failed)?;
    let file = file.into_inner().map_err(|e| failed(e.into_error()))?;
    file.sync_all().map_err(failed)?;
    if !lease_holds(page) {
        let _ = std::fs::remove_file(&temporary);
        return Err(fenced(page));
    }
    std::fs::rename(&temporary, path).map_err(failed)?;
    File::open(folder).and_then(|f| f.sync_all()).map_err(failed)
}

/// [`commit`] of bytes that are at hand.
///
/// # Errors
/// Those of [`commit`].
pub fn commit_bytes(page: &Page, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    commit(page, path, |file| file.write_all(bytes))
}
