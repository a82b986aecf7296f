//! What became of a job's pods, as the plain data that `dem-plan` decides on.

use dem_crds::{Imbalance, Progress, reasons};
use dem_launch::protocol::{self as wire, LauncherState};
use dem_plan::names;
use dem_plan::observed::{
    Conclusion, Fault, FaultKind, LauncherPhase, LauncherReport, Node, Outcome, Pod, PodPhase,
};
use dem_plan::status::step_label;
use k8s_openapi::api::core::v1 as core;

/// Reasons of a waiting container that mean only that it is not there yet.
const ORDINARY_WAITS: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// A pod, as far as decisions need it.
pub fn pod(pod: &core::Pod) -> Option<Pod> {
    let metadata = &pod.metadata;
    let status = pod.status.clone().unwrap_or_default();
    let containers: Vec<&core::ContainerStatus> = status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten())
        .collect();
    let ended = |c: &core::ContainerStatus| {
        [&c.state, &c.last_state]
            .into_iter()
            .flatten()
            .filter_map(|s| s.terminated.clone())
            .collect::<Vec<_>>()
    };
    let waiting = containers
        .iter()
        .filter_map(|c| c.state.as_ref()?.waiting.clone())
        .filter_map(|w| Some((w.reason?, w.message.unwrap_or_default())))
        .find(|(reason, _)| !ORDINARY_WAITS.contains(&reason.as_str()));
    let annotation = |key: &str| metadata.annotations.as_ref().and_then(|a| a.get(key)).cloned();
    Some(Pod {
        uid: metadata.uid.clone()?,
        node: pod.spec.as_ref().and_then(|s| s.node_name.clone()).filter(|n| !n.is_empty()),
        ip: status.pod_ip.clone().filter(|ip| !ip.is_empty()),
        phase: match status.phase.as_deref() {
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some("Unknown") => PodPhase::Unknown,
            _ => PodPhase::Pending,
        },
        deleting: metadata.deletion_timestamp.is_some(),
        reason: status.reason.clone().filter(|r| !r.is_empty()),
        created: metadata.creation_timestamp.as_ref().map_or(0, |t| t.0.as_second()),
        terminated: is_terminated(&status),
        out_of_memory: containers
            .iter()
            .any(|c| ended(c).iter().any(|t| t.reason.as_deref() == Some("OOMKilled"))),
        waiting,
        outcome: status
            .container_statuses
            .iter()
            .flatten()
            .filter_map(|c| c.state.as_ref()?.terminated.as_ref()?.message.clone())
            .find_map(|text| serde_json::from_str::<wire::Outcome>(&text).ok())
            .map(|o| outcome(&o)),
        shape: annotation(names::SHAPE_ANNOTATION).unwrap_or_default(),
    })
}

/// Whether the pod's kubelet has said that nothing of it runs any more. That a controller gave the pod up
/// (its node is gone) says nothing about its processes.
fn is_terminated(status: &core::PodStatus) -> bool {
    if !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return false;
    }
    match status.container_statuses.as_deref() {
        // Refused by the kubelet: no container ever ran.
        None | Some([]) => !status
            .conditions
            .iter()
            .flatten()
            .any(|c| c.type_ == "DisruptionTarget" && c.reason.as_deref() == Some("DeletionByPodGC")),
        Some(containers) => {
            containers.iter().all(|c| c.state.as_ref().is_some_and(|s| s.terminated.is_some()))
        }
    }
}

