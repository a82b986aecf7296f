//! Plans on snapshots as `kubectl get nodes,pods -A -o json` prints them.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use std::collections::BTreeMap;

use dem_config::{Files, Simulation};
use dem_crds::{Decomposition, Mapping, TopologyLevel};
use dem_decomp::{GhostGraph, PlanFile, Source};
use dem_plan::{ClusterView, Halo, NodeRequest, Particles, PlacementRequest, Plan, plan_placement};
use k8s_openapi::api::core::v1::{NodeSelector, Toleration};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The benchmark of P0: 1,000,188 spheres of 8 mm as a lattice that fills 1 x 1 x 0.5 m.
const BENCHMARK: &str = r"
domain: {min: [0, 0, 0], max: [1, 1, 1], faces: {zMax: Open}}
materials: [{name: glass, density: 7000, youngsModulus: 1.0e7, poissonRatio: 0.2}]
pairs: [{materials: [glass, glass], restitution: 0.5, friction: 0.4}]
particles:
- lattice: {counts: [126, 126, 63], fit: [1, 1, 0.5], radius: 0.004, material: glass}
time: {end: {steps: 200}}
";

/// The same shape with an eighth of the particles per axis.
const SMALL: &str = r"
domain: {min: [0, 0, 0], max: [1, 1, 1], faces: {zMax: Open}}
materials: [{name: glass, density: 7000, youngsModulus: 1.0e7, poissonRatio: 0.2}]
pairs: [{materials: [glass, glass], restitution: 0.5, friction: 0.4}]
particles:
- lattice: {counts: [36, 36, 18], fit: [1, 1, 0.5], radius: 0.014, material: glass}
time: {end: {steps: 200}}
";

fn particles(yaml: &str) -> Particles {
    Particles::of(&Simulation::from_yaml(yaml).unwrap(), &Files::new()).unwrap()
}

fn node(name: &str, cpu: u32, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {},
        "status": {"allocatable": {"cpu": cpu.to_string(), "memory": "32Gi", "pods": "110"},
                   "conditions": [{"type": "Ready", "status": "True"}]}
    })
}

fn nodes(cpus: &[(&str, u32)]) -> Vec<Value> {
    cpus.iter().map(|&(name, cpu)| node(name, cpu, json!({}))).collect()
}

fn cluster(items: &[Value]) -> ClusterView {
    ClusterView::from_json(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).unwrap()
}

fn request(ranks: u32, halo: Halo) -> PlacementRequest {
    PlacementRequest {
        nodes: NodeRequest { reserve_cores: 1, memory_per_rank: 512 << 20, ..NodeRequest::of_ranks(ranks) },
        mapping: Mapping::Spatial,
        decomposition: Decomposition::Auto,
        halo,
    }
}

fn placed(plan: &Plan) -> Vec<(&str, u32)> {
    plan.nodes.iter().map(|node| (node.name.as_str(), node.ranks)).collect()
}

fn refusal(request: &PlacementRequest, items: &[Value]) -> String {
    plan_placement(request, &cluster(items)).unwrap_err().to_string()
}

