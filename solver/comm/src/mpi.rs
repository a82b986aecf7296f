//! MPI, with every return code checked.
//!
//! rsmpi starts and ends MPI. Its safe calls ignore return codes, so messages go through `mpi::ffi`, on a
//! duplicate of the world communicator whose errors are returned instead of being fatal.
#![expect(unsafe_code, reason = "MPI is a C interface")]

use std::ffi::{CStr, c_int};

use ::mpi::environment::Universe;
use ::mpi::{Threading, ffi};

use crate::communicator::{CommError, Communicator, Kind, Outgoing};

/// Whether this process was started by an MPI launcher (Open MPI, or PMI as with MPICH and Slurm). Without one a
/// run has one rank and needs no MPI, whose start as a singleton takes half a second.
pub fn launched() -> bool {
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"].iter().any(|name| std::env::var_os(name).is_some())
}

/// A rank of an MPI run. MPI ends when it is dropped.
pub struct Mpi {
    comm: ffi::MPI_Comm,
    rank: u32,
    size: u32,
    node_of_rank: Vec<u32>,
    requests: Vec<ffi::MPI_Request>,
    /// Owns MPI: dropping it calls `MPI_Finalize`.
    _universe: Universe,
}

fn check(call: &'static str, rank: u32, code: c_int) -> Result<(), CommError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut length = 0;
    // SAFETY: the buffer has the size that MPI asks for and starts zeroed, so that it ends with a zero byte.
    let message = unsafe {
        ffi::MPI_Error_string(code, text.as_mut_ptr(), &mut length);
        text[text.len() - 1] = 0;
        CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
    };
    Err(CommError::Mpi { call, rank, code, message })
}

impl Mpi {
    /// Starts MPI for a process that calls it from one thread, and finds out which ranks share a node.
    ///
    /// # Errors
    /// When MPI was started before, gives too low a thread level, or a call fails.
    pub fn start() -> Result<Self, CommError> {
        let (universe, threading) = ::mpi::initialize_with_threading(Threading::Funneled)
            .ok_or_else(|| CommError::Start("it was started before".into()))?;
        if threading < Threading::Funneled {
            return Err(CommError::Start(format!("thread level {threading:?}, needed Funneled")));
        }
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI is initialised; every pointer is to a local of the type that the call writes, and counts
        // match the buffers.
        unsafe {
            let mut comm = ffi::RSMPI_COMM_NULL;
            check("MPI_Comm_dup", 0, ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, &mut comm))?;
            check(
                "MPI_Comm_set_errhandler",
                0,
                ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN),
            )?;
            check("MPI_Comm_rank", 0, ffi::MPI_Comm_rank(comm, &mut rank))?;
            let me = rank as u32;
            check("MPI_Comm_size", me, ffi::MPI_Comm_size(comm, &mut size))?;

            let mut node = ffi::RSMPI_COMM_NULL;
            check(
                "MPI_Comm_split_type",
                me,
                ffi::MPI_Comm_split_type(
                    comm,
                    ffi::RSMPI_COMM_TYPE_SHARED,
                    rank,
                    ffi::RSMPI_INFO_NULL,
                    &mut node,
                ),
            )?;
            check(
                "MPI_Comm_set_errhandler",
                me,
                ffi::MPI_Comm_set_errhandler(node, ffi::RSMPI_ERRORS_RETURN),
            )?;
            // The lowest rank of a node names it.
            let mut leader = rank;
            let code = ffi::MPI_Allreduce(
                (&raw const rank).cast(),
                (&raw mut leader).cast(),
                1,
                ffi::RSMPI_INT32_T,
                ffi::RSMPI_MIN,
                node,
            );
            check("MPI_Allreduce", me, code)?;
            check("MPI_Comm_free", me, ffi::MPI_Comm_free(&mut node))?;
            let mut leaders: Vec<c_int> = vec![0; size as usize];
            let code = ffi::MPI_Allgather(
                (&raw const leader).cast(),
                1,
                ffi::RSMPI_INT32_T,
                leaders.as_mut_ptr().cast(),
                1,
                ffi::RSMPI_INT32_T,
                comm,
            );
            check("MPI_Allgather", me, code)?;
            Ok(Self {
                comm,
                rank: me,
                size: size as u32,
                node_of_rank: number_by_first_appearance(&leaders),
                requests: Vec::new(),
                _universe: universe,
            })
        }
    }

    /// Starts all sends; their requests stand in `self.requests` afterwards.
    ///
    /// # Safety
    /// The payloads must live until [`Self::wait`] returned.
    unsafe fn start_sends(&mut self, kind: Kind, sends: &[Outgoing<'_>]) -> Result<(), CommError> {
        for &(to, payload) in sends {
            let count = c_int::try_from(payload.len()).map_err(|_| CommError::TooLarge {
                rank: self.rank,
                to,
                bytes: payload.len(),
            })?;
            // SAFETY: pointer and count describe the payload, which the caller keeps until the wait.
            let (code, request) = unsafe {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let code = ffi::MPI_Isend(
                    payload.as_ptr().cast(),
                    count,
                    ffi::RSMPI_UINT8_T,
                    to as c_int,
                    kind as c_int,
                    self.comm,
                    &mut request,
                );
                (code, request)
            };
            check("MPI_Isend", self.rank, code)?;
            self.requests.push(request);
        }
        Ok(())
    }

    /// Starts one receive into `buffer`.
    ///
    /// # Safety
    /// The buffer must live, and not be touched, until [`Self::wait`] returned.
    unsafe fn start_receive(&mut self, kind: Kind, from: u32, buffer: &mut [u8]) -> Result<(), CommError> {
        let count = c_int::try_from(buffer.len()).map_err(|_| CommError::TooLarge {
            rank: from,
            to: self.rank,
            bytes: buffer.len(),
        })?;
        // SAFETY: pointer and count describe the buffer, which the caller keeps until the wait.
        let (code, request) = unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let code = ffi::MPI_Irecv(
                buffer.as_mut_ptr().cast(),
                count,
                ffi::RSMPI_UINT8_T,
                from as c_int,
                kind as c_int,
                self.comm,
                &mut request,
            );
            (code, request)
        };
        check("MPI_Irecv", self.rank, code)?;
        self.requests.push(request);
        Ok(())
    }

    /// Waits for all started requests, and checks each.
    fn wait(&mut self) -> Result<Vec<ffi::MPI_Status>, CommError> {
        // SAFETY: a status is plain integers; the arrays have the length that is passed.
        unsafe {
            let mut statuses: Vec<ffi::MPI_Status> = vec![std::mem::zeroed(); self.requests.len()];
            let count = self.requests.len() as c_int;
            let code = ffi::MPI_Waitall(count, self.requests.as_mut_ptr(), statuses.as_mut_ptr());
            self.requests.clear();
            if code == ffi::MPI_ERR_IN_STATUS as c_int {
                for status in &statuses {
                    check("MPI_Waitall", self.rank, status.MPI_ERROR)?;
                }
            }
            check("MPI_Waitall", self.rank, code)?;
            Ok(statuses)
        }
    }

    /// Length of the next message of `kind` from `from`, waiting for it.
    fn probe(&self, kind: Kind, from: u32) -> Result<usize, CommError> {
        // SAFETY: the status is plain integers and written by the call.
        unsafe {
            let mut status: ffi::MPI_Status = std::mem::zeroed();
            check(
                "MPI_Probe",
                self.rank,
                ffi::MPI_Probe(from as c_int, kind as c_int, self.comm, &mut status),
            )?;
            count_of(&status, self.rank)
        }
    }
}

