//! Which rank computes which part of space.

use dem_comm::{Comm, Reducer, neighbours};
use dem_decomp::{
    Assignment, Box3, Decomposition, Edge, GhostGraph, Mapping, Periodicity, PlanFile, Traffic, Tree,
    ghost_graph,
};
use serde::Serialize;

use crate::failure::Failure;

/// What the geometry of a job fixes for every decomposition of it.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// The domain.
    pub domain: Box3,
    /// Its periodic axes.
    pub periodic: [bool; 3],
    /// The region that is cut: design rule 8's box.
    pub region: Box3,
    /// Thickness of the ghost layer [m].
    pub thickness: f64,
}

impl Space {
    /// The periodic axes as the decomposition wants them.
    pub fn periodicity(&self) -> Periodicity {
        Periodicity::new(self.domain, self.periodic)
    }
}

/// Where the assignment of subdomains to ranks comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MappingUsed {
    /// The plan's: the own tree equals the planned one.
    Planned,
    /// Made here.
    Own,
}

/// How subdomains go to nodes, and the nodes' ranks.
#[derive(Clone, Debug)]
pub struct Places {
    /// How the region is cut.
    pub decomposition: Decomposition,
    /// How subdomains go to nodes.
    pub mapping: Mapping,
    /// The ranks of each node, ascending.
    pub ranks_of_node: Vec<Vec<u32>>,
}

impl Places {
    /// The plan's places, or the nodes that the ranks are really on.
    pub fn new(plan: Option<&PlanFile>, node_of_rank: &[u32]) -> Self {
        if let Some(plan) = plan {
            let ranks_of_node = plan.nodes.iter().map(|node| node.ranks.clone()).collect();
            return Self { decomposition: plan.decomposition, mapping: plan.mapping, ranks_of_node };
        }
        let nodes = node_of_rank.iter().max().map_or(0, |n| n + 1);
        let mut ranks_of_node = vec![Vec::new(); nodes as usize];
        for (rank, &node) in (0..).zip(node_of_rank) {
            ranks_of_node[node as usize].push(rank);
        }
        Self { decomposition: Decomposition::Flat, mapping: Mapping::Spatial, ranks_of_node }
    }

    fn capacities(&self) -> Vec<u32> {
        self.ranks_of_node.iter().map(|ranks| ranks.len() as u32).collect()
    }

    /// Cuts the region; all ranks call it with their points and get the same tree.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn cut(
        &self,
        comm: &mut Comm,
        space: &Space,
        points: &[[f64; 3]],
        weights: Option<&[u64]>,
    ) -> Result<Tree, Failure> {
        let mut reducer = Reducer::new(comm);
        let capacities = self.capacities();
        let tree = self.decomposition.decompose(points, weights, space.region, &capacities, &mut reducer);
        reducer.finish()?;
        Ok(tree)
    }

    /// Gives each node its subdomains, and these in ascending order to its ranks.
    fn assign(&self, graph: &GhostGraph) -> Assignment {
        let node_of_subdomain = self.mapping.map(graph, &self.capacities()).node_of_subdomain;
        let ranks: usize = self.ranks_of_node.iter().map(Vec::len).sum();
        let mut assignment = Assignment { subdomain_of_rank: vec![0; ranks], node_of_rank: vec![0; ranks] };
        for (node, ranks) in (0..).zip(&self.ranks_of_node) {
            let subdomains = (0..).zip(&node_of_subdomain).filter(|(_, n)| **n == node).map(|(s, _)| s);
            for (&rank, subdomain) in ranks.iter().zip(subdomains) {
                assignment.subdomain_of_rank[rank as usize] = subdomain;
                assignment.node_of_rank[rank as usize] = node;
            }
        }
        assignment
    }

    fn inter_node(&self, graph: &GhostGraph, subdomain_of_rank: &[u32]) -> u64 {
        let mut node_of_subdomain = vec![0; subdomain_of_rank.len()];
        for (node, ranks) in (0..).zip(&self.ranks_of_node) {
            for &rank in ranks {
                node_of_subdomain[subdomain_of_rank[rank as usize] as usize] = node;
            }
        }
        Traffic::of(graph, &node_of_subdomain, self.ranks_of_node.len()).inter_node
    }
}

/// A decomposition and who computes which part of it.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The boxes.
    pub tree: Tree,
    /// Subdomain of each rank.
    pub subdomain_of_rank: Vec<u32>,
    /// Rank of each subdomain.
    pub rank_of_subdomain: Vec<u32>,
    /// Ranks that this one exchanges ghosts and particles with.
    pub partners: Vec<u32>,
    /// Where the assignment comes from.
    pub mapping: MappingUsed,
}

