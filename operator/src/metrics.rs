//! Every metric of the operator.
//!
//! Labels are closed sets, except `demjob` and `demjob_namespace` of a job's own figures, which go when the job
//! does. `job` and `namespace` are left to the scraper.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Encoder, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

const JOB: [&str; 2] = ["demjob", "demjob_namespace"];

/// Reads one value of a run.
type RunValue = fn(&RunFigures) -> Option<f64>;

/// Figures of one job, taken from the status that was published for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFigures {
    /// One word for `demoperator_jobs`: the state column of `kubectl get demjob`.
    pub state: String,
    /// Current attempt; 0 before the first.
    pub attempt: i64,
    /// Conditions: type and whether it is true.
    pub conditions: Vec<(String, bool)>,
    /// Figures of the run, while it runs.
    pub run: Option<RunFigures>,
}

/// Figures of a run; absent ones have no series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunFigures {
    /// Last completed step.
    pub step: f64,
    /// Step at which the run ends.
    pub steps: Option<f64>,
    /// Particles.
    pub particles: Option<f64>,
    /// Steps per second.
    pub steps_per_second: Option<f64>,
    /// Expected time left, seconds.
    pub seconds_left: Option<f64>,
    /// Load imbalance L_max/L_mean − 1.
    pub imbalance: Option<f64>,
}

/// The registry and its families.
pub struct Metrics {
    registry: Registry,
    reconcile_seconds: HistogramVec,
    reconciles: IntCounterVec,
    in_flight: IntGauge,
    attempts: IntCounterVec,
    status_writes: IntCounterVec,
    plan_seconds: Histogram,
    leader: IntGauge,
    jobs: IntGaugeVec,
    job_attempt: IntGaugeVec,
    job_condition: IntGaugeVec,
    job_run: [(GaugeVec, RunValue); 6],
    known: Mutex<BTreeMap<(String, String), JobFigures>>,
}