fn count_of(status: &ffi::MPI_Status, rank: u32) -> Result<usize, CommError> {
    let mut count = 0;
    // SAFETY: the status comes from a completed receive or probe of bytes.
    let code = unsafe { ffi::MPI_Get_count(status, ffi::RSMPI_UINT8_T, &mut count) };
    check("MPI_Get_count", rank, code)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Node indices 0, 1, ... from the nodes' names, in order of first appearance.
fn number_by_first_appearance(names: &[c_int]) -> Vec<u32> {
    let mut seen: Vec<c_int> = Vec::new();
    names
        .iter()
        .map(|name| {
            let known = seen.iter().position(|s| s == name);
            known.unwrap_or_else(|| {
                seen.push(*name);
                seen.len() - 1
            }) as u32
        })
        .collect()
}

impl Communicator for Mpi {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn node_of_rank(&self) -> &[u32] {
        &self.node_of_rank
    }

    fn exchange(
        &mut self,
        kind: Kind,
        sends: &[Outgoing<'_>],
        receives: &mut [(u32, &mut [u8])],
    ) -> Result<(), CommError> {
        // SAFETY: payloads and buffers are borrowed for the whole call. An error before the wait ends the run by
        // `abort`, so MPI cannot write into a buffer that is gone.
        unsafe {
            for (from, buffer) in receives.iter_mut() {
                self.start_receive(kind, *from, buffer)?;
            }
            self.start_sends(kind, sends)?;
        }
        let statuses = self.wait()?;
        for ((from, buffer), status) in receives.iter().zip(&statuses) {
            let found = count_of(status, self.rank)?;
            if found != buffer.len() {
                let (rank, from, expected) = (self.rank, *from, buffer.len());
                return Err(CommError::Length { rank, from, kind, found, expected });
            }
        }
        Ok(())
    }

    fn exchange_sized(
        &mut self,
        kind: Kind,
        sends: &[Outgoing<'_>],
        sources: &[u32],
    ) -> Result<Vec<Vec<u8>>, CommError> {
        // SAFETY: as in `exchange`; a received buffer's heap block does not move when its `Vec` does.
        unsafe {
            self.start_sends(kind, sends)?;
            let mut received = Vec::with_capacity(sources.len());
            for &from in sources {
                let mut buffer = vec![0; self.probe(kind, from)?];
                self.start_receive(kind, from, &mut buffer)?;
                received.push(buffer);
            }
            self.wait()?;
            Ok(received)
        }
    }

    fn abort(&mut self, code: i32) {
        // SAFETY: the communicator is valid until MPI ends, which happens when `self` is dropped.
        unsafe {
            ffi::MPI_Abort(self.comm, code);
        }
    }
}

/// Ends all ranks of the world with `code`, from wherever a rank cannot go on (a panic hook). Without MPI, or once
/// it has ended, only this process.
pub fn abort_world(code: i32) -> ! {
    let (mut started, mut ended) = (0, 0);
    // SAFETY: both queries may be called at any time; the world communicator is valid between start and end.
    unsafe {
        ffi::MPI_Initialized(&mut started);
        ffi::MPI_Finalized(&mut ended);
        if started != 0 && ended == 0 {
            ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, code);
        }
    }
    std::process::exit(code)
}

/// Name and version of the MPI library that is loaded.
pub fn library_version() -> Option<String> {
    ::mpi::environment::library_version().ok()
}
