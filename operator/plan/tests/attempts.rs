//! The attempt state machine: named situations, and a make-believe cluster that is explored at random.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use dem_crds::{
    CleanPodPolicy, Cost, DemJob, DemJobSpec, DemJobStatus, PlanStatus, PlannedNode, Progress, State,
    conditions, reasons,
};
use dem_plan::assess::{Action, Decision, Input, assess};
use dem_plan::names;
use dem_plan::observed::{
    Conclusion, Fault, FaultKind, LauncherPhase, LauncherReport, Node, Observed, Outcome, Pod, PodPhase,
};
use dem_plan::render::{Settings, shape_hash};
use dem_plan::status::{Change, change, condition, terminal};
use dem_plan::validate::{ClaimFacts, References, ValidatedJob, validate};

fn job() -> DemJob {
    serde_yaml::from_str(
        "
apiVersion: granular.dev/v1alpha1
kind: DemJob
metadata: {name: bed, namespace: lab, uid: job-uid, generation: 1}
spec:
  ranks: 4
  ranksPerNode: {max: 2}
  program: {command: [mpi-program]}
  checkpoint: {volume: {persistentVolumeClaim: {claimName: kept}}}
",
    )
    .unwrap()
}

/// A make-believe cluster that does what the decisions say.
struct World {
    job: DemJob,
    settings: Settings,
    observed: Observed,
    made: u32,
    /// Attempts that were given to a launcher.
    pushed: Vec<i32>,
}

impl World {
    fn new() -> World {
        let mut observed = Observed { now: 1_000_000, ..Observed::default() };
        for node in ["n0", "n1", "n2", "n3"] {
            observed.nodes.insert(node.to_owned(), Node { ready: true });
        }
        World { job: job(), settings: Settings::default(), observed, made: 0, pushed: Vec::new() }
    }

    fn valid(&self) -> ValidatedJob {
        let facts = ClaimFacts { access_modes: vec!["ReadWriteMany".to_owned()], deleting: false };
        let references = References { claims: [("kept".to_owned(), facts)].into(), ..References::default() };
        validate(&self.job, &references, &self.settings).unwrap()
    }

    fn status(&self) -> DemJobStatus {
        self.job.status.clone().unwrap_or_default()
    }

    fn decide(&self) -> Decision {
        let valid = self.valid();
        let planner = |_: &ValidatedJob, avoid: &[String]| {
            let free: Vec<PlannedNode> = self
                .observed
                .nodes
                .iter()
                .filter(|(name, node)| node.ready && !avoid.contains(name))
                .take(2)
                .map(|(name, _)| PlannedNode { name: name.clone(), ranks: 2 })
                .collect();
            if free.len() < 2 {
                return Err("4 ranks need 2 nodes".to_owned());
            }
            Ok(PlanStatus { node_count: 2, nodes: free, ..PlanStatus::default() })
        };
        assess(&Input {
            job: &self.job,
            validated: Ok(&valid),
            observed: &self.observed,
            settings: &self.settings,
            planner: &planner,
        })
    }

    fn pod(&mut self, node: &str, shape: String) -> Pod {
        self.made += 1;
        Pod {
            uid: format!("uid-{}", self.made),
            node: Some(node.to_owned()),
            ip: Some("10.0.0.1".to_owned()),
            phase: PodPhase::Running,
            deleting: false,
            reason: None,
            created: self.observed.now,
            terminated: false,
            out_of_memory: false,
            waiting: None,
            outcome: None,
            shape,
        }
    }

