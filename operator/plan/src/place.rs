//! Which nodes a job may use, and how many of its ranks each of them takes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dem_crds::TopologyLevel;
use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration,
};

use crate::cluster::{ClusterView, NodeView};
use crate::quantity::Quantity;

/// What a job asks of its nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRequest {
    /// MPI ranks in all.
    pub ranks: u32,
    /// Fewest ranks of a node; one node may hold the smaller rest.
    pub min_ranks_per_node: Option<u32>,
    /// Most ranks of a node.
    pub max_ranks_per_node: Option<u32>,
    /// Most nodes, for example 1 when a volume can be mounted on one node only.
    pub max_nodes: Option<u32>,
    /// Whole cores of a rank, at least 1.
    pub cpus_per_rank: u32,
    /// Memory of a rank in bytes.
    pub memory_per_rank: u64,
    /// Memory of a worker pod besides its ranks' (shared memory, agent), in bytes.
    pub memory_per_worker: u64,
    /// Cores that each node keeps for the system and the network path.
    pub reserve_cores: u32,
    /// Only nodes with these labels.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the job's pods tolerate.
    pub tolerations: Vec<Toleration>,
    /// Required node affinity.
    pub node_affinity: Option<NodeSelector>,
    /// Levels of the network above the node, nearest first.
    pub topology: Vec<TopologyLevel>,
}

impl NodeRequest {
    /// Ranks of one core and no memory on any node: a start for struct update syntax.
    #[must_use]
    pub fn of_ranks(ranks: u32) -> Self {
        Self {
            ranks,
            min_ranks_per_node: None,
            max_ranks_per_node: None,
            max_nodes: None,
            cpus_per_rank: 1,
            memory_per_rank: 0,
            memory_per_worker: 0,
            reserve_cores: 0,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            node_affinity: None,
            topology: Vec::new(),
        }
    }
}

/// A node and the number of ranks that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Name of the node.
    pub(crate) node: String,
    /// Ranks on it, at least 1.
    pub(crate) ranks: u32,
}

/// Why a node is not used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exclusion {
    /// Its condition `Ready` is not `True`.
    NotReady,
    /// It is cordoned.
    Cordoned,
    /// It lacks a label of the selector.
    Label(String),
    /// It does not match the required node affinity.
    Affinity,
    /// A taint that is not tolerated.
    Taint(String),
    /// It lacks the label of a required topology level.
    NoDomain(String),
    /// It has as many pods as it may hold.
    Pods,
    /// Too few free cores for a rank.
    Cores,
    /// Too little free memory for a worker with one rank.
    Memory,
    /// It takes fewer ranks than `ranksPerNode.min`.
    BelowMin(u32),
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("not ready"),
            Self::Cordoned => f.write_str("cordoned"),
            Self::Label(label) => write!(f, "without label {label}"),
            Self::Affinity => f.write_str("outside the node affinity"),
            Self::Taint(taint) => write!(f, "kept out by taint {taint}"),
            Self::NoDomain(label) => write!(f, "without topology label {label}"),
            Self::Pods => f.write_str("at their limit of pods"),
            Self::Cores => f.write_str("without free cores for a rank"),
            Self::Memory => f.write_str("without free memory for a rank"),
            Self::BelowMin(min) => write!(f, "with room for fewer than {min} ranks (ranksPerNode.min)"),
        }
    }
}

/// Why a job cannot be placed now: what it needs, what there is, and what keeps the other nodes out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Unplaceable {
    /// Ranks asked for.
    pub ranks: u32,
    /// Cores asked for.
    pub cores: u64,
    /// What nodes must have: labels of the selector.
    pub labels: BTreeMap<String, String>,
    /// Ranks that fit on the nodes which may be used; with a required topology level, in its roomiest domain.
    pub fitting_ranks: u64,
    /// Free cores of those nodes.
    pub free_cores: u64,
    /// Number of those nodes.
    pub usable_nodes: usize,
    /// The required topology level and its roomiest domain.
    pub domain: Option<Box<str>>,
    /// The limit on nodes or ranks per node that is in the way, if it is not the cores.
    pub limit: Option<Box<str>>,
    /// Why the other nodes are not used, and how many of them.
    pub excluded: BTreeMap<Exclusion, usize>,
}

