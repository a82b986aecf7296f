//! Mapping quality on ghost graphs of the benchmark whose optima were proved by set partitioning with column
//! generation. A line `i j w` is a pair and the ghosts that it exchanges in both directions.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use dem_decomp::{
    Box3, Edge, GhostGraph, Periodicity, Serial, Traffic, ghost_graph, map_in_order, map_spatially, rcb,
};

fn read(text: &str) -> (GhostGraph, Vec<u32>) {
    let mut lines =
        text.lines().map(|line| line.split(' ').map(|n| n.parse().unwrap()).collect::<Vec<u32>>());
    let head = lines.next().unwrap();
    let graph = GhostGraph::from_counts(head[0], lines.map(|l| (l[0], l[1], u64::from(l[2]))));
    (graph, vec![head[2]; head[1] as usize])
}

#[test]
fn mapping_is_optimal_or_near_it_and_never_worse_than_in_order() {
    // File, all ghosts, in order, proven optimum, and how far above it the mapping may be, in thousandths.
    let cases = [
        (include_str!("data/12-on-3.txt"), 86_184, 41_895, 27_468, 0),
        (include_str!("data/16-on-4.txt"), 97_524, 33_012, 33_012, 0),
        (include_str!("data/24-on-3.txt"), 120_492, 45_024, 28_160, 0),
        (include_str!("data/48-on-6.txt"), 167_220, 77_312, 63_448, 0),
        (include_str!("data/96-on-12.txt"), 247_552, 118_968, 91_803, 10),
        (include_str!("data/128-on-16.txt"), 273_812, 106_860, 106_860, 0),
    ];
    for (text, all, in_order, optimum, slack) in cases {
        let (graph, capacities) = read(text);
        let inter_node = |node_of: &[u32]| Traffic::of(&graph, node_of, capacities.len()).inter_node;
        assert_eq!(graph.total(), all);
        assert_eq!(inter_node(&map_in_order(&capacities)), in_order);

        let mapped = map_spatially(&graph, &capacities);
        let found = inter_node(&mapped.node_of_subdomain);
        println!(
            "{} on {}: {found}, optimum {optimum}, proven {}",
            graph.parts(),
            capacities.len(),
            mapped.proven
        );
        assert!(found >= optimum, "{found} is below the proven optimum {optimum}");
        assert!(found * 1000 <= optimum * (1000 + slack), "{found} against {optimum}");
        assert_eq!(mapped, map_spatially(&graph, &capacities), "deterministic");
        for (node, capacity) in (0..).zip(capacities) {
            assert_eq!(mapped.node_of_subdomain.iter().filter(|&&n| n == node).count(), capacity as usize);
        }
    }
}

#[test]
fn our_own_graph_of_twelve_ranks_is_the_reference_graph_but_for_planes_on_a_cut() {
    let mut points = Vec::new();
    for k in 0..63 {
        for j in 0..126 {
            for i in 0..126 {
                points.push([i, j, k].map(|n| (f64::from(n) + 0.5) / 126.0));
            }
        }
    }
    let tree = rcb(&points, None, Box3::new([0.0; 3], [1.0, 1.0, 0.5]), 12, &mut Serial);
    let ours = ghost_graph(points, &tree, 0.008, &Periodicity::NONE);
    let (reference, _) = read(include_str!("data/12-on-3.txt"));
    // The plane of centres at y = 0.25 lies on the cut: the reference puts it above, "at or below goes low" below.
    let moved = |e: &Edge| match (e.a, e.b) {
        (0, 2) | (2, 6) | (6, 8) => (e.a, e.b, e.weight() + 126),
        (1, 2) | (2, 7) | (7, 8) => (e.a, e.b, e.weight() - 126),
        _ => (e.a, e.b, e.weight()),
    };
    assert_eq!(
        ours.edges().iter().map(|e| (e.a, e.b, e.weight())).collect::<Vec<_>>(),
        reference.edges().iter().map(moved).collect::<Vec<_>>(),
    );
    assert_eq!(ours.total(), reference.total());
}
