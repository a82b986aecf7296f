//! The benchmark of P0 (126 x 126 x 63 spheres, 12 ranks on 3 nodes) at its real size: the ghosts that the solver
//! counts at step 0 are those of the proven optimum, and a wrong plan shows in the counters.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

mod runs;

use dem_decomp::{Decomposition, Mapping, NodeRanks, PlanFile, Predicted, Serial, Source, ghost_graph};
use runs::{Case, Ran};

const BENCHMARK: &str = r#"
domain: {min: [0, 0, 0], max: [1, 1, 1]}
materials: [{name: artificial, density: 7000, youngsModulus: 1.0e7, poissonRatio: 0.2}]
pairs: [{materials: [artificial, artificial], restitution: 0.5, friction: 0.4}]
particles: [{lattice: {counts: [126, 126, 63], fit: [1, 1, 0.5], radius: 0.004, material: artificial}}]
ghostLayer: 2R
time: {step: {seconds: 5.0e-5}, end: {steps: 1}}
balance: {enabled: false}
outputs: {vtu: false, picture: {colour: None}}
"#;

/// Ghosts between ranks, between nodes, and how the subdomains were mapped.
fn counted(ran: &Ran) -> (u64, u64, String) {
    let ghosts = |what: &str| ran.summary()["startGhosts"][what].as_u64().unwrap();
    (ghosts("interRank"), ghosts("interNode"), ran.summary()["mapping"].as_str().unwrap().to_owned())
}

/// The plan for 12 ranks, four on each of three nodes.
fn plan(case: &Case, cut: Decomposition, mapping: Mapping) -> PlanFile {
    let prepared = dem_config::prepare(&case.job.simulation, &case.job.particle_files).unwrap();
    let points: Vec<[f64; 3]> =
        prepared.particles.range(0..prepared.particles.count()).map(|seed| seed.position).collect();
    let region = dem_decomp::Box3::new(prepared.region.0, prepared.region.1);
    let tree = cut.decompose(&points, None, region, &[4, 4, 4], &mut Serial);
    let periodicity = dem_decomp::Periodicity::NONE;
    let graph = ghost_graph(points.iter().copied(), &tree, prepared.ghost_thickness, &periodicity);
    PlanFile {
        version: PlanFile::VERSION,
        ranks: 12,
        nodes: (0..3)
            .map(|n| NodeRanks { name: format!("n{n}"), ranks: (4 * n..4 * n + 4).collect() })
            .collect(),
        decomposition: Decomposition::Flat,
        mapping,
        objective: PlanFile::OBJECTIVE.into(),
        tree: Some(tree),
        subdomain_of_rank: mapping.assign(&graph, &[4, 4, 4]).subdomain_of_rank,
        predicted: None::<Predicted>,
        source: Source::Exact,
        ghost_thickness: prepared.ghost_thickness,
    }
}

fn run(change: impl FnOnce(&mut PlanFile), mapping: Mapping) -> Ran {
    let mut case = Case::new(BENCHMARK).nodes(3, Decomposition::Flat);
    case.job.checkpoints = None;
    let mut plan = plan(&case, Decomposition::Flat, mapping);
    change(&mut plan);
    case.job.plan = Some(plan);
    case.run(12)
}

#[test]
fn counters_at_step_0_are_the_proven_numbers_and_a_wrong_permutation_reports_its_own() {
    let spatial = run(|_| {}, Mapping::Spatial);
    assert_eq!(counted(&spatial), (86_184, 27_468, "planned".into()));
    let in_order = run(|_| {}, Mapping::InOrder);
    assert_eq!(counted(&in_order), (86_184, 41_895, "planned".into()));
    assert_eq!(spatial.hash, in_order.hash);
    // A plan that swaps two ranks of different nodes is obeyed, and costs what it costs.
    let (inter_rank, inter_node, mapping) =
        counted(&run(|plan| plan.subdomain_of_rank.swap(0, 11), Mapping::Spatial));
    assert_eq!((inter_rank, mapping.as_str()), (86_184, "planned"));
    assert!(inter_node > 27_468, "{inter_node}");
    // One for other boxes is not: the solver maps its own, and says so.
    let foreign = plan(&Case::new(BENCHMARK), Decomposition::NodeFirst, Mapping::Spatial).tree;
    let own = run(
        |plan| {
            plan.tree = foreign;
            plan.subdomain_of_rank.swap(0, 11);
        },
        Mapping::Spatial,
    );
    assert_eq!(counted(&own), (86_184, 27_468, "own".into()));
}
