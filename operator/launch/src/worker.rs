//! PID 1 of a worker pod: runs the launcher's commands while its lease holds, and proves that they ended.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::children::{Children, code_and_signal, descendants, kill_descendants, kill_group};
use crate::clock::boottime_ns;
use crate::metrics;
use crate::pages::Pages;
use crate::protocol::{
    CommandEnd, Frame, ProtocolError, RankEnd, WorkerAttempt, WorkerReply, WorkerReport, WorkerRequest,
    is_plain_file_name, read_frame, receive, send, write_frame,
};
use crate::rank::{PAGES_DIR_VARIABLE, RUN_DIR_VARIABLE, end_file, pid_file};
use crate::server::{Peer, bind, serve};
use crate::tls::{Identity, Role, ServerTls};

/// How often the lease is looked at; also how late ranks of an ended lease may be killed.
const TICK: Duration = Duration::from_millis(50);
/// Time that a drained worker waits for its launcher to hear that all has ended.
const LAST_WORD: Duration = Duration::from_secs(3);
/// Time that a command's output, held open by what it left behind, is still forwarded.
const DRAIN: Duration = Duration::from_millis(500);

/// Settings of a worker; the defaults are those of a pod.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkerSettings {
    /// Address of the agent's TLS port.
    #[arg(long, env = "DEM_AGENT_LISTEN", default_value = "[::]:7471")]
    pub listen: SocketAddr,
    /// Address of plain-HTTP /metrics and /healthz.
    #[arg(long, env = "DEM_METRICS_LISTEN", default_value = "[::]:9471")]
    pub metrics_listen: SocketAddr,
    /// Folder of ca.crt, tls.crt and tls.key.
    #[arg(long, env = "DEM_TLS_DIR", default_value = "/dem/tls")]
    pub tls_dir: PathBuf,
    /// Folder for the attempts' files.
    #[arg(long, env = "DEM_RUN_ROOT", default_value = "/dem/run")]
    pub run_root: PathBuf,
    /// Folder for the attempts' counter pages, in memory.
    #[arg(long, env = "DEM_PAGES_ROOT", default_value = "/dev/shm/dem")]
    pub pages_root: PathBuf,
    /// Folder for temporary files of MPI and ranks: their TMPDIR, and HOME where there is none to write to.
    #[arg(long, env = "DEM_TMP_DIR", default_value = "/tmp")]
    pub tmp_dir: PathBuf,
    /// Seconds after SIGTERM that ranks get to write a checkpoint; below the pod's grace period.
    #[arg(long, env = "DEM_GRACE_SECONDS", default_value_t = 25)]
    pub grace_seconds: u64,
}

/// The attempt that may run here now.
struct Current {
    attempt: WorkerAttempt,
    run_dir: PathBuf,
    pages: Pages,
}

#[derive(Default)]
struct State {
    current: Option<Current>,
    /// Attempts up to this number can never run here again. Their processes are dead once `ended_up_to` says so too.
    fenced_up_to: u64,
    ended_up_to: u64,
    draining: bool,
}

/// A worker agent.
struct Worker {
    settings: WorkerSettings,
    children: Children,
    state: Mutex<State>,
    /// Held while an attempt begins or ends, which waits for processes to die.
    transition: tokio::sync::Mutex<()>,
}

/// Runs a worker until SIGTERM and the end of its ranks, or of the grace period.
///
/// # Errors
/// Certificates, addresses or signals cannot be used.
pub async fn run(settings: WorkerSettings) -> anyhow::Result<()> {
    let tls = ServerTls::new(Identity::from_dir(&settings.tls_dir)?, &[Role::Launcher, Role::Operator])?;
    let listener = bind(settings.listen).await?;
    let metrics_listener = bind(settings.metrics_listen).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let grace = Duration::from_secs(settings.grace_seconds);
    let worker = Arc::new(Worker {
        children: Children::adopt_and_reap()?,
        settings,
        state: Mutex::default(),
        transition: tokio::sync::Mutex::default(),
    });
    tracing::info!(listen = %listener.local_addr()?, "worker ready");

    let serving = worker.clone();
    tokio::spawn(serve(listener, tls, move |peer| serving.clone().talk(peer)));
    let scraped = worker.clone();
    tokio::spawn(metrics::serve(metrics_listener, move || scraped.metrics()));
    let watched = worker.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(TICK).await;
            watched.watch_lease().await;
        }
    });

    terminate.recv().await;
    worker.drain(grace).await;
    Ok(())
}

