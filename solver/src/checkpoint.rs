//! Checkpoints: independent of the rank count, complete or absent, checked on every read.
//!
//! Layout: `<checkpoints>/attempt-<n>/step-<k>/{chunk-<r>.bin, manifest.json}`. The ranks write their chunks in
//! parallel; once all are on disk, rank 0 writes the manifest, which names every chunk with its size and BLAKE3
//! hash. Without a manifest there is no checkpoint, so file systems and object stores need nothing but the atomic
//! appearance of one file. A chunk is a header and blocks of records, each with a CRC-32, so damage is also located.
//!
//! Which particles are in which chunk does not matter: any number of ranks can read them.

use std::io::Write;
use std::path::{Path, PathBuf};

use bytemuck::{Pod, Zeroable};
use dem_comm::Comm;
use dem_core::StateRecord;
use dem_decomp::{GhostGraph, Tree};
use dem_page::Page;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::failure::Failure;
use crate::files;

/// Version of manifest and chunks.
pub const VERSION: u32 = 1;
const FORMAT: &str = "dem-checkpoint";
const MANIFEST: &str = "manifest.json";
const MAGIC: [u8; 8] = *b"DEMCHNK\x01";
/// Records in a block with its own CRC-32.
const BLOCK: usize = 4096;
/// Bytes of a record.
const RECORD_BYTES: usize = size_of::<StateRecord>();

/// First bytes of a chunk, little-endian.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ChunkHeader {
    magic: [u8; 8],
    version: u32,
    record_bytes: u32,
    step: u64,
    particles: u64,
    simulation: [u8; 32],
}

/// Before each block: CRC-32 of its records, and their number.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct BlockHeader {
    crc32: u32,
    records: u32,
}

/// A chunk as the manifest names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chunk {
    /// File name beside the manifest.
    pub file: String,
    /// Size of the file.
    pub bytes: u64,
    /// BLAKE3 of the file, hexadecimal.
    pub blake3: String,
    /// Records in it.
    pub particles: u64,
}

/// Particles counted on a regular grid: what a planner needs to cut the region without reading the chunks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Histogram {
    /// Lower corner of the grid [m].
    pub min: [f64; 3],
    /// Upper corner of the grid [m].
    pub max: [f64; 3],
    /// Cells along x, y and z.
    pub cells: [u32; 3],
    /// Particles of each cell, x fastest; those outside count in the nearest cell.
    pub particles: Vec<u64>,
}

impl Histogram {
    /// Cells along each axis.
    pub const CELLS: u32 = 16;

    /// Counts `points` over the grid from `min` to `max`.
    pub fn count(min: [f64; 3], max: [f64; 3], points: &[[f64; 3]]) -> Self {
        let n = Self::CELLS as usize;
        let mut particles = vec![0; n * n * n];
        for point in points {
            let cell = |axis: usize| {
                let fraction = (point[axis] - min[axis]) / (max[axis] - min[axis]);
                // The cast saturates: outside, and not a number, end in an edge cell.
                ((fraction * f64::from(Self::CELLS)) as usize).min(n - 1)
            };
            particles[(cell(2) * n + cell(1)) * n + cell(0)] += 1;
        }
        Self { min, max, cells: [Self::CELLS; 3], particles }
    }
}

/// What a checkpoint says of the run, besides the particles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// "dem-checkpoint".
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// Attempt that wrote it.
    pub attempt: u64,
    /// Steps done.
    pub step: u64,
    /// Time step [s].
    pub dt: f64,
    /// Force quantum [N].
    pub force_quantum: f64,
    /// Torque quantum [N m].
    pub torque_quantum: f64,
    /// BLAKE3 of the fixed part of the simulation file, hexadecimal.
    pub simulation: String,
    /// Number of particles.
    pub particles: u64,
    /// Hash of the particles' state, hexadecimal: the one of the run's summary.
    pub state_hash: String,
    /// Ranks that wrote it.
    pub ranks: u32,
    /// Their boxes.
    pub tree: Tree,
    /// Subdomain of each rank.
    pub subdomain_of_rank: Vec<u32>,
    /// What they exchanged per step.
    pub ghost_graph: GhostGraph,
    /// Where the particles are.
    pub histogram: Histogram,
    /// The chunks.
    pub chunks: Vec<Chunk>,
}

