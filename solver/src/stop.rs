//! SIGTERM asks the ranks to write a checkpoint and to end.
#![expect(unsafe_code, reason = "signal handlers are a C interface")]

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: i32) {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Makes SIGTERM a request instead of the end.
pub fn install() {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler only stores to an atomic, which is safe at any time.
    let installed = unsafe { sigaction(Signal::SIGTERM, &action) };
    if let Err(error) = installed {
        tracing::warn!(%error, "SIGTERM will end the run without a checkpoint");
    }
}

/// Whether SIGTERM came.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
