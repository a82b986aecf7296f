//! A worker's figures for Prometheus: plain HTTP, read-only, one series per rank and metric.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use prometheus::{CounterVec, GaugeVec, Opts, Registry, TEXT_FORMAT, TextEncoder};
use tokio::net::TcpListener;

use crate::protocol::{RankFigures, WorkerAttempt};

/// Label names of every series; `level` comes on top for traffic.
const LABELS: [&str; 5] = ["demjob", "demjob_namespace", "attempt", "rank", "node"];
/// Values of the label `level`, by index of [`dem_page::LEVEL_NODE`] and [`dem_page::LEVEL_NETWORK`].
const LEVELS: [&str; dem_page::LEVELS] = ["node", "network"];

type Value = fn(&RankFigures) -> f64;
type ByLevel = fn(&RankFigures) -> [u64; dem_page::LEVELS];

const GAUGES: &[(&str, &str, Value)] = &[
    ("demsolver_state", "State of the rank: 0 starting, 1 running, 2 done, 3 failed, 4 stopped.", |r| {
        r.state as f64
    }),
    ("demsolver_step", "Last completed step.", |r| r.step as f64),
    ("demsolver_end_step", "Step at which the run ends.", |r| r.end_step as f64),
    ("demsolver_start_step", "First step of this attempt.", |r| r.start_step as f64),
    ("demsolver_particles", "Particles owned now.", |r| r.particles as f64),
    ("demsolver_ghosts", "Ghosts held now.", |r| r.ghosts as f64),
    ("demsolver_contacts", "Touching pairs and walls in the last step.", |r| r.contacts as f64),
];
const COUNTERS: &[(&str, &str, Value)] = &[
    ("demsolver_steps_total", "Steps completed in this attempt.", |r| {
        r.step.saturating_sub(r.start_step) as f64
    }),
    ("demsolver_rebuilds_total", "Rebuilds of the neighbour list.", |r| r.rebuilds as f64),
    ("demsolver_migrated_particles_total", "Particles that left for another rank.", |r| r.migrated as f64),
    ("demsolver_rebalances_total", "Changes of the decomposition.", |r| r.rebalances as f64),
    ("demsolver_calc_cpu_seconds_total", "Thread CPU time of computing, the measure of load.", |r| {
        r.calc_seconds
    }),
    ("demsolver_calc_seconds_total", "Wall time of computing.", |r| r.calc_wall_seconds),
    ("demsolver_comm_seconds_total", "Wall time in communication.", |r| r.comm_seconds),
    ("demsolver_wait1_seconds_total", "Wall time waiting before communication.", |r| r.wait1_seconds),
    ("demsolver_wait2_seconds_total", "Wall time waiting after communication.", |r| r.wait2_seconds),
    ("demsolver_wall_seconds_total", "Wall time since the first step.", |r| r.wall_seconds),
];
const COUNTERS_BY_LEVEL: &[(&str, &str, ByLevel)] = &[
    ("demsolver_ghosts_received_total", "Ghost records received.", |r| r.ghosts_received),
    ("demsolver_received_bytes_total", "Payload of all solver messages received.", |r| r.bytes_received),
    ("demsolver_sent_bytes_total", "Payload of all solver messages sent.", |r| r.bytes_sent),
    ("demsolver_messages_received_total", "Messages received.", |r| r.messages_received),
];

/// The figures in Prometheus' text format. A registry of its own for each scrape: what has ended leaves no series.
pub fn render(attempt: &WorkerAttempt, ranks: &[RankFigures]) -> String {
    match try_render(attempt, ranks) {
        Ok(text) => text,
        Err(error) => {
            tracing::warn!(%error, "cannot render metrics");
            String::new()
        }
    }
}