    fn apply(&mut self, action: &Action) {
        match action {
            Action::CreateWorker(place) => {
                let shape = shape_hash(&self.valid(), &self.settings, place.ranks);
                let pod = self.pod(&place.node, shape);
                self.observed.workers.entry(place.pod.clone()).or_insert(pod);
            }
            Action::CreateLauncher { attempt } => {
                // The scheduler binds to nodes that are ready.
                let ready = |name: &&str| self.observed.nodes.get(*name).is_some_and(|node| node.ready);
                let node = ["n3", "n2", "n1", "n0"].into_iter().find(ready).unwrap_or("n3");
                let pod = self.pod(node, String::new());
                self.observed.launchers.entry(names::launcher("bed", *attempt)).or_insert(pod);
            }
            Action::PushAttempt { attempt } => {
                if let Some(pod) = self.observed.launchers.get(&names::launcher("bed", *attempt)) {
                    self.observed.launcher = Some(report(&pod.uid, LauncherPhase::Running));
                    self.pushed.push(*attempt);
                    // With the attempt the launcher is given its first lease.
                    self.observed.last_renewed = Some(self.observed.now);
                }
            }
            Action::RenewLauncher { .. } => self.observed.last_renewed = Some(self.observed.now),
            Action::StopLauncher { .. } => self.end(Conclusion::Stopped),
            Action::DeletePod { name, uid } => {
                self.observed.workers.retain(|key, pod| key != name || pod.uid != *uid);
                self.observed.launchers.retain(|key, pod| key != name || pod.uid != *uid);
            }
            Action::DeleteJob => {}
        }
    }

    /// One pass of the operator: publish, then act.
    fn pass(&mut self) -> Decision {
        let decision = self.decide();
        self.job.status = Some(decision.status.clone());
        decision.actions.iter().for_each(|action| self.apply(action));
        decision
    }

    fn passes(&mut self, count: usize) {
        for _ in 0..count {
            self.observed.now += 1;
            self.pass();
        }
    }

    /// The launcher ends, and its pod with it; the agents of all workers confirm it.
    fn end(&mut self, conclusion: Conclusion) {
        let ended = self.status().workers.iter().map(|worker| worker.pod.clone()).collect();
        self.end_with(conclusion, ended);
    }

    fn end_with(&mut self, conclusion: Conclusion, ended: Vec<String>) {
        let outcome = Outcome {
            conclusion,
            last_step: Some(120),
            start_step: Some(0),
            checkpoint_step: Some(100),
            ended,
        };
        if let Some(report) = &mut self.observed.launcher {
            report.phase = LauncherPhase::Ended;
            report.outcome = Some(outcome.clone());
        }
        let name = names::launcher("bed", self.status().attempt.unwrap_or(0));
        if let Some(pod) = self.observed.launchers.get_mut(&name) {
            pod.phase = PodPhase::Succeeded;
            pod.terminated = true;
            pod.outcome = Some(outcome);
        }
    }

    fn running() -> World {
        World::running_job(job())
    }

    fn running_job(job: DemJob) -> World {
        let mut world = World { job, ..World::new() };
        world.passes(8);
        assert_eq!(world.status().state, Some(State::Running), "{:#?}", world.status());
        world
    }
}

fn report(uid: &str, phase: LauncherPhase) -> LauncherReport {
    LauncherReport {
        uid: uid.to_owned(),
        phase,
        start_step: Some(0),
        progress: None,
        imbalance: None,
        unreachable: Vec::new(),
        ended: Vec::new(),
        binding: None,
        outcome: None,
    }
}

fn exit(kind: FaultKind, reason: &str) -> Conclusion {
    Conclusion::Failed(Fault {
        kind,
        reason: reason.to_owned(),
        message: "rank 3 ended with exit code 1".to_owned(),
        rank: Some(3),
        pods: Vec::new(),
        nodes: Vec::new(),
        exit_code: Some(1),
        signal: None,
        last_lines: vec!["cannot allocate".to_owned()],
    })
}

#[test]
fn a_job_runs_to_its_end_and_then_nothing_is_written() {
    let mut world = World::running();
    assert_eq!(world.pushed, [1]);
    world.end(Conclusion::Succeeded);
    world.passes(4);
    let status = world.status();
    assert_eq!(status.state, Some(State::Succeeded));
    assert!(world.observed.workers.is_empty(), "workers that still run are deleted");
    assert_eq!(world.observed.launchers.len(), 1, "the launcher that has ended stays for its log");
    let again = world.decide();
    assert_eq!(change(&status, &again.status), Change::None);
    assert!(again.actions.is_empty() && again.events.is_empty());
}

#[test]
fn a_decision_is_published_before_it_is_acted_on() {
    let world = World::new();
    let decision = world.decide();
    assert_eq!(decision.status.attempt, Some(1));
    assert!(decision.actions.is_empty());
    assert_eq!(decision.requeue, Some(0));
    assert_eq!(decision, world.decide(), "the same observation leads to the same decision");
}

