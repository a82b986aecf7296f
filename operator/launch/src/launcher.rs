//! PID 1 of a launcher pod: runs one attempt and tells how it ended.
//!
//! `Waiting` for the operator's spec, `Reaching` every worker in parallel, `Running` `mpirun`, perhaps `Stopping`, `Ended`.
//! One task per worker keeps its lease from the first contact on; the main task waits for whatever happens first.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::cause::{Evidence, failure, first_cause, on_hosts, ranges};
use crate::children::{Children, code_and_signal, kill_descendants, kill_group};
use crate::client::{ClientError, WorkerClient};
use crate::clock::boottime_ns;
use crate::last_lines::{LastLines, Lines, Stream};
use crate::progress::History;
use crate::protocol::{
    AGENT_PORT, AttemptSpec, Conclusion, Failure, FailureKind, FailureReason, LauncherReply, LauncherRequest,
    LauncherState, Outcome, Phase, Progress, ProtocolError, RankEnd, RankFigures, WorkerAttempt, WorkerHost,
    WorkerReport, WorkerState, receive, send,
};
use crate::rsh::{ATTEMPT_VARIABLE, PORT_VARIABLE, TLS_DIR_VARIABLE, TOKEN_VARIABLE, asynchronous};
use crate::server::{Peer, bind, serve};
use crate::tls::{ClientTls, Identity, Role, ServerTls};
use crate::worker::set_writable_places;
use dem_page::exit;

/// Ports of Open MPI's daemons (OOB), first and last.
pub const OOB_PORTS: (u16, u16) = (7472, 7599);
/// Ports of the ranks' TCP messages (BTL), first and last.
pub const BTL_PORTS: (u16, u16) = (7600, 7999);

/// Longest time between two renewals of a worker's lease, and between two aggregates.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Time that `mpirun` gets to end its daemons after SIGTERM.
const MPIRUN_GRACE: Duration = Duration::from_secs(2);
/// Time that workers get to confirm the end of an attempt that went well.
const CONFIRM: Duration = Duration::from_secs(3);
/// Bounds of the wait between two tries to reach a worker.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Settings of a launcher; the defaults are those of a pod.
#[derive(Clone, Debug, clap::Args)]
pub struct LauncherSettings {
    /// Address of the launcher's TLS port.
    #[arg(long, env = "DEM_AGENT_LISTEN", default_value = "[::]:7471")]
    pub listen: SocketAddr,
    /// TLS port of the workers' agents.
    #[arg(long, env = "DEM_AGENT_PORT", default_value_t = AGENT_PORT)]
    pub agent_port: u16,
    /// Folder of ca.crt, tls.crt and tls.key.
    #[arg(long, env = "DEM_TLS_DIR", default_value = "/dem/tls")]
    pub tls_dir: PathBuf,
    /// Folder for the hostfile.
    #[arg(long, env = "DEM_RUN_ROOT", default_value = "/dem/run")]
    pub run_root: PathBuf,
    /// Folder for temporary files of MPI.
    #[arg(long, env = "DEM_TMP_DIR", default_value = "/tmp")]
    pub tmp_dir: PathBuf,
    /// dem-agent's path in the workers.
    #[arg(long, env = "DEM_AGENT_PROGRAM", default_value = "/dem/bin/dem-agent")]
    pub agent_program: PathBuf,
    /// dem-rsh's path here.
    #[arg(long, env = "DEM_RSH_PROGRAM", default_value = "/dem/bin/dem-rsh")]
    pub rsh_program: PathBuf,
    /// Open MPI's mpirun.
    #[arg(long, env = "DEM_MPIRUN", default_value = "mpirun")]
    pub mpirun: PathBuf,
    /// File that the outcome is written to.
    #[arg(long, env = "DEM_TERMINATION_LOG", default_value = "/dev/termination-log")]
    pub termination_log: PathBuf,
    /// Seconds to wait for the operator to push an attempt.
    #[arg(long, env = "DEM_ATTEMPT_DEADLINE_SECONDS", default_value_t = 900)]
    pub attempt_deadline_seconds: u64,
    /// Seconds that ranks get to write a checkpoint and end, once asked; below the pod's grace period.
    #[arg(long, env = "DEM_GRACE_SECONDS", default_value_t = 25)]
    pub grace_seconds: u64,
}

