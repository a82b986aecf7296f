//! Heuristic search: starts by order and by bisection of the graph, swap descent, then threshold accepting (Dueck
//! and Scheuer, J. Comput. Phys. 90, 1990) within a fixed number of swaps. Integers only and seeded, so the result is
//! the same on every platform.

use super::{Adjacency, map_in_order};

/// Swaps that may be evaluated in a descent.
const DESCENT: u64 = 20_000_000;
/// Seed subdomains of the bisection starts.
const BISECTIONS: usize = 8;
/// Rounds of threshold accepting.
const ROUNDS: u64 = 6;
/// Random swaps that a round proposes per subdomain, and at most.
const PROPOSALS_EACH: u64 = 10_000;
const PROPOSALS: u64 = 800_000;

/// The best of several starts, each improved by swaps; never worse than in order.
pub(super) fn from_starts(graph: &Adjacency, capacities: &[u32]) -> Vec<u32> {
    let mut best = map_in_order(capacities);
    if capacities.len() < 2 {
        return best;
    }
    let mut best_cost = graph.cost(&best);
    let tries = BISECTIONS.min(graph.len());
    let starts = (0..tries).map(|i| by_bisection(graph, capacities, i * graph.len() / tries));
    for start in std::iter::once(best.clone()).chain(starts) {
        let mut descent = Descent::new(graph, capacities.len(), start);
        descent.run();
        let cost = graph.cost(&descent.node_of);
        if cost < best_cost {
            (best, best_cost) = (descent.node_of, cost);
        }
    }

    best
}

/// Improves a mapping by rounds of threshold accepting.
pub(super) fn refine(graph: &Adjacency, capacities: &[u32], mut best: Vec<u32>) -> Vec<u32> {
    let mut best_cost = graph.cost(&best);
    let mut random = SplitMix(1);
    for _ in 0..ROUNDS {
        let mut descent = Descent::new(graph, capacities.len(), best.clone());
        descent.accept_losses(&mut random);
        descent.run();
        let cost = graph.cost(&descent.node_of);
        if cost < best_cost {
            (best, best_cost) = (descent.node_of, cost);
        }
    }
    best
}

/// Splits nodes and subdomains in two, grown from the subdomain farthest from `seed`, then each side likewise.
fn by_bisection(graph: &Adjacency, capacities: &[u32], seed: usize) -> Vec<u32> {
    let mut node_of = vec![0; graph.len()];
    let all: Vec<u32> = (0..graph.len() as u32).collect();
    let mut open = vec![(all, 0, capacities)];
    while let Some((members, first, capacities)) = open.pop() {
        let [_, _, ..] = capacities else {
            members.iter().for_each(|&s| node_of[s as usize] = first);
            continue;
        };
        let (low, high) = capacities.split_at(capacities.len().div_ceil(2));
        let part = graph.induced(&members);
        let sides = grow(&part, low.iter().sum::<u32>() as usize, seed % members.len());
        let mut descent = Descent::new(&part, 2, sides);
        descent.run();
        let side = |wanted| {
            members.iter().zip(&descent.node_of).filter(|&(_, &s)| s == wanted).map(|(&m, _)| m).collect()
        };
        open.push((side(0), first, low));
        open.push((side(1), first + low.len() as u32, high));
    }
    node_of
}

/// Side 0 of `size` subdomains, grown from a peripheral one by the strongest links; the rest is side 1.
fn grow(graph: &Adjacency, size: usize, seed: usize) -> Vec<u32> {
    let mut side = vec![1; graph.len()];
    let mut links = vec![0; graph.len()];
    let mut next = farthest(graph, seed);
    for _ in 0..size {
        side[next] = 0;
        for &(to, weight) in &graph.rows[next] {
            links[to as usize] += weight;
        }
        // Of equally linked ones the lowest number.
        let rest = (0..graph.len()).filter(|&s| side[s] == 1);
        next = rest.max_by_key(|&s| (links[s], std::cmp::Reverse(s))).unwrap_or(next);
    }
    side
}