#[test]
fn a_program_failure_ends_the_job_and_names_the_culprit() {
    let mut world = World::running();
    world.end(exit(FaultKind::Program, reasons::PROGRAM_EXIT));
    world.passes(3);
    let status = world.status();
    assert_eq!(status.state, Some(State::Failed));
    assert_eq!((status.program_failures, status.infrastructure_losses), (1, 0));
    let failure = status.failure.unwrap();
    assert_eq!((failure.rank, failure.exit_code), (Some(3), Some(1)));
    assert_eq!(failure.last_lines, ["cannot allocate"]);
    assert_eq!(status.attempts[0].lost_steps, Some(20));
}

#[test]
fn a_worker_that_was_slow_to_answer_is_not_blamed_for_a_program_that_failed_at_once() {
    let mut world = World::running();
    // The last report before the launcher's pod ended is from before all workers were reached.
    world.observed.launcher.as_mut().unwrap().unreachable = vec![world.status().workers[0].pod.clone()];
    world.end(exit(FaultKind::Program, reasons::PROGRAM_EXIT));
    world.passes(3);
    let status = world.status();
    assert_eq!(status.reason.as_deref(), Some(reasons::PROGRAM_EXIT));
    assert_eq!((status.program_failures, status.infrastructure_losses), (1, 0));
}

#[test]
fn a_checkpoint_without_a_volume_to_keep_it_is_none() {
    let mut world = World::running();
    let at_step = |world: &mut World| {
        let progress = Progress { step: 120, last_checkpoint_step: Some(100), ..Progress::default() };
        world.observed.launcher.as_mut().unwrap().progress = Some(progress);
        world.observed.now += 60;
        world.pass();
        let status = world.status();
        let holds =
            condition(&status, conditions::CHECKPOINTED).map(|c| (c.status.clone(), c.reason.clone()));
        (status.progress.unwrap().last_checkpoint_step, holds.unwrap())
    };
    assert_eq!(at_step(&mut world), (Some(100), ("True".to_owned(), reasons::READY.to_owned())));

    let mut world =
        World::running_job(DemJob { spec: DemJobSpec { checkpoint: None, ..job().spec }, ..job() });
    assert_eq!(at_step(&mut world), (None, ("False".to_owned(), reasons::NO_VOLUME.to_owned())));
    world.observed.workers.clear();
    world.end(exit(FaultKind::Program, reasons::PROGRAM_EXIT));
    world.passes(3);
    let attempt = &world.status().attempts[0];
    assert_eq!((attempt.checkpoint_step, attempt.lost_steps), (None, Some(120)));
}

#[test]
fn an_exit_within_the_lease_of_a_lost_worker_is_the_workers_loss() {
    let mut world = World::running();
    world.end_with(exit(FaultKind::Program, reasons::PROGRAM_EXIT), Vec::new());
    world.passes(5);
    assert!(!terminal(&world.status()), "whose fault it was is not known yet");
    world.observed.nodes.get_mut("n1").unwrap().ready = false;
    world.passes(2);
    let status = world.status();
    assert_eq!((status.program_failures, status.infrastructure_losses), (0, 1));
    assert_eq!(status.failure.unwrap().reason, reasons::NODE_LOST);
}

#[test]
fn an_exit_that_no_lost_worker_explains_counts_after_the_lease() {
    let mut world = World::running();
    world.end_with(exit(FaultKind::Program, reasons::PROGRAM_EXIT), Vec::new());
    world.passes(20);
    assert_eq!(world.status().program_failures, 1);
    assert_eq!(world.status().state, Some(State::Failed));
}

#[test]
fn after_a_lost_node_the_job_goes_on_elsewhere_and_keeps_the_healthy_worker() {
    let mut world = World::running();
    let kept = world.status().workers[0].clone();
    world.observed.nodes.get_mut("n1").unwrap().ready = false;
    world.pass();
    world.end_with(exit(FaultKind::Infrastructure, reasons::WORKER_LOST), vec![kept.pod.clone()]);
    world.passes(4);
    assert_eq!(world.status().attempt, Some(1), "the lost worker's lease is waited for");
    assert_eq!(condition(&world.status(), conditions::PLANNED).unwrap().reason, reasons::WAITING_FOR_LEASE);
    world.passes(20);
    let status = world.status();
    assert_eq!(status.attempt, Some(2));
    assert_eq!(status.state, Some(State::Running), "{status:#?}");
    assert_eq!((status.workers[0].pod.as_str(), status.workers[1].node.as_str()), (kept.pod.as_str(), "n2"));
    assert_eq!(status.attempts[0].cost, Some(Cost::InfrastructureLoss));
    assert_eq!(world.pushed, [1, 2]);
}