impl Worker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one connection of a launcher or operator.
    async fn talk(self: Arc<Self>, mut peer: Peer) -> Result<(), ProtocolError> {
        loop {
            let reply = match receive(&mut peer).await? {
                WorkerRequest::Status => Ok(self.report()),
                WorkerRequest::Begin(attempt) => self.begin(*attempt).await,
                WorkerRequest::Renew { attempt, token, until_ns } => self.renew(attempt, &token, until_ns),
                WorkerRequest::Stop { attempt, token } => self.stop(attempt, &token),
                WorkerRequest::End { attempt } => {
                    self.end(attempt, "asked to").await;
                    Ok(self.report())
                }
                WorkerRequest::Exec { attempt, token, command } => {
                    match self.exec(attempt, &token, &command) {
                        Ok(running) => {
                            send(&mut peer, &WorkerReply::Started).await?;
                            return running.stream(peer).await;
                        }
                        Err(message) => Err(message),
                    }
                }
            };
            let reply = match reply {
                Ok(report) => WorkerReply::Report(Box::new(report)),
                Err(message) => {
                    tracing::warn!(message, "request refused");
                    WorkerReply::Refused { message }
                }
            };
            send(&mut peer, &reply).await?;
        }
    }

    /// The current attempt, if it is the one meant and its lease holds.
    fn meant<'s>(state: &'s mut State, attempt: u64, token: &str) -> Result<&'s mut Current, String> {
        let fenced = state.fenced_up_to;
        let Some(current) = &mut state.current else {
            return Err(match attempt <= fenced {
                true => format!("attempt {attempt} has ended here (all up to {fenced} have)"),
                false => format!("attempt {attempt} has not begun here"),
            });
        };
        let running = current.attempt.attempt;
        if running != attempt {
            return Err(format!("attempt {running} runs here, not {attempt}"));
        }
        if current.attempt.token != token {
            return Err(format!("attempt {attempt} runs here under another token"));
        }
        if boottime_ns() >= current.attempt.until_ns {
            return Err(format!("the lease of attempt {attempt} has ended"));
        }
        Ok(current)
    }

    async fn begin(&self, attempt: WorkerAttempt) -> Result<WorkerReport, String> {
        if let Some(bad) = attempt.files.keys().find(|name| !is_plain_file_name(name)) {
            return Err(format!("files: {bad:?} must be a plain file name"));
        }
        let number = attempt.attempt;
        let _transition = self.transition.lock().await;
        let same_or_lower = {
            let mut state = self.state();
            if state.draining {
                return Err("this worker is being stopped".into());
            }
            if number <= state.fenced_up_to {
                return Err(format!(
                    "attempt {number} has ended here (all up to {} have)",
                    state.fenced_up_to
                ));
            }
            match &state.current {
                Some(current) if current.attempt.attempt >= number => {
                    let current = Self::meant(&mut state, number, &attempt.token)?;
                    current.attempt.until_ns = current.attempt.until_ns.max(attempt.until_ns);
                    current.pages.set_lease(current.attempt.until_ns);
                    true
                }
                _ => false,
            }
        };
        if same_or_lower {
            return Ok(self.report());
        }
        self.end_locked(number - 1, "a higher attempt begins").await;
        let current = self.prepare(attempt).map_err(|e| format!("cannot prepare attempt {number}: {e:#}"))?;
        tracing::info!(attempt = number, ranks = ?current.attempt.ranks, "attempt begins");
        self.state().current = Some(current);
        Ok(self.report())
    }

    /// Makes folders, files and pages of a new attempt.
    fn prepare(&self, mut attempt: WorkerAttempt) -> anyhow::Result<Current> {
        let run_dir = self.settings.run_root.join(format!("attempt-{}", attempt.attempt));
        let pages_dir = self.settings.pages_root.join(format!("attempt-{}", attempt.attempt));
        for stale in [&run_dir, &pages_dir] {
            match std::fs::remove_dir_all(stale) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(e).with_context(|| stale.display().to_string());
                }
                _ => {}
            }
        }
        std::fs::create_dir_all(&run_dir).with_context(|| run_dir.display().to_string())?;
        for (name, text) in std::mem::take(&mut attempt.files) {
            std::fs::write(run_dir.join(&name), text)
                .with_context(|| format!("{}/{name}", run_dir.display()))?;
        }
        let pages = Pages::create(pages_dir.clone(), &attempt.ranks, attempt.until_ns)
            .with_context(|| pages_dir.display().to_string())?;
        Ok(Current { attempt, run_dir, pages })
    }

    fn renew(&self, attempt: u64, token: &str, until_ns: u64) -> Result<WorkerReport, String> {
        {
            let mut state = self.state();
            let current = Self::meant(&mut state, attempt, token)?;
            // A request that waited in a queue may be older than the last one: never shorten.
            current.attempt.until_ns = current.attempt.until_ns.max(until_ns);
            current.pages.refresh();
            current.pages.set_lease(current.attempt.until_ns);
        }
        Ok(self.report())
    }

    fn stop(&self, attempt: u64, token: &str) -> Result<WorkerReport, String> {
        Self::meant(&mut self.state(), attempt, token)?.stop_ranks();
        Ok(self.report())
    }

    fn report(&self) -> WorkerReport {
        let state = self.state();
        let current = state.current.as_ref();
        WorkerReport {
            clock_ns: boottime_ns(),
            attempt: current.map(|c| c.attempt.attempt),
            ended_up_to: state.ended_up_to,
            draining: state.draining,
            ranks: current.map(|c| c.pages.figures()).unwrap_or_default(),
            ended: current.map(Current::rank_ends).unwrap_or_default(),
        }
    }

    async fn end(&self, attempt: u64, why: &str) {
        let _transition = self.transition.lock().await;
        self.end_locked(attempt, why).await;
    }

    /// Fences everything up to `attempt`; returns when none of its processes lives. Needs `transition`.
    async fn end_locked(&self, attempt: u64, why: &str) {
        let ended = {
            let mut state = self.state();
            state.fenced_up_to = state.fenced_up_to.max(attempt);
            if state.current.as_ref().is_some_and(|c| c.attempt.attempt > attempt) {
                return;
            }
            state.current.take()
        };
        // In this order: first nothing can be committed, then nothing runs.
        if let Some(current) = &ended {
            tracing::info!(attempt = current.attempt.attempt, why, "attempt ends");
            current.pages.end_lease();
        }
        kill_descendants().await;
        if let Some(current) = ended {
            current.pages.remove();
            let _ = std::fs::remove_dir_all(&current.run_dir);
        }
        let mut state = self.state();
        state.ended_up_to = state.fenced_up_to.max(state.ended_up_to);
    }

    /// Ends the attempt whose lease has run out.
    async fn watch_lease(&self) {
        let expired = |state: &State| {
            let current = state.current.as_ref()?;
            (boottime_ns() >= current.attempt.until_ns).then_some(current.attempt.attempt)
        };
        let Some(attempt) = expired(&self.state()) else { return };
        tracing::warn!(attempt, "lease ended");
        let _transition = self.transition.lock().await;
        // An attempt that has begun meanwhile has a lease of its own.
        let still = expired(&self.state());
        if let Some(attempt) = still {
            self.end_locked(attempt, "its lease ended").await;
        }
    }

    fn metrics(&self) -> String {
        let state = self.state();
        match &state.current {
            Some(current) if !descendants().is_empty() => {
                metrics::render(&current.attempt, &current.pages.figures())
            }
            _ => String::new(),
        }
    }

    /// After SIGTERM: asks the ranks to end, waits for them, then for the launcher to have heard of it.
    async fn drain(&self, grace: Duration) {
        tracing::info!("asked to end");
        let running = {
            let mut state = self.state();
            state.draining = true;
            state.current.as_ref().map(|current| {
                current.stop_ranks();
                current.attempt.attempt
            })
        };
        let deadline = Instant::now() + grace;
        while running.is_some() && !descendants().is_empty() && Instant::now() < deadline {
            tokio::time::sleep(TICK).await;
        }
        let last_word = (Instant::now() + LAST_WORD).min(deadline);
        while running.is_some_and(|n| self.state().ended_up_to < n) && Instant::now() < last_word {
            tokio::time::sleep(TICK).await;
        }
        self.end(running.unwrap_or(0), "the worker ends").await;
    }

    /// Starts a command line of the current attempt.
    fn exec(&self, attempt: u64, token: &str, command: &str) -> Result<Running, String> {
        // Held until the process exists: an end of the attempt after this finds and kills it.
        let mut state = self.state();
        let current = Self::meant(&mut state, attempt, token)?;
        tracing::info!(attempt, command, "command starts");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell.env(RUN_DIR_VARIABLE, &current.run_dir);
        shell.env(PAGES_DIR_VARIABLE, self.settings.pages_root.join(format!("attempt-{attempt}")));
        set_writable_places(&mut shell, &self.settings.tmp_dir);
        Running::start(&self.children, &mut shell).map_err(|e| format!("cannot start /bin/sh: {e}"))
    }
}

