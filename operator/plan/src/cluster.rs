//! What the planner sees of a cluster: nodes, and what pods have taken of them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, Pod, ResourceRequirements, Taint};
use serde::Deserialize;

use crate::quantity::{Quantity, QuantityError};

/// The nodes of a cluster, sorted by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterView {
    nodes: BTreeMap<String, NodeView>,
}

/// A node, and what its pods have taken of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Whether its condition `Ready` is `True`.
    pub ready: bool,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Cores that pods may have.
    pub allocatable_cpu: Quantity,
    /// Memory that pods may have, in bytes.
    pub allocatable_memory: Quantity,
    /// Number of pods that it may hold.
    pub allocatable_pods: u64,
    /// Cores that its pods have requested.
    pub requested_cpu: Quantity,
    /// Memory that its pods have requested, in bytes.
    pub requested_memory: Quantity,
    /// Number of its pods.
    pub pods: u64,
    /// Whole cores that its pods hold for themselves alone.
    pub exclusive_cores: u64,
}

impl NodeView {
    /// Whole cores that a worker may take when `reserve` cores are to be left to the system and the network path:
    /// the least of what is not requested and of the whole cores that are neither reserved nor held exclusively.
    /// Small pods and launchers may thus live in the reserve.
    #[must_use]
    pub fn free_cores(&self, reserve: u64) -> u64 {
        let unrequested = self.allocatable_cpu.minus(self.requested_cpu).floor();
        let whole = self.allocatable_cpu.floor().saturating_sub(reserve).saturating_sub(self.exclusive_cores);
        unrequested.min(whole)
    }

    /// Memory that is not requested, in bytes.
    #[must_use]
    pub fn free_memory(&self) -> Quantity {
        self.allocatable_memory.minus(self.requested_memory)
    }
}

/// Why a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Not JSON of the expected shape.
    #[error("snapshot: {0}; expected the output of `kubectl get nodes,pods -A -o json`")]
    Json(#[from] serde_json::Error),
    /// An object of the list is not a valid node or pod.
    #[error("snapshot: items[{index}] ({kind}): {source}")]
    Item {
        /// Position in the list.
        index: usize,
        /// What it says it is.
        kind: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// No node among the objects.
    #[error(
        "snapshot: no Node among {items} objects; expected the output of `kubectl get nodes,pods -A -o json`"
    )]
    NoNodes {
        /// How many objects there are.
        items: usize,
    },
    /// A quantity that cannot be read.
    #[error("{object}: {field}: {source}")]
    Quantity {
        /// Kind and name of the object.
        object: String,
        /// Path of the field.
        field: String,
        /// What is wrong with it.
        source: QuantityError,
    },
}

/// `kubectl get ... -o json`: a list of mixed kinds.
#[derive(Deserialize)]
struct List {
    items: Vec<serde_json::Value>,
}

impl ClusterView {
    /// From the text of `kubectl get nodes,pods -A -o json`; objects of other kinds are passed over.
    ///
    /// # Errors
    /// When the text is not such a list, has no node, or holds a quantity that cannot be read.
    pub fn from_json(text: &str) -> Result<Self, SnapshotError> {
        let list: List = serde_json::from_str(text)?;
        let items = list.items.len();
        let (mut nodes, mut pods) = (Vec::<Node>::new(), Vec::<Pod>::new());
        for (index, item) in list.items.into_iter().enumerate() {
            let kind = item["kind"].as_str().unwrap_or_default().to_owned();
            let read = match kind.as_str() {
                "Node" => serde_json::from_value(item).map(|node| nodes.push(node)),
                "Pod" => serde_json::from_value(item).map(|pod| pods.push(pod)),
                _ => Ok(()),
            };
            read.map_err(|source| SnapshotError::Item { index, kind, source })?;
        }
        if nodes.is_empty() {
            return Err(SnapshotError::NoNodes { items });
        }
        Self::from_objects(&nodes, &pods)
    }

