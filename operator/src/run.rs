//! The composition root: client, caches, controller, lease, HTTP, shutdown.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use dem_crds::DemJob;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::client::ClientBuilder;
use kube::core::DeserializeGuard;
use kube::runtime::controller::{self, Controller};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Config};
use tokio_util::sync::CancellationToken;
use tower::timeout::TimeoutLayer;
use tracing::{error, info, warn};

use crate::args::Args;
use crate::context::{Context, Ended};
use crate::error::chain;
use crate::gather;
use crate::http::{self, Readiness};
use crate::lease::{Elector, End, Terms};
use crate::metrics::Metrics;
use crate::reconcile;

/// Name of the Lease that replicas compete for.
pub const LEASE: &str = "dem-operator";
/// How long reconciles that run may take to end at shutdown.
const DRAIN: Duration = Duration::from_secs(20);
/// Time within which the API server must begin to answer. Also a watch is answered at once; it is the events that take
/// their time. Without this a request whose answer was lost would hold up its job for ever.
const ANSWER: Duration = Duration::from_secs(30);
/// Longest silence on a connection in the middle of an answer. Above the 290 s after which the server ends a watch.
const SILENCE: Duration = Duration::from_secs(295);
/// How often what is remembered of deleted jobs is dropped.
const SWEEP: Duration = Duration::from_secs(15);

/// Runs the operator until `stop`, or until it loses the lease.
///
/// # Errors
/// When the cluster's configuration cannot be found, the HTTP address cannot be bound, or the lease is lost: then
/// this process must end, so that nothing of it writes beside the new leader.
pub async fn run(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    // Two providers in one build would make rustls panic at the first TLS configuration; see who asks for the other
    // with `cargo tree -i aws-lc-rs`.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let metrics = Arc::new(Metrics::new().context("register the metrics")?);
    let readiness = Arc::new(Readiness::default());
    readiness.wait("lease", "the API server has not answered yet");
    let client = client().await?;
    let identity = args.identity.clone().unwrap_or_else(own_name);

    let serving = CancellationToken::new();
    let http = http::serve(args.http_address, metrics.clone(), readiness.clone(), serving.clone());
    let mut http = tokio::spawn(http);

    let leases: Api<Lease> = Api::namespaced(client.clone(), &args.namespace);
    let mut elector = Elector::new(leases, LEASE, &identity, Terms::default());
    let led = tokio::select! {
        led = lead(&args, client, &identity, &mut elector, &metrics, &readiness, &stop) => led,
        served = &mut http => match served.context("serve HTTP")? {
            Ok(()) => Err(anyhow::anyhow!("the HTTP server ended")),
            Err(error) => Err(error).with_context(|| format!("listen on {}", args.http_address)),
        },
    };
    serving.cancel();
    led
}

/// A client that gives up on a server that does not answer.
async fn client() -> anyhow::Result<Client> {
    let mut config = Config::infer().await.context("find the cluster")?;
    config.read_timeout = Some(SILENCE);
    let builder = ClientBuilder::try_from(config).context("make a client")?;
    Ok(builder.with_layer(&TimeoutLayer::new(ANSWER)).build())
}

/// Waits for the lease, controls jobs while it is held, and gives it up.
async fn lead(
    args: &Args,
    client: Client,
    identity: &str,
    elector: &mut Elector,
    metrics: &Arc<Metrics>,
    readiness: &Arc<Readiness>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    // A replica that can see the lease is ready to take over, which is what a standby is for.
    elector.reach(stop).await;
    readiness.pass("lease");
    if elector.acquire(stop).await.is_none() {
        return Ok(());
    }
    metrics.set_leader(true);
    readiness.wait("caches", "jobs, pods and nodes are not listed yet");
    let drain = CancellationToken::new();
    let mut controller = tokio::spawn(control(
        args.clone(),
        client,
        identity.to_owned(),
        metrics.clone(),
        readiness.clone(),
        drain.clone(),
    ));
    let end = tokio::select! {
        end = elector.keep(stop) => end,
        ended = &mut controller => {
            elector.release().await;
            ended.context("the controller's task")?;
            anyhow::bail!("the controller ended on its own");
        }
    };
    metrics.set_leader(false);
    if end == End::Lost {
        // Dropping the task drops every reconcile in flight: no further write leaves this process.
        controller.abort();
        anyhow::bail!("lost the lease");
    }
    info!("stopping: waiting for reconciles that run");
    drain.cancel();
    let never = CancellationToken::new();
    tokio::select! {
        _ = &mut controller => {}
        _ = elector.keep(&never) => warn!("lost the lease while stopping"),
        () = tokio::time::sleep(DRAIN) => warn!("reconciles still run after {DRAIN:?}; leaving them"),
    }
    controller.abort();
    elector.release().await;
    Ok(())
}

