//! The decomposition's reductions, over the ranks of the run.

use dem_decomp::Reduce;

use crate::comm::Comm;
use crate::communicator::CommError;

/// Lets [`dem_decomp`] reduce over the ranks. Its trait knows no errors, so the first one is kept, later reductions do
/// nothing, and [`Reducer::finish`] reports it; results in between are meaningless, but finite in number.
pub struct Reducer<'a> {
    comm: &'a mut Comm,
    failed: Option<CommError>,
}

impl<'a> Reducer<'a> {
    /// Reduces over the ranks of `comm`.
    pub fn new(comm: &'a mut Comm) -> Self {
        Self { comm, failed: None }
    }

    /// The first error of any reduction.
    ///
    /// # Errors
    /// That one.
    pub fn finish(self) -> Result<(), CommError> {
        self.failed.map_or(Ok(()), Err)
    }

    fn keep(&mut self, reduce: impl FnOnce(&mut Comm) -> Result<(), CommError>) {
        if self.failed.is_none() {
            self.failed = reduce(self.comm).err();
        }
    }
}

impl Reduce for Reducer<'_> {
    fn sum(&mut self, values: &mut [u64]) {
        self.keep(|comm| comm.sum(values));
    }

    fn min(&mut self, values: &mut [f64]) {
        self.keep(|comm| comm.all_reduce(values, f64::min));
    }

    fn max(&mut self, values: &mut [f64]) {
        self.keep(|comm| comm.all_reduce(values, f64::max));
    }
}