impl fmt::Display for Unplaceable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rank{} need {} cores", self.ranks, plural(self.ranks.into()), self.cores)?;
        if !self.labels.is_empty() {
            let labels: Vec<String> = self.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
            write!(f, " on nodes with {}", labels.join(", "))?;
        }
        if let Some(domain) = &self.domain {
            write!(f, " within one {domain}")?;
        }
        write!(
            f,
            ": {} free on {} node{}, room for {} rank{}",
            self.free_cores,
            self.usable_nodes,
            plural(self.usable_nodes as u64),
            self.fitting_ranks,
            plural(self.fitting_ranks),
        )?;
        if let Some(limit) = &self.limit {
            write!(f, " ({limit})")?;
        }
        for (exclusion, nodes) in &self.excluded {
            write!(f, "; {nodes} node{} {exclusion}", plural(*nodes as u64))?;
        }
        Ok(())
    }
}

fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// A node that may be used.
struct Candidate<'a> {
    name: &'a str,
    node: &'a NodeView,
    /// Ranks that it can take.
    fits: u32,
    /// Free cores, and the ranks that they and the free memory allow.
    cores: u64,
    by_cores: u64,
    by_memory: u64,
    /// A `PreferNoSchedule` taint asks to use it last.
    avoid: bool,
}

/// The choices of nodes that are worth comparing by traffic, best first by everything else: all use the fewest
/// nodes possible and, at that number, keep to one domain of the nearest topology level that allows it. Each choice
/// lists its nodes with the most ranks first. At most `limit` choices, of different rank counts, are returned.
///
/// # Errors
/// When no choice of nodes takes all ranks.
pub(crate) fn choices(
    request: &NodeRequest,
    cluster: &ClusterView,
    limit: usize,
) -> Result<Vec<Vec<Share>>, Unplaceable> {
    let (candidates, excluded) = candidates(request, cluster);
    let required: Vec<&TopologyLevel> = request.topology.iter().filter(|level| level.required).collect();
    let domain_of = |candidate: &Candidate<'_>, levels: &[&TopologyLevel]| -> Vec<String> {
        levels.iter().map(|l| candidate.node.labels.get(&l.node_label).cloned().unwrap_or_default()).collect()
    };
    let group = |levels: &[&TopologyLevel]| {
        let mut groups: BTreeMap<Vec<String>, Vec<&Candidate<'_>>> = BTreeMap::new();
        for candidate in &candidates {
            groups.entry(domain_of(candidate, levels)).or_default().push(candidate);
        }
        groups
    };

    // One grouping per preferred level, nearest first, and last the one that only the required levels make.
    let mut groupings = Vec::new();
    for level in request.topology.iter().filter(|level| !level.required) {
        let levels: Vec<&TopologyLevel> = std::iter::once(level).chain(required.iter().copied()).collect();
        groupings.push(
            group(&levels).into_iter().filter(|(key, _)| !key[0].is_empty()).collect::<BTreeMap<_, _>>(),
        );
    }
    groupings.push(group(&required));

    // The fewest nodes and the narrowest grouping so far; a wider one is only worth it for fewer nodes.
    let mut found = (u32::MAX, 0);
    let mut best: Vec<Vec<Share>> = Vec::new();
    for (grouping, groups) in groupings.iter().enumerate() {
        for pool in groups.values() {
            let pool = in_order(pool, &request.topology);
            let Some(nodes) = fewest_nodes(&pool, request).filter(|&nodes| (nodes, grouping) <= found) else {
                continue;
            };
            let divisions = rank_counts(&pool, request, nodes);
            if !divisions.is_empty() && (nodes, grouping) < found {
                found = (nodes, grouping);
                best.clear();
            }
            best.extend(divisions.iter().map(|counts| give_out(&pool, counts)));
        }
    }
    let mut seen = BTreeSet::new();
    best.retain(|shares| seen.insert(shares.iter().map(|s| s.ranks).collect::<Vec<_>>()));
    best.truncate(limit);
    if best.is_empty() {
        Err(unplaceable(request, &candidates, &group(&required), excluded))
    } else {
        Ok(best)
    }
}