    /// From API objects, in any order. Pods that have ended, or are not bound to one of the nodes, take nothing.
    ///
    /// # Errors
    /// When a quantity cannot be read.
    pub fn from_objects<'a>(
        nodes: impl IntoIterator<Item = &'a Node>,
        pods: impl IntoIterator<Item = &'a Pod>,
    ) -> Result<Self, SnapshotError> {
        let mut view = Self::default();
        for node in nodes {
            view.nodes.insert(node.metadata.name.clone().unwrap_or_default(), node_view(node)?);
        }
        for pod in pods {
            let spec = pod.spec.as_ref();
            let Some(node) = spec.and_then(|s| s.node_name.as_deref()).and_then(|n| view.nodes.get_mut(n))
            else {
                continue;
            };
            let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
            if matches!(phase, Some("Succeeded" | "Failed")) {
                continue;
            }
            node.pods += 1;
            node.requested_cpu = node.requested_cpu.plus(requested(pod, "cpu")?);
            node.requested_memory = node.requested_memory.plus(requested(pod, "memory")?);
            node.exclusive_cores += exclusive_cores(pod)?;
        }
        Ok(view)
    }

    /// One ready node without pods: a machine that runs a job without a cluster. `memory` in bytes.
    #[must_use]
    pub fn local(name: &str, cores: u64, memory: u64) -> Self {
        let node = NodeView {
            ready: true,
            allocatable_cpu: Quantity::whole(cores),
            allocatable_memory: Quantity::whole(memory),
            allocatable_pods: 1,
            ..NodeView::default()
        };
        Self { nodes: BTreeMap::from([(name.to_owned(), node)]) }
    }

    /// The nodes by name.
    #[must_use]
    pub fn nodes(&self) -> &BTreeMap<String, NodeView> {
        &self.nodes
    }

    /// Counts a pod that is planned but not seen yet, with `cores` whole cores for itself and `memory`, as there.
    /// A node that is not in the view is passed over.
    pub fn take(&mut self, node: &str, cores: u64, memory: Quantity) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.pods += 1;
            node.requested_cpu = node.requested_cpu.plus(Quantity::whole(cores));
            node.requested_memory = node.requested_memory.plus(memory);
            node.exclusive_cores += cores;
        }
    }

    /// Leaves nodes out of consideration, for example those that a try has just failed on.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.nodes.retain(|name, _| keep(name));
    }
}

fn node_view(node: &Node) -> Result<NodeView, SnapshotError> {
    let status = node.status.as_ref();
    let spec = node.spec.as_ref();
    let allocatable = |resource: &str| {
        let quantity = status.and_then(|s| s.allocatable.as_ref()).and_then(|a| a.get(resource));
        quantity.map_or(Ok(Quantity::ZERO), |q| {
            q.0.parse().map_err(|source| SnapshotError::Quantity {
                object: format!("Node {}", node.metadata.name.as_deref().unwrap_or_default()),
                field: format!("status.allocatable.{resource}"),
                source,
            })
        })
    };
    let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    Ok(NodeView {
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints: spec.and_then(|s| s.taints.clone()).unwrap_or_default(),
        ready: conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"),
        unschedulable: spec.and_then(|s| s.unschedulable).unwrap_or(false),
        allocatable_cpu: allocatable("cpu")?,
        allocatable_memory: allocatable("memory")?,
        allocatable_pods: allocatable("pods")?.floor(),
        ..NodeView::default()
    })
}

/// What the scheduler counts for a pod: its own resources if it has them, else the larger of what its containers
/// need while they run and what its init containers need one after another; sidecars (init containers that restart)
/// add to all that start after them; and the overhead of its runtime class.
fn requested(pod: &Pod, resource: &str) -> Result<Quantity, SnapshotError> {
    let Some(spec) = &pod.spec else { return Ok(Quantity::ZERO) };
    let own = spec.resources.as_ref();
    let containers = match request(pod, "spec.resources", own, resource)? {
        Some(quantity) => quantity,
        None => while_running(pod, |path, container| {
            Ok(request(pod, path, container.resources.as_ref(), resource)?.unwrap_or_default())
        })?,
    };
    let overhead = spec.overhead.as_ref().and_then(|o| o.get(resource));
    let overhead = overhead.map_or(Ok(Quantity::ZERO), |q| read(pod, "spec.overhead", &q.0))?;
    Ok(containers.plus(overhead))
}