#[test]
fn the_benchmark_on_three_nodes_is_predicted_as_p0_measured_it() {
    let halo = Halo::Particles(particles(BENCHMARK));
    let items = nodes(&[("w3", 5), ("w1", 5), ("w2", 5), ("small", 3)]);
    let plan = |mapping, decomposition| {
        let request = PlacementRequest { mapping, decomposition, ..request(12, halo.clone()) };
        plan_placement(&request, &cluster(&items)).unwrap()
    };

    let spatial = plan(Mapping::Spatial, Decomposition::Flat);
    assert_eq!(placed(&spatial), [("w1", 4), ("w2", 4), ("w3", 4)]);
    let predicted = spatial.file.predicted.unwrap();
    assert_eq!((predicted.inter_rank_ghosts, predicted.inter_node_ghosts), (86_184, 27_468));
    assert_eq!((predicted.in_order_ghosts, predicted.busiest_node_ghosts), (41_895, 19_278));
    assert_eq!((spatial.file.source, spatial.proven), (Source::Exact, true));
    assert!((spatial.file.ghost_thickness - 0.0088).abs() < 1e-12);
    assert_eq!(PlanFile::from_json(&spatial.file.to_json()).unwrap(), spatial.file);

    let in_order = plan(Mapping::InOrder, Decomposition::Flat);
    assert_eq!(in_order.file.predicted.unwrap().inter_node_ghosts, 41_895);
    assert_eq!(in_order.file.subdomain_of_rank, (0..12).collect::<Vec<_>>());
    assert_eq!(in_order.file.tree, spatial.file.tree);
    assert_eq!(
        plan(Mapping::InOrder, Decomposition::Auto),
        in_order,
        "InOrder means Flat unless asked otherwise"
    );

    let node_first = plan(Mapping::Spatial, Decomposition::NodeFirst);
    let predicted = node_first.file.predicted.unwrap();
    assert_eq!((predicted.inter_rank_ghosts, predicted.inter_node_ghosts), (80_892, 27_468));
    assert_eq!(predicted.in_order_ghosts, 41_895, "the comparison is always flat and in order");

    let table = spatial.table();
    let line = |start: &str| table.lines().find(|l| l.trim_start().starts_with(start)).unwrap().to_owned();
    assert_eq!(line("w1").split_whitespace().collect::<Vec<_>>()[..3], ["w1", "4", "0-3"]);
    assert_eq!(line("between nodes"), "  between nodes      27,468  -34.4 %");
    assert_eq!(line("flat and in order"), "  flat and in order  41,895  for comparison");
    let json = serde_json::to_value(&spatial).unwrap();
    assert_eq!(json["file"]["predicted"]["interNodeGhosts"], 27_468);
    assert_eq!(json["nodes"][2]["name"], "w3");
}

#[test]
fn auto_keeps_the_better_decomposition() {
    let halo = Halo::Particles(particles(SMALL));
    let items: Vec<Value> = (0..6).map(|i| node(&format!("n{i}"), 9, json!({}))).collect();
    let ghosts = |decomposition| {
        let request = PlacementRequest { decomposition, ..request(48, halo.clone()) };
        let plan = plan_placement(&request, &cluster(&items)).unwrap();
        (plan.file.predicted.unwrap().inter_node_ghosts, plan.file.decomposition)
    };
    let (flat, node_first) = (ghosts(Decomposition::Flat), ghosts(Decomposition::NodeFirst));
    assert_ne!(flat.0, node_first.0);
    let better = if node_first.0 < flat.0 { node_first } else { flat };
    assert_eq!(ghosts(Decomposition::Auto), better);
}

#[test]
fn the_fewest_nodes_are_taken_and_uneven_cores_are_used_whole() {
    let halo = Halo::Particles(particles(SMALL));
    let plan =
        |ranks, items: &[Value]| plan_placement(&request(ranks, halo.clone()), &cluster(items)).unwrap();
    let uneven = nodes(&[("a", 4), ("b", 6), ("c", 5)]);
    assert_eq!(placed(&plan(12, &uneven)), [("b", 5), ("c", 4), ("a", 3)]);
    assert_eq!(placed(&plan(5, &uneven)), [("b", 5)]);
    // Ten ranks fit on two of five nodes with five free cores each: the first two by name.
    let even = nodes(&[("e", 6), ("d", 6), ("c", 6), ("b", 6), ("a", 6)]);
    assert_eq!(placed(&plan(10, &even)), [("a", 5), ("b", 5)]);
}

#[test]
fn bounds_on_ranks_per_node_are_kept() {
    let items: Vec<Value> = (0..6).map(|i| node(&format!("n{i}"), 9, json!({}))).collect();
    let mut request = request(12, Halo::Unknown);
    request.nodes.max_ranks_per_node = Some(2);
    let plan = plan_placement(&request, &cluster(&items)).unwrap();
    assert_eq!(placed(&plan), [("n0", 2), ("n1", 2), ("n2", 2), ("n3", 2), ("n4", 2), ("n5", 2)]);
    assert_eq!(plan.file.predicted, None);
    assert!(plan.table().contains("not known"));

    request.nodes.ranks = 13;
    assert!(
        refusal(&request, &items).contains("room for 12 ranks (ranksPerNode.max 2 allows 12)"),
        "{}",
        refusal(&request, &items)
    );

    request.nodes.ranks = 10;
    request.nodes.max_ranks_per_node = Some(4);
    request.nodes.min_ranks_per_node = Some(4);
    let plan = plan_placement(&request, &cluster(&items)).unwrap();
    assert_eq!(placed(&plan), [("n0", 4), ("n1", 4), ("n2", 2)], "only the last node may hold fewer");
}

