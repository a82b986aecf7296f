//! Does what was decided: creates, applies and deletes objects, and talks to the launcher.
//!
//! Pods and Secrets never change after their creation, so they are created and not applied: a server-side apply
//! would quietly take over an object of the same name. Objects that may change are applied. Every write is for one
//! job, identified by its UID.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use dem_crds::DemJob;
use dem_decomp::PlanFile;
use dem_launch::protocol::{AttemptSpec, WorkerHost};
use dem_launch::{ClientTls, Identity, Role, TlsError};
use dem_plan::assess::Action;
use dem_plan::validate::{ValidatedJob, Workload};
use dem_plan::{names, render};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use crate::context::{Context, FIELD_MANAGER};
use crate::error::Error;
use crate::gather::Gathered;
use crate::launchers::{Lease, Target};
use crate::reconcile::Assessed;
use crate::tls;

/// Key of the solver's plan in a job's plan record.
const PLAN_KEY: &str = "plan.json";
/// Key of the attempt that the record is about.
const ATTEMPT_KEY: &str = "attempt";

/// Carries out the actions of a decision, deletions first, pods in parallel. That a launcher cannot be talked to is no
/// error: the next pass sees that it has not heard, and decides anew.
///
/// # Errors
/// The first refusal of the API server; what was done by then is found by the next pass.
pub async fn apply(context: &Context, gathered: &Gathered, assessed: &Assessed) -> Result<(), Error> {
    let namespace = gathered.job.namespace().ok_or(Error::Incomplete("namespace"))?;
    let settings = &context.settings;
    let (mut created, mut deleted) = (Vec::new(), Vec::new());
    for action in &assessed.decision.actions {
        match (action, &assessed.validated) {
            (Action::DeletePod { name, uid }, _) => deleted.push((name.clone(), uid.clone())),
            (Action::DeleteJob, _) => delete_job(context, &gathered.job).await?,
            (Action::CreateWorker(place), Ok(job)) => created.push(render::worker_pod(job, settings, place)),
            (Action::CreateLauncher { attempt }, Ok(job)) => {
                created.push(render::launcher_pod(job, settings, *attempt));
            }
            (Action::PushAttempt { attempt }, Ok(job)) => {
                push(context, gathered, assessed, job, *attempt).await?
            }
            (
                Action::CreateWorker(_) | Action::CreateLauncher { .. } | Action::PushAttempt { .. },
                Err(_),
            ) => {
                warn!(?action, "the job became invalid while it starts; leaving this out");
            }
            (Action::RenewLauncher { attempt }, _) => {
                if let Some(launcher) = &gathered.launcher {
                    let seconds = u64::try_from(settings.launcher_lease).unwrap_or(0);
                    let lease = Lease { attempt: number(*attempt), token: token(launcher), seconds };
                    context.launchers.renew(&gathered.uid, lease);
                }
            }
            (Action::StopLauncher { attempt, reason }, _) => {
                if let Some(launcher) = &gathered.launcher {
                    stop(context, gathered, launcher, *attempt, reason).await;
                }
            }
        }
    }
    delete_pods(context, &namespace, deleted).await?;
    if let (false, Ok(job)) = (created.is_empty(), &assessed.validated) {
        certificates(context, job).await?;
        apply_object(context, &namespace, &render::network_policy(job, settings)).await?;
        create_pods(context, &namespace, created).await?;
    }
    Ok(())
}

