//! The clock of leases.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// `CLOCK_BOOTTIME` [ns]: goes on while the machine sleeps, and is the same for all processes of a pod.
pub fn boottime_ns() -> u64 {
    // Without this clock no lease may ever count as valid.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(u64::MAX, |t| Duration::from(t).as_nanos() as u64)
}
