//! The clock of leases.

use nix::time::{ClockId, clock_gettime};

/// `CLOCK_BOOTTIME` in nanoseconds: goes on while the machine sleeps, and is the same for all processes of a pod.
pub fn boottime_ns() -> u64 {
    match clock_gettime(ClockId::CLOCK_BOOTTIME) {
        Ok(t) => t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64,
        // The kernel has had this clock since 2.6.39; without it no lease may ever be valid.
        Err(_) => u64::MAX,
    }
}
