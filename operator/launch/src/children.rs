//! Child processes of a PID 1: started, reaped and killed in one place.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Our own children, so that their statuses reach who waits for them while orphans are only reaped.
#[derive(Clone, Default)]
pub(crate) struct Children(Arc<Mutex<HashMap<i32, oneshot::Sender<ExitStatus>>>>);

impl Children {
    /// Makes this process adopt the orphans below it (PID 1 does anyway) and reaps them from now on. No other code of
    /// the process may wait for children.
    pub(crate) fn adopt_and_reap() -> io::Result<Self> {
        prctl::set_child_subreaper(true)?;
        let children = Self::default();
        let reaping = children.clone();
        let mut died = signal(SignalKind::child())?;
        tokio::spawn(async move {
            while died.recv().await.is_some() {
                reaping.reap();
            }
        });
        Ok(children)
    }

    fn reap(&self) {
        // Held while reaping: a child that ends at once is not reaped before `spawn` has registered it.
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => Some((pid, ExitStatus::from_raw(code << 8))),
                Ok(WaitStatus::Signaled(pid, signal, _)) => Some((pid, ExitStatus::from_raw(signal as i32))),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
                Ok(_) | Err(Errno::EINTR) => None,
                Err(error) => {
                    tracing::warn!(%error, "cannot wait for children");
                    return;
                }
            };
            if let Some((pid, status)) = status
                && let Some(waiting) = own.remove(&pid.as_raw())
            {
                let _ = waiting.send(status);
            }
        }
    }

    /// Starts `command` as the leader of a process group that dies with this process, and gives its future status.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<(Child, oneshot::Receiver<ExitStatus>)> {
        command.process_group(0);
        die_with_parent(command);
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn()?;
        let (send, status) = oneshot::channel();
        own.insert(child.id() as i32, send);
        Ok((child, status))
    }
}

/// Lets the kernel kill the command when the thread that starts it (the main one) ends.
pub(crate) fn die_with_parent(command: &mut Command) {
    #[expect(unsafe_code, reason = "the parent-death signal can only be set in the child")]
    // SAFETY: the closure runs between fork and exec and only makes one system call, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| Ok(prctl::set_pdeathsig(Signal::SIGKILL)?));
    }
}

/// Kills the process group that `leader` leads.
pub(crate) fn kill_group(leader: u32, signal: Signal) {
    let _ = killpg(Pid::from_raw(leader as i32), signal);
}

/// Living processes below this one, whatever group or session they moved to.
pub(crate) fn descendants() -> Vec<Pid> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // `pid (name) state ppid ...`; the name may hold anything, so fields are counted after its last bracket.
        let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
        if let (Some(state), Some(Ok(parent))) = (fields.next(), fields.next().map(str::parse::<i32>)) {
            parents.push((pid, parent, !matches!(state, "Z" | "X")));
        }
    }
    let mut below = vec![std::process::id() as i32];
    let mut next = 0;
    while next < below.len() {
        let parent = below[next];
        below.extend(parents.iter().filter(|(_, p, _)| *p == parent).map(|(pid, _, _)| *pid));
        next += 1;
    }
    let alive = |pid: &i32| parents.iter().any(|(p, _, alive)| p == pid && *alive);
    below[1..].iter().filter(|pid| alive(pid)).map(|pid| Pid::from_raw(*pid)).collect()
}

/// Kills every process below this one and returns when none lives: what forks meanwhile is found by the next look.
pub(crate) async fn kill_descendants() {
    loop {
        let alive = descendants();
        if alive.is_empty() {
            return;
        }
        for pid in alive {
            let _ = kill(pid, Signal::SIGKILL);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Exit code and signal of a status; exactly one is set.
pub(crate) fn code_and_signal(status: ExitStatus) -> (Option<i32>, Option<i32>) {
    match status.code() {
        Some(code) => (Some(code), None),
        None => (None, Some(status.signal().unwrap_or(0))),
    }
}