#[test]
fn a_node_that_fell_silent_is_used_again_only_when_it_can_be_seen_whether_it_lives() {
    let mut world = World::running();
    for node in ["n2", "n3"] {
        world.observed.nodes.get_mut(node).unwrap().ready = false;
    }
    let workers = world.status().workers.clone();
    let Conclusion::Failed(fault) = exit(FaultKind::Infrastructure, reasons::WORKER_LOST) else {
        unreachable!()
    };
    let fault = Fault { nodes: vec![workers[1].node.clone()], pods: vec![workers[1].pod.clone()], ..fault };
    world.end_with(Conclusion::Failed(fault), vec![workers[0].pod.clone()]);
    world.passes(50);
    assert_eq!(world.status().attempt, Some(1), "its node may be on the way down");
    let planned = condition(&world.status(), conditions::PLANNED).cloned().unwrap();
    assert!(planned.message.contains("n1"), "{}", planned.message);
    world.passes(30);
    assert_eq!(world.status().attempt, Some(2), "it is still ready, so it lives");
    assert_eq!(world.status().workers[1].node, "n1");
}

#[test]
fn a_cut_off_launcher_is_waited_for_until_its_own_lease_has_ended() {
    let mut world = World::running();
    for node in ["n1", "n3"] {
        world.observed.nodes.get_mut(node).unwrap().ready = false;
    }
    world.observed.nodes.insert("n4".to_owned(), Node { ready: true });
    world.observed.launcher = None;
    world.passes(500);
    assert_eq!(world.pushed, [1], "the old launcher may still renew its workers");
    world.passes(200);
    assert_eq!(world.pushed, [1, 2]);
}

#[test]
fn a_simulation_does_not_wait_for_a_cut_off_launcher_while_a_worker_of_it_can_be_told() {
    let cut_off = |nodes: &[&str]| {
        let mut job = job();
        job.spec.program = None;
        let simulation: serde_json::Value = serde_yaml::from_str(
            "
inline:
  domain: {min: [0, 0, 0], max: [1, 1, 1]}
  materials: [{name: glass, density: 2500, youngsModulus: 1.0e+7, poissonRatio: 0.2}]
  pairs: [{materials: [glass, glass], restitution: 0.5, friction: 0.4}]
  particles: [{lattice: {counts: [4, 4, 4], spacing: 0.01, radius: 0.004, material: glass}}]
  time: {end: {steps: 100}}
",
        )
        .unwrap();
        job.spec.simulation = serde_json::from_value(simulation).unwrap();
        let mut world = World::running_job(job);
        for node in nodes {
            world.observed.nodes.get_mut(*node).unwrap().ready = false;
        }
        for node in ["n4", "n5"] {
            world.observed.nodes.insert(node.to_owned(), Node { ready: true });
        }
        world.observed.launcher = None;
        world.passes(60);
        world.pushed
    };
    assert_eq!(cut_off(&["n1", "n3"]), [1, 2]);
    // Without any of its workers an attempt might come to its end unseen.
    assert_eq!(cut_off(&["n0", "n1", "n3"]), [1]);
}

#[test]
fn a_suspended_job_has_no_pod_and_uses_no_budget() {
    let mut world = World::running();
    world.job.spec.suspend = true;
    world.passes(6);
    let status = world.status();
    assert_eq!(status.state, Some(State::Suspended));
    assert!(world.observed.workers.is_empty() && world.observed.launchers.is_empty());
    assert_eq!((status.program_failures, status.infrastructure_losses), (0, 0));
    world.passes(50);
    assert_eq!(change(&status, &world.status()), Change::None);
    world.job.spec.suspend = false;
    world.passes(10);
    assert_eq!(world.status().state, Some(State::Running));
    assert!(world.status().suspended_seconds >= 50);
}

