//! The launch of MPI ranks without ssh, DNS or an API token: `dem-agent`, `dem-rsh` and their protocol.

pub mod client;
pub mod clock;
pub mod protocol;
pub mod tls;

pub use client::{Client, ClientError, WorkerClient};
pub use tls::{ClientTls, Identity, Role, ServerTls};