#[test]
fn a_refusal_says_what_is_short_and_what_keeps_nodes_out() {
    let mut items = nodes(&[("a", 5), ("b", 6)]);
    for item in &mut items {
        item["metadata"]["labels"] = json!({"gpu": "no"});
    }
    for i in 0..3 {
        let mut tainted = node(&format!("t{i}"), 16, json!({"gpu": "no"}));
        tainted["spec"]["taints"] = json!([{"key": "team", "value": "x", "effect": "NoSchedule"}]);
        items.push(tainted);
    }
    let mut cordoned = node("cordoned", 16, json!({"gpu": "no"}));
    cordoned["spec"]["unschedulable"] = json!(true);
    let mut down = node("down", 16, json!({"gpu": "no"}));
    down["status"]["conditions"][0]["status"] = json!("Unknown");
    items.extend([cordoned, down, node("other", 16, json!({})), node("full", 1, json!({"gpu": "no"}))]);

    let mut request = request(12, Halo::Unknown);
    request.nodes.node_selector = BTreeMap::from([("gpu".to_owned(), "no".to_owned())]);
    assert_eq!(
        refusal(&request, &items),
        "12 ranks need 12 cores on nodes with gpu=no: 9 free on 2 nodes, room for 9 ranks; \
         1 node not ready; 1 node cordoned; 1 node without label gpu=no; \
         3 nodes kept out by taint team=x:NoSchedule; 1 node without free cores for a rank"
    );

    let tolerate = |operator: &str, value: Option<&str>| Toleration {
        key: Some("team".to_owned()),
        operator: Some(operator.to_owned()),
        value: value.map(str::to_owned),
        ..Toleration::default()
    };
    for tolerated in [tolerate("Exists", None), tolerate("Equal", Some("x"))] {
        request.nodes.tolerations = vec![tolerated];
        assert_eq!(placed(&plan_placement(&request, &cluster(&items)).unwrap()), [("t0", 12)]);
    }
    request.nodes.tolerations = vec![tolerate("Equal", Some("y"))];
    assert!(refusal(&request, &items).contains("3 nodes kept out by taint"));
}

#[test]
fn memory_pods_and_affinity_limit_the_choice() {
    let items = nodes(&[("a", 9), ("b", 9)]);
    let mut request = request(8, Halo::Unknown);
    request.nodes.memory_per_rank = 10 << 30;
    request.nodes.memory_per_worker = 3 << 30;
    assert!(refusal(&request, &items).contains("16 free on 2 nodes, room for 4 ranks (memory allows 4)"));
    request.nodes.memory_per_rank = 40 << 30;
    assert!(refusal(&request, &items).contains("2 nodes without free memory for a rank"));

    request.nodes.memory_per_rank = 0;
    request.nodes.cpus_per_rank = 3;
    request.nodes.ranks = 5;
    assert!(refusal(&request, &items).contains("room for 4 ranks (3 cores of one node each allow 4)"));
    request.nodes.cpus_per_rank = 1;
    request.nodes.ranks = 8;
    let selector = json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "missing", "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}],
         "matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["3"]}]}
    ]});
    request.nodes.node_affinity = Some(serde_json::from_value::<NodeSelector>(selector).unwrap());
    assert!(refusal(&request, &items).contains("2 nodes outside the node affinity"));
    let newer = [node("a", 9, json!({"gen": "4"})), node("b", 9, json!({"gen": "4"}))];
    assert_eq!(placed(&plan_placement(&request, &cluster(&newer)).unwrap()), [("b", 8)]);

    request.nodes.node_affinity = None;
    let mut full = items;
    full[0]["status"]["allocatable"]["pods"] = json!("0");
    assert_eq!(placed(&plan_placement(&request, &cluster(&full)).unwrap()), [("b", 8)]);
}