impl Metrics {
    /// Registers every family.
    ///
    /// # Errors
    /// When two families have the same name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let family = |name: &str, help: &str, value: RunValue| -> Result<_, prometheus::Error> {
            Ok((register(&registry, GaugeVec::new(Opts::new(name, help), &JOB)?)?, value))
        };
        let job_run = [
            family("demoperator_job_step", "Last completed step.", |r| Some(r.step))?,
            family("demoperator_job_end_step", "Step at which the run ends.", |r| r.steps)?,
            family("demoperator_job_particles", "Particles of the run.", |r| r.particles)?,
            family("demoperator_job_steps_per_second", "Steps per second.", |r| r.steps_per_second)?,
            family("demoperator_job_seconds_left", "Expected time left [s].", |r| r.seconds_left)?,
            family("demoperator_job_imbalance_ratio", "Load imbalance, L_max/L_mean - 1.", |r| r.imbalance)?,
        ];
        let buckets = || vec![0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
        let histogram = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets()), labels)?)
        };
        let counter = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
        };
        Ok(Self {
            reconcile_seconds: histogram(
                "demoperator_reconcile_duration_seconds",
                "Duration of a reconcile [s].",
                &["outcome"],
            )?,
            reconciles: counter("demoperator_reconciles_total", "Reconciles by outcome.", &["outcome"])?,
            in_flight: register(
                &registry,
                IntGauge::new("demoperator_reconciles_in_flight", "Reconciles running now.")?,
            )?,
            attempts: counter(
                "demoperator_attempts_total",
                "Attempts begun and ended, by event.",
                &["event"],
            )?,
            status_writes: counter(
                "demoperator_status_writes_total",
                "Writes of a job's status.",
                &["what"],
            )?,
            plan_seconds: register(
                &registry,
                Histogram::with_opts(
                    HistogramOpts::new("demoperator_plan_duration_seconds", "Duration of planning [s].")
                        .buckets(buckets()),
                )?,
            )?,
            leader: register(&registry, IntGauge::new("demoperator_leader", "1 while this replica leads.")?)?,
            jobs: gauge("demoperator_jobs", "Jobs by state.", &["state"])?,
            job_attempt: gauge("demoperator_job_attempt", "Current attempt.", &JOB)?,
            job_condition: gauge(
                "demoperator_job_condition",
                "1 while the condition is true, 0 while it is false.",
                &["demjob", "demjob_namespace", "condition"],
            )?,
            job_run,
            known: Mutex::default(),
            registry,
        })
    }

    /// The text that Prometheus scrapes.
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "encode the metrics");
        }
        String::from_utf8(text).unwrap_or_default()
    }

    /// Whether this replica leads.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// A reconcile began.
    pub fn reconcile_begins(&self) {
        self.in_flight.inc();
    }

    /// A reconcile ended with `outcome`: `ok`, or an error's reason.
    pub fn reconcile_ends(&self, outcome: &'static str, duration: Duration) {
        self.in_flight.dec();
        self.reconciles.with_label_values(&[outcome]).inc();
        self.reconcile_seconds.with_label_values(&[outcome]).observe(duration.as_secs_f64());
    }

    /// A plan was made.
    pub fn planned(&self, duration: Duration) {
        self.plan_seconds.observe(duration.as_secs_f64());
    }

    /// An attempt `begun`, or ended as `succeeded`, `failed` or `lost`.
    pub fn attempt(&self, event: &'static str) {
        self.attempts.with_label_values(&[event]).inc();
    }

    /// A status was written because of a `transition` or for `progress`.
    pub fn status_written(&self, what: &'static str) {
        self.status_writes.with_label_values(&[what]).inc();
    }

    /// Replaces the figures of one job; series that no longer apply go.
    pub fn set_job(&self, namespace: &str, name: &str, figures: JobFigures) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        if known.get(&key) == Some(&figures) {
            return;
        }
        let old = known.insert(key, figures.clone());
        self.count_states(&known);
        drop(known);
        let labels = [name, namespace];
        self.job_attempt.with_label_values(&labels).set(figures.attempt);
        for (condition, _) in old.iter().flat_map(|o| &o.conditions) {
            if !figures.conditions.iter().any(|(c, _)| c == condition) {
                let _ = self.job_condition.remove_label_values(&[name, namespace, condition]);
            }
        }
        for (condition, holds) in &figures.conditions {
            self.job_condition.with_label_values(&[name, namespace, condition]).set((*holds).into());
        }
        for (family, value) in &self.job_run {
            match figures.run.as_ref().and_then(value) {
                Some(value) => family.with_label_values(&labels).set(value),
                None => {
                    let _ = family.remove_label_values(&labels);
                }
            }
        }
    }

    /// Removes every series of a deleted job.
    pub fn forget_job(&self, namespace: &str, name: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(old) = known.remove(&(namespace.to_owned(), name.to_owned())) else { return };
        self.count_states(&known);
        drop(known);
        let labels = [name, namespace];
        let _ = self.job_attempt.remove_label_values(&labels);
        for (condition, _) in &old.conditions {
            let _ = self.job_condition.remove_label_values(&[name, namespace, condition]);
        }
        for (family, _) in &self.job_run {
            let _ = family.remove_label_values(&labels);
        }
    }

    fn count_states(&self, known: &BTreeMap<(String, String), JobFigures>) {
        let mut counts = BTreeMap::<&str, i64>::new();
        for figures in known.values() {
            *counts.entry(&figures.state).or_default() += 1;
        }
        self.jobs.reset();
        for (state, count) in counts {
            self.jobs.with_label_values(&[state]).set(count);
        }
    }
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, family: C) -> Result<C, prometheus::Error> {
    registry.register(Box::new(family.clone()))?;
    Ok(family)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> JobFigures {
        JobFigures {
            state: "Running".into(),
            attempt: 2,
            conditions: vec![("Running".into(), true), ("Failed".into(), false)],
            run: Some(RunFigures { step: 40.0, imbalance: Some(0.25), ..RunFigures::default() }),
        }
    }

    #[test]
    fn run_figures_go_when_the_run_ends_and_the_rest_when_the_job_goes() {
        let metrics = Metrics::new().unwrap();
        metrics.set_job("sand", "drum", running());
        let text = metrics.text();
        assert!(text.contains(r#"demoperator_job_step{demjob="drum",demjob_namespace="sand"} 40"#), "{text}");
        assert!(
            text.contains(r#"demoperator_job_imbalance_ratio{demjob="drum",demjob_namespace="sand"} 0.25"#)
        );
        assert!(text.contains(r#"demoperator_jobs{state="Running"} 1"#));

        let failed = vec![("Failed".to_owned(), true)];
        metrics.set_job(
            "sand",
            "drum",
            JobFigures { state: "Failed".into(), conditions: failed, ..running() }.ended(),
        );
        let text = metrics.text();
        assert!(
            !text.contains("demoperator_job_step{") && !text.contains(r#"condition="Running""#),
            "{text}"
        );
        assert!(text.contains(r#"condition="Failed",demjob="drum",demjob_namespace="sand"} 1"#));
        assert!(!text.contains(r#"state="Running""#));

        metrics.forget_job("sand", "drum");
        assert!(!metrics.text().contains("drum"), "{}", metrics.text());
    }

    impl JobFigures {
        fn ended(self) -> Self {
            Self { run: None, ..self }
        }
    }

    #[test]
    fn the_text_has_one_help_line_per_family_and_no_scraper_labels() {
        let metrics = Metrics::new().unwrap();
        metrics.set_leader(true);
        metrics.reconcile_begins();
        metrics.reconcile_ends("ok", Duration::from_millis(3));
        let text = metrics.text();
        assert!(text.contains("demoperator_leader 1") && text.contains("demoperator_reconciles_in_flight 0"));
        assert!(text.contains(r#"demoperator_reconciles_total{outcome="ok"} 1"#));
        assert!(!text.contains(" job=") && !text.contains("{job="));
    }
}
