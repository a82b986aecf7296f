//! The launch of MPI ranks without ssh, DNS or an API token: `dem-agent`, `dem-rsh` and their protocol.

mod cause;
mod children;
pub mod client;
pub mod clock;
mod last_lines;
pub mod launcher;
pub mod metrics;
mod pages;
mod progress;
pub mod protocol;
pub mod rank;
pub mod rsh;
mod server;
pub mod tls;
pub mod worker;

pub use client::{Client, ClientError, WorkerClient};
pub use pages::Pages;
pub use progress::History;
pub use protocol::RankFigures;
pub use tls::{ClientTls, Identity, Role, ServerTls, TlsError};
