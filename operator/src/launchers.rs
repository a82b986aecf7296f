//! Conversations with the launchers of running jobs, each in a task of its own.
//!
//! A reconcile never waits for a launcher that is only watched: it looks at what was last heard. A launcher that is
//! slow or cut off holds up its own task and nothing else.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dem_crds::DemJob;
use dem_launch::protocol::{AttemptSpec, LauncherState};
use dem_launch::{Client, ClientError, ClientTls};
use futures::channel::mpsc::UnboundedSender;
use k8s_openapi::jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::ObjectRef;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{debug, info};

/// Reference to a job, as the controller queues it.
pub type JobRef = ObjectRef<DeserializeGuard<DemJob>>;

/// Which launcher to watch.
#[derive(Clone)]
pub struct Target {
    /// UID of the launcher's pod: another pod means another conversation.
    pub pod_uid: String,
    /// Where its agent listens.
    pub address: SocketAddr,
    /// The operator's certificate under the job's CA.
    pub tls: ClientTls,
}

/// A lease to be renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Number of the attempt.
    pub attempt: u64,
    /// Its fence token.
    pub token: String,
    /// How long the launcher goes on without us [s].
    pub seconds: u64,
}

/// What was last heard of a launcher.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// Its last answer.
    pub state: Option<LauncherState>,
    /// Since when it has not answered; absent while it does.
    pub silent_since: Option<Instant>,
    /// When its lease was renewed last [s since the epoch].
    pub renewed: Option<i64>,
    /// Why the last look failed; absent if it did not.
    pub error: Option<String>,
}

/// All conversations.
pub struct Launchers {
    watched: Mutex<HashMap<String, Watched>>,
    wake: UnboundedSender<JobRef>,
    poll: Duration,
}

struct Watched {
    pod_uid: String,
    shared: Arc<Mutex<Shared>>,
    task: AbortHandle,
}

struct Shared {
    heard: Heard,
    renew: Option<Lease>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Launchers {
    /// No conversation yet. `wake` takes the jobs whose launcher said something new.
    pub fn new(wake: UnboundedSender<JobRef>, poll: Duration) -> Self {
        Self { watched: Mutex::default(), wake, poll }
    }

    /// What was last heard of the launcher of the job `uid`; begins to watch it if it is not watched yet.
    pub fn follow(&self, uid: &str, job: &JobRef, target: Target) -> Heard {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = watched.get(uid).filter(|w| w.pod_uid == target.pod_uid) {
            return known.shared.lock().unwrap_or_else(PoisonError::into_inner).heard.clone();
        }
        let shared = Arc::new(Mutex::new(Shared { heard: Heard::default(), renew: None }));
        let task =
            tokio::spawn(watch(target.clone(), shared.clone(), self.poll, self.wake.clone(), job.clone()));
        watched
            .insert(uid.to_owned(), Watched { pod_uid: target.pod_uid, shared, task: task.abort_handle() });
        Heard::default()
    }

    /// Renews a launcher's lease with the next look, and with further ones until it succeeds.
    pub fn renew(&self, uid: &str, lease: Lease) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = watched.get(uid) {
            known.shared.lock().unwrap_or_else(PoisonError::into_inner).renew = Some(lease);
        }
    }

    /// Ends the conversation about the job `uid`.
    pub fn leave(&self, uid: &str) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    /// Ends the conversations about jobs for which `keep` is false.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).retain(|uid, _| keep(uid));
    }

    /// Puts an answer that came outside the conversation (to `begin` or `stop`) where the next look finds it.
    fn note(&self, uid: &str, pod_uid: &str, state: LauncherState, renewed: Option<i64>) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = watched.get(uid).filter(|w| w.pod_uid == pod_uid) {
            let mut shared = known.shared.lock().unwrap_or_else(PoisonError::into_inner);
            let heard = &mut shared.heard;
            (heard.state, heard.silent_since, heard.error) = (Some(state), None, None);
            heard.renewed = renewed.or(heard.renewed);
        }
    }

    /// Hands a launcher its attempt.
    ///
    /// # Errors
    /// When it cannot be reached within seconds, or refuses.
    pub async fn begin(&self, uid: &str, target: &Target, spec: &AttemptSpec) -> Result<(), ClientError> {
        let state = Client::connect(target.address, &target.tls).await?.begin(spec).await?;
        self.note(uid, &target.pod_uid, state, Some(Timestamp::now().as_second()));
        Ok(())
    }

    /// Asks a launcher for a checkpoint and the end of its ranks.
    ///
    /// # Errors
    /// When it cannot be reached within seconds.
    pub async fn stop(&self, uid: &str, target: &Target, reason: &str) -> Result<(), ClientError> {
        let state = Client::connect(target.address, &target.tls).await?.stop(reason).await?;
        self.note(uid, &target.pod_uid, state, None);
        Ok(())
    }
}