/// Why a checkpoint cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Damage {
    /// No manifest: the write never finished.
    #[error("{0}: incomplete, it has no manifest.json")]
    Incomplete(String),
    /// A file cannot be read.
    #[error("{path}: cannot be read: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's error.
        error: String,
    },
    /// The manifest is not what this version writes.
    #[error("{path}: {error}")]
    Manifest {
        /// The file.
        path: String,
        /// What is wrong.
        error: String,
    },
    /// Written by another version.
    #[error("{path}: version {found}, this program reads version {VERSION}")]
    Version {
        /// The file.
        path: String,
        /// Version found.
        found: u32,
    },
    /// It belongs to another simulation.
    #[error(
        "{path}: belongs to another simulation (fixed part {found}, this one's is {expected}): domain, gravity, \
         materials, pairs, contact, particles, walls and time step must not change once a run has started"
    )]
    Foreign {
        /// The file.
        path: String,
        /// Hash found.
        found: String,
        /// Hash of this simulation.
        expected: String,
    },
    /// A file has another size than the manifest says.
    #[error("{path}: {found} bytes, the manifest says {expected}")]
    Size {
        /// The file.
        path: String,
        /// Bytes found.
        found: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// A file's contents are not those that were written.
    #[error("{path}: damaged{place}")]
    Contents {
        /// The file.
        path: String,
        /// Where, as far as the blocks' checksums tell.
        place: String,
    },
    /// Found by another rank.
    #[error("{0}: another rank found it damaged")]
    Elsewhere(String),
}

fn attempt_folder(root: &Path, attempt: u64) -> PathBuf {
    root.join(format!("attempt-{attempt}"))
}

/// Folder of the checkpoint that `attempt` writes at `step`.
pub fn folder(root: &Path, attempt: u64, step: u64) -> PathBuf {
    attempt_folder(root, attempt).join(format!("step-{step}"))
}

fn numbered(folder: &Path, prefix: &str) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect()
}

/// Checkpoint folders below `root` of attempts up to `attempt`, complete or not, the newest step first; of the same
/// step the latest attempt's first.
pub fn candidates(root: &Path, attempt: u64) -> Vec<PathBuf> {
    let attempts = numbered(root, "attempt-").into_iter().filter(|(n, _)| *n <= attempt);
    let mut found: Vec<(u64, u64, PathBuf)> = attempts
        .flat_map(|(n, path)| numbered(&path, "step-").into_iter().map(move |(step, path)| (step, n, path)))
        .collect();
    found.sort_by_key(|(step, n, _)| std::cmp::Reverse((*step, *n)));
    found.into_iter().map(|(_, _, path)| path).collect()
}

/// Checkpoint folders that a run may begin from, the best first: `folder` itself if it is a checkpoint; those of
/// `folder` if it is a run's; otherwise, in a folder of runs, those of the run that completed one last.
pub fn candidates_below(folder: &Path) -> Vec<PathBuf> {
    if folder.join(MANIFEST).exists() {
        return vec![folder.to_path_buf()];
    }
    let own = candidates(folder, u64::MAX);
    if !own.is_empty() {
        return own;
    }
    let written = |path: &PathBuf| path.join(MANIFEST).metadata().and_then(|m| m.modified()).ok();
    let runs = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let runs = runs.map(|run| candidates(&run.path(), u64::MAX));
    runs.max_by_key(|steps| steps.iter().filter_map(written).max()).unwrap_or_default()
}