#[test]
fn the_active_deadline_does_not_count_suspended_time() {
    let mut world = World::running();
    world.job.spec.active_deadline_seconds = Some(100);
    world.job.spec.suspend = true;
    world.passes(300);
    world.job.spec.suspend = false;
    world.passes(50);
    assert_eq!(world.status().state, Some(State::Running));
    world.passes(60);
    assert_eq!(world.status().reason.as_deref(), Some(reasons::ACTIVE_DEADLINE));
    assert_eq!(world.status().state, Some(State::Failed));
}

#[test]
fn a_configuration_error_uses_no_budget() {
    let mut world = World::running();
    world.job.spec.failure_policy.max_program_failures = 5;
    world.end(exit(FaultKind::Configuration, reasons::COMMAND_ERROR));
    world.passes(3);
    assert_eq!(world.status().state, Some(State::Failed));
    assert_eq!((world.status().program_failures, world.status().infrastructure_losses), (0, 0));
}

#[test]
fn a_job_of_another_controller_is_left_alone() {
    let mut world = World::new();
    world.job.spec.managed_by = Some("kueue.x-k8s.io/multikueue".to_owned());
    let decision = world.decide();
    assert_eq!(decision.status, DemJobStatus::default());
    assert!(decision.actions.is_empty() && decision.events.is_empty() && decision.requeue.is_none());
}

#[test]
fn a_job_that_fits_nowhere_waits_without_pods_and_says_why() {
    let mut world = World::new();
    world.observed.nodes.retain(|name, _| name == "n0");
    world.passes(5);
    let status = world.status();
    assert_eq!((status.state, status.attempt), (Some(State::Waiting), None));
    assert_eq!(condition(&status, conditions::PLANNED).unwrap().message, "4 ranks need 2 nodes");
    assert!(world.observed.workers.is_empty());
}

#[test]
fn clean_up_follows_the_policy() {
    for (policy, workers, launchers) in
        [(CleanPodPolicy::None, 2, 1), (CleanPodPolicy::Running, 0, 1), (CleanPodPolicy::All, 0, 0)]
    {
        let mut world = World::running();
        world.job.spec.clean_pod_policy = policy;
        world.end(Conclusion::Succeeded);
        world.passes(3);
        let left = (world.observed.workers.len(), world.observed.launchers.len());
        assert_eq!(left, (workers, launchers), "{policy:?}");
    }
}

/// Small random numbers that are the same on every machine (Steele, Lea and Flood 2014, SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

#[test]
fn whatever_happens_the_invariants_hold_and_the_job_ends() {
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..1_000 {
        let mut random = Random(seed);
        let mut world = World::new();
        world.job.spec.failure_policy.max_program_failures = 2;
        let mut end: Option<DemJobStatus> = None;
        let mut after_end = 0;
        for step in 0..4_000 {
            world.observed.now += 1 + random.below(4) as i64;
            if step < 300 {
                disturb(&mut world, &mut random);
            } else {
                // Everything is repaired, and the program ends well.
                world.job.spec.suspend = false;
                world.observed.nodes.values_mut().for_each(|node| node.ready = true);
                if world.observed.launcher.as_ref().is_some_and(|r| r.phase == LauncherPhase::Running) {
                    world.end(Conclusion::Succeeded);
                }
            }
            let before = world.status();
            let decision = world.decide();
            check(&world, &before, &decision, seed);
            // The operator may die before it publishes, or between two actions.
            if random.below(12) != 0 {
                world.job.status = Some(decision.status.clone());
                for action in &decision.actions {
                    if random.below(10) != 0 {
                        world.apply(action);
                    }
                }
            }
            if let Some(end) = &end {
                assert_eq!(world.status().conditions, end.conditions, "seed {seed}: the end is final");
                after_end += 1;
                if after_end > 100 {
                    break;
                }
            } else if terminal(&world.status()) {
                end = Some(world.status());
            }
        }
        let end = end.unwrap_or_else(|| panic!("seed {seed} does not end: {:#?}", world.status()));
        *seen.entry(end.reason.unwrap_or_default()).or_insert(0) += 1;
    }
    println!("ends: {seen:?}");
    assert!(seen.len() >= 4, "the exploration is too narrow: {seen:?}");
}