/// Gives the launcher its attempt.
async fn push(
    context: &Context,
    gathered: &Gathered,
    assessed: &Assessed,
    job: &ValidatedJob,
    attempt: i32,
) -> Result<(), Error> {
    let Some(launcher) = &gathered.launcher else { return Ok(()) };
    let Some(plan) = recorded_plan(context, job, attempt).await? else {
        warn!(attempt, "the plan of the attempt is not on record; its start deadline will end it");
        return Ok(());
    };
    let program = match &job.workload {
        Workload::Program { .. } => {
            PlanFile::from_json(&plan).map(|p| p.subdomain_of_rank).unwrap_or_default()
        }
        Workload::Simulation { .. } => Vec::new(),
    };
    let mut workers = Vec::new();
    let mut next_rank = 0;
    for worker in &assessed.decision.status.workers {
        let pod = gathered.observed.workers.get(&worker.pod);
        let address = pod.and_then(|p| p.ip.as_ref()).and_then(|ip| ip.parse::<IpAddr>().ok());
        let (Some(pod), Some(address)) = (pod, address) else {
            info!(pod = worker.pod, "has no address yet");
            return Ok(());
        };
        // Ranks are numbered node by node, in the plan's order.
        let places = next_rank..next_rank + u32::try_from(worker.ranks).unwrap_or(0);
        next_rank = places.end;
        let ranks = places.map(|place| rank_at(&program, place)).collect();
        workers.push(WorkerHost {
            pod: worker.pod.clone(),
            uid: pod.uid.clone(),
            node: worker.node.clone(),
            address,
            ranks,
        });
    }
    let seconds = |s: i64| u64::try_from(s).unwrap_or(0);
    let spec = AttemptSpec {
        job: job.name.clone(),
        namespace: job.namespace.clone(),
        attempt: number(attempt),
        token: token(launcher),
        workers,
        command: render::attempt_command(job, attempt),
        env: BTreeMap::new(),
        files: render::attempt_files(job, &plan),
        start_deadline_seconds: seconds(job.start_deadline),
        worker_lease_seconds: seconds(context.settings.worker_lease),
        launcher_lease_seconds: seconds(context.settings.launcher_lease),
        yield_when_idle: context.settings.yield_when_idle,
        mpirun_args: Vec::new(),
    };
    match context.launchers.begin(&gathered.uid, launcher, &spec).await {
        Ok(()) => info!(attempt, launcher = %launcher.address, "gave the attempt to its launcher"),
        Err(error) => warn!(attempt, %error, "give the attempt to its launcher"),
    }
    Ok(())
}

/// The MPI rank that runs at a place of the plan. The solver permutes its subdomains itself; a program's rank is its
/// subdomain, so there the plan's permutation says which rank runs where.
fn rank_at(permutation: &[u32], place: u32) -> u32 {
    permutation.get(place as usize).copied().unwrap_or(place)
}

/// Asks a launcher to stop, unless it said that it does.
async fn stop(context: &Context, gathered: &Gathered, launcher: &Target, attempt: i32, reason: &str) {
    use dem_plan::observed::LauncherPhase;
    let phase = gathered.observed.launcher.as_ref().map(|l| l.phase);
    if matches!(phase, Some(LauncherPhase::Stopping | LauncherPhase::Ended)) {
        return;
    }
    match context.launchers.stop(&gathered.uid, launcher, reason).await {
        Ok(()) => info!(attempt, reason, "asked the ranks to stop"),
        Err(error) => warn!(attempt, reason, %error, "ask the ranks to stop"),
    }
}

/// Tells two launchers of the same attempt apart.
fn token(launcher: &Target) -> String {
    launcher.pod_uid.clone()
}

/// Attempts are counted from 1.
fn number(attempt: i32) -> u64 {
    u64::try_from(attempt).unwrap_or(0)
}

/// The object that keeps the plan of an attempt.
pub fn plan_record(job: &ValidatedJob, attempt: i32, plan: &str) -> ConfigMap {
    let owner = OwnerReference {
        api_version: format!("{}/{}", dem_crds::GROUP, dem_crds::VERSION),
        kind: "DemJob".to_owned(),
        name: job.name.clone(),
        uid: job.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(plan_name(&job.name)),
            namespace: Some(job.namespace.clone()),
            labels: Some(names::labels(&job.name)),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([
            (ATTEMPT_KEY.to_owned(), attempt.to_string()),
            (PLAN_KEY.to_owned(), plan.to_owned()),
        ])),
        ..ConfigMap::default()
    }
}

fn plan_name(job: &str) -> String {
    format!("{job}-plan")
}

