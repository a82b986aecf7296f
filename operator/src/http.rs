//! `/metrics`, `/livez` and `/readyz`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// What has to hold before this process is ready, and why it does not yet.
#[derive(Debug, Default)]
pub struct Readiness {
    waiting: Mutex<BTreeMap<&'static str, String>>,
}

impl Readiness {
    /// Closes `gate` with a reason for people.
    pub fn wait(&self, gate: &'static str, reason: impl Into<String>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(gate, reason.into());
    }

    /// Opens `gate`.
    pub fn pass(&self, gate: &'static str) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(gate);
    }

    /// One line per closed gate; empty when ready.
    pub fn reasons(&self) -> Vec<String> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().map(|(gate, reason)| format!("{gate}: {reason}")).collect()
    }
}

#[derive(Clone)]
struct Shared {
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
}

/// Serves until `stop`.
///
/// # Errors
/// When `address` cannot be bound.
pub async fn serve(
    address: SocketAddr,
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, router(metrics, readiness)).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn router(metrics: Arc<Metrics>, readiness: Arc<Readiness>) -> Router {
    Router::new()
        .route("/metrics", get(figures))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(Shared { metrics, readiness })
}

async fn figures(State(shared): State<Shared>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], shared.metrics.text())
}

async fn ready(State(shared): State<Shared>) -> (StatusCode, String) {
    let reasons = shared.readiness.reasons();
    if reasons.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_says_what_it_waits_for_until_every_gate_is_open() {
        let readiness = Readiness::default();
        readiness.wait("caches", "pods are not listed yet");
        readiness.wait("api", "no answer");
        readiness.pass("api");
        assert_eq!(readiness.reasons(), ["caches: pods are not listed yet"]);
        readiness.pass("caches");
        assert!(readiness.reasons().is_empty());
    }
}