#[test]
fn a_required_level_is_never_left_and_a_preferred_one_only_for_fewer_nodes() {
    let rack = |name: &str, cpu, rack: &str| node(name, cpu, json!({"rack": rack}));
    let level = |required| vec![TopologyLevel { level: "rack".into(), node_label: "rack".into(), required }];
    let mut request = request(8, Halo::Unknown);

    let items = [rack("a", 5, "r1"), rack("b", 5, "r2"), rack("c", 5, "r2"), rack("d", 5, "r3")];
    for required in [true, false] {
        request.nodes.topology = level(required);
        let plan = plan_placement(&request, &cluster(&items)).unwrap();
        assert_eq!(placed(&plan), [("b", 4), ("c", 4)], "one rack, although a comes first by name");
    }

    // One rack needs three nodes, two racks two.
    let items =
        [rack("a", 5, "r1"), rack("b", 4, "r2"), rack("c", 4, "r2"), rack("d", 4, "r2"), rack("e", 5, "r3")];
    let plan = plan_placement(&request, &cluster(&items)).unwrap();
    assert_eq!(placed(&plan), [("a", 4), ("e", 4)]);
    request.nodes.topology = level(true);
    let plan = plan_placement(&request, &cluster(&items)).unwrap();
    assert_eq!(placed(&plan), [("b", 3), ("c", 3), ("d", 2)]);

    request.nodes.ranks = 10;
    let items = [rack("a", 5, "r1"), rack("b", 4, "r2"), rack("c", 4, "r2"), node("d", 9, json!({}))];
    assert_eq!(
        refusal(&request, &items),
        "10 ranks need 10 cores within one rack (roomiest: r2): 6 free on 2 nodes, room for 6 ranks; \
         1 node without topology label rack"
    );
}

#[test]
fn one_node_only_means_one_node() {
    let mut request = request(8, Halo::Unknown);
    request.nodes.max_nodes = Some(1);
    assert!(refusal(&request, &nodes(&[("a", 5), ("b", 5)])).contains("(at most 1 node)"));
    let plan = plan_placement(&request, &cluster(&nodes(&[("a", 5), ("b", 9)]))).unwrap();
    assert_eq!(placed(&plan), [("b", 8)]);
}

#[test]
fn this_machine_is_a_cluster_of_one_node() {
    let local = ClusterView::local("laptop", 4, 16 << 30);
    let mut request = request(4, Halo::Particles(particles(SMALL)));
    request.nodes.reserve_cores = 0;
    let plan = plan_placement(&request, &local).unwrap();
    assert_eq!(placed(&plan), [("laptop", 4)]);
    let predicted = plan.file.predicted.unwrap();
    assert!(predicted.inter_node_ghosts == 0 && predicted.inter_rank_ghosts > 0);
    request.nodes.ranks = 5;
    assert!(plan_placement(&request, &local).is_err());
}

#[test]
fn a_programs_own_graph_is_mapped_without_boxes() {
    // Two rings of three ranks each, numbered alternately.
    let ring = |r: [u32; 3]| [(r[0], r[1], 10), (r[1], r[2], 10), (r[2], r[0], 10)];
    let graph = GhostGraph::from_counts(6, ring([0, 2, 4]).into_iter().chain(ring([1, 3, 5])));
    let plan =
        plan_placement(&request(6, Halo::Graph(graph)), &cluster(&nodes(&[("a", 4), ("b", 4)]))).unwrap();
    assert_eq!(plan.file.tree, None);
    assert_eq!(plan.file.predicted.unwrap().inter_node_ghosts, 0);
    assert_eq!(plan.file.predicted.unwrap().in_order_ghosts, 40);
}

