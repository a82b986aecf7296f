//! Starts and their improvement by swaps.

use super::{Adjacency, map_in_order};

/// The best of several starts, each improved by swaps of subdomains.
pub(super) fn search(graph: &Adjacency, capacities: &[u32]) -> Vec<u32> {
    let mut best = map_in_order(capacities);
    Descent::new(graph, capacities, &mut best).run();
    best
}

/// Swap descent: two subdomains on different nodes change places while that saves ghosts.
struct Descent<'a> {
    graph: &'a Adjacency,
    node_of: &'a mut Vec<u32>,
    /// Weight from each subdomain to each node.
    links: Vec<Vec<u64>>,
}

impl<'a> Descent<'a> {
    fn new(graph: &'a Adjacency, capacities: &[u32], node_of: &'a mut Vec<u32>) -> Self {
        let mut links = vec![vec![0; capacities.len()]; graph.len()];
        for (row, links) in graph.rows.iter().zip(&mut links) {
            for &(to, weight) in row {
                links[node_of[to as usize] as usize] += weight;
            }
        }
        Self { graph, node_of, links }
    }

    /// Ghosts saved by swapping the places of two subdomains.
    fn gain(&self, a: u32, b: u32) -> i64 {
        let (u, v) = (a as usize, b as usize);
        let (on, other) = (self.node_of[u] as usize, self.node_of[v] as usize);
        let saved = self.links[u][other] + self.links[v][on];
        let lost = self.links[u][on] + self.links[v][other] + 2 * self.graph.weight(a, b);
        saved as i64 - lost as i64
    }

    fn swap(&mut self, a: u32, b: u32) {
        let (on, other) = (self.node_of[a as usize], self.node_of[b as usize]);
        for (subdomain, from, to) in [(a, on, other), (b, other, on)] {
            for &(neighbour, weight) in &self.graph.rows[subdomain as usize] {
                self.links[neighbour as usize][from as usize] -= weight;
                self.links[neighbour as usize][to as usize] += weight;
            }
            self.node_of[subdomain as usize] = to;
        }
    }

    fn run(&mut self) {
        let n = self.graph.len() as u32;
        let mut improved = true;
        while improved {
            improved = false;
            for a in 0..n {
                for b in a + 1..n {
                    if self.node_of[a as usize] != self.node_of[b as usize] && self.gain(a, b) > 0 {
                        self.swap(a, b);
                        improved = true;
                    }
                }
            }
        }
    }
}