/// Checks that some choice of nodes takes all ranks: the cheap part of a plan.
///
/// # Errors
/// When none does.
pub fn fits(request: &NodeRequest, cluster: &ClusterView) -> Result<(), Unplaceable> {
    choices(request, cluster, 1).map(|_| ())
}

/// The nodes that may be used, by name, and why the others may not.
fn candidates<'a>(
    request: &NodeRequest,
    cluster: &'a ClusterView,
) -> (Vec<Candidate<'a>>, BTreeMap<Exclusion, usize>) {
    let mut excluded = BTreeMap::new();
    let mut candidates = Vec::new();
    for (name, node) in cluster.nodes() {
        match admit(request, name, node) {
            Ok(candidate) => candidates.push(candidate),
            Err(exclusion) => *excluded.entry(exclusion).or_insert(0) += 1,
        }
    }
    (candidates, excluded)
}

fn admit<'a>(request: &NodeRequest, name: &'a str, node: &'a NodeView) -> Result<Candidate<'a>, Exclusion> {
    if !node.ready {
        return Err(Exclusion::NotReady);
    }
    if node.unschedulable {
        return Err(Exclusion::Cordoned);
    }
    if let Some((key, value)) = request.node_selector.iter().find(|(k, v)| node.labels.get(*k) != Some(v)) {
        return Err(Exclusion::Label(format!("{key}={value}")));
    }
    if request.node_affinity.as_ref().is_some_and(|affinity| !matches(affinity, name, node)) {
        return Err(Exclusion::Affinity);
    }
    let untolerated = |t: &&Taint| !request.tolerations.iter().any(|toleration| tolerates(toleration, t));
    let hard = |t: &&Taint| t.effect != "PreferNoSchedule";
    if let Some(taint) = node.taints.iter().filter(hard).find(untolerated) {
        let value = taint.value.as_ref().map_or(String::new(), |value| format!("={value}"));
        return Err(Exclusion::Taint(format!("{}{value}:{}", taint.key, taint.effect)));
    }
    if let Some(level) =
        request.topology.iter().find(|l| l.required && !node.labels.contains_key(&l.node_label))
    {
        return Err(Exclusion::NoDomain(level.node_label.clone()));
    }
    if node.pods >= node.allocatable_pods {
        return Err(Exclusion::Pods);
    }
    let cores = node.free_cores(request.reserve_cores.into());
    let by_cores = cores / u64::from(request.cpus_per_rank.max(1));
    if by_cores == 0 {
        return Err(Exclusion::Cores);
    }
    let memory = node.free_memory().minus(Quantity::whole(request.memory_per_worker));
    let by_memory = match memory.fits(Quantity::whole(request.memory_per_rank)) {
        Some(ranks) => ranks,
        None if memory >= Quantity::ZERO => u64::MAX,
        None => 0,
    };
    if by_memory == 0 {
        return Err(Exclusion::Memory);
    }
    let max = request.max_ranks_per_node.unwrap_or(u32::MAX);
    let fits = u32::try_from(by_cores.min(by_memory)).unwrap_or(u32::MAX).min(max).min(request.ranks);
    let min = request.min_ranks_per_node.unwrap_or(1).min(request.ranks);
    if fits < min {
        return Err(Exclusion::BelowMin(min));
    }
    let avoid = node.taints.iter().filter(|t| !hard(t)).any(|t| untolerated(&t));
    Ok(Candidate { name, node, fits, cores, by_cores, by_memory, avoid })
}