/// Ghosts that each pair of subdomains would exchange; all ranks call it with their points.
fn graph_of(comm: &mut Comm, space: &Space, tree: &Tree, points: &[[f64; 3]]) -> Result<GhostGraph, Failure> {
    let own = ghost_graph(points.iter().copied(), tree, space.thickness, &space.periodicity());
    let rows = |graph: &GhostGraph| -> Vec<u8> {
        let both = |e: &Edge| [[e.a.into(), e.b.into(), e.a_to_b], [e.b.into(), e.a.into(), e.b_to_a]];
        let rows: Vec<[u64; 3]> = graph.edges().iter().flat_map(both).collect();
        bytemuck::cast_slice(&rows).to_vec()
    };
    // By way of rank 0 and not as a matrix to sum: a subdomain has few partners, however many subdomains there are.
    let whole = match comm.gather(rows(&own))? {
        Some(parts) => {
            rows(&GhostGraph::from_counts(tree.parts(), parts.iter().flat_map(|part| counts(part))))
        }
        None => Vec::new(),
    };
    Ok(GhostGraph::from_counts(tree.parts(), counts(&comm.broadcast(whole)?)))
}

/// Directed counts `(from, to, ghosts)` from rows of three numbers.
fn counts(rows: &[u8]) -> impl Iterator<Item = (u32, u32, u64)> + use<> {
    let rows: Vec<[u64; 3]> = bytemuck::pod_collect_to_vec(rows);
    rows.into_iter().map(|[from, to, ghosts]| (from as u32, to as u32, ghosts))
}

impl Layout {
    fn new(rank: u32, space: &Space, tree: Tree, subdomain_of_rank: Vec<u32>, mapping: MappingUsed) -> Self {
        let mut rank_of_subdomain = vec![0; subdomain_of_rank.len()];
        for (rank, &subdomain) in (0..).zip(&subdomain_of_rank) {
            rank_of_subdomain[subdomain as usize] = rank;
        }
        let partners = neighbours(&tree, &rank_of_subdomain, space.thickness, space.domain, space.periodic)
            .swap_remove(rank as usize);
        Self { tree, subdomain_of_rank, rank_of_subdomain, partners, mapping }
    }

    /// The decomposition of the particles as they are: the plan's assignment if the tree is the planned one,
    /// otherwise one made by the same code.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn initial(
        comm: &mut Comm,
        space: &Space,
        places: &Places,
        plan: Option<&PlanFile>,
        points: &[[f64; 3]],
    ) -> Result<Self, Failure> {
        let tree = places.cut(comm, space, points, None)?;
        if let Some(plan) = plan
            && plan.tree.as_ref() == Some(&tree)
        {
            let planned = plan.subdomain_of_rank.clone();
            return Ok(Self::new(comm.rank(), space, tree, planned, MappingUsed::Planned));
        }
        let graph = graph_of(comm, space, &tree, points)?;
        let assigned = places.assign(&graph).subdomain_of_rank;
        Ok(Self::new(comm.rank(), space, tree, assigned, MappingUsed::Own))
    }

    /// Ghosts that the subdomains exchange for particles at `points`; all ranks call it with theirs.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn ghost_graph(
        &self,
        comm: &mut Comm,
        space: &Space,
        points: &[[f64; 3]],
    ) -> Result<GhostGraph, Failure> {
        graph_of(comm, space, &self.tree, points)
    }

    /// The decomposition for particles of the given weights; `None` if it is the present one. The assignment stays
    /// unless another saves a tenth of the ghosts between nodes: every rank that changes its subdomain sends all its
    /// particles away.
    ///
    /// # Errors
    /// Those of the communicator.
    pub fn rebalanced(
        &self,
        comm: &mut Comm,
        space: &Space,
        places: &Places,
        points: &[[f64; 3]],
        weights: &[u64],
    ) -> Result<Option<Self>, Failure> {
        let tree = places.cut(comm, space, points, Some(weights))?;
        if tree == self.tree {
            return Ok(None);
        }
        let graph = graph_of(comm, space, &tree, points)?;
        let assigned = places.assign(&graph).subdomain_of_rank;
        let (now, then) =
            (places.inter_node(&graph, &self.subdomain_of_rank), places.inter_node(&graph, &assigned));
        let (assigned, mapping) = if then as f64 <= 0.9 * now as f64 && then < now {
            (assigned, MappingUsed::Own)
        } else {
            (self.subdomain_of_rank.clone(), self.mapping.clone())
        };
        Ok(Some(Self::new(comm.rank(), space, tree, assigned, mapping)))
    }
}