/// Whole cores that the static CPU manager gives to the containers of a pod alone: those of containers with a whole
/// number of CPUs in a Guaranteed pod. Whether a node has that policy cannot be seen, so they always count.
fn exclusive_cores(pod: &Pod) -> Result<u64, SnapshotError> {
    let Some(spec) = &pod.spec else { return Ok(0) };
    let containers = || spec.init_containers.iter().flatten().chain(&spec.containers);
    for container in containers() {
        for resource in ["cpu", "memory"] {
            let path = container.name.as_str();
            let limit = container.resources.as_ref().and_then(|r| r.limits.as_ref()?.get(resource));
            let limit = limit.map(|q| read(pod, path, &q.0)).transpose()?;
            let request = request(pod, path, container.resources.as_ref(), resource)?;
            if limit.is_none_or(|limit| limit == Quantity::ZERO || request != Some(limit)) {
                return Ok(0);
            }
        }
    }
    let cores = while_running(pod, |path, container| {
        let cpu = request(pod, path, container.resources.as_ref(), "cpu")?.unwrap_or_default();
        Ok(if cpu.is_whole() { cpu } else { Quantity::ZERO })
    })?;
    Ok(cores.floor())
}

/// The most that a pod's containers hold at a time of what `of` says of each.
fn while_running(
    pod: &Pod,
    of: impl Fn(&str, &Container) -> Result<Quantity, SnapshotError>,
) -> Result<Quantity, SnapshotError> {
    let Some(spec) = &pod.spec else { return Ok(Quantity::ZERO) };
    let (mut sidecars, mut most) = (Quantity::ZERO, Quantity::ZERO);
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        let needs = of(&format!("spec.initContainers[{i}].resources"), container)?;
        most = most.max(sidecars.plus(needs));
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = sidecars.plus(needs);
        }
    }
    let mut running = sidecars;
    for (i, container) in spec.containers.iter().enumerate() {
        running = running.plus(of(&format!("spec.containers[{i}].resources"), container)?);
    }
    Ok(most.max(running))
}

/// A request, which defaults to the limit.
fn request(
    pod: &Pod,
    path: &str,
    resources: Option<&ResourceRequirements>,
    resource: &str,
) -> Result<Option<Quantity>, SnapshotError> {
    let Some(resources) = resources else { return Ok(None) };
    let of = |map: &Option<BTreeMap<String, _>>| map.as_ref().and_then(|m| m.get(resource)).cloned();
    of(&resources.requests).or_else(|| of(&resources.limits)).map(|q| read(pod, path, &q.0)).transpose()
}

