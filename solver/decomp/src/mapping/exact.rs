//! Branch and bound over all assignments.

use super::{Adjacency, Mapped};

/// How many links are read before the search gives up on a proof: well under a second.
const BUDGET: u64 = 300_000_000;
/// Beyond this a proof is out of reach of this bound.
const LARGEST: usize = 32;

/// Improves `best` to the proven optimum if the search ends within its budget.
pub(super) fn search(graph: &Adjacency, capacities: &[u32], best: Vec<u32>) -> Mapped {
    let cost = graph.cost(&best);
    if graph.len() > LARGEST {
        return Mapped { node_of_subdomain: best, proven: cost == 0 || capacities.len() < 2 };
    }
    let mut search = Search {
        graph,
        order: connected_order(graph),
        free: capacities.to_vec(),
        capacities,
        node_of: vec![UNPLACED; graph.len()],
        links: vec![vec![0; capacities.len()]; graph.len()],
        best,
        best_cost: cost,
        budget: BUDGET,
    };
    search.place(0, 0);
    Mapped { node_of_subdomain: search.best, proven: search.budget > 0 }
}

const UNPLACED: u32 = u32::MAX;

struct Search<'a> {
    graph: &'a Adjacency,
    order: Vec<u32>,
    capacities: &'a [u32],
    free: Vec<u32>,
    node_of: Vec<u32>,
    /// Weight from each subdomain to those already placed on each node.
    links: Vec<Vec<u64>>,
    best: Vec<u32>,
    best_cost: u64,
    budget: u64,
}

impl Search<'_> {
    /// Places the subdomains from position `depth` of the order on; `cost` is that of the pairs already placed.
    fn place(&mut self, depth: usize, cost: u64) {
        let links = (self.order.len() - depth + 1) * self.free.len();
        self.budget = self.budget.saturating_sub(links as u64);
        if self.budget == 0 {
            return;
        }
        if depth == self.order.len() {
            if cost < self.best_cost {
                self.best_cost = cost;
                self.best.clone_from(&self.node_of);
            }
            return;
        }
        if cost + self.least_further_cost(depth) >= self.best_cost {
            return;
        }
        let subdomain = self.order[depth] as usize;
        let placed: u64 = self.links[subdomain].iter().sum();
        // The most strongly linked node first.
        let mut nodes: Vec<usize> =
            (0..self.free.len()).filter(|&n| self.free[n] > 0 && !self.is_twin(n)).collect();
        nodes.sort_by_key(|&n| std::cmp::Reverse(self.links[subdomain][n]));
        for node in nodes {
            self.put(subdomain, node);
            self.place(depth + 1, cost + placed - self.links[subdomain][node]);
            self.take(subdomain, node);
        }
    }

    /// Empty nodes of equal capacity are interchangeable: only the first of them needs a try.
    fn is_twin(&self, node: usize) -> bool {
        let empty = |n: usize| self.free[n] == self.capacities[n];
        empty(node) && (0..node).any(|n| self.capacities[n] == self.capacities[node] && empty(n))
    }

    /// Every subdomain still to be placed is cut at least from those placed that are not on its best node.
    fn least_further_cost(&self, depth: usize) -> u64 {
        self.order[depth..]
            .iter()
            .map(|&s| {
                let links = &self.links[s as usize];
                let most = links.iter().zip(&self.free).filter(|&(_, &f)| f > 0).map(|(&l, _)| l).max();
                links.iter().sum::<u64>() - most.unwrap_or(0)
            })
            .sum()
    }

    fn put(&mut self, subdomain: usize, node: usize) {
        self.free[node] -= 1;
        self.node_of[subdomain] = node as u32;
        for &(to, weight) in &self.graph.rows[subdomain] {
            self.links[to as usize][node] += weight;
        }
    }

    fn take(&mut self, subdomain: usize, node: usize) {
        self.free[node] += 1;
        self.node_of[subdomain] = UNPLACED;
        for &(to, weight) in &self.graph.rows[subdomain] {
            self.links[to as usize][node] -= weight;
        }
    }
}

/// Subdomains so that each is linked as strongly as possible to those before it: costs show up early.
fn connected_order(graph: &Adjacency) -> Vec<u32> {
    let mut order = Vec::with_capacity(graph.len());
    let mut links = vec![0; graph.len()];
    let mut open: Vec<usize> = (0..graph.len()).collect();
    while !open.is_empty() {
        let mut next = 0;
        for i in 1..open.len() {
            if links[open[i]] > links[open[next]] {
                next = i;
            }
        }
        let subdomain = open.remove(next);
        order.push(subdomain as u32);
        for &(to, weight) in &graph.rows[subdomain] {
            links[to as usize] += weight;
        }
    }
    order
}
