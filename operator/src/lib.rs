//! The controller of DemJobs: an I/O shell around `dem-plan`, which decides, and `dem-launch`, which runs.
//!
//! One reconcile is one pass of [`reconcile`]: gather, plan, apply, observe, assess, publish. The shell reads,
//! writes and waits; every decision is a pure function of `dem-plan`.

pub mod apply;
pub mod args;
pub mod cli;
pub mod context;
pub mod error;
pub mod gather;
pub mod http;
pub mod launchers;
pub mod lease;
pub mod metrics;
pub mod observe;
pub mod placement;
pub mod publish;
pub mod rbac;
pub mod reconcile;
pub mod run;
pub mod telemetry;
pub mod tls;
