//! The benchmark of P0: 1,000,188 particles as a 126 x 126 x 63 lattice, and the same lattice turned.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use dem_decomp::{
    Assignment, Box3, Decomposition, GhostGraph, Mapping, Periodicity, Serial, Traffic, Tree, ghost_graph,
    map_in_order, map_spatially, node_first, rcb,
};

const DIAMETER: f64 = 0.008;

/// Lattice sites at `(i + 0.5) * fit / counts`, x fastest, and the region that they fill.
fn lattice(counts: [u32; 3]) -> (Vec<[f64; 3]>, Box3) {
    let fit = counts.map(|n| f64::from(n) / 126.0);
    let at = |axis: usize, i: u32| (f64::from(i) + 0.5) * fit[axis] / f64::from(counts[axis]);
    let mut points = Vec::with_capacity(counts.iter().product::<u32>() as usize);
    for k in 0..counts[2] {
        for j in 0..counts[1] {
            for i in 0..counts[0] {
                points.push([at(0, i), at(1, j), at(2, k)]);
            }
        }
    }
    (points, Box3::new([0.0; 3], fit))
}

fn flat(counts: [u32; 3], ranks: u32, thickness: f64) -> (Tree, GhostGraph) {
    let (points, region) = lattice(counts);
    let tree = rcb(&points, None, region, ranks, &mut Serial);
    let graph = ghost_graph(points, &tree, thickness, &Periodicity::NONE);
    (tree, graph)
}

fn inter_node(graph: &GhostGraph, node_of: &[u32], nodes: usize) -> u64 {
    Traffic::of(graph, node_of, nodes).inter_node
}

/// All ways to put the subdomains on nodes of `size` places, nodes being interchangeable.
fn every_assignment(node_of: &mut Vec<u32>, ranks: usize, size: usize, visit: &mut impl FnMut(&[u32])) {
    if node_of.len() == ranks {
        return visit(node_of);
    }
    let used = node_of.iter().max().map_or(0, |&most| most + 1);
    for node in 0..=used.min((ranks / size) as u32 - 1) {
        if node_of.iter().filter(|&&n| n == node).count() < size {
            node_of.push(node);
            every_assignment(node_of, ranks, size, visit);
            node_of.pop();
        }
    }
}

#[test]
fn twelve_ranks_on_three_nodes_reach_the_optimum_over_all_assignments() {
    let cases = [
        ([126, 126, 63], 41_895, 27_468),
        ([126, 63, 126], 44_820, 27_648),
        ([63, 126, 126], 45_118, 35_586),
    ];
    for (counts, in_order, optimum) in cases {
        let (_, graph) = flat(counts, 12, DIAMETER);
        assert_eq!(inter_node(&graph, &map_in_order(&[4; 3]), 3), in_order, "{counts:?} in order");

        let mapped = map_spatially(&graph, &[4; 3]);
        assert!(mapped.proven);
        assert_eq!(inter_node(&graph, &mapped.node_of_subdomain, 3), optimum, "{counts:?} mapped");

        let (mut assignments, mut least) = (0, u64::MAX);
        every_assignment(&mut Vec::new(), 12, 4, &mut |node_of| {
            assignments += 1;
            least = least.min(inter_node(&graph, node_of, 3));
        });
        assert_eq!((assignments, least), (5_775, optimum), "{counts:?} by brute force");
    }
}

#[test]
fn the_optimum_of_p0_is_its_grouping_and_halves_the_busiest_node() {
    let (_, graph) = flat([126, 126, 63], 12, DIAMETER);
    let mapped = map_spatially(&graph, &[4; 3]).node_of_subdomain;
    let assignment = Assignment::new(&mapped);
    let mut groups: Vec<&[u32]> = assignment.subdomain_of_rank.chunks(4).collect();
    groups.sort_unstable();
    assert_eq!(groups, [[0, 1, 3, 4], [2, 6, 7, 8], [5, 9, 10, 11]]);

    let before = Traffic::of(&graph, &map_in_order(&[4; 3]), 3);
    let sent: Vec<u64> = before.nodes.iter().map(|node| node.sent).collect();
    assert_eq!(sent, [10_206, 20_853, 10_836], "P0: one node sends twice as much as the others");
    assert_eq!(before.busiest_node(), 41_769);
    assert_eq!(Traffic::of(&graph, &mapped, 3).busiest_node(), 19_278);
}

