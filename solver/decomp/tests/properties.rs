//! Properties of the decomposition, each against a brute-force reading of its definition.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use std::collections::BTreeMap;
use std::sync::{Barrier, Mutex};

use dem_decomp::{
    Box3, Decomposition, Mapping, NodeRanks, Periodicity, PlanFile, Predicted, Reduce, Serial, Source, Tree,
    ghost_graph, node_first, rcb,
};
use proptest::prelude::*;

const REGION: Box3 = Box3::new([-1.0, 0.0, 2.0], [1.0, 1.5, 3.0]);

/// Points in the region; some share coordinates, as lattices do, so that cuts meet ties.
fn points() -> impl Strategy<Value = Vec<[f64; 3]>> {
    let free = (-1.0..1.0, 0.0..1.5, 2.0..3.0).prop_map(|(x, y, z)| [x, y, z]);
    let on_lattice = (0..9, 0..7, 0..5)
        .prop_map(|(i, j, k)| [-1.0 + f64::from(i) * 0.25, f64::from(j) * 0.25, 2.0 + f64::from(k) * 0.25]);
    prop::collection::vec(prop_oneof![3 => free, 1 => on_lattice], 0..400)
}

fn capacities() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(1_u32..6, 1..6)
}

/// Sums and extremes over threads that stand for ranks.
struct Team {
    barrier: Barrier,
    sums: Mutex<Vec<u64>>,
    extremes: Mutex<Vec<f64>>,
    calls: Mutex<usize>,
}

struct Member<'a> {
    team: &'a Team,
    first: bool,
}

impl Member<'_> {
    fn combine<T: Copy>(&self, shared: &Mutex<Vec<T>>, values: &mut [T], with: impl Fn(T, T) -> T) {
        if self.first {
            *self.team.calls.lock().unwrap() += 1;
        }
        {
            let mut all = shared.lock().unwrap();
            if all.is_empty() {
                all.extend_from_slice(values);
            } else {
                all.iter_mut().zip(values.iter()).for_each(|(a, &v)| *a = with(*a, v));
            }
        }
        self.team.barrier.wait();
        values.copy_from_slice(&shared.lock().unwrap());
        self.team.barrier.wait();
        if self.first {
            shared.lock().unwrap().clear();
        }
        self.team.barrier.wait();
    }
}

impl Reduce for Member<'_> {
    fn sum(&mut self, values: &mut [u64]) {
        self.combine(&self.team.sums, values, |a, b| a + b);
    }
    fn min(&mut self, values: &mut [f64]) {
        self.combine(&self.team.extremes, values, f64::min);
    }
    fn max(&mut self, values: &mut [f64]) {
        self.combine(&self.team.extremes, values, f64::max);
    }
}

