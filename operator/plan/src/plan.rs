//! From a request and a cluster to nodes, boxes and the assignment of subdomains to ranks.

use std::collections::BTreeMap;

use dem_config::{Files, Problem, Simulation, prepare};
use dem_crds::{Decomposition, Mapping};
use dem_decomp::{
    Assignment, Box3, GhostGraph, NodeRanks, Periodicity, PlanFile, Predicted, Serial, Source, Traffic, Tree,
    ghost_graph, map_in_order,
};
use serde::Serialize;

use crate::cluster::ClusterView;
use crate::place::{NodeRequest, Share, Unplaceable, choices};

/// Choices of nodes with different rank counts whose traffic is compared.
const COMPARED: usize = 8;
/// Particles that the planner generates and cuts at most: about 2 s and 300 MB in the operator's pod.
const MOST_PARTICLES: u64 = 4_000_000;
/// Particles that stand for those of a file that the planner has not read.
const ASSUMED_PARTICLES: f64 = 100_000.0;

/// Everything that a plan depends on, besides the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementRequest {
    /// What the job asks of its nodes.
    pub nodes: NodeRequest,
    /// How subdomains are given to nodes.
    pub mapping: Mapping,
    /// How the region is cut.
    pub decomposition: Decomposition,
    /// Who talks to whom.
    pub halo: Halo,
}

/// What is known of the communication between ranks.
#[derive(Clone, Debug, PartialEq)]
pub enum Halo {
    /// Particles, which the planner decomposes itself.
    Particles(Particles),
    /// A given graph of ranks: a program that is not the solver. Such a program knows no permutation, so
    /// `subdomain_of_rank` then says which of its ranks belongs in each place, and the launcher has to start it there.
    Graph(GhostGraph),
    /// Nothing: ranks are placed in order.
    Unknown,
}

/// Particles at the start of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Particles {
    /// Their centres in metres.
    pub points: Vec<[f64; 3]>,
    /// The region that is cut.
    pub region: Box3,
    /// Thickness of the ghost layer in metres.
    pub ghost_thickness: f64,
    /// Periodic axes.
    pub periodicity: Periodicity,
    /// Whether these are the particles themselves.
    pub source: Source,
}

impl Particles {
    /// The particles of a simulation. When there are more than [`MOST_PARTICLES`], or `files` lacks some of its files, an
    /// even filling of the domain stands for the whole system, with a ghost layer of one spacing.
    ///
    /// # Errors
    /// All problems of the simulation.
    pub fn of(simulation: &Simulation, files: &Files) -> Result<Self, Vec<Problem>> {
        let domain = Box3::new(simulation.domain.min, simulation.domain.max);
        let periodicity = Periodicity::new(domain, simulation.domain.faces.periodic());
        let unread = |source: &dem_config::Source| match source {
            dem_config::Source::File(file) => !files.contains_key(&file.path),
            _ => false,
        };
        let generated = simulation.particles.iter().filter_map(dem_config::Source::count);
        let many = generated.fold(0, u64::saturating_add) > MOST_PARTICLES;
        if many || simulation.particles.iter().any(unread) {
            let problems = simulation.validate();
            return if problems.is_empty() { Ok(Self::assumed(domain, periodicity)) } else { Err(problems) };
        }
        let prepared = prepare(simulation, files)?;
        let (min, max) = prepared.region;
        let particles = &prepared.particles;
        Ok(Self {
            points: particles.range(0..particles.count()).map(|seed| seed.position).collect(),
            region: Box3::new(min, max),
            ghost_thickness: prepared.ghost_thickness,
            periodicity,
            source: Source::Exact,
        })
    }