/// The subdomain that a breadth-first search from `seed` meets last.
fn farthest(graph: &Adjacency, seed: usize) -> usize {
    let mut seen = vec![false; graph.len()];
    let mut queue = vec![seed];
    seen[seed] = true;
    let mut at = 0;
    while at < queue.len() {
        for &(to, _) in &graph.rows[queue[at]] {
            if !std::mem::replace(&mut seen[to as usize], true) {
                queue.push(to as usize);
            }
        }
        at += 1;
    }
    queue[at - 1]
}

/// Swap descent: two subdomains on different nodes change places while that saves ghosts.
#[derive(Clone)]
struct Descent<'a> {
    graph: &'a Adjacency,
    node_of: Vec<u32>,
    nodes: usize,
    /// Weight from subdomain `s` to node `n` at `s * nodes + n`.
    links: Vec<u64>,
}

impl<'a> Descent<'a> {
    fn new(graph: &'a Adjacency, nodes: usize, node_of: Vec<u32>) -> Self {
        let mut links = vec![0; graph.len() * nodes];
        for (row, links) in graph.rows.iter().zip(links.chunks_exact_mut(nodes)) {
            for &(to, weight) in row {
                links[node_of[to as usize] as usize] += weight;
            }
        }
        Self { graph, node_of, nodes, links }
    }

    fn link(&self, subdomain: u32, node: u32) -> u64 {
        self.links[subdomain as usize * self.nodes + node as usize]
    }

    /// Ghosts that swapping the places of two subdomains on different nodes saves, less those that it adds.
    fn gain(&self, a: u32, b: u32) -> i64 {
        let (on, other) = (self.node_of[a as usize], self.node_of[b as usize]);
        let saved = self.link(a, other) + self.link(b, on);
        // The pair itself stays cut, but counts as saved on both sides.
        let added = self.link(a, on) + self.link(b, other) + 2 * self.graph.weight(a, b);
        saved as i64 - added as i64
    }

    fn swap(&mut self, a: u32, b: u32) {
        let (on, other) = (self.node_of[a as usize], self.node_of[b as usize]);
        for (subdomain, from, to) in [(a, on, other), (b, other, on)] {
            for &(neighbour, weight) in &self.graph.rows[subdomain as usize] {
                let row = neighbour as usize * self.nodes;
                self.links[row + from as usize] -= weight;
                self.links[row + to as usize] += weight;
            }
            self.node_of[subdomain as usize] = to;
        }
    }

    /// Swaps until no swap saves anything or enough have been looked at.
    fn run(&mut self) {
        let n = self.graph.len() as u32;
        let mut budget = DESCENT;
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
                budget = budget.saturating_sub((n - a).into());
                if budget == 0 {
                    return;
                }
            }
        }
    }

    /// Random swaps with a node that the subdomain is linked to; one is taken if it loses less than a threshold that
    /// falls to zero.
    fn accept_losses(&mut self, random: &mut SplitMix) {
        let mut members = vec![Vec::new(); self.nodes];
        let mut place = vec![0; self.graph.len()];
        for (s, &node) in self.node_of.iter().enumerate() {
            place[s] = members[node as usize].len();
            members[node as usize].push(s as u32);
        }
        let heaviest = self.graph.rows.iter().flatten().map(|&(_, weight)| weight).max().unwrap_or(0);
        let proposals = (PROPOSALS_EACH * self.graph.len() as u64).min(PROPOSALS);
        for left in (0..proposals).rev() {
            let threshold = (2 * u128::from(heaviest) * u128::from(left) / u128::from(proposals)) as i64;
            let a = random.below(self.graph.len());
            let Some(towards) = self.graph.rows[a].len().checked_sub(1).map(|last| random.below(last + 1))
            else {
                continue;
            };
            let (on, other) = (self.node_of[a], self.node_of[self.graph.rows[a][towards].0 as usize]);
            if on == other {
                continue;
            }
            let there = &members[other as usize];
            let b = there[random.below(there.len())] as usize;
            if self.gain(a as u32, b as u32) + threshold > 0 {
                self.swap(a as u32, b as u32);
                members[on as usize][place[a]] = b as u32;
                members[other as usize][place[b]] = a as u32;
                place.swap(a, b);
            }
        }
    }
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}