/// Watches and reconciles until `drain`, then lets running reconciles end.
async fn control(
    args: Args,
    client: Client,
    identity: String,
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    drain: CancellationToken,
) {
    let config = watcher::Config::default;
    // Pods of other namespaces and owners take capacity; of them only that is kept.
    let (pods, pod_writer) = reflector::store::<Pod>();
    let ended = Arc::new(Ended::default());
    let gone = ended.clone();
    let pod_events = watcher(Api::<Pod>::all(client.clone()), config())
        .default_backoff()
        .modify(gather::trim_pod)
        .inspect_ok(move |event| {
            if let watcher::Event::Delete(pod) = event
                && gather::is_ours(pod)
            {
                gone.note(pod);
            }
        })
        .reflect(pod_writer)
        .touched_objects();
    let (nodes, node_writer) = reflector::store::<Node>();
    let node_events = watcher(Api::<Node>::all(client.clone()), config())
        .default_backoff()
        .modify(gather::trim_node)
        .reflect(node_writer)
        .touched_objects()
        .for_each(|event| async {
            if let Err(error) = event {
                warn!(error = chain(&error), "watch nodes");
            }
        });
    let jobs: Api<DeserializeGuard<DemJob>> = match args.watch_namespace.as_str() {
        "" => Api::all(client.clone()),
        namespace => Api::namespaced(client.clone(), namespace),
    };
    let (wake, woken) = futures::channel::mpsc::unbounded();
    let controller = Controller::new(jobs, config())
        .with_config(controller::Config::default().concurrency(args.concurrency))
        .owns_stream(pod_events)
        .reconcile_on(woken)
        .graceful_shutdown_on(drain.clone().cancelled_owned());
    let known = controller.store();
    let context = Arc::new(Context::new(
        args,
        client,
        identity,
        (pods.clone(), nodes.clone(), known.clone()),
        metrics,
        wake,
        ended,
    ));

    let caches = async {
        let ready =
            (known.wait_until_ready().await, pods.wait_until_ready().await, nodes.wait_until_ready().await);
        if let (Ok(()), Ok(()), Ok(())) = ready {
            context.filled.cancel();
            readiness.pass("caches");
            info!(jobs = known.len(), pods = pods.len(), nodes = nodes.len(), "caches are filled");
        }
        std::future::pending::<()>().await;
    };
    let sweep = async {
        loop {
            tokio::time::sleep(SWEEP).await;
            context.forget_deleted();
        }
    };
    let run =
        controller.run(reconcile::reconcile, reconcile::error_policy, context.clone()).for_each(|result| {
            // Failures of a reconcile are logged by `error_policy`.
            if let Err(error @ controller::Error::QueueError(_)) = result {
                warn!(error = chain(&error), "watch jobs or pods");
            }
            std::future::ready(())
        });
    tokio::select! {
        () = run => {}
        () = node_events => error!("the watch of nodes ended"),
        () = caches => {}
        () = sweep => {}
    }
}

/// This process's name where nobody gave it one: unique enough for replicas on different hosts.
fn own_name() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|h| h.into_string().ok());
    format!("{}-{}", host.unwrap_or_else(|| "dem-operator".to_owned()), std::process::id())
}