    /// An even filling of a region.
    fn assumed(region: Box3, periodicity: Periodicity) -> Self {
        let spacing = (region.volume() / ASSUMED_PARTICLES).cbrt();
        let counts = [0, 1, 2].map(|axis| (region.length(axis) / spacing).round().max(1.0));
        let at =
            |axis: usize, i: u64| region.min[axis] + (i as f64 + 0.5) * region.length(axis) / counts[axis];
        let [nx, ny, nz] = counts.map(|n| n as u64);
        let mut points = Vec::new();
        for k in 0..nz {
            for j in 0..ny {
                points.extend((0..nx).map(|i| [at(0, i), at(1, j), at(2, k)]));
            }
        }
        Self { points, region, ghost_thickness: spacing, periodicity, source: Source::Assumed }
    }
}

/// Where a job runs, and what that costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The nodes in the order of their ranks.
    pub nodes: Vec<PlannedNode>,
    /// Whether no other mapping of these boxes to these nodes has fewer inter-node ghosts.
    pub proven: bool,
    /// What the solver gets.
    pub file: PlanFile,
}

/// A node of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedNode {
    /// Name.
    pub name: String,
    /// Ranks on it.
    pub ranks: u32,
    /// Whole cores of its worker.
    pub cores: u32,
    /// Ghosts per step that it receives from other nodes, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_ghosts: Option<u64>,
    /// Ghosts per step that it sends to other nodes, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_ghosts: Option<u64>,
}

/// Boxes and their mapping for one way of dividing ranks over nodes.
struct Layout {
    decomposition: dem_decomp::Decomposition,
    mapping: dem_decomp::Mapping,
    tree: Option<Tree>,
    node_of_subdomain: Vec<u32>,
    proven: bool,
    traffic: Option<Traffic>,
    in_order_ghosts: u64,
}

impl Layout {
    /// Less is better: inter-node ghosts, then those of the busiest node.
    fn cost(&self) -> (u64, u64) {
        self.traffic.as_ref().map_or((0, 0), |t| (t.inter_node, t.busiest_node()))
    }
}

/// Plans a job: the fewest nodes that take all ranks (within the nearest topology domain that needs no more), of
/// these the choice with the fewest inter-node ghosts, then the first by name. The same for any order of nodes and
/// pods in the snapshot.
///
/// # Errors
/// When the ranks do not fit; the error says what is short and what keeps nodes out.
pub fn plan_placement(request: &PlacementRequest, cluster: &ClusterView) -> Result<Plan, Unplaceable> {
    let mut flat = None;
    let mut best: Option<(Vec<Share>, Layout)> = None;
    for shares in choices(&request.nodes, cluster, COMPARED)? {
        let capacities: Vec<u32> = shares.iter().map(|share| share.ranks).collect();
        for layout in layouts(request, &capacities, &mut flat) {
            if best.as_ref().is_none_or(|(_, kept)| layout.cost() < kept.cost()) {
                best = Some((shares.clone(), layout));
            }
        }
    }
    // choices() returns at least one and layouts() too.
    let (shares, layout) = best.expect("a choice of nodes has a layout");
    Ok(plan(request, &shares, layout))
}

/// The flat decomposition, which does not depend on the nodes: made once.
type Flat = Option<(Tree, GhostGraph)>;