/// Nodes in the order in which they are taken where nothing else decides: those to be avoided last, roomy domains
/// before others (outermost level first) so that few domains are touched, then by name.
fn in_order<'a>(pool: &[&'a Candidate<'a>], topology: &[TopologyLevel]) -> Vec<&'a Candidate<'a>> {
    let domain = |c: &Candidate<'_>, level: usize| -> Vec<Option<String>> {
        topology[level..].iter().rev().map(|l| c.node.labels.get(&l.node_label).cloned()).collect()
    };
    let mut room: BTreeMap<Vec<Option<String>>, u64> = BTreeMap::new();
    for candidate in pool {
        for level in 0..topology.len() {
            *room.entry(domain(candidate, level)).or_default() += u64::from(candidate.fits);
        }
    }
    let mut pool = pool.to_vec();
    pool.sort_by_cached_key(|c| {
        let domains: Vec<_> =
            (0..topology.len()).rev().map(|l| domain(c, l)).map(|d| (Reverse(room[&d]), d)).collect();
        (c.avoid, domains, c.name)
    });
    pool
}

/// How many of the first nodes take all ranks.
fn nodes_for(fits: &[u32], ranks: u32) -> Option<u32> {
    let mut left = ranks;
    for (nodes, &fits) in (1..).zip(fits) {
        left = left.saturating_sub(fits);
        if left == 0 {
            return Some(nodes);
        }
    }
    None
}