#[test]
fn sixteen_ranks_on_four_nodes_are_best_in_order() {
    let (_, graph) = flat([126, 126, 63], 16, DIAMETER);
    assert_eq!(graph.total(), 97_524);
    assert_eq!(inter_node(&graph, &map_in_order(&[4; 4]), 4), 33_012);
    let mapped = map_spatially(&graph, &[4; 4]);
    assert_eq!((inter_node(&graph, &mapped.node_of_subdomain, 4), mapped.proven), (33_012, true));
}

#[test]
fn a_skin_below_the_lattice_spacing_adds_no_ghost() {
    let (tree, bare) = flat([126, 126, 63], 12, DIAMETER);
    let (points, _) = lattice([126, 126, 63]);
    assert_eq!(bare.total(), 86_184);
    assert_eq!(ghost_graph(points, &tree, DIAMETER + 0.1 * DIAMETER, &Periodicity::NONE), bare);
}

#[test]
fn the_lattice_written_with_its_spacing_is_cut_at_the_same_planes() {
    let spacing = 1.0 / 126.0;
    let mut points = Vec::new();
    for k in 0..63 {
        for j in 0..126 {
            for i in 0..126 {
                points.push([i, j, k].map(|n| (f64::from(n) + 0.5) * spacing));
            }
        }
    }
    let region = Box3::new([0.0; 3], [126.0 * spacing, 126.0 * spacing, 63.0 * spacing]);
    let tree = rcb(&points, None, region, 12, &mut Serial);
    let graph = ghost_graph(points, &tree, DIAMETER, &Periodicity::NONE);
    assert_eq!(inter_node(&graph, &map_in_order(&[4; 3]), 3), 41_895);
    assert_eq!(inter_node(&graph, &map_spatially(&graph, &[4; 3]).node_of_subdomain, 3), 27_468);
}

#[test]
fn node_first_needs_no_search_where_nodes_are_not_a_power_of_two() {
    let (points, region) = lattice([126, 126, 63]);
    for (nodes, per_node, all, expected) in [(3, 4, Some(80_892), 27_468), (6, 8, None, 51_480)] {
        let capacities = vec![per_node; nodes];
        let tree = node_first(&points, None, region, &capacities, &mut Serial);
        let graph = ghost_graph(points.iter().copied(), &tree, DIAMETER, &Periodicity::NONE);
        assert_eq!(inter_node(&graph, &map_in_order(&capacities), nodes), expected, "{nodes} nodes");
        if let Some(all) = all {
            assert_eq!(graph.total(), all);
        }
    }
}

#[test]
fn node_first_sizes_boxes_by_uneven_capacities() {
    let (points, region) = lattice([126, 126, 63]);
    let tree = Decomposition::NodeFirst.decompose(&points, None, region, &[5, 4, 3], &mut Serial);
    let mut counts = [0_u32; 12];
    points.iter().for_each(|&p| counts[tree.owner(p) as usize] += 1);
    let (least, most) = (counts.iter().min().copied().unwrap(), counts.iter().max().copied().unwrap());
    // One lattice plane of the largest face per cut.
    assert!(most - least <= 4 * 126 * 63, "{counts:?}");
    let node = |ranks: std::ops::Range<usize>| f64::from(counts[ranks].iter().sum::<u32>());
    for (share, ranks) in [(5.0, 0..5), (4.0, 5..9), (3.0, 9..12)] {
        assert!((node(ranks) / 1_000_188.0 - share / 12.0).abs() < 0.01, "{counts:?}");
    }
}

#[test]
fn mapping_in_order_and_spatially_differ_only_in_the_assignment() {
    let (_, graph) = flat([126, 126, 63], 12, DIAMETER);
    let in_order = Mapping::InOrder.assign(&graph, &[4; 3]);
    assert_eq!(in_order.subdomain_of_rank, (0..12).collect::<Vec<_>>());
    let spatial = Mapping::Spatial.assign(&graph, &[4; 3]);
    assert_eq!(spatial.node_of_rank, in_order.node_of_rank);
    assert_eq!(Assignment::new(&spatial.node_of_subdomain()), spatial);
    for (subdomain, rank) in spatial.rank_of_subdomain().into_iter().enumerate() {
        assert_eq!(spatial.subdomain_of_rank[rank as usize] as usize, subdomain);
    }
}