/// The text of an attempt's plan, from memory or from its record.
async fn recorded_plan(
    context: &Context,
    job: &ValidatedJob,
    attempt: i32,
) -> Result<Option<Arc<String>>, Error> {
    if let Some((_, text)) = context.memory(&job.uid, |m| m.plan.clone()).filter(|(of, _)| *of == attempt) {
        return Ok(Some(text));
    }
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &job.namespace);
    let name = plan_name(&job.name);
    let read = api.get_opt(&name).await;
    let found = read.map_err(|source| Error::Read { kind: "ConfigMap", name, source })?;
    let data = found.filter(|c| is_owned_by(c, &job.uid)).and_then(|c| c.data).unwrap_or_default();
    if data.get(ATTEMPT_KEY) != Some(&attempt.to_string()) {
        return Ok(None);
    }
    let text = data.get(PLAN_KEY).map(|text| Arc::new(text.clone()));
    if let Some(text) = &text {
        context.memory(&job.uid, |m| m.plan = Some((attempt, text.clone())));
    }
    Ok(text)
}

/// Whether an object is controlled by the job with this UID.
pub fn is_owned_by(object: &impl ResourceExt, uid: &str) -> bool {
    object.owner_references().iter().any(|o| o.uid == uid && o.controller == Some(true))
}

/// Creates pods, as many at a time as the arguments allow. One that exists already is left alone: whether it is
/// this job's is seen by its UID when it is observed.
///
/// # Errors
/// The first refusal. Pods created by then stay, and the next pass finds them.
async fn create_pods(context: &Context, namespace: &str, pods: Vec<Pod>) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let parallel = usize::from(context.args.create_parallelism);
    stream::iter(pods)
        .map(|pod| {
            let api = api.clone();
            async move {
                let name = pod.name_any();
                match api.create(&PostParams::default(), &pod).await {
                    Ok(_) => info!(pod = name, "created"),
                    Err(error) if is_conflict(&error) => {}
                    Err(source) => return Err(Error::Apply { kind: "Pod", name, source }),
                }
                Ok(())
            }
        })
        .buffer_unordered(parallel)
        .try_collect()
        .await
}

/// Deletes pods by name and UID; another pod of the same name is left alone, one that is gone is fine.
///
/// # Errors
/// The first refusal.
async fn delete_pods(context: &Context, namespace: &str, pods: Vec<(String, String)>) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let parallel = usize::from(context.args.create_parallelism);
    stream::iter(pods)
        .map(|(name, uid)| {
            let api = api.clone();
            async move {
                delete(&api, "Pod", &name, &uid, DeleteParams::default()).await?;
                info!(pod = name, "deleted");
                Ok::<_, Error>(())
            }
        })
        .buffer_unordered(parallel)
        .try_collect()
        .await
}

/// Deletes the job itself, with all that it owns.
///
/// # Errors
/// When the API refuses.
async fn delete_job(context: &Context, job: &DemJob) -> Result<(), Error> {
    let api: Api<DemJob> = Api::namespaced(context.client.clone(), &job.namespace().unwrap_or_default());
    let uid = job.uid().ok_or(Error::Incomplete("uid"))?;
    delete(&api, "DemJob", &job.name_any(), &uid, DeleteParams::background()).await
}

async fn delete<K>(
    api: &Api<K>,
    kind: &'static str,
    name: &str,
    uid: &str,
    mut params: DeleteParams,
) -> Result<(), Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    params.preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        // Gone, or replaced by another object of the same name: what was meant exists no more.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(source) => Err(Error::Delete { kind, name: name.to_owned(), source }),
    }
}

/// Server-side apply of an object whose every field is ours.
///
/// # Errors
/// When the API refuses.
pub async fn apply_object<K>(context: &Context, namespace: &str, object: &K) -> Result<(), Error>
where
    K: k8s_openapi::Resource
        + Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(context.client.clone(), namespace);
    let name = object.name_any();
    let params = PatchParams::apply(FIELD_MANAGER).force();
    match api.patch(&name, &params, &Patch::Apply(object)).await {
        Ok(_) => Ok(()),
        Err(source) => Err(Error::Apply { kind: K::KIND, name, source }),
    }
}