/// Looks at one launcher for as long as somebody wants to know.
async fn watch(
    target: Target,
    shared: Arc<Mutex<Shared>>,
    poll: Duration,
    wake: UnboundedSender<JobRef>,
    job: JobRef,
) {
    let mut connection = None;
    loop {
        let renew = shared.lock().unwrap_or_else(PoisonError::into_inner).renew.clone();
        let began = Instant::now();
        let answer = look(&mut connection, &target, renew.as_ref()).await;
        if answer.is_err() {
            connection = None;
        }
        let news = {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let before = shared.heard.clone();
            match answer {
                Ok((state, renewed)) => {
                    let heard = &mut shared.heard;
                    (heard.state, heard.silent_since, heard.error) = (Some(state), None, None);
                    heard.renewed = renewed.or(heard.renewed);
                    if renewed.is_some() {
                        shared.renew = None;
                    }
                }
                Err(error) => {
                    debug!(%job, %error, "look at the launcher");
                    shared.heard.error = Some(error.to_string());
                    shared.heard.silent_since.get_or_insert(began);
                }
            }
            is_news(&before, &shared.heard)
        };
        if news {
            info!(%job, launcher = %target.address, "news from the launcher");
            if wake.unbounded_send(job.clone()).is_err() {
                return;
            }
        }
        tokio::time::sleep(poll).await;
    }
}

async fn look(
    connection: &mut Option<Client>,
    target: &Target,
    renew: Option<&Lease>,
) -> Result<(LauncherState, Option<i64>), ClientError> {
    let client = match connection {
        Some(client) => client,
        None => connection.insert(Client::connect(target.address, &target.tls).await?),
    };
    match renew {
        // A launcher that refuses to be renewed still answers questions: its state says why.
        Some(lease) => match client.renew(lease.attempt, &lease.token, lease.seconds).await {
            Err(ClientError::Refused { .. }) => Ok((client.state().await?, None)),
            answer => Ok((answer?, Some(Timestamp::now().as_second()))),
        },
        None => Ok((client.state().await?, None)),
    }
}

/// Whether a reconcile should happen now: everything but progress, which has its own pace.
fn is_news(before: &Heard, now: &Heard) -> bool {
    if before.error.is_some() != now.error.is_some() {
        return true;
    }
    match (&before.state, &now.state) {
        (None, None) => false,
        (Some(a), Some(b)) => a.phase != b.phase || a.attempt != b.attempt || a.workers != b.workers,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use dem_launch::protocol::{Phase, Progress};

    use super::*;

    fn heard(phase: Phase, step: u64) -> Heard {
        let state = LauncherState {
            clock_ns: step,
            phase,
            attempt: Some(1),
            workers: Vec::new(),
            progress: Some(Progress { step, ..Progress::default() }),
            ranks: Vec::new(),
            outcome: None,
        };
        Heard { state: Some(state), ..Heard::default() }
    }

    #[test]
    fn progress_is_no_news_but_a_phase_and_a_broken_connection_are() {
        assert!(!is_news(&heard(Phase::Running, 1), &heard(Phase::Running, 2)));
        assert!(is_news(&heard(Phase::Running, 2), &heard(Phase::Ended, 2)));
        assert!(is_news(&Heard::default(), &heard(Phase::Waiting, 0)));
        let broken = Heard { error: Some("reset".into()), ..heard(Phase::Running, 2) };
        assert!(is_news(&heard(Phase::Running, 2), &broken));
        assert!(!is_news(&broken, &Heard { error: Some("refused".into()), ..broken.clone() }));
    }
}