fn read(pod: &Pod, path: &str, text: &str) -> Result<Quantity, SnapshotError> {
    text.parse().map_err(|source| {
        let name = |n: &Option<String>| n.clone().unwrap_or_default();
        let object = format!("Pod {}/{}", name(&pod.metadata.namespace), name(&pod.metadata.name));
        SnapshotError::Quantity { object, field: path.to_owned(), source }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, cpu: &str, memory: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": cpu, "memory": memory, "pods": "110"},
                "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}]
            }
        })
    }

    fn pod(phase: &str, spec: Value) -> Value {
        let mut spec = spec;
        spec["nodeName"] = json!("a");
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"},
               "spec": spec, "status": {"phase": phase}})
    }

    fn container(cpu: &str, memory: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn guaranteed(cpu: &str) -> Value {
        let both = json!({"cpu": cpu, "memory": "1Gi"});
        json!({"name": "c", "resources": {"requests": both, "limits": both}})
    }

    fn view(pods: &[Value]) -> NodeView {
        let mut items = vec![node("a", "8", "16Gi")];
        items.extend_from_slice(pods);
        let text = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        ClusterView::from_json(&text).unwrap().nodes()["a"].clone()
    }

    fn requests(pods: &[Value]) -> (String, String) {
        let node = view(pods);
        (node.requested_cpu.to_string(), node.requested_memory.to_string())
    }

    fn two(cpu: &str, memory: &str) -> (String, String) {
        (cpu.to_owned(), memory.to_owned())
    }

    #[test]
    fn a_node_is_read_with_labels_taints_and_readiness() {
        let node = view(&[]);
        assert!(node.ready && !node.unschedulable);
        assert_eq!(node.labels["zone"], "a");
        assert_eq!(node.taints[0].key, "gpu");
        assert_eq!(node.allocatable_memory.to_string(), "16Gi");
        assert_eq!((node.free_cores(0), node.free_cores(1), node.free_cores(9)), (8, 7, 0));
    }

    #[test]
    fn pods_that_ended_or_are_not_bound_take_nothing() {
        let spec = json!({"containers": [container("1", "1Gi")]});
        let mut unbound = pod("Pending", spec.clone());
        unbound["spec"].as_object_mut().unwrap().remove("nodeName");
        let pods = [pod("Succeeded", spec.clone()), pod("Failed", spec.clone()), unbound];
        assert_eq!(requests(&pods), two("0", "0"));
        assert_eq!(requests(&[pod("Running", spec)]), two("1", "1Gi"));
    }

    #[test]
    fn init_containers_count_by_their_peak_and_sidecars_for_good() {
        let peak = json!({"initContainers": [container("3", "1Gi"), container("2", "2Gi")],
                          "containers": [container("1", "512Mi"), container("500m", "512Mi")]});
        assert_eq!(requests(&[pod("Running", peak)]), two("3", "2Gi"));

        let mut sidecar = container("1", "1Gi");
        sidecar["restartPolicy"] = json!("Always");
        let with_sidecar = json!({"initContainers": [sidecar, container("2", "1Gi")],
                                  "containers": [container("1500m", "3Gi")]});
        // While the second init container runs 1 + 2, afterwards 1 + 1.5.
        assert_eq!(requests(&[pod("Running", with_sidecar)]), two("3", "4Gi"));
    }

    #[test]
    fn overhead_is_added_and_a_pods_own_resources_replace_those_of_its_containers() {
        let spec =
            json!({"containers": [container("1", "1Gi")], "overhead": {"cpu": "250m", "memory": "128Mi"}});
        assert_eq!(requests(&[pod("Running", spec)]), two("1250m", "1152Mi"));
        let own = json!({"containers": [container("1", "1Gi")], "resources": {"requests": {"cpu": "3"}}});
        assert_eq!(requests(&[pod("Running", own)]), two("3", "1Gi"));
        let limits_only = json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]});
        assert_eq!(requests(&[pod("Running", limits_only)]), two("2", "0"));
    }

    #[test]
    fn only_whole_cores_of_guaranteed_pods_are_exclusive() {
        let exclusive =
            |containers: Value| view(&[pod("Running", json!({"containers": containers}))]).exclusive_cores;
        assert_eq!(exclusive(json!([guaranteed("3")])), 3);
        assert_eq!(exclusive(json!([guaranteed("2"), guaranteed("500m")])), 2);
        assert_eq!(exclusive(json!([guaranteed("1500m")])), 0);
        assert_eq!(exclusive(json!([guaranteed("3"), container("1", "1Gi")])), 0);
        assert_eq!(exclusive(json!([container("3", "1Gi")])), 0);
    }

    #[test]
    fn small_pods_live_in_the_reserve_but_exclusive_cores_do_not() {
        let small = pod("Running", json!({"containers": [container("900m", "1Gi")]}));
        let worker = pod("Running", json!({"containers": [guaranteed("4")]}));
        assert_eq!(view(std::slice::from_ref(&small)).free_cores(1), 7);
        assert_eq!(view(&[small.clone(), small.clone()]).free_cores(1), 6);
        assert_eq!(view(std::slice::from_ref(&worker)).free_cores(1), 3);
        assert_eq!(view(&[worker, small]).free_cores(1), 3);
    }

    #[test]
    fn a_plan_in_flight_takes_what_its_pod_will_take() {
        let text = json!({"items": [node("a", "8", "16Gi")]}).to_string();
        let mut view = ClusterView::from_json(&text).unwrap();
        view.take("a", 4, Quantity::whole(1 << 30));
        view.take("gone", 4, Quantity::ZERO);
        assert_eq!(view.nodes()["a"].free_cores(1), 3);
        assert_eq!(view.nodes()["a"].free_memory().to_string(), "15Gi");
    }

    #[test]
    fn a_snapshot_that_cannot_be_used_says_why() {
        let error = |text: &str| ClusterView::from_json(text).unwrap_err().to_string();
        assert!(error("{}").contains("kubectl get nodes,pods -A -o json"));
        assert!(error(r#"{"items": [{"kind": "Service"}]}"#).contains("no Node among 1 objects"));
        let bad = json!({"items": [node("a", "8", "16GB")]}).to_string();
        assert!(error(&bad).starts_with("Node a: status.allocatable.memory: \"16GB\" is not a quantity"));
        let bad = json!({"items": [node("a", "8", "1Gi"), {"kind": "Pod", "spec": 1}]}).to_string();
        assert!(error(&bad).starts_with("snapshot: items[1] (Pod): "), "{}", error(&bad));
    }
}