/// Decomposes on `members` threads, particle `i` on thread `holder(i)`; returns their trees and the collective calls.
fn on_threads(
    points: &[[f64; 3]],
    weights: &[u64],
    capacities: &[u32],
    how: Decomposition,
    members: usize,
    holder: impl Fn(usize) -> usize,
) -> (Vec<Tree>, usize) {
    let team = Team {
        barrier: Barrier::new(members),
        sums: Mutex::default(),
        extremes: Mutex::default(),
        calls: Mutex::default(),
    };
    let shares: Vec<(Vec<[f64; 3]>, Vec<u64>)> = (0..members)
        .map(|m| (0..points.len()).filter(|&i| holder(i) == m).map(|i| (points[i], weights[i])).unzip())
        .collect();
    let trees = std::thread::scope(|scope| {
        let threads: Vec<_> = shares
            .iter()
            .enumerate()
            .map(|(m, (points, weights))| {
                let mut member = Member { team: &team, first: m == 0 };
                scope.spawn(move || how.decompose(points, Some(weights), REGION, capacities, &mut member))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let calls = *team.calls.lock().unwrap();
    (trees, calls)
}

fn low_share(parts: f64, total: u64, low_parts: f64) -> f64 {
    total as f64 * low_parts / parts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn boxes_tile_the_region_and_every_point_lies_in_its_owners_box(
        points in points(), capacities in capacities(), node_wise: bool,
    ) {
        let how = if node_wise { Decomposition::NodeFirst } else { Decomposition::Flat };
        let tree = how.decompose(&points, None, REGION, &capacities, &mut Serial);
        let boxes = tree.boxes();
        prop_assert_eq!(boxes.len(), capacities.iter().sum::<u32>() as usize);
        let volume: f64 = boxes.iter().map(Box3::volume).sum();
        prop_assert!((volume - REGION.volume()).abs() < 1e-12);
        for (i, a) in boxes.iter().enumerate() {
            prop_assert!((0..3).all(|d| REGION.min[d] <= a.min[d] && a.min[d] <= a.max[d] && a.max[d] <= REGION.max[d]));
            for b in &boxes[i + 1..] {
                let overlap = (0..3).all(|d| a.min[d].max(b.min[d]) < a.max[d].min(b.max[d]));
                prop_assert!(!overlap, "{:?} and {:?}", a, b);
            }
        }
        for &p in &points {
            prop_assert!(boxes[tree.owner(p) as usize].holds(p, 0.0));
        }
    }

    #[test]
    fn the_tree_does_not_depend_on_who_holds_which_particle(
        points in points(), seed in 1_usize..1000, capacities in capacities(), members in 2_usize..6, node_wise: bool,
    ) {
        let how = if node_wise { Decomposition::NodeFirst } else { Decomposition::Flat };
        let weights: Vec<u64> = (0..points.len()).map(|i| (i * seed % 17) as u64).collect();
        let alone = how.decompose(&points, Some(&weights), REGION, &capacities, &mut Serial);
        let (trees, calls) = on_threads(&points, &weights, &capacities, how, members, |i| i * seed / 3 % members);
        for tree in trees {
            prop_assert_eq!(&tree, &alone);
        }
        let levels = (0..alone.parts()).map(|part| depth(&alone, part)).max().unwrap_or(0);
        prop_assert!(calls <= 11 * levels, "{} collective calls for {} levels", calls, levels);
    }

    #[test]
    fn no_other_plane_balances_a_box_better(points in points(), seed in 1_usize..1000, parts in 2_u32..9) {
        let weights: Vec<u64> = (0..points.len()).map(|i| 1 + (i * seed % 5) as u64).collect();
        let tree = rcb(&points, Some(&weights), REGION, parts, &mut Serial);
        let cut = tree.cuts()[0];
        let axis = cut.axis as usize;
        prop_assert_eq!((axis, cut.low), (0, parts.div_ceil(2)));
        let total: u64 = weights.iter().sum();
        let target = low_share(parts.into(), total, cut.low.into());
        let miss = |at: f64| {
            let low: u64 = points.iter().zip(&weights).filter(|(p, _)| p[axis] <= at).map(|(_, w)| w).sum();
            (low as f64 - target).abs()
        };
        for p in &points {
            prop_assert!(miss(cut.at) <= miss(p[axis]) + 1e-9 || !points.iter().any(|q| q[axis] > p[axis]));
        }
        // Midway between its neighbours.
        let below = points.iter().map(|p| p[axis]).filter(|&x| x <= cut.at).fold(f64::NEG_INFINITY, f64::max);
        let above = points.iter().map(|p| p[axis]).filter(|&x| x > cut.at).fold(f64::INFINITY, f64::min);
        if below.is_finite() && above.is_finite() {
            prop_assert_eq!(cut.at, below + (above - below) * 0.5);
        }
    }

    #[test]
    fn distinct_points_are_shared_out_to_within_one_per_level(
        seed in any::<u64>(), count in 50_usize..300, parts in 1_u32..12,
    ) {
        let mut state = seed;
        let mut unit = || { state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); (state >> 11) as f64 / (1_u64 << 53) as f64 };
        let points: Vec<[f64; 3]> =
            (0..count).map(|_| [2.0 * unit() - 1.0, 1.5 * unit(), 2.0 + unit()]).collect();
        let tree = rcb(&points, None, REGION, parts, &mut Serial);
        let mut counts = vec![0_i64; parts as usize];
        points.iter().for_each(|&p| counts[tree.owner(p) as usize] += 1);
        let even = count as f64 / f64::from(parts);
        // Each plane misses its share by at most half a particle, which its halves share out in turn.
        prop_assert!(counts.iter().all(|&n| (n as f64 - even).abs() <= 1.0), "{:?}", counts);
    }

    #[test]
    fn ghosts_are_those_of_the_definition(
        points in points(), capacities in capacities(), thickness in 0.0..0.7, axes: [bool; 3],
    ) {
        let domain = Box3::new([-1.25, -0.25, 2.0], [1.0, 1.5, 3.25]);
        let periodicity = Periodicity::new(domain, axes);
        let tree = node_first(&points, None, REGION, &capacities, &mut Serial);
        // Boxes at the region's faces reach to the domain's on periodic axes and to infinity on the others.
        let grown: Vec<Box3> = tree.boxes().into_iter().map(|mut b| {
            for (a, periodic) in axes.into_iter().enumerate() {
                if b.min[a] == REGION.min[a] { b.min[a] = if periodic { domain.min[a] } else { f64::NEG_INFINITY } }
                if b.max[a] == REGION.max[a] { b.max[a] = if periodic { domain.max[a] } else { f64::INFINITY } }
            }
            b
        }).collect();
        let mut expected: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for &point in &points {
            let owner = tree.owner(point);
            let mut visited = Vec::new();
            tree.touching(point, thickness, &periodicity, |part, shift| visited.push((part, shift)));
            let mut defined = Vec::new();
            for n in 0..27_i8 {
                let shift = [n % 3 - 1, n / 3 % 3 - 1, n / 9 - 1];
                if (0..3).any(|a| shift[a] != 0 && !axes[a]) { continue; }
                let image = periodicity.image(point, shift);
                for (part, grown) in (0..).zip(&grown) {
                    if grown.holds(image, thickness) {
                        defined.push((part, shift));
                        if part != owner { *expected.entry((owner, part)).or_default() += 1; }
                    }
                }
            }
            visited.sort_unstable();
            defined.sort_unstable();
            prop_assert_eq!(&visited, &defined);
            prop_assert!(visited.contains(&(owner, [0; 3])));
        }
        let graph = ghost_graph(points, &tree, thickness, &periodicity);
        let mut counted = BTreeMap::new();
        for e in graph.edges() {
            for (pair, n) in [((e.a, e.b), e.a_to_b), ((e.b, e.a), e.b_to_a)] {
                if n > 0 { counted.insert(pair, n); }
            }
        }
        prop_assert_eq!(counted, expected);
    }

    #[test]
    fn a_plan_file_comes_back_to_the_last_bit(points in points(), capacities in capacities()) {
        let plan = plan(&points, &capacities);
        let back = PlanFile::from_json(&plan.to_json()).unwrap();
        for (a, b) in plan.tree.iter().zip(&back.tree).flat_map(|(a, b)| a.cuts().iter().zip(b.cuts())) {
            prop_assert_eq!(a.at.to_bits(), b.at.to_bits());
        }
        prop_assert_eq!(back, plan);
    }
}

fn depth(tree: &Tree, part: u32) -> usize {
    let (mut at, mut first, mut parts, mut depth) = (0, 0, tree.parts(), 0);
    while parts > 1 {
        let low = tree.cuts()[at].low;
        if part < first + low {
            (at, parts) = (at + 1, low);
        } else {
            (at, first, parts) = (at + low as usize, first + low, parts - low);
        }
        depth += 1;
    }
    depth
}

fn plan(points: &[[f64; 3]], capacities: &[u32]) -> PlanFile {
    let tree = Decomposition::NodeFirst.decompose(points, None, REGION, capacities, &mut Serial);
    let graph = ghost_graph(points.iter().copied(), &tree, 0.1, &Periodicity::NONE);
    let assignment = Mapping::Spatial.assign(&graph, capacities);
    let mut ranks = 0..tree.parts();
    PlanFile {
        version: PlanFile::VERSION,
        ranks: tree.parts(),
        nodes: (0..)
            .zip(capacities)
            .map(|(n, &c)| NodeRanks {
                name: format!("n{n}"),
                ranks: ranks.by_ref().take(c as usize).collect(),
            })
            .collect(),
        decomposition: Decomposition::NodeFirst,
        mapping: Mapping::Spatial,
        objective: PlanFile::OBJECTIVE.into(),
        tree: Some(tree),
        subdomain_of_rank: assignment.subdomain_of_rank,
        predicted: Some(Predicted {
            inter_rank_ghosts: graph.total(),
            inter_node_ghosts: 0,
            in_order_ghosts: 0,
            busiest_node_ghosts: 0,
        }),
        source: Source::Exact,
        ghost_thickness: 0.1,
    }
}

#[test]
fn particles_outside_the_region_have_an_owner_and_move_no_plane_out_of_it() {
    let points = [[-9.0, 0.5, 2.5], [-8.0, 0.5, 2.5], [-7.0, 0.5, 2.5], [0.5, 0.5, 2.5], [9.0, 9.0, 9.0]];
    let tree = rcb(&points, None, REGION, 4, &mut Serial);
    for cut in tree.cuts() {
        let axis = cut.axis as usize;
        assert!(REGION.min[axis] <= cut.at && cut.at <= REGION.max[axis], "{cut:?}");
    }
    assert!(points.iter().all(|&p| tree.owner(p) < 4));
}

#[test]
fn an_empty_region_is_cut_at_the_target_fractions() {
    let tree = rcb(&[], None, Box3::new([0.0; 3], [3.0, 1.0, 1.0]), 3, &mut Serial);
    assert_eq!(tree.cuts()[0].at, 2.0);
    assert_eq!(tree.cuts()[1].at, 1.0);
}

#[test]
fn a_damaged_plan_file_is_refused_by_field() {
    let points = [[0.0, 0.5, 2.5], [0.5, 1.0, 2.2], [-0.5, 0.1, 2.9]];
    let text = plan(&points, &[2, 1]).to_json();
    let cases = [
        (r#""version":1"#, r#""version":2"#, "version is 2; expected 1"),
        (r#""ranks":3"#, r#""ranks":4"#, "nodes[].ranks is [0, 1], [2]; expected ranks 0 to 3"),
        (r#""ranks":[0,1]"#, r#""ranks":[0,2]"#, "nodes[].ranks is [0, 2], [2]"),
        (
            r#""low":2"#,
            r#""low":3"#,
            "tree.cuts[0].low is 3; the plane divides 3 subdomains, so 1 to 2 can be low",
        ),
        (r#""axis":0"#, r#""axis":3"#, "tree.cuts[0].axis is 3"),
        (r#""ghostThickness":0.1"#, r#""ghostThickness":-0.1"#, "ghostThickness is -0.1"),
        (r#""subdomainOfRank":["#, r#""subdomainOfRank":[7,"#, "a permutation of 0 to 2"),
    ];
    for (from, to, message) in cases {
        assert!(text.contains(from), "{text}");
        let error = PlanFile::from_json(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