/// Reads the manifest of the checkpoint in `folder`.
///
/// # Errors
/// When there is none, it is damaged, of another version or of another simulation than `simulation` (a hash).
pub fn read_manifest(folder: &Path, simulation: &str) -> Result<Manifest, Damage> {
    let file = folder.join(MANIFEST);
    let path = file.display().to_string();
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(Damage::Incomplete(folder.display().to_string()));
        }
        Err(e) => return Err(Damage::Unreadable { path, error: e.to_string() }),
    };
    #[derive(Deserialize)]
    struct Kind {
        format: String,
        version: u32,
    }
    let wrong = |e: serde_json::Error| Damage::Manifest { path: path.clone(), error: e.to_string() };
    let kind: Kind = serde_json::from_str(&text).map_err(wrong)?;
    if kind.format != FORMAT {
        let error = format!("format {:?}, expected {FORMAT:?}", kind.format);
        return Err(Damage::Manifest { path, error });
    }
    if kind.version != VERSION {
        return Err(Damage::Version { path, found: kind.version });
    }
    let manifest: Manifest = serde_json::from_str(&text).map_err(wrong)?;
    if manifest.simulation != simulation {
        return Err(Damage::Foreign { path, found: manifest.simulation, expected: simulation.into() });
    }
    let counted: u64 = manifest.chunks.iter().map(|c| c.particles).sum();
    if counted != manifest.particles {
        let error = format!("chunks hold {counted} particles, particles says {}", manifest.particles);
        return Err(Damage::Manifest { path, error });
    }
    if let Some(chunk) = manifest.chunks.iter().find(|c| c.file.contains(['/', '\\']) || c.file == "..") {
        return Err(Damage::Manifest {
            path,
            error: format!("chunk {:?} is outside the folder", chunk.file),
        });
    }
    Ok(manifest)
}

/// Reads and checks one chunk of the checkpoint in `folder`.
///
/// # Errors
/// When it is not, byte for byte, the file that the manifest names.
pub fn read_chunk(folder: &Path, manifest: &Manifest, chunk: &Chunk) -> Result<Vec<StateRecord>, Damage> {
    let file = folder.join(&chunk.file);
    let path = file.display().to_string();
    let bytes =
        std::fs::read(&file).map_err(|e| Damage::Unreadable { path: path.clone(), error: e.to_string() })?;
    if bytes.len() as u64 != chunk.bytes {
        return Err(Damage::Size { path, found: bytes.len() as u64, expected: chunk.bytes });
    }
    let records = decode(&bytes, manifest).map_err(|place| Damage::Contents { path: path.clone(), place })?;
    if blake3::hash(&bytes).to_hex().as_str() != chunk.blake3 || records.len() as u64 != chunk.particles {
        return Err(Damage::Contents { path, place: ": not the file that the manifest names".into() });
    }
    Ok(records)
}

fn decode(bytes: &[u8], manifest: &Manifest) -> Result<Vec<StateRecord>, String> {
    let split = |bytes: &[u8], n: usize| bytes.split_at_checked(n).is_some();
    if !split(bytes, size_of::<ChunkHeader>()) {
        return Err(" in its header".into());
    }
    let (head, mut rest) = bytes.split_at(size_of::<ChunkHeader>());
    let header: ChunkHeader = bytemuck::pod_read_unaligned(head);
    if header.magic != MAGIC
        || header.version != VERSION
        || header.record_bytes as usize != RECORD_BYTES
        || header.step != manifest.step
        || blake3::Hash::from_bytes(header.simulation).to_hex().as_str() != manifest.simulation
    {
        return Err(" in its header".into());
    }
    let mut records = Vec::new();
    let mut block = 0;
    while !rest.is_empty() {
        let damaged = || format!(" in block {block} of {BLOCK} records");
        if !split(rest, size_of::<BlockHeader>()) {
            return Err(damaged());
        }
        let (head, body) = rest.split_at(size_of::<BlockHeader>());
        let header: BlockHeader = bytemuck::pod_read_unaligned(head);
        let length = header.records as usize * RECORD_BYTES;
        if header.records as usize > BLOCK || !split(body, length) {
            return Err(damaged());
        }
        let (body, next) = body.split_at(length);
        if crc32fast::hash(body) != header.crc32 {
            return Err(damaged());
        }
        records.extend(body.chunks_exact(RECORD_BYTES).map(bytemuck::pod_read_unaligned::<StateRecord>));
        rest = next;
        block += 1;
    }
    if records.len() as u64 != header.particles {
        return Err(" at its end".into());
    }
    Ok(records)
}

