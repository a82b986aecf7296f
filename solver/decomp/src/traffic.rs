use serde::Serialize;

use crate::GhostGraph;

/// Ghosts that cross a node's network interface per step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeTraffic {
    /// Received from other nodes.
    pub received: u64,
    /// Sent to other nodes.
    pub sent: u64,
}

impl NodeTraffic {
    /// Both directions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.received + self.sent
    }
}

/// What an assignment of subdomains to nodes costs, in ghosts per step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// Ghosts between different ranks.
    pub inter_rank: u64,
    /// Of these, between different nodes.
    pub inter_node: u64,
    /// Per node.
    pub nodes: Vec<NodeTraffic>,
}

impl Traffic {
    /// Counts the traffic of `graph` when subdomain `i` lives on node `node_of_subdomain[i]` of `nodes`.
    ///
    /// # Panics
    /// When the slice has not one entry, below `nodes`, per subdomain.
    #[must_use]
    pub fn of(graph: &GhostGraph, node_of_subdomain: &[u32], nodes: usize) -> Self {
        assert_eq!(node_of_subdomain.len(), graph.parts() as usize, "one node per subdomain");
        let mut traffic =
            Self { inter_rank: graph.total(), inter_node: 0, nodes: vec![NodeTraffic::default(); nodes] };
        for edge in graph.edges() {
            let (a, b) = (node_of_subdomain[edge.a as usize], node_of_subdomain[edge.b as usize]);
            if a != b {
                traffic.inter_node += edge.weight();
                traffic.nodes[a as usize].sent += edge.a_to_b;
                traffic.nodes[b as usize].received += edge.a_to_b;
                traffic.nodes[b as usize].sent += edge.b_to_a;
                traffic.nodes[a as usize].received += edge.b_to_a;
            }
        }
        traffic
    }

    /// Ghosts in and out of the node that has most of them.
    #[must_use]
    pub fn busiest_node(&self) -> u64 {
        self.nodes.iter().map(NodeTraffic::total).max().unwrap_or(0)
    }
}
