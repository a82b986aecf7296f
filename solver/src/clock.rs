//! The clocks of a rank.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

fn read(clock: ClockId) -> Duration {
    // The three clocks exist on every Linux that runs Rust programs, so the call cannot fail.
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

/// Time since the machine booted, suspended time included [ns]: the clock of leases, which must also run while a
/// machine sleeps.
pub fn boottime_ns() -> u64 {
    u64::try_from(read(ClockId::CLOCK_BOOTTIME).as_nanos()).unwrap_or(u64::MAX)
}