/// TMPDIR, and HOME where the present one cannot be written to (read-only root, user without an entry).
pub(crate) fn set_writable_places(command: &mut Command, tmp_dir: &Path) {
    command.env("TMPDIR", tmp_dir);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let writable = |home: &PathBuf| nix::unistd::access(home, nix::unistd::AccessFlags::W_OK).is_ok();
    if !home.as_ref().is_some_and(writable) {
        command.env("HOME", tmp_dir);
    }
}

impl Current {
    fn stop_ranks(&self) {
        for rank in self.pages.request_stop() {
            // No page: a program that is not ours, or that has not come up. SIGTERM is what it may understand.
            let pid = std::fs::read_to_string(pid_file(&self.run_dir, rank)).ok();
            if let Some(pid) = pid.and_then(|text| text.trim().parse().ok()).map(Pid::from_raw)
                && descendants().contains(&pid)
            {
                let _ = kill(pid, Signal::SIGTERM);
            }
        }
    }

    fn rank_ends(&self) -> Vec<RankEnd> {
        let read =
            |rank: &u32| serde_json::from_slice(&std::fs::read(end_file(&self.run_dir, *rank)).ok()?).ok();
        self.attempt.ranks.iter().filter_map(read).collect()
    }
}

/// A running command and its streams.
struct Running {
    leader: u32,
    status: oneshot::Receiver<ExitStatus>,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

impl Running {
    fn start(children: &Children, command: &mut Command) -> io::Result<Self> {
        let (mut child, status) = children.spawn(command)?;
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        Ok(Self {
            leader: child.id(),
            status,
            stdin: child.stdin.take().map(ChildStdin::from_std).transpose()?,
            stdout: ChildStdout::from_std(child.stdout.take().ok_or_else(pipe)?)?,
            stderr: ChildStderr::from_std(child.stderr.take().ok_or_else(pipe)?)?,
        })
    }