/// What the task of one worker knows.
#[derive(Default)]
struct Link {
    report: Option<WorkerReport>,
    error: Option<String>,
    /// The worker answered and refused the attempt from the start.
    refused: bool,
    /// Was reached once, and then no more for a lease, or its lease had ended.
    lost: bool,
}

struct State {
    phase: Phase,
    spec: Option<Arc<AttemptSpec>>,
    lease_end_ns: u64,
    stop_reason: Option<String>,
    links: Vec<Link>,
    history: History,
    progress: Option<Progress>,
    outcome: Option<Outcome>,
}

struct Launcher {
    settings: LauncherSettings,
    tls: ClientTls,
    state: Mutex<State>,
    /// Bumped at every change that somebody may wait for.
    changed: watch::Sender<u64>,
}

/// What the operator or the pod's end asked workers' tasks to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Keep,
    Stop,
    /// Take the last figures, then end the attempt; give up after this time.
    End(Duration),
}

/// Runs a launcher; returns its exit code after the outcome was written.
///
/// # Errors
/// Certificates, addresses or signals cannot be used.
pub async fn run(settings: LauncherSettings) -> anyhow::Result<i32> {
    let server = ServerTls::new(Identity::from_dir(&settings.tls_dir)?, &[Role::Operator])?;
    let tls = ClientTls::new(Identity::from_dir(&settings.tls_dir)?)?;
    let listener = bind(settings.listen).await?;
    let children = Children::adopt_and_reap()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let launcher = Arc::new(Launcher {
        settings,
        tls,
        state: Mutex::new(State {
            phase: Phase::Waiting,
            spec: None,
            lease_end_ns: u64::MAX,
            stop_reason: None,
            links: Vec::new(),
            history: History::default(),
            progress: None,
            outcome: None,
        }),
        changed: watch::Sender::new(0),
    });
    tracing::info!(listen = %listener.local_addr()?, "launcher ready");
    let serving = launcher.clone();
    tokio::spawn(serve(listener, server, move |peer| serving.clone().talk(peer)));
    let stopping = launcher.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        stopping.request_stop("the launcher's pod is being stopped");
    });

    let outcome = launcher.clone().run_attempt(&children).await;
    tracing::info!(outcome = ?outcome.conclusion, code = outcome.exit_code, "attempt ended");
    let message = outcome.termination_message();
    let code = outcome.exit_code;
    launcher.change(|state| {
        state.phase = Phase::Ended;
        state.outcome = Some(outcome);
    });
    let log = &launcher.settings.termination_log;
    std::fs::write(log, message).with_context(|| log.display().to_string())?;
    Ok(code)
}

