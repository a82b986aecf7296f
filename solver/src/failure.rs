//! Why a run ends early, and the exit code that says so.

use dem_comm::CommError;
pub use dem_page::exit;
use thiserror::Error;

/// Why a run ends early.
#[derive(Debug, Error)]
pub enum Failure {
    /// Wrong input: message with field or file, what was found, what would be right.
    #[error("{0}")]
    Input(String),
    /// A checkpoint or particle file cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// A guard stopped the run.
    #[error("{0}")]
    Guard(String),
    /// Messages between ranks failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The rank's lease ended.
    #[error("rank {rank}: the lease of attempt {attempt} ended before step {step} was committed")]
    Fenced {
        /// This rank.
        rank: u32,
        /// Attempt that the lease was for.
        attempt: u64,
        /// Step reached.
        step: u64,
    },
}

impl Failure {
    /// The exit code that stands for this failure.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Input(_) => exit::INPUT,
            Self::Unreadable(_) => exit::UNREADABLE,
            Self::Guard(_) | Self::Comm(CommError::Strayed { .. }) => exit::GUARD,
            Self::Comm(CommError::Aborted(code)) => *code,
            Self::Comm(_) | Self::Write { .. } => exit::INTERNAL,
            Self::Fenced { .. } => exit::FENCED,
        }
    }

    /// A failed write of `path`.
    pub fn write(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Write { path: path.display().to_string(), source }
    }
}