fn fewest_nodes(pool: &[&Candidate<'_>], request: &NodeRequest) -> Option<u32> {
    let nodes = nodes_for(&roomiest(pool), request.ranks)?;
    (nodes <= request.max_nodes.unwrap_or(u32::MAX)).then_some(nodes)
}

fn roomiest(pool: &[&Candidate<'_>]) -> Vec<u32> {
    let mut fits: Vec<u32> = pool.iter().map(|c| c.fits).collect();
    fits.sort_unstable_by_key(|&f| Reverse(f));
    fits
}

/// Ways to divide the ranks over `nodes` nodes, most ranks first: as evenly as the nodes allow, and filling the
/// roomiest nodes one after another. At most one node holds fewer than the least number asked for.
fn rank_counts(pool: &[&Candidate<'_>], request: &NodeRequest, nodes: u32) -> Vec<Vec<u32>> {
    let fits = &roomiest(pool)[..nodes as usize];
    let mut filled = Vec::new();
    let mut left = request.ranks;
    for &fits in fits {
        filled.push(fits.min(left));
        left -= fits.min(left);
    }
    // Nodes with little room first, each at most its share of what is left.
    let mut even = Vec::new();
    let mut left = request.ranks;
    for (i, &fits) in (1..=nodes).rev().zip(fits.iter().rev()) {
        even.push(fits.min(left / i));
        left -= fits.min(left / i);
    }
    even.reverse();
    even.sort_unstable_by_key(|&n| Reverse(n));
    let min = request.min_ranks_per_node.unwrap_or(1);
    let allowed =
        |counts: &Vec<u32>| counts.iter().filter(|&&n| n < min).count() <= 1 && !counts.contains(&0);
    let mut all = vec![even, filled];
    all.retain(allowed);
    all.dedup();
    all
}

/// Gives each number of ranks, the largest first, to the first node that has room for it: a node with room for one
/// has room for all later ones, so none is left over.
fn give_out(pool: &[&Candidate<'_>], counts: &[u32]) -> Vec<Share> {
    let mut free: Vec<&Candidate<'_>> = pool.to_vec();
    let give = |&ranks: &u32| {
        let at = free.iter().position(|c| c.fits >= ranks)?;
        Some(Share { node: free.remove(at).name.to_owned(), ranks })
    };
    counts.iter().filter_map(give).collect()
}

fn unplaceable(
    request: &NodeRequest,
    candidates: &[Candidate<'_>],
    domains: &BTreeMap<Vec<String>, Vec<&Candidate<'_>>>,
    excluded: BTreeMap<Exclusion, usize>,
) -> Unplaceable {
    let required: Vec<&str> =
        request.topology.iter().filter(|l| l.required).map(|l| l.level.as_str()).collect();
    let all: Vec<&Candidate<'_>> = candidates.iter().collect();
    let room = |pool: &[&Candidate<'_>]| pool.iter().map(|c| u64::from(c.fits)).sum::<u64>();
    // Of equally roomy domains the first by name.
    let roomiest = domains.iter().max_by_key(|(name, pool)| (room(pool), Reverse(*name)));
    let pool = match roomiest {
        Some((_, pool)) if !required.is_empty() => pool,
        _ => &all,
    };
    let domain = roomiest
        .filter(|_| !required.is_empty())
        .map(|(name, _)| format!("{} (roomiest: {})", required.join(" and "), name.join(", ")).into());
    let cores: u64 = pool.iter().map(|c| c.cores).sum();
    let needed = u64::from(request.ranks) * u64::from(request.cpus_per_rank);
    Unplaceable {
        ranks: request.ranks,
        cores: needed,
        labels: request.node_selector.clone(),
        fitting_ranks: room(pool),
        free_cores: cores,
        usable_nodes: pool.len(),
        domain,
        limit: limit(request, pool, cores >= needed),
        excluded,
    }
}

/// What is in the way besides the number of cores.
fn limit(request: &NodeRequest, pool: &[&Candidate<'_>], cores_suffice: bool) -> Option<Box<str>> {
    let sum =
        |ranks: &dyn Fn(&Candidate<'_>) -> u64| pool.iter().map(|c| ranks(c)).fold(0, u64::saturating_add);
    let ranks = u64::from(request.ranks);
    let mut limits = Vec::new();
    if sum(&|c| c.fits.into()) >= ranks {
        // There is room, so the bounds on nodes and on the ranks of each contradict it.
        limits.extend(request.max_nodes.map(|n| format!("at most {n} node{}", plural(n.into()))));
        limits.extend(request.min_ranks_per_node.map(|min| format!("ranksPerNode.min is {min}")));
    } else {
        let by_max = request.max_ranks_per_node.map(|max| (max, u64::from(max) * pool.len() as u64));
        if let Some((max, room)) = by_max.filter(|&(_, room)| room < ranks) {
            limits.push(format!("ranksPerNode.max {max} allows {room}"));
        }
        let by_memory = sum(&|c| c.by_memory);
        if by_memory < ranks {
            limits.push(format!("memory allows {by_memory}"));
        }
        let by_cores = sum(&|c| c.by_cores);
        if by_cores < ranks && cores_suffice {
            limits.push(format!("{} cores of one node each allow {by_cores}", request.cpus_per_rank));
        }
        if limits.is_empty() && cores_suffice {
            limits.push("cores are free where memory or ranksPerNode.max is used up".to_owned());
        }
    }
    (!limits.is_empty()).then(|| limits.join(", ").into())
}

/// Whether a toleration covers a taint (API reference, `Toleration`).
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let effect = toleration.effect.as_deref().unwrap_or_default();
    (effect.is_empty() || effect == taint.effect)
        && (key == taint.key || (key.is_empty() && exists))
        && (exists
            || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default())
}

/// Whether a node matches a node selector: any of its terms, and all requirements of that term.
fn matches(selector: &NodeSelector, name: &str, node: &NodeView) -> bool {
    let met = |requirement: &NodeSelectorRequirement, value: Option<&str>| {
        let values = requirement.values.as_deref().unwrap_or_default();
        let listed = value.is_some_and(|value| values.iter().any(|v| v == value));
        let number = |text: Option<&str>| text.and_then(|t| t.parse::<i64>().ok());
        let bound = number(values.first().map(String::as_str));
        match requirement.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => matches!((number(value), bound), (Some(value), Some(bound)) if value > bound),
            "Lt" => matches!((number(value), bound), (Some(value), Some(bound)) if value < bound),
            _ => false,
        }
    };
    selector.node_selector_terms.iter().any(|NodeSelectorTerm { match_expressions, match_fields }| {
        let (expressions, fields) =
            (match_expressions.as_deref().unwrap_or_default(), match_fields.as_deref().unwrap_or_default());
        // A term without requirements matches nothing.
        expressions.len() + fields.len() > 0
            && expressions.iter().all(|r| met(r, node.labels.get(&r.key).map(String::as_str)))
            && fields.iter().all(|r| met(r, (r.key == "metadata.name").then_some(name)))
    })
}
