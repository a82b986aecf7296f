//! Leader election on a `coordination.k8s.io/v1` Lease.
//!
//! The rules are those of client-go: every write carries the `resourceVersion` that the decision was made on, so
//! of two candidates one gets a conflict; a record is judged by how long **this** process has seen it unchanged
//! on its own monotonic clock, never by comparing clocks of two machines; and a leader that could not renew until
//! [`Terms::renew_deadline`] stops its writers while its record is still valid for others
//! ([`Terms::duration`] is longer).

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::error::chain;

/// Times of the election.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long others wait after the last renewal that they saw.
    pub duration: Duration,
    /// How long a leader goes on without a successful renewal. Shorter than `duration`.
    pub renew_deadline: Duration,
    /// Time between two attempts to acquire or renew.
    pub retry: Duration,
}

impl Default for Terms {
    /// client-go's defaults: 15 s, 10 s, 2 s.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// What a candidate does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is no Lease: create it.
    Create,
    /// Nobody holds it, or its holder let it expire: replace the record, counting a transition.
    TakeOver,
    /// We hold it already (a restart of this process under the same name): renew it.
    Renew,
    /// Somebody else holds it.
    Wait,
}

/// Decides a candidate's next step from the Lease's record and for how long it has been unchanged in our eyes.
///
/// A record without a duration is judged by `terms.duration`.
pub fn decide(me: &str, record: Option<&LeaseSpec>, unchanged: Duration, terms: &Terms) -> Step {
    let Some(record) = record else { return Step::Create };
    match record.holder_identity.as_deref() {
        None | Some("") => Step::TakeOver,
        Some(holder) if holder == me => Step::Renew,
        Some(_) => {
            let valid = record
                .lease_duration_seconds
                .and_then(|s| u64::try_from(s).ok())
                .map_or(terms.duration, Duration::from_secs);
            if unchanged > valid { Step::TakeOver } else { Step::Wait }
        }
    }
}

/// Whether a leader whose last successful renewal **began** `since` ago must have stopped its writers by now.
///
/// Counted from the beginning: the server may have stored the record at any moment after it.
pub fn must_stop(since: Duration, terms: &Terms) -> bool {
    since >= terms.renew_deadline
}

/// Why leadership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `stop` was cancelled; the Lease is still ours.
    Asked,
    /// Another process holds the Lease, or it could not be renewed in time.
    Lost,
}

/// A candidate in one election.
pub struct Elector {
    api: Api<Lease>,
    name: String,
    me: String,
    terms: Terms,
    /// The record as last read and when we first saw it in this form.
    seen: Option<(Lease, Instant)>,
    /// When the last successful write of ours began.
    renewed: Instant,
}

impl Elector {
    /// A candidate called `me` for the Lease `name`.
    pub fn new(api: Api<Lease>, name: impl Into<String>, me: impl Into<String>, terms: Terms) -> Self {
        Self { api, name: name.into(), me: me.into(), terms, seen: None, renewed: Instant::now() }
    }