fn try_render(attempt: &WorkerAttempt, ranks: &[RankFigures]) -> prometheus::Result<String> {
    let registry = Registry::new();
    let number = attempt.attempt.to_string();
    let names: Vec<String> = ranks.iter().map(|r| r.rank.to_string()).collect();
    let labels = |i: usize| [&*attempt.job, &*attempt.namespace, &*number, &*names[i], &*attempt.node];
    let with_level = |i: usize, level: usize| {
        let [job, namespace, number, rank, node] = labels(i);
        [job, namespace, number, rank, node, LEVELS[level]]
    };
    let level_labels: Vec<&str> = LABELS.into_iter().chain(["level"]).collect();

    for (name, help, value) in GAUGES {
        let gauge = GaugeVec::new(Opts::new(*name, *help), &LABELS)?;
        ranks.iter().enumerate().for_each(|(i, r)| gauge.with_label_values(&labels(i)).set(value(r)));
        registry.register(Box::new(gauge))?;
    }
    let checkpoint = Opts::new("demsolver_checkpoint_step", "Step of the last complete checkpoint.");
    let checkpoint = GaugeVec::new(checkpoint, &LABELS)?;
    for (i, step) in ranks.iter().enumerate().filter_map(|(i, r)| Some((i, r.checkpoint_step?))) {
        checkpoint.with_label_values(&labels(i)).set(step as f64);
    }
    registry.register(Box::new(checkpoint))?;
    let start = Opts::new("demsolver_start_ghosts_received", "Ghost records received in the first exchange.");
    let start = GaugeVec::new(start, &level_labels)?;
    for (i, rank) in ranks.iter().enumerate() {
        for (level, count) in rank.start_ghosts_received.into_iter().enumerate() {
            start.with_label_values(&with_level(i, level)).set(count as f64);
        }
    }
    registry.register(Box::new(start))?;
    for (name, help, value) in COUNTERS {
        let counter = CounterVec::new(Opts::new(*name, *help), &LABELS)?;
        for (i, rank) in ranks.iter().enumerate() {
            // A counter takes no negative addend; a rank's clock could show one.
            counter.with_label_values(&labels(i)).inc_by(value(rank).max(0.0));
        }
        registry.register(Box::new(counter))?;
    }
    for (name, help, value) in COUNTERS_BY_LEVEL {
        let counter = CounterVec::new(Opts::new(*name, *help), &level_labels)?;
        for (i, rank) in ranks.iter().enumerate() {
            for (level, count) in value(rank).into_iter().enumerate() {
                counter.with_label_values(&with_level(i, level)).inc_by(count as f64);
            }
        }
        registry.register(Box::new(counter))?;
    }
    TextEncoder::new().encode_to_string(&registry.gather())
}

/// Serves `/metrics` and `/healthz`.
pub(crate) async fn serve(
    listener: TcpListener,
    figures: impl Fn() -> String + Clone + Send + Sync + 'static,
) {
    let metrics = get(move || async move { ([(CONTENT_TYPE, TEXT_FORMAT)], figures()) });
    let routes = Router::new().route("/metrics", metrics).route("/healthz", get(|| async { "ok\n" }));
    if let Err(error) = axum::serve(listener, routes).await {
        tracing::error!(%error, "metrics are no longer served");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_its_series_and_none_remain_without_ranks() {
        let attempt = WorkerAttempt {
            job: "packing".into(),
            namespace: "science".into(),
            node: "worker-1".into(),
            attempt: 2,
            token: "secret".into(),
            ranks: vec![4, 5],
            files: Default::default(),
            until_ns: 0,
        };
        let rank =
            RankFigures { rank: 5, step: 30, start_step: 10, bytes_received: [7, 9], ..Default::default() };
        let text = render(&attempt, &[RankFigures { rank: 4, ..Default::default() }, rank]);
        let labels = r#"attempt="2",demjob="packing",demjob_namespace="science""#;
        assert!(
            text.contains(&format!("demsolver_steps_total{{{labels},node=\"worker-1\",rank=\"5\"}} 20\n")),
            "{text}"
        );
        let bytes = format!(
            "demsolver_received_bytes_total{{{labels},level=\"network\",node=\"worker-1\",rank=\"5\"}} 9\n"
        );
        assert!(text.contains(&bytes), "{text}");
        assert!(!text.contains("secret") && !text.contains("demsolver_checkpoint_step{"));
        assert_eq!(render(&attempt, &[]), "");
    }
}
