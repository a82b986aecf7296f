use serde::{Deserialize, Serialize};

use crate::{Periodicity, Tree};

/// What two subdomains exchange per step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Edge {
    /// The lower subdomain.
    pub a: u32,
    /// The higher subdomain.
    pub b: u32,
    /// Ghosts that `b` receives from `a`.
    pub a_to_b: u64,
    /// Ghosts that `a` receives from `b`.
    pub b_to_a: u64,
}

impl Edge {
    /// Ghosts in both directions.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.a_to_b + self.b_to_a
    }
}

/// How many ghost particles each pair of subdomains exchanges per step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GhostGraph {
    parts: u32,
    edges: Vec<Edge>,
}

impl GhostGraph {
    /// A graph of `parts` subdomains from directed counts `(from, to, ghosts)`, in any order; counts of one pair add
    /// up, and what a subdomain sends to itself (its own periodic images) is left out, as it crosses no wire.
    ///
    /// # Panics
    /// When a subdomain is not below `parts`.
    #[must_use]
    pub fn from_counts(parts: u32, counts: impl IntoIterator<Item = (u32, u32, u64)>) -> Self {
        let mut edges: Vec<Edge> = counts
            .into_iter()
            .inspect(|&(from, to, _)| assert!(from < parts && to < parts, "subdomains are below {parts}"))
            .filter(|&(from, to, ghosts)| from != to && ghosts > 0)
            .map(|(from, to, ghosts)| match from < to {
                true => Edge { a: from, b: to, a_to_b: ghosts, b_to_a: 0 },
                false => Edge { a: to, b: from, a_to_b: 0, b_to_a: ghosts },
            })
            .collect();
        edges.sort_unstable_by_key(|edge| (edge.a, edge.b));
        edges.dedup_by(|next, kept| {
            let same = (next.a, next.b) == (kept.a, kept.b);
            if same {
                kept.a_to_b += next.a_to_b;
                kept.b_to_a += next.b_to_a;
            }
            same
        });
        Self { parts, edges }
    }

    /// Number of subdomains.
    #[must_use]
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// The communicating pairs, in the order of `(a, b)`.
    #[must_use]
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// All ghosts that subdomains receive from each other per step.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.edges.iter().map(Edge::weight).sum()
    }
}

/// Counts the ghosts of a decomposition: a particle is a ghost of every subdomain other than its owner whose box,
/// grown by `thickness` in metres (corners included), holds its centre; with periodic axes once per image.
pub fn ghost_graph(
    points: impl IntoIterator<Item = [f64; 3]>,
    tree: &Tree,
    thickness: f64,
    periodicity: &Periodicity,
) -> GhostGraph {
    // A subdomain has few neighbours, so a short list per subdomain is all the index that is needed.
    let mut neighbours: Vec<Vec<(u32, u64)>> = vec![Vec::new(); tree.parts() as usize];
    for point in points {
        let row = &mut neighbours[tree.owner(point) as usize];
        tree.touching(point, thickness, periodicity, |part, _| {
            match row.iter_mut().find(|(to, _)| *to == part) {
                Some((_, ghosts)) => *ghosts += 1,
                None => row.push((part, 1)),
            }
        });
    }
    GhostGraph::from_counts(
        tree.parts(),
        (0..).zip(neighbours).flat_map(|(from, row)| row.into_iter().map(move |(to, n)| (from, to, n))),
    )
}