fn layouts(request: &PlacementRequest, capacities: &[u32], flat: &mut Flat) -> Vec<Layout> {
    let mapping = match request.mapping {
        Mapping::Spatial => dem_decomp::Mapping::Spatial,
        Mapping::InOrder => dem_decomp::Mapping::InOrder,
    };
    let layout = |decomposition, tree: Option<Tree>, graph: &GhostGraph, in_order_ghosts| {
        let mapped = mapping.map(graph, capacities);
        let traffic = Traffic::of(graph, &mapped.node_of_subdomain, capacities.len());
        Layout {
            decomposition,
            mapping,
            tree,
            proven: mapped.proven,
            node_of_subdomain: mapped.node_of_subdomain,
            traffic: Some(traffic),
            in_order_ghosts,
        }
    };
    let in_order =
        |graph: &GhostGraph| Traffic::of(graph, &map_in_order(capacities), capacities.len()).inter_node;
    let particles = match &request.halo {
        Halo::Particles(particles) => particles,
        Halo::Graph(graph) => {
            return vec![layout(dem_decomp::Decomposition::Flat, None, graph, in_order(graph))];
        }
        Halo::Unknown => {
            return vec![Layout {
                decomposition: dem_decomp::Decomposition::Flat,
                mapping: dem_decomp::Mapping::InOrder,
                tree: None,
                node_of_subdomain: map_in_order(capacities),
                proven: false,
                traffic: None,
                in_order_ghosts: 0,
            }];
        }
    };
    let decompose = |decomposition: dem_decomp::Decomposition| {
        let tree =
            decomposition.decompose(&particles.points, None, particles.region, capacities, &mut Serial);
        let points = particles.points.iter().copied();
        let graph = ghost_graph(points, &tree, particles.ghost_thickness, &particles.periodicity);
        (tree, graph)
    };
    let (flat_tree, flat_graph) = flat.get_or_insert_with(|| decompose(dem_decomp::Decomposition::Flat));
    let in_order_ghosts = in_order(flat_graph);
    let node_first = match (request.decomposition, request.mapping) {
        (Decomposition::Flat, _) | (Decomposition::Auto, Mapping::InOrder) => false,
        (Decomposition::NodeFirst, _) | (Decomposition::Auto, Mapping::Spatial) => true,
    };
    let mut layouts = Vec::new();
    if !(node_first && request.decomposition == Decomposition::NodeFirst) {
        let tree = Some(flat_tree.clone());
        layouts.push(layout(dem_decomp::Decomposition::Flat, tree, flat_graph, in_order_ghosts));
    }
    // One node has nothing to be first in: the boxes are the same.
    let same = capacities.len() == 1 && !layouts.is_empty();
    if node_first && !same {
        let (tree, graph) = decompose(dem_decomp::Decomposition::NodeFirst);
        layouts.push(layout(dem_decomp::Decomposition::NodeFirst, Some(tree), &graph, in_order_ghosts));
    }
    layouts
}

fn plan(request: &PlacementRequest, shares: &[Share], layout: Layout) -> Plan {
    let assignment = Assignment::new(&layout.node_of_subdomain);
    let mut ranks_of_node: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (rank, &node) in (0..).zip(&assignment.node_of_rank) {
        ranks_of_node.entry(node).or_default().push(rank);
    }
    let planned = |(n, share): (usize, &Share)| {
        let traffic = layout.traffic.as_ref().map(|t| t.nodes[n]);
        PlannedNode {
            name: share.node.clone(),
            ranks: share.ranks,
            cores: share.ranks * request.nodes.cpus_per_rank,
            received_ghosts: traffic.map(|t| t.received),
            sent_ghosts: traffic.map(|t| t.sent),
        }
    };
    let (source, ghost_thickness) = match &request.halo {
        Halo::Particles(particles) => (particles.source, particles.ghost_thickness),
        Halo::Graph(_) => (Source::Exact, 0.0),
        Halo::Unknown => (Source::Assumed, 0.0),
    };
    Plan {
        nodes: shares.iter().enumerate().map(planned).collect(),
        proven: layout.proven,
        file: PlanFile {
            version: PlanFile::VERSION,
            ranks: request.nodes.ranks,
            nodes: shares
                .iter()
                .zip(ranks_of_node.into_values())
                .map(|(share, ranks)| NodeRanks { name: share.node.clone(), ranks })
                .collect(),
            decomposition: layout.decomposition,
            mapping: layout.mapping,
            objective: PlanFile::OBJECTIVE.to_owned(),
            tree: layout.tree,
            subdomain_of_rank: assignment.subdomain_of_rank,
            predicted: layout.traffic.map(|traffic| Predicted {
                inter_rank_ghosts: traffic.inter_rank,
                inter_node_ghosts: traffic.inter_node,
                in_order_ghosts: layout.in_order_ghosts,
                busiest_node_ghosts: traffic.busiest_node(),
            }),
            source,
            ghost_thickness,
        },
    }
}