fn encode(records: &[StateRecord], step: u64, simulation: &blake3::Hash) -> Vec<u8> {
    let header = ChunkHeader {
        magic: MAGIC,
        version: VERSION,
        record_bytes: RECORD_BYTES as u32,
        step,
        particles: records.len() as u64,
        simulation: *simulation.as_bytes(),
    };
    let blocks = records.len().div_ceil(BLOCK);
    let mut bytes = Vec::with_capacity(
        size_of::<ChunkHeader>() + blocks * size_of::<BlockHeader>() + size_of_val(records),
    );
    bytes.extend_from_slice(bytemuck::bytes_of(&header));
    for block in records.chunks(BLOCK) {
        let body: &[u8] = bytemuck::cast_slice(block);
        let header = BlockHeader { crc32: crc32fast::hash(body), records: block.len() as u32 };
        bytes.extend_from_slice(bytemuck::bytes_of(&header));
        bytes.extend_from_slice(body);
    }
    bytes
}

impl Manifest {
    /// Format and version of this program.
    pub fn format() -> (String, u32) {
        (FORMAT.into(), VERSION)
    }
}

/// Writes a checkpoint: all ranks call it with their `records`; rank 0's `about` is written, with the
/// chunks filled in.
///
/// # Errors
/// Failed writes, messages, and an ended lease; the checkpoint is then absent.
pub fn write(
    root: &Path,
    page: &Page,
    comm: &mut Comm,
    about: Manifest,
    simulation: &blake3::Hash,
    records: &[StateRecord],
) -> Result<(), Failure> {
    let folder = folder(root, about.attempt, about.step);
    let manifest = folder.join(MANIFEST);
    if comm.rank() == 0 && manifest.exists() {
        // The same attempt number was used before, as happens without an operator: what it wrote here must not look
        // complete while its chunks are replaced.
        std::fs::remove_file(&manifest).map_err(|e| Failure::write(&manifest, e))?;
    }
    comm.barrier()?;
    let bytes = encode(records, about.step, simulation);
    let file = format!("chunk-{}.bin", comm.rank());
    files::commit_bytes(page, &folder.join(&file), &bytes)?;
    let chunk = Chunk {
        file,
        bytes: bytes.len() as u64,
        blake3: blake3::hash(&bytes).to_hex().to_string(),
        particles: records.len() as u64,
    };
    let text = serde_json::to_vec(&chunk).map_err(|e| Failure::write(&manifest, e.into()))?;
    // Every rank's chunk is on disk once its entry has come.
    if let Some(parts) = comm.gather(text)? {
        let chunks: Result<Vec<Chunk>, _> = parts.iter().map(|part| serde_json::from_slice(part)).collect();
        let about = Manifest { chunks: chunks.map_err(|e| Failure::write(&manifest, e.into()))?, ..about };
        files::commit(page, &manifest, |file| {
            serde_json::to_writer(&mut *file, &about)?;
            file.write_all(b"\n")
        })?;
    }
    comm.barrier()?;
    Ok(())
}

/// Deletes all but the `keep` newest complete checkpoints of `attempt`, and its incomplete ones. Other attempts'
/// files are not touched. Failures are logged: too many checkpoints are no reason to stop.
pub fn retain(root: &Path, attempt: u64, keep: usize) {
    let mut steps = numbered(&attempt_folder(root, attempt), "step-");
    steps.sort_by_key(|(step, _)| std::cmp::Reverse(*step));
    let mut complete = 0;
    for (_, path) in steps {
        let manifest = path.join(MANIFEST);
        if manifest.exists() {
            complete += 1;
            if complete <= keep {
                continue;
            }
        }
        // The manifest goes first: a checkpoint that is half deleted must not look complete.
        let deleted = match std::fs::remove_file(&manifest) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => std::fs::remove_dir_all(&path),
        };
        if let Err(error) = deleted {
            tracing::warn!(path = %path.display(), %error, "an old checkpoint could not be deleted");
        }
    }
}
