//! The clocks of a rank.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

fn read(clock: ClockId) -> Duration {
    // Both clocks exist on every Linux that runs Rust programs, so the call cannot fail.
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

/// CPU time that this thread has used [s]: the measure of load, blind to waiting and to neighbours on the core.
pub fn thread_cpu() -> f64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID).as_secs_f64()
}

/// Wall time since an arbitrary start [s].
pub fn wall() -> f64 {
    read(ClockId::CLOCK_MONOTONIC).as_secs_f64()
}

/// The clock of leases [ns]: goes on while the machine sleeps, and is the same for all processes of a pod.
pub fn boottime_ns() -> u64 {
    // Without this clock no lease may ever count as valid.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(u64::MAX, |t| Duration::from(t).as_nanos() as u64)
}
