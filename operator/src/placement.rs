//! From a validated job to a placement request, and from a plan to its status: joins `dem-plan`'s two halves.

use dem_config::Files;
use dem_crds::{Decomposition, PlanSource, PlanStatus, PlannedNode};
use dem_decomp::{GhostGraph, Source};
use dem_plan::render::memory_beside_ranks;
use dem_plan::validate::{ValidatedJob, Workload};
use dem_plan::{ClusterView, Halo, NodeRequest, Particles, PlacementRequest, Plan, plan_placement};

/// What a job asks of its nodes.
pub fn node_request(job: &ValidatedJob) -> NodeRequest {
    NodeRequest {
        ranks: job.ranks,
        min_ranks_per_node: job.min_ranks_per_node,
        max_ranks_per_node: job.max_ranks_per_node,
        max_nodes: (!job.single_node_claims.is_empty()).then_some(1),
        cpus_per_rank: job.cpus_per_rank,
        memory_per_rank: job.memory_per_rank,
        memory_per_worker: memory_beside_ranks(job.shared_memory),
        reserve_cores: job.reserve_cores,
        node_selector: job.node_selector.clone(),
        tolerations: job.tolerations.clone(),
        node_affinity: job.node_affinity.clone(),
        topology: job.topology.clone(),
    }
}

/// Who talks to whom in a job. For a large simulation this generates every particle: seconds of work.
///
/// # Errors
/// What is wrong, for people.
pub fn halo(job: &ValidatedJob, files: &Files) -> Result<Halo, String> {
    match &job.workload {
        Workload::Simulation { simulation, .. } => match Particles::of(simulation, files) {
            Ok(particles) => Ok(Halo::Particles(particles)),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
        },
        Workload::Program { grid: Some(counts), .. } => Ok(Halo::Graph(grid(*counts))),
        Workload::Program { halo: Some(text), .. } => graph(text, job.ranks).map(Halo::Graph),
        Workload::Program { .. } => Ok(Halo::Unknown),
    }
}

/// Checks that there is room for a job now.
///
/// # Errors
/// Why it does not fit, for people.
pub fn fits(job: &ValidatedJob, cluster: &ClusterView) -> Result<(), String> {
    dem_plan::fits(&node_request(job), cluster).map_err(|e| e.to_string())
}

/// Chooses nodes for a job and maps its ranks to them.
///
/// # Errors
/// Why it does not fit, for people.
pub fn place(job: &ValidatedJob, halo: Halo, cluster: &ClusterView) -> Result<Plan, String> {
    let request = PlacementRequest {
        nodes: node_request(job),
        mapping: job.mapping,
        decomposition: job.decomposition,
        halo,
    };
    plan_placement(&request, cluster).map_err(|e| e.to_string())
}

/// A plan as it stands in the status of a job.
pub fn plan_status(plan: &Plan) -> PlanStatus {
    let ghosts = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let predicted = plan.file.predicted;
    let bound = predicted.filter(|_| plan.proven).map(|p| ghosts(p.inter_node_ghosts));
    PlanStatus {
        node_count: count(plan.nodes.len()),
        nodes: plan
            .nodes
            .iter()
            .map(|n| PlannedNode { name: n.name.clone(), ranks: count(n.ranks as usize) })
            .collect(),
        decomposition: plan.file.tree.as_ref().map(|_| match plan.file.decomposition {
            dem_decomp::Decomposition::Flat => Decomposition::Flat,
            dem_decomp::Decomposition::NodeFirst => Decomposition::NodeFirst,
        }),
        source: match plan.file.source {
            Source::Exact => PlanSource::Exact,
            Source::Assumed => PlanSource::Assumed,
        },
        inter_node_ghosts: predicted.map(|p| ghosts(p.inter_node_ghosts)),
        in_order_ghosts: predicted.map(|p| ghosts(p.in_order_ghosts)),
        inter_rank_ghosts: predicted.map(|p| ghosts(p.inter_rank_ghosts)),
        busiest_node_ghosts: predicted.map(|p| ghosts(p.busiest_node_ghosts)),
        lower_bound: bound,
        gap: bound.map(|_| 0.0),
    }
}

/// Ranks on a grid, x fastest, that talk to the neighbours with which they share a face; all pairs weigh the same.
fn grid([nx, ny, nz]: [u32; 3]) -> GhostGraph {
    let number = |x: u32, y: u32, z: u32| (z * ny + y) * nx + x;
    let mut pairs = Vec::new();
    for z in 0..nz {
        for y in 0..ny {
            for x in 0..nx {
                let here = number(x, y, z);
                let ahead = [(x + 1 < nx, x + 1, y, z), (y + 1 < ny, x, y + 1, z), (z + 1 < nz, x, y, z + 1)];
                for (exists, x, y, z) in ahead {
                    if exists {
                        let there = number(x, y, z);
                        pairs.extend([(here, there, 1), (there, here, 1)]);
                    }
                }
            }
        }
    }
    GhostGraph::from_counts(nx * ny * nz, pairs)
}

/// A graph from lines `rank rank weight`; empty lines and lines that begin with `#` are passed over.
fn graph(text: &str, ranks: u32) -> Result<GhostGraph, String> {
    let mut pairs = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || {
            format!(
                "halo graph, line {number}: found `{line}`, expected `rank rank weight`, ranks below {ranks}"
            )
        };
        let fields: Vec<u64> =
            line.split_whitespace().map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let [a, b, weight] = fields.as_slice() else { return Err(wrong()) };
        let rank = |r: u64| u32::try_from(r).ok().filter(|r| *r < ranks).ok_or_else(wrong);
        let (a, b) = (rank(*a)?, rank(*b)?);
        pairs.extend([(a, b, *weight), (b, a, *weight)]);
    }
    Ok(GhostGraph::from_counts(ranks, pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_has_an_edge_per_shared_face() {
        let graph = grid([3, 2, 2]);
        assert_eq!((graph.parts(), graph.edges().len()), (12, 2 * 4 + 6 + 6));
    }

    #[test]
    fn a_graph_of_a_user_is_read_line_by_line_and_a_wrong_line_is_named() {
        assert_eq!(graph("# ring\n0 1 5\n1 2 5\n\n2 0 1\n", 3).unwrap().edges().len(), 3);
        let error = graph("0 1 5\n0 3 1\n", 3).unwrap_err();
        assert!(error.contains("line 2") && error.contains("`0 3 1`"), "{error}");
    }
}