fn disturb(world: &mut World, random: &mut Random) {
    let pick = |random: &mut Random, names: Vec<String>| {
        let n = names.len() as u64;
        if n == 0 { None } else { names.into_iter().nth(random.below(n) as usize) }
    };
    let workers = world.observed.workers.keys().cloned().collect();
    let runs = world.observed.launcher.as_ref().is_some_and(|r| r.phase == LauncherPhase::Running);
    match random.below(60) {
        0 => {
            if let Some(name) = pick(random, workers) {
                world.observed.workers.remove(&name);
            }
        }
        1 => {
            if let Some(pod) = pick(random, workers).and_then(|name| world.observed.workers.get_mut(&name)) {
                pod.phase = PodPhase::Failed;
                pod.terminated = true;
                pod.out_of_memory = random.below(4) == 0;
            }
        }
        2 => {
            let nodes = world.observed.nodes.keys().cloned().collect();
            if let Some(node) = pick(random, nodes).and_then(|name| world.observed.nodes.get_mut(&name)) {
                node.ready = false;
            }
        }
        3..=5 => world.observed.nodes.values_mut().for_each(|node| node.ready = true),
        6 => world.job.spec.suspend = true,
        7..=9 => world.job.spec.suspend = false,
        10 if runs => world.end(exit(FaultKind::Program, reasons::PROGRAM_EXIT)),
        11 if runs => world.end_with(exit(FaultKind::Program, reasons::PROGRAM_SIGNAL), Vec::new()),
        12 if runs => world.end(exit(FaultKind::Infrastructure, reasons::WORKER_LOST)),
        13 if runs => world.end(Conclusion::Stopped),
        14 => {
            world.observed.launchers.clear();
            world.observed.launcher = None;
        }
        15 => world.observed.launcher = None,
        16 => world.observed.last_renewed = None,
        _ => {}
    }
}

fn check(world: &World, before: &DemJobStatus, decision: &Decision, seed: u64) {
    let after = &decision.status;
    let counters = |s: &DemJobStatus| (s.program_failures, s.infrastructure_losses);
    let ((p0, i0), (p1, i1)) = (counters(before), counters(after));
    assert!(
        p1 >= p0 && i1 >= i0 && (p1 - p0) + (i1 - i0) <= 1,
        "seed {seed}: one cause uses one budget once"
    );
    let creates = |action: &Action| {
        matches!(action, Action::CreateWorker(_) | Action::CreateLauncher { .. } | Action::PushAttempt { .. })
    };
    if terminal(before) {
        assert!(!decision.actions.iter().any(creates), "seed {seed}: a job that has ended makes nothing");
    }
    if after.state == Some(State::Suspended) {
        assert!(!decision.actions.iter().any(creates), "seed {seed}: a suspended job makes nothing");
        let held = world.observed.workers.len() + world.observed.launchers.len();
        assert_eq!(held, 0, "seed {seed}: a suspended job has no pod");
    }
    // Only the attempt on record, which has not ended, is given to a launcher or renewed.
    for action in &decision.actions {
        if let Action::PushAttempt { attempt } | Action::RenewLauncher { attempt } = action {
            let last = before.attempts.last().expect("an attempt is on record");
            assert_eq!((last.number, &last.ended_at), (*attempt, &None), "seed {seed}");
            assert!(last.launched_at.is_some(), "seed {seed}: the launch is on record first");
        }
    }
    // A new attempt begins only when no process of the last one can hold a lease.
    if after.attempt > before.attempt
        && let Some(last) = before.attempts.last().filter(|last| last.launched_at.is_some())
    {
        let ended = last.ended_at.as_ref().expect("the last attempt has ended").0.as_second();
        for worker in &after.workers {
            assert!(
                !before.workers.iter().any(|old| old.pod == worker.pod && old.uid != worker.uid),
                "seed {seed}"
            );
        }
        let lost = before.workers.iter().any(|old| {
            let there = world.observed.workers.get(&old.pod).filter(|pod| old.uid.as_ref() == Some(&pod.uid));
            !old.ended && there.is_none()
        });
        if lost {
            assert!(
                world.observed.now > ended + world.settings.worker_lease,
                "seed {seed}: the lease was waited for"
            );
        }
    }
}
