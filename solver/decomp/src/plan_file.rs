use serde::{Deserialize, Serialize};

use crate::{Assignment, Box3, Mapping, Reduce, Tree, node_first, rcb};

/// How the region is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decomposition {
    /// Recursive coordinate bisection over the ranks.
    Flat,
    /// Into nodes first, then each node's box into its ranks.
    NodeFirst,
}

impl Decomposition {
    /// Cuts a region for nodes of the given capacities (ranks); see [`rcb`] and [`node_first`].
    ///
    /// # Panics
    /// As those do.
    pub fn decompose(
        self,
        points: &[[f64; 3]],
        weights: Option<&[u64]>,
        region: Box3,
        capacities: &[u32],
        reduce: &mut impl Reduce,
    ) -> Tree {
        match self {
            Self::Flat => rcb(points, weights, region, capacities.iter().sum(), reduce),
            Self::NodeFirst => node_first(points, weights, region, capacities, reduce),
        }
    }
}

/// What the planner knew about the particles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// It generated them itself: its numbers are those of step 0.
    Exact,
    /// It took them as spread evenly over the region.
    Assumed,
}

/// A node and the ranks that run on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRanks {
    /// The node's name in the cluster.
    pub name: String,
    /// Its ranks: consecutive, ascending.
    pub ranks: Vec<u32>,
}

/// What the planner expects, in ghosts per step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Predicted {
    /// Ghosts between different ranks.
    pub inter_rank_ghosts: u64,
    /// Of these, between different nodes.
    pub inter_node_ghosts: u64,
    /// Inter-node ghosts of a flat decomposition whose subdomains are given to the ranks in order.
    pub in_order_ghosts: u64,
    /// Ghosts in and out of the node that has most of them.
    pub busiest_node_ghosts: u64,
}

/// `plan.json`: what the planner tells the solver about nodes and subdomains.
///
/// The solver uses `subdomain_of_rank` while its own tree equals `tree`; otherwise it calls
/// [`PlanFile::decompose`] and [`Mapping::assign`] itself and says so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanFile {
    /// Format version, [`PlanFile::VERSION`].
    pub version: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// The nodes in rank order.
    pub nodes: Vec<NodeRanks>,
    /// How the region is cut.
    pub decomposition: Decomposition,
    /// How subdomains are given to ranks.
    pub mapping: Mapping,
    /// What the mapping minimises, [`PlanFile::OBJECTIVE`].
    pub objective: String,
    /// The planned boxes; absent when the planner knows no particles (a program that is not the solver).
    pub tree: Option<Tree>,
    /// The subdomain of each rank.
    pub subdomain_of_rank: Vec<u32>,
    /// What the planner expects; absent with the tree.
    pub predicted: Option<Predicted>,
    /// What the planner knew about the particles.
    pub source: Source,
    /// Thickness of the ghost layer that the figures hold for, in metres.
    pub ghost_thickness: f64,
}

/// Why a plan file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanFileError {
    /// Not JSON of this shape.
    #[error("plan file: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON of the right shape whose fields contradict each other.
    #[error("plan file: {field} is {found}; expected {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it holds.
        found: String,
        /// What would be right.
        expected: String,
    },
}

impl PlanFile {
    /// The format's version.
    pub const VERSION: u32 = 1;
    /// The only objective of this version.
    pub const OBJECTIVE: &str = "interNodeGhosts";

    /// Reads and checks a plan file's text.
    ///
    /// # Errors
    /// When it is not JSON of this version's shape, or its fields contradict each other.
    pub fn from_json(text: &str) -> Result<Self, PlanFileError> {
        let plan: Self = serde_json::from_str(text)?;
        plan.check()?;
        Ok(plan)
    }

    /// The plan file's text; [`PlanFile::from_json`] gives the same plan back to the last bit.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers, strings and lists always have a JSON form")
    }

    /// How many ranks each node has, in node order.
    #[must_use]
    pub fn capacities(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.ranks.len() as u32).collect()
    }

    /// Cuts a region as this plan asks for.
    ///
    /// # Panics
    /// When `weights` has another length than `points`.
    pub fn decompose(
        &self,
        points: &[[f64; 3]],
        weights: Option<&[u64]>,
        region: Box3,
        reduce: &mut impl Reduce,
    ) -> Tree {
        self.decomposition.decompose(points, weights, region, &self.capacities(), reduce)
    }

    /// The planned assignment.
    #[must_use]
    pub fn assignment(&self) -> Assignment {
        let node_of_rank = (0..).zip(&self.nodes).flat_map(|(n, node)| vec![n; node.ranks.len()]).collect();
        Assignment { subdomain_of_rank: self.subdomain_of_rank.clone(), node_of_rank }
    }

    fn check(&self) -> Result<(), PlanFileError> {
        let wrong =
            |field, found: String, expected: String| Err(PlanFileError::Field { field, found, expected });
        if self.version != Self::VERSION {
            return wrong("version", self.version.to_string(), Self::VERSION.to_string());
        }
        if self.objective != Self::OBJECTIVE {
            return wrong("objective", self.objective.clone(), Self::OBJECTIVE.into());
        }
        if self.ranks == 0 {
            return wrong("ranks", "0".into(), "at least 1".into());
        }
        if self.nodes.iter().any(|node| node.ranks.is_empty())
            || !self.nodes.iter().flat_map(|node| &node.ranks).copied().eq(0..self.ranks)
        {
            let found =
                self.nodes.iter().map(|node| format!("{:?}", node.ranks)).collect::<Vec<_>>().join(", ");
            let expected =
                format!("ranks 0 to {}, ascending from node to node, at least one each", self.ranks - 1);
            return wrong("nodes[].ranks", found, expected);
        }
        let mut sorted = self.subdomain_of_rank.clone();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..self.ranks) {
            let found = format!("{:?}", self.subdomain_of_rank);
            return wrong("subdomainOfRank", found, format!("a permutation of 0 to {}", self.ranks - 1));
        }
        if let Some(parts) = self.tree.as_ref().map(Tree::parts).filter(|&parts| parts != self.ranks) {
            let expected = format!("{}, one less than ranks", self.ranks - 1);
            return wrong("tree.cuts", format!("a list of {} planes", parts - 1), expected);
        }
        if !(self.ghost_thickness >= 0.0 && self.ghost_thickness.is_finite()) {
            return wrong("ghostThickness", self.ghost_thickness.to_string(), "metres, 0 or more".into());
        }
        Ok(())
    }
}
