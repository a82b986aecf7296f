//! The trajectory is the same to the last bit for any rank count, decomposition, ghost layer, list phase, balance
//! schedule, restart and kernel; and the runs that show it really did rebuild, migrate, rebalance and collide.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

mod runs;

use dem_decomp::Decomposition::{Flat, NodeFirst};
use runs::{Case, Ran};

/// A box of colliding spheres: walls, gravity, damping, friction, spin, two materials and sizes.
const BOX: &str = r#"
domain: {min: [0, 0, 0], max: [1, 1, 1], faces: {zMax: Open}}
materials:
  - {name: a, density: 1000, youngsModulus: 4.0e6, poissonRatio: 0.2}
  - {name: b, density: 2000, youngsModulus: 8.0e6, poissonRatio: 0.3}
pairs:
  - {materials: [a, a], restitution: 0.9, friction: 0.3}
  - {materials: [a, b], restitution: 0.8, friction: 0.2}
  - {materials: [b, b], restitution: 0.7, friction: 0.4}
particles:
  - lattice: {counts: [10, 10, 6], fit: [1, 1, 0.6], radius: 0.038, material: a, velocity: {random: {maxSpeed: 1.5, seed: 3}}}
  - lattice: {counts: [10, 10, 4], origin: [0, 0, 0.6], fit: [1, 1, 0.4], radius: 0.03, material: b, velocity: {random: {maxSpeed: 1.5, seed: 4}}}
time: {end: {steps: 4000}}
balance: {everySteps: 20, threshold: 0}
outputs: {vtu: false, picture: {colour: None}}
"#;

/// A gas in a fully periodic box, elastic enough to keep going.
const PERIODIC: &str = r#"
domain:
  min: [-0.5, 0, 0]
  max: [0.5, 0.9, 0.8]
  faces: {xMin: Periodic, xMax: Periodic, yMin: Periodic, yMax: Periodic, zMin: Periodic, zMax: Periodic}
gravity: [0, 0, 0]
materials: [{name: a, density: 1000, youngsModulus: 4.0e6, poissonRatio: 0.2}]
pairs: [{materials: [a, a], restitution: 0.95, friction: 0.3}]
particles:
  - lattice: {counts: [10, 9, 8], fit: [1, 0.9, 0.8], radius: 0.035, material: a, velocity: {random: {maxSpeed: 1.5, seed: 5}}}
time: {end: {steps: 5000}}
balance: {everySteps: 20, threshold: 0}
outputs: {vtu: false, picture: {colour: None}}
"#;

/// What a run must have gone through to prove anything.
fn demand(ran: &Ran, ranks: u32) {
    eprintln!(
        "{ranks} ranks: {} rebuilds, {} migrations, {} rebalances, {} opened, {} closed, {} crossings, {}",
        ran.number("rebuilds"),
        ran.number("migrations"),
        ran.number("rebalances"),
        ran.number("contactsOpened"),
        ran.number("contactsClosed"),
        ran.number("faceCrossings"),
        ran.hash
    );
    assert!(ran.number("rebuilds") >= 10);
    assert!(ran.number("contactsOpened") >= 100 && ran.number("contactsClosed") >= 100);
    if ranks > 1 {
        assert!(ran.number("migrations") >= 1000);
        assert!(ran.number("rebalances") >= 1);
    }
}

fn check(text: &str) {
    let one = Case::new(text).run(1);
    demand(&one, 1);
    for (ranks, nodes, cut) in
        [(2, 1, Flat), (3, 3, Flat), (4, 2, NodeFirst), (6, 3, NodeFirst), (12, 3, Flat), (12, 3, NodeFirst)]
    {
        let ran = Case::new(text).nodes(nodes, cut).run(ranks);
        demand(&ran, ranks);
        assert_eq!(ran.hash, one.hash, "{ranks} ranks on {nodes} nodes, {cut:?}");
        for what in ["contactsOpened", "contactsClosed", "faceCrossings", "contacts"] {
            assert_eq!(ran.number(what), one.number(what), "{what} with {ranks} ranks");
        }
    }
}

#[test]
fn colliding_spheres_in_a_box_move_alike_on_any_ranks() {
    check(BOX);
}

#[test]
fn a_periodic_gas_that_crosses_every_face_moves_alike_on_any_ranks() {
    check(PERIODIC);
    let ran = Case::new(PERIODIC).run(4);
    let crossings: Vec<u64> = serde_json::from_value(ran.summary()["crossingsOfFace"].clone()).unwrap();
    assert!(crossings.len() == 6 && crossings.iter().all(|n| *n >= 30), "{crossings:?}");
    assert_eq!(crossings.iter().sum::<u64>(), ran.number("faceCrossings"));
    assert!(ran.number("faceCrossings") >= 500, "{crossings:?}");
}

#[test]
fn ghost_layers_list_phases_and_kernels_do_not_matter() {
    let one = Case::new(PERIODIC).run(1);
    for layer in ["2R", "4R", "6R"] {
        let text = format!("{PERIODIC}ghostLayer: {layer}\n");
        assert_eq!(Case::new(&text).run(4).hash, one.hash, "{layer}");
    }
    for phase in [1, 7] {
        let mut case = Case::new(PERIODIC);
        case.job.phase = Some(phase);
        assert_eq!(case.run(3).hash, one.hash, "phase {phase}");
    }
    let mut case = Case::new(PERIODIC);
    case.job.kernel = dem_solver::args::KernelChoice::Portable;
    assert_eq!(case.run(2).hash, one.hash);
    let text = format!("{PERIODIC}profile: true\n");
    assert_eq!(Case::new(&text).run(2).hash, one.hash, "profile mode");
}

#[test]
fn a_restart_in_the_middle_on_other_ranks_changes_nothing() {
    let straight = Case::new(BOX).run(1);
    for (first, second) in [(4, 3), (1, 12), (6, 1), (2, 2)] {
        let mut case = Case::new(&format!("{BOX}checkpoint: {{everySteps: 0}}\n"));
        case.stop_at(1200 + first as u64);
        case.run(first);
        case.job.attempt = 2;
        let ran = case.run(second);
        assert!(ran.number("startStep") >= 1200, "started at {}", ran.number("startStep"));
        assert_eq!(ran.hash, straight.hash, "{first} ranks, then {second}");
    }
}

#[test]
fn one_last_bit_on_one_particle_changes_the_hash() {
    let straight = Case::new(BOX).run(2);
    let mut case = Case::new(BOX);
    case.job.perturb = Some(357);
    assert_ne!(case.run(2).hash, straight.hash);
}

#[test]
fn without_rounding_the_hash_depends_on_the_rank_count() {
    let unrounded = |ranks| {
        let mut case = Case::new(BOX);
        case.job.rounding = false;
        case.run(ranks).hash
    };
    let hashes = [unrounded(1), unrounded(2), unrounded(6)];
    assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2], "{hashes:?}");
}
