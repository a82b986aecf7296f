use serde::{Deserialize, Serialize};

use crate::GhostGraph;

mod descent;
mod exact;

/// How subdomains are given to ranks and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mapping {
    /// So that the fewest ghosts cross between nodes.
    Spatial,
    /// Rank `i` owns subdomain `i`, and consecutive ranks fill node after node.
    InOrder,
}

/// Which node each subdomain lives on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The node of each subdomain.
    pub node_of_subdomain: Vec<u32>,
    /// Whether no other mapping to these capacities has fewer inter-node ghosts; shown by exhaustive search.
    pub proven: bool,
}

/// Which subdomain each rank owns, and on which node it runs. Ranks are numbered node by node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The subdomain of each rank, a permutation.
    pub subdomain_of_rank: Vec<u32>,
    /// The node of each rank, ascending.
    pub node_of_rank: Vec<u32>,
}

impl Assignment {
    /// Numbers the ranks node by node and, on a node, by subdomain.
    #[must_use]
    pub fn new(node_of_subdomain: &[u32]) -> Self {
        let mut subdomain_of_rank: Vec<u32> = (0..node_of_subdomain.len() as u32).collect();
        // Stable: subdomains of one node stay in ascending order.
        subdomain_of_rank.sort_by_key(|&s| node_of_subdomain[s as usize]);
        let node_of_rank = subdomain_of_rank.iter().map(|&s| node_of_subdomain[s as usize]).collect();
        Self { subdomain_of_rank, node_of_rank }
    }

    /// The node of each subdomain.
    #[must_use]
    pub fn node_of_subdomain(&self) -> Vec<u32> {
        let mut nodes = vec![0; self.node_of_rank.len()];
        for (&subdomain, &node) in self.subdomain_of_rank.iter().zip(&self.node_of_rank) {
            nodes[subdomain as usize] = node;
        }
        nodes
    }

    /// The rank of each subdomain.
    #[must_use]
    pub fn rank_of_subdomain(&self) -> Vec<u32> {
        let mut ranks = vec![0; self.subdomain_of_rank.len()];
        for (rank, &subdomain) in (0..).zip(&self.subdomain_of_rank) {
            ranks[subdomain as usize] = rank;
        }
        ranks
    }
}

impl Mapping {
    /// Maps the subdomains of `graph` to nodes that take `capacities[n]` of them each.
    ///
    /// # Panics
    /// When the capacities do not add up to the number of subdomains.
    #[must_use]
    pub fn map(self, graph: &GhostGraph, capacities: &[u32]) -> Mapped {
        match self {
            Self::Spatial => map_spatially(graph, capacities),
            Self::InOrder => Mapped { node_of_subdomain: map_in_order(capacities), proven: false },
        }
    }

    /// [`Mapping::map`], as the ranks see it.
    ///
    /// # Panics
    /// When the capacities do not add up to the number of subdomains.
    #[must_use]
    pub fn assign(self, graph: &GhostGraph, capacities: &[u32]) -> Assignment {
        Assignment::new(&self.map(graph, capacities).node_of_subdomain)
    }
}

/// Consecutive subdomains fill node after node.
#[must_use]
pub fn map_in_order(capacities: &[u32]) -> Vec<u32> {
    (0..).zip(capacities).flat_map(|(node, &capacity)| std::iter::repeat_n(node, capacity as usize)).collect()
}

/// Searches the mapping with the fewest inter-node ghosts; never worse than [`map_in_order`]. Deterministic.
///
/// Swap descent from several starts, then branch and bound, which proves the optimum of small cases (all of up to
/// 16 subdomains on equal nodes that were tried); where it does not end in time, threshold accepting improves the
/// mapping further. Takes at most about a second.
///
/// # Panics
/// When the capacities do not add up to the number of subdomains.
#[must_use]
pub fn map_spatially(graph: &GhostGraph, capacities: &[u32]) -> Mapped {
    let slots: u64 = capacities.iter().map(|&c| u64::from(c)).sum();
    assert_eq!(slots, u64::from(graph.parts()), "as many places on the nodes as subdomains");
    let adjacency = Adjacency::new(graph);
    let start = descent::from_starts(&adjacency, capacities);
    let mapped = exact::search(&adjacency, capacities, start);
    if mapped.proven || capacities.len() < 2 {
        return mapped;
    }
    let node_of_subdomain = descent::refine(&adjacency, capacities, mapped.node_of_subdomain);
    Mapped { node_of_subdomain, proven: false }
}

/// The graph's neighbours and weights per subdomain.
struct Adjacency {
    rows: Vec<Vec<(u32, u64)>>,
}

impl Adjacency {
    fn new(graph: &GhostGraph) -> Self {
        let mut rows = vec![Vec::new(); graph.parts() as usize];
        for edge in graph.edges() {
            rows[edge.a as usize].push((edge.b, edge.weight()));
            rows[edge.b as usize].push((edge.a, edge.weight()));
        }
        for row in &mut rows {
            row.sort_unstable();
        }
        Self { rows }
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn weight(&self, a: u32, b: u32) -> u64 {
        let row = &self.rows[a as usize];
        row.binary_search_by_key(&b, |&(to, _)| to).map_or(0, |i| row[i].1)
    }

    /// The graph of some of the subdomains, renumbered in their order; `members` ascend.
    fn induced(&self, members: &[u32]) -> Self {
        let inside = |&(to, weight): &(u32, u64)| members.binary_search(&to).ok().map(|i| (i as u32, weight));
        Self {
            rows: members
                .iter()
                .map(|&m| self.rows[m as usize].iter().filter_map(inside).collect())
                .collect(),
        }
    }

    /// Ghosts between different nodes.
    fn cost(&self, node_of: &[u32]) -> u64 {
        let both: u64 = (0..)
            .zip(&self.rows)
            .flat_map(|(a, row): (usize, _)| row.iter().map(move |&(b, w)| (a, b, w)))
            .filter(|&(a, b, _)| node_of[a] != node_of[b as usize])
            .map(|(_, _, w)| w)
            .sum();
        both / 2
    }
}
