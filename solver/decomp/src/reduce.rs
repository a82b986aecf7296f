/// Element-wise reductions over all participants of a decomposition; every participant receives the result.
///
/// The solver implements it on `MPI_Allreduce`. Integer sums and extremes are exact in any order, so a result does
/// not depend on how the particles are distributed.
pub trait Reduce {
    /// Replaces every element by its sum over the participants.
    fn sum(&mut self, values: &mut [u64]);
    /// Replaces every element by its minimum over the participants.
    fn min(&mut self, values: &mut [f64]);
    /// Replaces every element by its maximum over the participants.
    fn max(&mut self, values: &mut [f64]);
}

/// The only participant: reductions leave their argument as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Reduce for Serial {
    fn sum(&mut self, _: &mut [u64]) {}
    fn min(&mut self, _: &mut [f64]) {}
    fn max(&mut self, _: &mut [f64]) {}
}