/// Creates the job's three Secrets where they are missing.
///
/// # Errors
/// When the API refuses, or a Secret of that name is another object's or unusable.
async fn certificates(context: &Context, job: &ValidatedJob) -> Result<(), Error> {
    let uid = job.uid.as_str();
    if context.memory(uid, |m| m.certified) {
        return Ok(());
    }
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &job.namespace);
    let name = names::ca_secret(&job.name);
    let kept = match owned(&api, &name, uid).await? {
        Some(found) => found,
        None => {
            let ca = tls::authority(&format!("{}/{}", job.namespace, job.name))?;
            let operator = tls::certificate(&ca, Role::Operator)?;
            create(&api, &render::ca_secret(job, &ca.key, &operator), uid).await?
        }
    };
    let of = format!("{}/{}", job.namespace, job.name);
    let ca = tls::Authority { job: of, cert: text(&kept, tls::CA_CERT)?, key: text(&kept, tls::CA_KEY)? };
    for (role, pods) in [(Role::Worker, names::Role::Worker), (Role::Launcher, names::Role::Launcher)] {
        if owned(&api, &names::tls_secret(&job.name, pods), uid).await?.is_none() {
            create(&api, &render::tls_secret(job, pods, &tls::certificate(&ca, role)?), uid).await?;
        }
    }
    context.memory(uid, |m| m.certified = true);
    Ok(())
}

/// The operator's certificate under the job's CA; `None` before the job has one.
///
/// # Errors
/// When the API does not answer, or the Secret is another object's or unusable.
pub async fn operator_certificate(
    context: &Context,
    job: &DemJob,
    uid: &str,
    namespace: &str,
) -> Result<Option<ClientTls>, Error> {
    if let Some(tls) = context.memory(uid, |m| m.tls.clone()) {
        return Ok(Some(tls));
    }
    let api: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let name = names::ca_secret(&job.name_any());
    let Some(secret) = owned(&api, &name, uid).await? else { return Ok(None) };
    let unusable = |e: TlsError| Error::Secret { name: name.clone(), what: e.to_string() };
    let part = |key| text(&secret, key);
    let identity = Identity::from_pem(&part(tls::CA_CERT)?, &part(tls::CERT)?, &part(tls::KEY)?);
    let client = identity.and_then(ClientTls::new).map_err(unusable)?;
    context.memory(uid, |m| m.tls = Some(client.clone()));
    Ok(Some(client))
}

/// Text under `key` of a Secret that must have it.
fn text(secret: &Secret, key: &str) -> Result<String, Error> {
    let found =
        secret.data.as_ref().and_then(|d| d.get(key)).and_then(|v| String::from_utf8(v.0.clone()).ok());
    let what = || format!("has no text under `{key}`");
    found.ok_or_else(|| Error::Secret { name: secret.name_any(), what: what() })
}

/// The Secret of this name, if there is one; it must be the job's.
async fn owned(api: &Api<Secret>, name: &str, uid: &str) -> Result<Option<Secret>, Error> {
    let read = |source| Error::Read { kind: "Secret", name: name.to_owned(), source };
    match api.get_opt(name).await.map_err(read)? {
        Some(found) if is_owned_by(&found, uid) => Ok(Some(found)),
        Some(_) => Err(Error::NotOurs { kind: "Secret", name: name.to_owned() }),
        None => Ok(None),
    }
}

/// Creates a Secret; of two that are created at the same time the first counts.
async fn create(api: &Api<Secret>, secret: &Secret, uid: &str) -> Result<Secret, Error> {
    let name = secret.name_any();
    match api.create(&PostParams::default(), secret).await {
        Ok(created) => Ok(created),
        Err(error) if is_conflict(&error) => {
            owned(api, &name, uid).await?.ok_or(Error::Apply { kind: "Secret", name, source: error })
        }
        Err(source) => Err(Error::Apply { kind: "Secret", name, source }),
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}