/// A node, as far as decisions need it.
pub fn node(node: &core::Node) -> Node {
    let conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    Node { ready: conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True") }
}

/// A launcher's answer, as far as decisions need it.
pub fn report(pod_uid: &str, state: &LauncherState) -> LauncherReport {
    let reached = |w: &&wire::WorkerState| !w.reachable && !w.ended;
    LauncherReport {
        uid: pod_uid.to_owned(),
        phase: match state.phase {
            wire::Phase::Waiting => LauncherPhase::Waiting,
            wire::Phase::Reaching => LauncherPhase::Reaching,
            wire::Phase::Running => LauncherPhase::Running,
            wire::Phase::Stopping => LauncherPhase::Stopping,
            wire::Phase::Ended => LauncherPhase::Ended,
        },
        start_step: state.progress.as_ref().map(|p| number(p.start_step)),
        progress: state.progress.as_ref().map(progress),
        imbalance: state.progress.as_ref().map(imbalance),
        unreachable: state.workers.iter().filter(reached).map(|w| w.pod.clone()).collect(),
        ended: state.workers.iter().filter(|w| w.ended).map(|w| w.pod.clone()).collect(),
        // The launch protocol does not report the binding of ranks yet.
        binding: None,
        outcome: state.outcome.as_ref().map(outcome),
    }
}

/// A launcher's last word, as far as decisions need it.
pub fn outcome(outcome: &wire::Outcome) -> Outcome {
    let progress = outcome.progress.as_ref();
    Outcome {
        conclusion: match (outcome.conclusion, &outcome.failure) {
            (wire::Conclusion::Succeeded, _) => Conclusion::Succeeded,
            (wire::Conclusion::Stopped, _) => Conclusion::Stopped,
            (wire::Conclusion::Failed, Some(failure)) => Conclusion::Failed(fault(failure)),
            (wire::Conclusion::Failed, None) => Conclusion::Failed(Fault {
                kind: FaultKind::Program,
                reason: reasons::PROGRAM_EXIT.to_owned(),
                message: format!("mpirun ended with exit code {}", outcome.exit_code),
                rank: None,
                pods: Vec::new(),
                nodes: Vec::new(),
                exit_code: Some(outcome.exit_code),
                signal: None,
                last_lines: Vec::new(),
            }),
        },
        last_step: progress.map(|p| number(p.step)),
        start_step: progress.map(|p| number(p.start_step)),
        checkpoint_step: progress.and_then(|p| p.last_checkpoint_step).map(number),
        ended: outcome.ended_workers.clone(),
    }
}

fn fault(failure: &wire::Failure) -> Fault {
    use wire::{FailureKind as Kind, FailureReason as Reason};
    let reason = match (failure.reason, failure.kind) {
        (Reason::RankExited, Kind::Configuration) => reasons::CONFIG_ERROR,
        (Reason::RankExited, Kind::Program | Kind::Infrastructure) => reasons::PROGRAM_EXIT,
        (Reason::RankSignalled, _) => reasons::PROGRAM_SIGNAL,
        (Reason::GuardViolated, _) => reasons::GUARD_VIOLATION,
        (Reason::ProgramNotStarted, _) => reasons::COMMAND_ERROR,
        (Reason::LaunchFailed, Kind::Program) => reasons::PROGRAM_EXIT,
        (Reason::LaunchFailed, Kind::Infrastructure) => reasons::WORKER_UNREACHABLE,
        (Reason::LaunchFailed, Kind::Configuration) => reasons::COMMAND_ERROR,
        (Reason::WorkersUnreachable | Reason::WorkerRefused, _) => reasons::WORKER_UNREACHABLE,
        (Reason::WorkerLost, _) => reasons::WORKER_LOST,
        (Reason::LeaseEnded, _) => reasons::LEASE_ENDED,
        (Reason::NoAttempt, _) => reasons::START_DEADLINE,
        (Reason::NotStarted | Reason::NotStopped, _) => reasons::STOPPING,
    };
    Fault {
        kind: match failure.kind {
            Kind::Program => FaultKind::Program,
            Kind::Infrastructure => FaultKind::Infrastructure,
            Kind::Configuration => FaultKind::Configuration,
        },
        reason: reason.to_owned(),
        message: failure.message.clone(),
        rank: failure.rank.and_then(|r| i32::try_from(r).ok()),
        pods: failure.pods.clone(),
        nodes: failure.nodes.clone(),
        exit_code: failure.exit_code,
        signal: failure.signal,
        last_lines: failure.last_lines.clone(),
    }
}

/// Rounded so that a status is not written for digits that nobody reads.
fn progress(p: &wire::Progress) -> Progress {
    let rate = rounded(p.steps_per_second, 3);
    let left = p.seconds_left.filter(|s| s.is_finite() && *s >= 0.0).map(|s| rounded(s, 2).round() as i64);
    Progress {
        step: number(p.step),
        steps: (p.steps > 0).then(|| number(p.steps)),
        label: step_label(number(p.step), (p.steps > 0).then(|| number(p.steps))),
        particles: (p.particles > 0).then(|| number(p.particles)),
        steps_per_second: Some(rate),
        rate: Some(format!("{rate}/s")),
        seconds_left: left,
        time_left: left.map(time_left),
        last_checkpoint_step: p.last_checkpoint_step.map(number),
    }
}

fn imbalance(p: &wire::Progress) -> Imbalance {
    let lambda = (1000.0 * p.lambda).round() / 10.0;
    let share = |s: f64| Some((100.0 * s.clamp(0.0, 1.0)).round() / 100.0);
    Imbalance {
        lambda,
        label: format!("{lambda:.1}%"),
        slowest_rank: i32::try_from(p.slowest_rank).ok(),
        wait_share: share(p.wait_share),
        comm_share: share(p.comm_share),
    }
}

/// Rounds to `digits` significant decimal digits.
fn rounded(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10_f64.powi(digits - 1 - value.abs().log10().floor() as i32);
    // Through text: scaling back would leave digits of rounding error.
    let text = format!("{:.*}", scale.log10().max(0.0).round() as usize, (value * scale).round() / scale);
    text.parse().unwrap_or(value)
}

/// As `kubectl` shows ages: the two largest units.
fn time_left(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Counts of the wire are unsigned, those of the API signed.
fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(value: serde_json::Value) -> Pod {
        let mut whole = json!({"metadata": {"name": "drum-w0-0", "uid": "u1"}});
        whole["status"] = value;
        pod(&serde_json::from_value(whole).unwrap()).unwrap()
    }

    #[test]
    fn a_pod_given_up_by_a_controller_is_not_known_to_have_ended() {
        let lost = seen(json!({
            "phase": "Failed",
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}],
        }));
        assert!(!lost.terminated);
        let running = json!([{"name": "worker", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {}}}]);
        assert!(!seen(json!({"phase": "Failed", "containerStatuses": running})).terminated);
        let refused = seen(json!({"phase": "Failed", "reason": "TopologyAffinityError"}));
        assert!(refused.terminated && refused.reason.as_deref() == Some("TopologyAffinityError"));
    }

    #[test]
    fn an_out_of_memory_kill_and_a_pull_error_are_seen() {
        let killed = seen(json!({"phase": "Failed", "containerStatuses": [{"name": "worker", "image": "i",
            "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}));
        assert!(killed.out_of_memory && killed.terminated);
        let status = |reason: &str| {
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "agent", "image": "i", "imageID": "",
                "ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason, "message": "m"}}}]})
        };
        assert_eq!(seen(status("ErrImagePull")).waiting, Some(("ErrImagePull".into(), "m".into())));
        assert_eq!(seen(status("PodInitializing")).waiting, None);
    }

    #[test]
    fn the_launchers_last_word_is_read_from_its_termination_message() {
        let failure = wire::Failure {
            kind: wire::FailureKind::Program,
            reason: wire::FailureReason::GuardViolated,
            message: "overlap".into(),
            rank: Some(3),
            pods: vec!["drum-w1-0".into()],
            nodes: vec!["b".into()],
            exit_code: Some(66),
            signal: None,
            last_lines: vec!["rank 3: overlap".into()],
        };
        let outcome = wire::Outcome {
            attempt: 2,
            conclusion: wire::Conclusion::Failed,
            exit_code: 66,
            stop_reason: None,
            failure: Some(failure),
            progress: Some(wire::Progress { step: 40, start_step: 10, ..wire::Progress::default() }),
            ended_workers: vec!["drum-w0-0".into()],
        };
        let message = outcome.termination_message();
        let pod = seen(json!({"phase": "Failed", "containerStatuses": [{"name": "launcher", "image": "i",
            "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 66, "message": message}}}]}));
        let outcome = pod.outcome.unwrap();
        assert_eq!((outcome.last_step, outcome.start_step), (Some(40), Some(10)));
        assert_eq!(outcome.ended, ["drum-w0-0"]);
        let Conclusion::Failed(fault) = outcome.conclusion else { panic!("{outcome:?}") };
        assert_eq!((fault.reason.as_str(), fault.rank), (reasons::GUARD_VIOLATION, Some(3)));
    }

    #[test]
    fn figures_are_rounded_for_people() {
        let shown = progress(&wire::Progress {
            step: 420,
            steps: 5000,
            steps_per_second: 123.456,
            seconds_left: Some(37.13),
            ..wire::Progress::default()
        });
        assert_eq!((shown.label.as_str(), shown.rate.as_deref()), ("420/5000", Some("123/s")));
        assert_eq!(shown.time_left.as_deref(), Some("37s"));
        assert_eq!([rounded(0.012_34, 3), rounded(98_765.0, 2), rounded(0.0, 3)], [0.0123, 99_000.0, 0.0]);
        assert_eq!(
            [time_left(59), time_left(185), time_left(7260), time_left(100_000)],
            ["59s", "3m5s", "2h1m", "1d3h"]
        );
        let load =
            imbalance(&wire::Progress { lambda: 0.253_4, wait_share: 0.126, ..wire::Progress::default() });
        assert_eq!((load.lambda, load.label.as_str(), load.wait_share), (25.3, "25.3%", Some(0.13)));
    }
}