    /// Connects the command to its caller until it ends. When the caller goes away, the command's group is killed.
    async fn stream(self, peer: Peer) -> Result<(), ProtocolError> {
        let Self { leader, mut status, mut stdin, stdout, stderr } = self;
        let (mut from, mut to) = tokio::io::split(peer);
        let (frames, mut outgoing) = mpsc::channel(16);
        let pumps = [
            tokio::spawn(pump(stdout, frames.clone(), Frame::Stdout)),
            tokio::spawn(pump(stderr, frames, Frame::Stderr)),
        ];
        let writing = async move {
            while let Some(frame) = outgoing.recv().await {
                write_frame(&mut to, &frame).await?;
            }
            Ok::<_, ProtocolError>(to)
        };
        let reading = async {
            loop {
                match read_frame(&mut from).await? {
                    Frame::Stdin(bytes) if bytes.is_empty() => stdin = None,
                    Frame::Stdin(bytes) => {
                        // A command that does not read its input is no error.
                        if let Some(pipe) = &mut stdin
                            && pipe.write_all(&bytes).await.is_err()
                        {
                            stdin = None;
                        }
                    }
                    _ => return Err::<(), _>(ProtocolError::Kind { found: 0, expected: "input" }),
                }
            }
        };
        tokio::pin!(writing, reading);
        let ended = tokio::select! {
            status = &mut status => status,
            lost = &mut reading => {
                kill_group(leader, Signal::SIGKILL);
                return lost;
            }
            // Both output streams have ended or the caller is gone; only the status is missing, or nobody wants it.
            written = &mut writing => {
                let mut to = written.inspect_err(|_| kill_group(leader, Signal::SIGKILL))?;
                let status = tokio::select! {
                    status = &mut status => status,
                    lost = &mut reading => {
                        kill_group(leader, Signal::SIGKILL);
                        return lost;
                    }
                };
                return send(&mut to, &command_end(status.ok())).await;
            }
        };
        let drained = tokio::time::timeout(DRAIN, &mut writing).await;
        let mut to = match drained {
            Ok(to) => to?,
            Err(_) => {
                pumps.iter().for_each(tokio::task::JoinHandle::abort);
                writing.await?
            }
        };
        send(&mut to, &command_end(ended.ok())).await
    }
}

fn command_end(status: Option<ExitStatus>) -> CommandEnd {
    let (exit_code, signal) = status.map_or((Some(255), None), code_and_signal);
    CommandEnd { exit_code, signal }
}

async fn pump(mut from: impl AsyncRead + Unpin, to: mpsc::Sender<Frame>, kind: fn(Vec<u8>) -> Frame) {
    let mut buffer = vec![0; 32 << 10];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 || to.send(kind(buffer[..count].to_vec())).await.is_err() {
            return;
        }
    }
}