impl Launcher {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, how: impl FnOnce(&mut State) -> T) -> T {
        let result = how(&mut self.state());
        self.changed.send_modify(|n| *n += 1);
        result
    }

    /// Waits until `what` finds something in the state.
    async fn until<T>(&self, mut what: impl FnMut(&State) -> Option<T>) -> T {
        let mut changes = self.changed.subscribe();
        loop {
            changes.mark_unchanged();
            let found = what(&self.state());
            if let Some(found) = found {
                return found;
            }
            // The sender lives in `self`, so this does not fail.
            let _ = changes.changed().await;
        }
    }

    /// Serves one connection of the operator.
    async fn talk(self: Arc<Self>, mut peer: Peer) -> Result<(), ProtocolError> {
        loop {
            let (result, ranks) = match receive(&mut peer).await? {
                LauncherRequest::Begin(spec) => (self.accept(*spec), false),
                LauncherRequest::State { ranks } => (Ok(()), ranks),
                LauncherRequest::Renew { attempt, token, until_ns } => {
                    (self.renew(attempt, &token, until_ns), false)
                }
                LauncherRequest::Stop { reason } => {
                    self.request_stop(&reason);
                    (Ok(()), false)
                }
            };
            let reply = match result {
                Ok(()) => LauncherReply::State(Box::new(self.report(ranks))),
                Err(message) => {
                    tracing::warn!(message, "request refused");
                    LauncherReply::Refused { message }
                }
            };
            send(&mut peer, &reply).await?;
        }
    }

    fn accept(&self, spec: AttemptSpec) -> Result<(), String> {
        spec.host_of_rank()?;
        self.change(|state| match &state.spec {
            Some(known) if known.attempt == spec.attempt && known.token == spec.token => Ok(()),
            Some(known) => Err(format!("this launcher runs attempt {}, not {}", known.attempt, spec.attempt)),
            None if state.phase != Phase::Waiting => Err("this launcher has ended".into()),
            None => {
                state.lease_end_ns = boottime_ns() + spec.launcher_lease_seconds * 1_000_000_000;
                state.links = spec.workers.iter().map(|_| Link::default()).collect();
                state.spec = Some(Arc::new(spec));
                Ok(())
            }
        })
    }

    fn renew(&self, attempt: u64, token: &str, until_ns: u64) -> Result<(), String> {
        self.change(|state| match &state.spec {
            Some(spec) if spec.attempt == attempt && spec.token == token => {
                if boottime_ns() >= state.lease_end_ns {
                    return Err(format!("the lease of attempt {attempt} has ended"));
                }
                state.lease_end_ns = state.lease_end_ns.max(until_ns);
                Ok(())
            }
            Some(spec) => Err(format!("this launcher runs attempt {} under another token", spec.attempt)),
            None => Err("no attempt was pushed".into()),
        })
    }

    fn request_stop(&self, reason: &str) {
        tracing::info!(reason, "stop requested");
        self.change(|state| {
            state.stop_reason.get_or_insert_with(|| reason.to_owned());
        });
    }

    fn report(&self, ranks: bool) -> LauncherState {
        let state = self.state();
        let workers = state.spec.iter().flat_map(|spec| spec.workers.iter().zip(&state.links));
        LauncherState {
            clock_ns: boottime_ns(),
            phase: state.phase,
            attempt: state.spec.as_ref().map(|spec| spec.attempt),
            workers: workers
                .map(|(host, link)| WorkerState {
                    pod: host.pod.clone(),
                    reachable: link.report.is_some() && !link.lost,
                    draining: link.report.as_ref().is_some_and(|r| r.draining),
                    ended: link.ended(state.spec.as_deref()),
                    error: link.error.clone(),
                })
                .collect(),
            progress: state.progress.clone(),
            ranks: if ranks { state.figures() } else { Vec::new() },
            outcome: state.outcome.clone(),
        }
    }

    /// One attempt from the operator's push to its outcome.
    async fn run_attempt(self: Arc<Self>, children: &Children) -> Outcome {
        let deadline = Duration::from_secs(self.settings.attempt_deadline_seconds);
        let pushed = timeout(
            deadline,
            self.until(|state| match (&state.spec, &state.stop_reason) {
                (Some(spec), _) => Some(Ok(spec.clone())),
                (None, Some(reason)) => Some(Err(reason.clone())),
                (None, None) => None,
            }),
        );
        let spec = match pushed.await {
            Ok(Ok(spec)) => spec,
            Ok(Err(reason)) => {
                let message = format!("stopped before an attempt was pushed: {reason}");
                return outcome_without_attempt(message, Some(reason));
            }
            Err(_) => {
                let message = format!("no attempt was pushed within {} s", deadline.as_secs());
                return outcome_without_attempt(message, None);
            }
        };
        tracing::info!(attempt = spec.attempt, workers = spec.workers.len(), "reaching the workers");
        self.change(|state| state.phase = Phase::Reaching);
        let (orders, order) = watch::channel(Order::Keep);
        let mut tasks = JoinSet::new();
        for index in 0..spec.workers.len() {
            tasks.spawn(self.clone().keep_worker(spec.clone(), index, order.clone()));
        }
        let aggregating = self.clone();
        let aggregation = tokio::spawn(async move {
            loop {
                aggregating.aggregate();
                sleep(RENEW_EVERY / 2).await;
            }
        });

        let deadline = Instant::now() + Duration::from_secs(spec.start_deadline_seconds);
        let ended = match self.reach_all(&spec, deadline).await {
            Ok(()) => self.run_mpirun(&spec, children, &orders).await,
            Err(failure) => Ended { exit_code: 1, last_lines: Vec::new(), failure: Some(failure) },
        };

        // Consequences of a lost worker arrive before its lease has run out: wait for that before judging a failure.
        let good = ended.failure.is_none() && matches!(ended.exit_code, 0 | exit::STOPPED);
        let lease = Duration::from_secs(spec.worker_lease_seconds);
        let _ = orders.send(Order::End(if good { CONFIRM } else { lease + CONFIRM / 3 }));
        while tasks.join_next().await.is_some() {}
        aggregation.abort();
        self.aggregate();
        self.judge(&spec, ended)
    }

    fn judge(&self, spec: &AttemptSpec, ended: Ended) -> Outcome {
        let state = self.state();
        let Ended { exit_code, last_lines, failure } = ended;
        let conclusion = match (&failure, exit_code) {
            (None, 0) => Conclusion::Succeeded,
            (None, exit::STOPPED) => Conclusion::Stopped,
            _ => Conclusion::Failed,
        };
        let failure = (conclusion == Conclusion::Failed).then(|| match failure {
            Some(failure) if failure.reason != FailureReason::WorkerLost => failure,
            _ => {
                let lost = state.links.iter().enumerate().filter(|(_, link)| link.lost);
                let lost: Vec<_> =
                    lost.map(|(i, link)| (i, link.error.clone().unwrap_or_default())).collect();
                let reports = || state.links.iter().filter_map(|link| link.report.as_ref());
                let ends: Vec<RankEnd> = reports().flat_map(|r| r.ended.iter().cloned()).collect();
                first_cause(&Evidence {
                    workers: &spec.workers,
                    lost: &lost,
                    ends: &ends,
                    figures: &state.figures(),
                    exit_code,
                    last_lines: &last_lines,
                })
            }
        });
        let confirmed = spec.workers.iter().zip(&state.links).filter(|(_, link)| link.ended(Some(spec)));
        Outcome {
            attempt: spec.attempt,
            conclusion,
            exit_code,
            stop_reason: state.stop_reason.clone(),
            failure,
            progress: state.progress.clone(),
            ended_workers: confirmed.map(|(host, _)| host.pod.clone()).collect(),
        }
    }

    fn aggregate(&self) {
        let mut state = self.state();
        let figures = state.figures();
        // After the end the workers have no pages any more; the last aggregate stays.
        if let Some(progress) = state.history.add(std::time::Instant::now(), figures) {
            state.progress = Some(progress);
        }
    }

    /// Waits until every worker has begun the attempt.
    async fn reach_all(&self, spec: &AttemptSpec, deadline: Instant) -> Result<(), Failure> {
        let refusal = |state: &State| state.links.iter().position(|link| link.refused);
        let reached = self.until(|state| {
            if let Some(index) = refusal(state) {
                let host = &spec.workers[index];
                let why = state.links[index].error.clone().unwrap_or_default();
                let message = format!("worker {} on node {} refused the attempt: {why}", host.pod, host.node);
                return Some(Err(on_hosts(FailureReason::WorkerRefused, message, &[host])));
            }
            if let Some(reason) = &state.stop_reason {
                let message = format!("stopped before the ranks were started: {reason}");
                return Some(Err(failure(FailureKind::Infrastructure, FailureReason::NotStarted, message)));
            }
            state.links.iter().all(|link| link.report.is_some()).then_some(Ok(()))
        });
        if let Ok(reached) = tokio::time::timeout_at(deadline, reached).await {
            return reached;
        }
        let state = self.state();
        let missing = spec.workers.iter().zip(&state.links).filter(|(_, link)| link.report.is_none());
        let (hosts, told): (Vec<&WorkerHost>, Vec<String>) = missing
            .map(|(host, link)| {
                let why = link.error.as_deref().unwrap_or("no connection");
                let ranks = ranges(&host.ranks);
                (host, format!("{} on node {} (ranks {ranks}): {why}", host.pod, host.node))
            })
            .unzip();
        let seconds = spec.start_deadline_seconds;
        let message = format!("not reached within {seconds} s: {}", told.join("; "));
        Err(on_hosts(FailureReason::WorkersUnreachable, message, &hosts))
    }

    /// Reaches one worker, keeps its lease, and ends the attempt there when ordered.
    async fn keep_worker(
        self: Arc<Self>,
        spec: Arc<AttemptSpec>,
        index: usize,
        mut orders: watch::Receiver<Order>,
    ) {
        let host = &spec.workers[index];
        let address = SocketAddr::new(host.address, self.settings.agent_port);
        let lease = Duration::from_secs(spec.worker_lease_seconds);
        let period = (lease / 5).min(RENEW_EVERY);
        let attempt = WorkerAttempt {
            job: spec.job.clone(),
            namespace: spec.namespace.clone(),
            node: host.node.clone(),
            attempt: spec.attempt,
            token: spec.token.clone(),
            ranks: host.ranks.clone(),
            files: spec.files.clone(),
            until_ns: 0,
        };
        let mut client = None;
        // When the lease that the worker has confirmed ends at the latest.
        let mut granted: Option<Instant> = None;
        // Whether a begin may have arrived although its answer did not.
        let mut unsure = false;
        let mut stopped = false;
        let mut wait = BACKOFF.0;
        let mut give_up: Option<Instant> = None;
        loop {
            let order = *orders.borrow_and_update();
            if let Order::End(patience) = order {
                let give_up = *give_up.get_or_insert_with(|| Instant::now() + patience);
                // Where nothing can have begun there is nothing to end.
                if Instant::now() >= give_up || (granted.is_none() && !unsure) {
                    break;
                }
            }
            let begun = granted.is_some();
            // A call in vain lasts no longer than the lease.
            let limit = granted.unwrap_or_else(|| Instant::now() + lease).max(Instant::now() + BACKOFF.0);
            let known = client.take();
            let call = async {
                let mut connected = match known {
                    Some(connected) => connected,
                    None => WorkerClient::connect(address, &self.tls).await?,
                };
                connected.set_reply_timeout(lease.max(period));
                let report = match order {
                    Order::Keep | Order::Stop if !begun => connected.begin(&attempt, lease).await?,
                    Order::Keep | Order::Stop => {
                        if order == Order::Stop && !stopped {
                            connected.stop(spec.attempt, &spec.token).await?;
                        }
                        connected.renew(spec.attempt, &spec.token, lease).await?
                    }
                    Order::End(_) => {
                        // The last figures first: with the attempt its pages go. A worker that has ended has none.
                        match connected.renew(spec.attempt, &spec.token, lease).await {
                            Ok(last) => self.heard(index, &spec, Ok(last)),
                            Err(ClientError::Refused { message, .. }) => self.change(|state| {
                                // Its lease had ended before, and its ranks with it.
                                state.links[index].lost |= begun;
                                state.links[index].error = Some(message);
                            }),
                            Err(lost) => return Err(lost),
                        }
                        connected.end(spec.attempt).await?
                    }
                };
                Ok::<_, ClientError>((connected, report))
            };
            let result = tokio::select! {
                result = call => result,
                () = sleep_until(limit) => {
                    Err(ClientError::Timeout { address, seconds: lease.as_secs_f64() })
                }
            };
            match result {
                Ok((connected, report)) => {
                    client = Some(connected);
                    granted = Some(Instant::now() + lease);
                    stopped |= order == Order::Stop;
                    wait = BACKOFF.0;
                    self.heard(index, &spec, Ok(report));
                    if matches!(order, Order::End(_)) {
                        break;
                    }
                    tokio::select! {
                        () = sleep(period) => {}
                        _ = orders.changed() => {}
                    }
                }
                Err(error) => {
                    client = None;
                    let refused = matches!(error, ClientError::Refused { .. });
                    unsure |= !matches!(error, ClientError::Refused { .. } | ClientError::Connect { .. });
                    let lost = begun && (refused || granted.is_none_or(|end| Instant::now() >= end));
                    self.change(|state| {
                        let link = &mut state.links[index];
                        link.error = Some(error.to_string());
                        link.refused |= refused && !begun;
                        link.lost |= lost;
                    });
                    if refused && !begun {
                        break;
                    }
                    tokio::select! {
                        () = sleep(jittered(wait)) => {}
                        _ = orders.changed() => {}
                    }
                    wait = (wait * 2).min(BACKOFF.1).min(period.max(BACKOFF.0));
                }
            }
        }
    }

    fn heard(&self, index: usize, spec: &AttemptSpec, report: Result<WorkerReport, ClientError>) {
        let Ok(mut report) = report else { return };
        self.change(|state| {
            if report.draining && state.stop_reason.is_none() {
                let reason = format!("worker {} is being stopped", spec.workers[index].pod);
                tracing::info!(reason, "stop requested");
                state.stop_reason = Some(reason);
            }
            let link = &mut state.links[index];
            if let Some(last) = link.report.take().filter(|_| report.attempt != Some(spec.attempt)) {
                report.ranks = last.ranks;
                report.ended = last.ended;
            }
            link.report = Some(report);
            if !link.lost {
                link.error = None;
            }
        });
    }

    /// Runs `mpirun` until it ends, a worker is lost, the own lease ends or the grace period does.
    async fn run_mpirun(
        &self,
        spec: &AttemptSpec,
        children: &Children,
        orders: &watch::Sender<Order>,
    ) -> Ended {
        let not_started = |error: anyhow::Error| Ended {
            exit_code: 1,
            last_lines: Vec::new(),
            failure: Some(failure(
                FailureKind::Configuration,
                FailureReason::LaunchFailed,
                format!("cannot start {}: {error:#}", self.settings.mpirun.display()),
            )),
        };
        let mut mpirun = match self.start_mpirun(spec, children) {
            Ok(mpirun) => mpirun,
            Err(error) => return not_started(error),
        };
        self.change(|state| state.phase = Phase::Running);
        let lost = self.until(|state| state.links.iter().position(|link| link.lost));
        let lease_ended = async {
            while boottime_ns() < self.state().lease_end_ns {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let overdue = async {
            let reason = self.until(|state| state.stop_reason.clone()).await;
            self.change(|state| state.phase = Phase::Stopping);
            let _ = orders.send(Order::Stop);
            sleep(Duration::from_secs(self.settings.grace_seconds)).await;
            reason
        };
        let cut_short = tokio::select! {
            status = &mut mpirun.status => {
                let last_lines = mpirun.last_lines().await;
                // What daemons and dem-rsh left behind; the workers' part is ended over the wire.
                kill_descendants().await;
                let (code, signal) = status.map_or((Some(1), None), code_and_signal);
                let exit_code = code.unwrap_or_else(|| 128 + signal.unwrap_or_default());
                return Ended { exit_code, last_lines, failure: None };
            }
            index = lost => {
                let host = &spec.workers[index];
                on_hosts(FailureReason::WorkerLost, format!("worker {} lost", host.pod), &[host])
            }
            () = lease_ended => failure(
                FailureKind::Infrastructure,
                FailureReason::LeaseEnded,
                "the operator did not renew the launcher's lease".into(),
            ),
            reason = overdue => failure(
                FailureKind::Infrastructure,
                FailureReason::NotStopped,
                format!("ranks did not end within {} s after: {reason}", self.settings.grace_seconds),
            ),
        };
        tracing::warn!(cause = cut_short.message, "ending mpirun");
        kill_group(mpirun.pid, Signal::SIGTERM);
        let _ = timeout(MPIRUN_GRACE, &mut mpirun.status).await;
        kill_descendants().await;
        let last_lines = mpirun.last_lines().await;
        Ended { exit_code: 1, last_lines, failure: Some(cut_short) }
    }

    fn start_mpirun(&self, spec: &AttemptSpec, children: &Children) -> anyhow::Result<Mpirun> {
        let settings = &self.settings;
        let run_dir = settings.run_root.join(format!("attempt-{}", spec.attempt));
        std::fs::create_dir_all(&run_dir).with_context(|| run_dir.display().to_string())?;
        let hostfile = run_dir.join("hostfile");
        let hosts = spec.host_of_rank().map_err(anyhow::Error::msg)?;
        // The sequential mapper gives line r to rank r. Addresses, not names: nothing to resolve, nothing to cut at a dot.
        let lines: String = hosts.iter().map(|host| format!("{}\n", host.address)).collect();
        std::fs::write(&hostfile, lines).with_context(|| hostfile.display().to_string())?;

        let mut command = Command::new(&settings.mpirun);
        command.args(mpirun_arguments(spec, &hostfile, settings));
        command.envs(&spec.env);
        command.env(TLS_DIR_VARIABLE, &settings.tls_dir);
        command.env(ATTEMPT_VARIABLE, spec.attempt.to_string());
        command.env(TOKEN_VARIABLE, &spec.token);
        command.env(PORT_VARIABLE, settings.agent_port.to_string());
        // Harmless for others; without it Open MPI refuses images that run as root.
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        // By TMPDIR and not by orte_tmpdir_base, which the daemons would inherit: where they share a machine, as in tests,
        // each needs a session folder of its own, below its agent's TMPDIR.
        set_writable_places(&mut command, &settings.tmp_dir);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Not the environment: it holds the fence token and perhaps secrets of the user.
        tracing::info!(arguments = ?command.get_args().collect::<Vec<_>>(), "mpirun starts");
        let (mut child, status) = children.spawn(&mut command)?;
        let lines = LastLines::default();
        let mut streams = JoinSet::new();
        if let Some(stdout) = child.stdout.take() {
            let (from, to) = (ChildStdout::from_std(stdout)?, asynchronous(std::io::stdout())?);
            streams.spawn(tee(from, to, lines.stream(Stream::Stdout)));
        }
        if let Some(stderr) = child.stderr.take() {
            let (from, to) = (ChildStderr::from_std(stderr)?, asynchronous(std::io::stderr())?);
            streams.spawn(tee(from, to, lines.stream(Stream::Stderr)));
        }
        Ok(Mpirun { pid: child.id(), status, streams, lines })
    }
}

impl State {
    /// Figures of all ranks as last heard, ascending.
    fn figures(&self) -> Vec<RankFigures> {
        let reports = self.links.iter().filter_map(|link| link.report.as_ref());
        let mut ranks: Vec<RankFigures> = reports.flat_map(|report| report.ranks.iter().cloned()).collect();
        ranks.sort_by_key(|r| r.rank);
        ranks
    }
}

impl Link {
    fn ended(&self, spec: Option<&AttemptSpec>) -> bool {
        self.report.as_ref().zip(spec).is_some_and(|(report, spec)| report.ended_up_to >= spec.attempt)
    }
}

/// How `mpirun` ended, before the workers were asked.
struct Ended {
    exit_code: i32,
    last_lines: Vec<String>,
    failure: Option<Failure>,
}

fn outcome_without_attempt(message: String, stop_reason: Option<String>) -> Outcome {
    Outcome {
        attempt: 0,
        conclusion: Conclusion::Failed,
        exit_code: 1,
        stop_reason,
        failure: Some(failure(FailureKind::Infrastructure, FailureReason::NoAttempt, message)),
        progress: None,
        ended_workers: Vec::new(),
    }
}

/// Arguments of Open MPI 4.1's `mpirun`.
fn mpirun_arguments(spec: &AttemptSpec, hostfile: &Path, settings: &LauncherSettings) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut mca = |name: &str, value: &str| arguments.extend(["--mca".into(), name.into(), value.into()]);
    mca("plm", "rsh");
    mca("plm_rsh_agent", &settings.rsh_program.display().to_string());
    // A tree of more than 64 nodes would have workers call each other, which they have no certificate for.
    mca("plm_rsh_no_tree_spawn", "1");
    // Daemons stay below dem-rsh: their last words are seen here. Then all are started at once, or it deadlocks.
    mca("orte_leave_session_attached", "1");
    mca("plm_rsh_num_concurrent", &spec.workers.len().max(1).to_string());
    mca("oob", "tcp");
    mca("oob_tcp_dynamic_ipv4_ports", &format!("{}-{}", OOB_PORTS.0, OOB_PORTS.1));
    mca("oob_tcp_disable_ipv6_family", "1");
    mca("btl", "tcp,vader,self");
    mca("btl_tcp_port_min_v4", &BTL_PORTS.0.to_string());
    mca("btl_tcp_port_range_v4", &(BTL_PORTS.1 - BTL_PORTS.0 + 1).to_string());
    // Cross-memory attach needs ptrace rights that restricted pods lack, and is slower on virtual machines.
    mca("btl_vader_single_copy_mechanism", "none");
    if spec.yield_when_idle {
        mca("mpi_yield_when_idle", "1");
    }
    arguments.extend(["--hostfile".into(), hostfile.display().to_string()]);
    arguments.extend(["--map-by", "seq", "--bind-to", "none", "-n"].map(String::from));
    arguments.push(spec.ranks().to_string());
    for name in spec.env.keys() {
        arguments.extend(["-x".into(), name.clone()]);
    }
    arguments.extend(spec.mpirun_args.iter().cloned());
    arguments.extend([settings.agent_program.display().to_string(), "rank".into(), "--".into()]);
    arguments.extend(spec.command.iter().cloned());
    arguments
}

/// A running `mpirun`.
struct Mpirun {
    pid: u32,
    status: oneshot::Receiver<ExitStatus>,
    streams: JoinSet<()>,
    lines: LastLines,
}

impl Mpirun {
    /// Last lines of both streams, once they have ended or soon after.
    async fn last_lines(&mut self) -> Vec<String> {
        let _ =
            timeout(Duration::from_millis(500), async { while self.streams.join_next().await.is_some() {} })
                .await;
        self.lines.lines()
    }
}

/// Copies a stream through and keeps the last lines.
async fn tee(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut lines: Lines) {
    let mut buffer = vec![0; 32 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let _ = to.write_all(&buffer[..count]).await;
        let _ = to.flush().await;
        lines.feed(&buffer[..count]);
    }
}

/// A wait of half to one and a half times `mean`, so that launchers and tries do not march in step.
fn jittered(mean: Duration) -> Duration {
    use std::hash::{BuildHasher, Hasher};
    // Seeded by the operating system at every call.
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    mean.mul_f64(0.5 + random as f64 / u64::MAX as f64)
}
