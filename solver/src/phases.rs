//! Where a rank's time goes: P0's Calc, Comm, Wait1 and Wait2.

use crate::clock;

/// Totals since the rank's start [s].
#[derive(Clone, Copy, Debug, Default)]
pub struct Phases {
    /// Thread CPU time of computing (Calc), the measure of load.
    pub calc: f64,
    /// Wall time of computing.
    pub calc_wall: f64,
    /// Wall time in communication (Comm). Outside profile mode it contains the waiting for other ranks.
    pub comm: f64,
    /// Wall time in the barrier before communication (Wait1, load imbalance); profile mode only.
    pub wait1: f64,
    /// Wall time in the barrier after communication (Wait2, communication imbalance); profile mode only.
    pub wait2: f64,
}

fn timed<T>(total: &mut f64, work: impl FnOnce() -> T) -> T {
    let start = clock::wall();
    let result = work();
    *total += clock::wall() - start;
    result
}

impl Phases {
    /// Counts `work` as computing.
    pub fn compute<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = clock::thread_cpu();
        let result = timed(&mut self.calc_wall, work);
        self.calc += clock::thread_cpu() - start;
        result
    }

    /// Counts `work` as communication.
    pub fn communicate<T>(&mut self, work: impl FnOnce() -> T) -> T {
        timed(&mut self.comm, work)
    }

    /// Counts `work` as waiting before communication.
    pub fn wait_before<T>(&mut self, work: impl FnOnce() -> T) -> T {
        timed(&mut self.wait1, work)
    }

    /// Counts `work` as waiting after communication.
    pub fn wait_after<T>(&mut self, work: impl FnOnce() -> T) -> T {
        timed(&mut self.wait2, work)
    }
}