    /// Waits until the API server answers questions about the Lease, or until `stop`.
    pub async fn reach(&self, stop: &CancellationToken) {
        while let Err(error) = self.api.get_opt(&self.name).await {
            warn!(error = chain(&error), lease = self.name, "read the lease");
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.terms.retry) => {}
            }
        }
    }

    /// Waits until this process leads, or until `stop`. Returns the epoch, the number of changes of the holder
    /// so far; `None` when stopped. Failures of the API are retried.
    pub async fn acquire(&mut self, stop: &CancellationToken) -> Option<i32> {
        loop {
            match self.try_acquire().await {
                Ok(Some(epoch)) => {
                    info!(lease = self.name, identity = self.me, epoch, "leading");
                    return Some(epoch);
                }
                Ok(None) => {}
                Err(error) => warn!(error = chain(&error), lease = self.name, "acquire the lease"),
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(self.terms.retry) => {}
            }
        }
    }

    /// Renews until `stop` or until leadership is lost.
    pub async fn keep(&mut self, stop: &CancellationToken) -> End {
        loop {
            let deadline = self.renewed + self.terms.renew_deadline;
            tokio::select! {
                () = stop.cancelled() => return End::Asked,
                () = tokio::time::sleep(self.terms.retry) => {}
            }
            match tokio::time::timeout_at(deadline, self.try_acquire()).await {
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None)) => {
                    warn!(lease = self.name, "another process leads");
                    return End::Lost;
                }
                Ok(Err(error)) => warn!(error = chain(&error), lease = self.name, "renew the lease"),
                Err(_) => warn!(lease = self.name, "renewing the lease takes too long"),
            }
            if must_stop(self.renewed.elapsed(), &self.terms) {
                warn!(lease = self.name, "could not renew the lease in time");
                return End::Lost;
            }
        }
    }

    /// Gives the Lease up, so that the next leader need not wait for it to expire. Only after all writers ended.
    pub async fn release(&mut self) {
        let Some((lease, _)) = self.seen.take() else { return };
        let mut lease = lease;
        let Some(spec) = lease.spec.as_mut().filter(|s| s.holder_identity.as_deref() == Some(&self.me))
        else {
            return;
        };
        spec.holder_identity = None;
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        let params = PostParams::default();
        let released = self.api.replace(&self.name, &params, &lease);
        match tokio::time::timeout(Duration::from_secs(3), released).await {
            Ok(Ok(_)) => info!(lease = self.name, "released"),
            Ok(Err(error)) => warn!(error = chain(&error), lease = self.name, "release the lease"),
            Err(_) => warn!(lease = self.name, "releasing the lease takes too long"),
        }
    }

    /// One step of [`decide`] and its write. `None` when another process leads.
    async fn try_acquire(&mut self) -> Result<Option<i32>, kube::Error> {
        let began = Instant::now();
        let current = self.api.get_opt(&self.name).await?;
        let since = match (&current, &self.seen) {
            (Some(now), Some((before, since)))
                if now.metadata.resource_version == before.metadata.resource_version =>
            {
                *since
            }
            _ => Instant::now(),
        };
        let spec = current.as_ref().map(|l| l.spec.clone().unwrap_or_default());
        let step = decide(&self.me, spec.as_ref(), since.elapsed(), &self.terms);
        self.seen = current.map(|l| (l, since));
        if step == Step::Wait {
            return Ok(None);
        }
        let lease = self.record(step, spec);
        let params = PostParams::default();
        let written = match step {
            Step::Create => self.api.create(&params, &lease).await,
            // `lease` carries the resourceVersion that was read: of two candidates one gets a conflict.
            Step::TakeOver | Step::Renew | Step::Wait => self.api.replace(&self.name, &params, &lease).await,
        };
        match written {
            Ok(lease) => {
                let epoch = lease.spec.as_ref().and_then(|s| s.lease_transitions).unwrap_or(0);
                self.seen = Some((lease, Instant::now()));
                self.renewed = began;
                Ok(Some(epoch))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                // Somebody wrote in between; look again at the next try. As a leader: only another holder's
                // record ends our term.
                let now = self.api.get_opt(&self.name).await?;
                let holder = now.and_then(|l| l.spec).and_then(|s| s.holder_identity);
                match holder.as_deref() {
                    Some(h) if h != self.me && !h.is_empty() => Ok(None),
                    _ => Err(kube::Error::Api(status)),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn record(&self, step: Step, old: Option<LeaseSpec>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let old = old.unwrap_or_default();
        let spec = LeaseSpec {
            holder_identity: Some(self.me.clone()),
            lease_duration_seconds: Some(i32::try_from(self.terms.duration.as_secs()).unwrap_or(i32::MAX)),
            renew_time: Some(now.clone()),
            acquire_time: if step == Step::Renew { old.acquire_time } else { Some(now) },
            lease_transitions: match step {
                Step::TakeOver => Some(old.lease_transitions.unwrap_or(0).saturating_add(1)),
                Step::Create => Some(0),
                Step::Renew | Step::Wait => old.lease_transitions,
            },
            ..LeaseSpec::default()
        };
        let metadata = match &self.seen {
            Some((lease, _)) => lease.metadata.clone(),
            None => ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
        };
        Lease { metadata, spec: Some(spec) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            // Years off: a wrong clock of another machine must not matter.
            renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_of_another_is_taken_only_after_it_was_seen_unchanged_for_its_whole_duration() {
        let (terms, other) = (Terms::default(), held_by("other"));
        assert_eq!(decide("me", Some(&other), Duration::from_secs(15), &terms), Step::Wait);
        assert_eq!(decide("me", Some(&other), Duration::from_millis(15_001), &terms), Step::TakeOver);
        let long = LeaseSpec { lease_duration_seconds: Some(60), ..other };
        assert_eq!(decide("me", Some(&long), Duration::from_secs(59), &terms), Step::Wait);
    }

    #[test]
    fn a_missing_a_released_and_an_own_lease_are_taken_at_once() {
        let terms = Terms::default();
        assert_eq!(decide("me", None, Duration::ZERO, &terms), Step::Create);
        assert_eq!(decide("me", Some(&LeaseSpec::default()), Duration::ZERO, &terms), Step::TakeOver);
        assert_eq!(decide("me", Some(&held_by("")), Duration::ZERO, &terms), Step::TakeOver);
        assert_eq!(decide("me", Some(&held_by("me")), Duration::ZERO, &terms), Step::Renew);
    }

    #[test]
    fn writers_stop_while_no_other_may_take_over_yet() {
        let terms = Terms::default();
        // Worst case for the old leader: the others saw its last renewal at the moment it began.
        for ms in (0..20_000).step_by(10) {
            let since = Duration::from_millis(ms);
            let taken = decide("other", Some(&held_by("me")), since, &terms) == Step::TakeOver;
            assert!(!taken || must_stop(since, &terms), "two leaders after {since:?}");
        }
        assert!(
            must_stop(terms.renew_deadline, &terms) && terms.renew_deadline + terms.retry < terms.duration
        );
    }
}
