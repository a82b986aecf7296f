//! Waiting for conditions.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::{StreamExt, pin_mut};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// Watches one object until `holds` is true for it; the object then. `what` says what is waited for.
///
/// # Errors
/// When the time is up, with the object's last state as JSON, or when it is deleted meanwhile.
pub async fn until<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    limit: Duration,
    mut holds: impl FnMut(&K) -> bool,
) -> anyhow::Result<K>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + serde::Serialize + 'static,
{
    let objects = watcher::watch_object(api.clone(), name);
    pin_mut!(objects);
    let mut last: Option<K> = None;
    let wait = async {
        while let Some(seen) = objects.next().await {
            // A watch that breaks is taken up again by the watcher: only the time limit ends the wait.
            let Ok(seen) = seen else { continue };
            match seen {
                Some(object) if holds(&object) => return Ok(Some(object)),
                Some(object) => last = Some(object),
                None if last.is_some() => bail!("{name} was deleted while waiting until {what}"),
                None => {}
            }
        }
        Ok(None)
    };
    match tokio::time::timeout(limit, wait).await {
        Ok(found) => found?.with_context(|| format!("the watch of {name} ended while waiting until {what}")),
        Err(_) => {
            let state = last.map_or_else(
                || "it never existed".to_owned(),
                |l| serde_json::to_string_pretty(&l).unwrap_or_else(|_| format!("{l:?}")),
            );
            bail!("{name}: not within {} s that {what}; last state: {state}", limit.as_secs())
        }
    }
}

/// Watches the objects that `selector` chooses until `holds` is true for all of them together; then the objects.
///
/// # Errors
/// When the time is up, with the names of what was there.
pub async fn until_all<K>(
    api: &Api<K>,
    selector: &str,
    what: &str,
    limit: Duration,
    mut holds: impl FnMut(&[K]) -> bool,
) -> anyhow::Result<Vec<K>>
where
    K: Resource + Clone + Debug + Send + Sync + DeserializeOwned + 'static,
    K::DynamicType: Default + Eq + std::hash::Hash + Clone,
{
    let (reader, writer) = kube::runtime::reflector::store();
    let changes =
        watcher(api.clone(), watcher::Config::default().labels(selector)).default_backoff().reflect(writer);
    pin_mut!(changes);
    let mut now = Vec::new();
    let wait = async {
        while let Some(event) = changes.next().await {
            // Between Init and InitDone the store still holds the state before. A watch that breaks is taken up again.
            if matches!(event, Err(_) | Ok(watcher::Event::Init | watcher::Event::InitApply(_))) {
                continue;
            }
            now = reader.state().iter().map(|o| K::clone(o)).collect();
            if holds(&now) {
                return true;
            }
        }
        false
    };
    if tokio::time::timeout(limit, wait).await.unwrap_or(false) {
        return Ok(now);
    }
    let names = now.iter().filter_map(|o| o.meta().name.clone()).collect::<Vec<_>>();
    bail!("not within {} s that {what}; there are {}: {}", limit.as_secs(), names.len(), names.join(" "))
}

/// Asks again and again until an answer comes; for what cannot be watched, such as Prometheus.
///
/// # Errors
/// When the time is up, with the last refusal.
pub async fn until_answer<T, F>(what: &str, limit: Duration, mut ask: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    let end = tokio::time::Instant::now() + limit;
    loop {
        ticks.tick().await;
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(e) if tokio::time::Instant::now() >= end => {
                return Err(e.context(format!("not within {} s: {what}", limit.as_secs())));
            }
            Err(_) => {}
        }
    }
}
