//! When to move the boundaries between ranks.

use bytemuck::{Pod, Zeroable};
use dem_comm::Comm;

use crate::failure::Failure;

/// Looks at the imbalance every so many steps and decides, the same way on every rank, whether to cut anew.
///
/// The load of a rank is its CPU time. Boundaries move when lambda = largest load / mean load - 1 is above the
/// threshold and the time gained until the next look exceeds what the last move took. If a move did not lower lambda
/// by a tenth, as happens when one particle layer is too coarse or the load is noise, the following looks are
/// skipped: one, then three, then seven, at most [`MAX_SKIPPED`]. A threshold of 0 moves at every look.
#[derive(Debug)]
pub struct Balancer {
    every: u64,
    threshold: f64,
    looked_at: f64,
    lambda_before: Option<f64>,
    skip: u64,
    patience: u64,
    /// Nanoseconds that the last move took.
    cost: u64,
}

const MAX_SKIPPED: u64 = 31;
/// Weight of a particle of average cost.
const UNIT: f64 = 1024.0;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Loads {
    sum: u64,
    max: u64,
    particles: u64,
}

impl Balancer {
    /// Looks every `every` steps. `cost` is what the first decomposition took on the slowest rank [ns].
    pub fn new(every: u64, threshold: f64, cost: u64) -> Self {
        Self { every, threshold, looked_at: 0.0, lambda_before: None, skip: 0, patience: 1, cost }
    }

    /// Whether `step` is one to look at.
    pub fn due(&self, step: u64) -> bool {
        step.is_multiple_of(self.every)
    }

    /// Records what a move took on this rank [s]; the slowest rank counts.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn set_cost(&mut self, comm: &mut Comm, seconds: f64) -> Result<(), Failure> {
        self.cost = 0;
        self.add_cost(comm, seconds)
    }

    /// Adds what a move took besides [s].
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn add_cost(&mut self, comm: &mut Comm, seconds: f64) -> Result<(), Failure> {
        let mut slowest = [(seconds * 1e9) as u64];
        comm.max(&mut slowest)?;
        self.cost += slowest[0];
        Ok(())
    }

    /// Decides; `cpu` is the rank's total CPU time of computing [s]. If boundaries should move: the weight of each of
    /// this rank's particles, an integer so that sums over ranks are exact.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn look(&mut self, comm: &mut Comm, cpu: f64, particles: usize) -> Result<Option<u64>, Failure> {
        let load = ((cpu - self.looked_at) * 1e9) as u64;
        self.looked_at = cpu;
        let mut loads = [Loads { sum: load, max: load, particles: particles as u64 }];
        comm.all_reduce(&mut loads, |a, b| Loads {
            sum: a.sum + b.sum,
            max: a.max.max(b.max),
            particles: a.particles + b.particles,
        })?;
        let [all] = loads;
        if !self.decide(&all, comm.size()) {
            return Ok(None);
        }
        let mean = all.sum as f64 / all.particles as f64;
        let own = load as f64 / particles as f64;
        // An empty rank gives a weight that is not a number; it has nothing to weigh.
        Ok(Some((UNIT * own / mean).clamp(1.0, 64.0 * UNIT) as u64))
    }

    fn decide(&mut self, all: &Loads, ranks: u32) -> bool {
        let mean = all.sum as f64 / f64::from(ranks);
        if mean == 0.0 || all.particles == 0 {
            return false;
        }
        let lambda = all.max as f64 / mean - 1.0;
        if self.threshold == 0.0 {
            return true;
        }
        if let Some(before) = self.lambda_before.take() {
            if lambda > 0.9 * before {
                self.skip = self.patience;
                self.patience = (2 * self.patience + 1).min(MAX_SKIPPED);
            } else {
                self.patience = 1;
            }
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let gain = all.max as f64 - mean;
        let pays = lambda > self.threshold && gain > self.cost as f64;
        if pays {
            self.lambda_before = Some(lambda);
        }
        pays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(max: u64) -> Loads {
        // Four ranks with a mean load of 1 s.
        Loads { sum: 4_000_000_000, max, particles: 1000 }
    }

    #[test]
    fn boundaries_move_only_above_the_threshold_and_when_it_pays() {
        let mut balancer = Balancer::new(100, 0.1, 500_000_000);
        assert!(!balancer.decide(&loads(1_050_000_000), 4), "5 % is below the threshold");
        assert!(!balancer.decide(&loads(1_300_000_000), 4), "0.3 s gained do not pay 0.5 s");
        assert!(balancer.decide(&loads(1_600_000_000), 4));
    }

    #[test]
    fn moves_that_do_not_help_become_rarer() {
        let mut balancer = Balancer::new(100, 0.1, 0);
        let moves: Vec<usize> = (0..40).filter(|_| balancer.decide(&loads(1_500_000_000), 4)).collect();
        assert_eq!(moves, [0, 2, 6, 14, 30]);
        let mut balancer = Balancer::new(100, 0.1, 0);
        assert!(balancer.decide(&loads(2_000_000_000), 4));
        assert!(balancer.decide(&loads(1_500_000_000), 4), "the last move helped");
    }

    #[test]
    fn a_threshold_of_zero_moves_at_every_look() {
        let mut balancer = Balancer::new(100, 0.0, u64::MAX);
        assert!((0..10).all(|_| balancer.decide(&loads(1_000_000_000), 4)));
    }
}