#[test]
fn particles_of_a_file_are_exact_with_its_text_and_assumed_without() {
    let yaml = SMALL.replace(
        "lattice: {counts: [36, 36, 18], fit: [1, 1, 0.5], radius: 0.014, material: glass}",
        "file: {path: bed.csv, material: glass}",
    );
    let simulation = Simulation::from_yaml(&yaml).unwrap();
    let assumed = Particles::of(&simulation, &Files::new()).unwrap();
    assert_eq!(assumed.source, Source::Assumed);
    assert!((90_000..110_000).contains(&assumed.points.len()), "{}", assumed.points.len());

    // Too many to cut in the operator: the same stand-in, whatever their number.
    let many = SMALL.replace(
        "[36, 36, 18], fit: [1, 1, 0.5], radius: 0.014",
        "[1000, 1000, 900], fit: [1, 1, 0.9], radius: 0.0005",
    );
    let many = Particles::of(&Simulation::from_yaml(&many).unwrap(), &Files::new()).unwrap();
    assert_eq!((many.source, many.points.len()), (Source::Assumed, assumed.points.len()));

    let text = "x,y,z,radius\n0.2,0.2,0.2,0.01\n0.7,0.7,0.3,0.01\n".to_owned();
    let exact = Particles::of(&simulation, &Files::from([("bed.csv".to_owned(), text)])).unwrap();
    assert_eq!((exact.source, exact.points.len()), (Source::Exact, 2));
}

fn any_cluster() -> impl Strategy<Value = Vec<(u32, u32, bool)>> {
    prop::collection::vec((1_u32..8, 0_u32..3, any::<bool>()), 1..8)
}

fn items_of(shape: &[(u32, u32, bool)]) -> Vec<Value> {
    let item = |(i, &(cpu, rack, ready)): (usize, &(u32, u32, bool))| {
        let mut item = node(&format!("n{i}"), cpu, json!({"rack": format!("r{rack}")}));
        item["status"]["conditions"][0]["status"] = json!(if ready { "True" } else { "False" });
        item
    };
    shape.iter().enumerate().map(item).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_do_not_depend_on_the_snapshots_order_and_use_the_fewest_nodes(
        shape in any_cluster(), ranks in 1_u32..16, rotation in 0_usize..8, preferred: bool,
    ) {
        let mut request = request(ranks, Halo::Particles(particles(&SMALL.replace("[36, 36, 18]", "[12, 12, 6]").replace("0.014", "0.04"))));
        if preferred {
            request.nodes.topology = vec![TopologyLevel { level: "rack".into(), node_label: "rack".into(), required: false }];
        }
        let mut items = items_of(&shape);
        let first = plan_placement(&request, &cluster(&items));
        let turn = rotation % items.len();
        items.rotate_left(turn);
        items.reverse();
        prop_assert_eq!(&plan_placement(&request, &cluster(&items)), &first);

        let mut room: Vec<u32> = shape.iter().filter(|n| n.2).map(|n| n.0 - 1).filter(|&r| r > 0).collect();
        room.sort_unstable();
        let (mut fewest, mut left) = (0, ranks);
        while let Some(most) = room.pop().filter(|_| left > 0) {
            fewest += 1;
            left = left.saturating_sub(most);
        }
        match first {
            Err(refusal) => {
                prop_assert!(left > 0, "{}", refusal);
                prop_assert_eq!(u64::from(ranks) - refusal.fitting_ranks.min(ranks.into()), u64::from(left));
            }
            Ok(plan) => {
                prop_assert_eq!(left, 0);
                prop_assert_eq!(plan.nodes.len(), fewest);
                prop_assert_eq!(plan.nodes.iter().map(|n| n.ranks).sum::<u32>(), ranks);
                for node in &plan.nodes {
                    let (cpu, _, ready) = shape[node.name[1..].parse::<usize>().unwrap()];
                    prop_assert!(ready && node.ranks < cpu);
                }
                prop_assert!(PlanFile::from_json(&plan.file.to_json()).is_ok());
            }
        }
    }
}

#[test]
fn the_plan_of_the_largest_job_fits_into_a_config_map() {
    let ranks = u32::try_from(dem_crds::MAX_RANKS).unwrap();
    // Few ranks a node and long names make the longest text.
    let names: Vec<String> = (0..ranks / 16).map(|i| format!("{:0>63}", format!("node-{i}"))).collect();
    let items: Vec<Value> = names.iter().map(|name| node(name, 17, json!({}))).collect();
    // Only the length counts here; a spatial mapping of so many takes a minute.
    let mut request = request(ranks, Halo::Particles(particles(BENCHMARK)));
    request.mapping = Mapping::InOrder;
    let plan = plan_placement(&request, &cluster(&items)).unwrap();
    assert_eq!(plan.nodes.len(), 1024);
    let bytes = plan.file.to_json().len();
    assert!(bytes < (1 << 20) - 4096, "{bytes} bytes");
}
