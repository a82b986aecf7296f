//! The same bits for any rank count, order, list phase, ghost update and kernel.

use dem_core::{
    ContactModel, Damping, Kernel, Material, MaterialTable, Model, PairProperties, Periodic, Quanta, Record,
    Sphere, Wall, kick, kick_drift, kick_kick_drift,
};

use crate::many::noise;
use crate::sim::{Rank, Sim, sphere};

const SIDE: f64 = 0.08;

/// Two sizes and two materials in a box that is periodic sideways, with floor and lid, tilted gravity and shear.
fn model(damping: Damping) -> Model {
    let dt = 1e-5;
    let materials = MaterialTable::new(
        &[
            Material { density: 7000.0, youngs_modulus: 1e7, poisson_ratio: 0.2 },
            Material { density: 2500.0, youngs_modulus: 3e7, poisson_ratio: 0.3 },
        ],
        &[
            PairProperties { materials: (0, 0), restitution: 0.5, friction: 0.4 },
            PairProperties { materials: (1, 0), restitution: 0.7, friction: 0.2 },
            PairProperties { materials: (1, 1), restitution: 0.9, friction: 0.6 },
        ],
        ContactModel { damping, clip: true, tangential_rate: 0.1 / dt },
    )
    .unwrap();
    let guard_force = materials.guard_force(0.1, 0.005);
    Model {
        dt,
        gravity: [1.0, 0.5, -9.81],
        periodic: Periodic { min: [0.0; 3], max: [SIDE, SIDE, 1.0], axes: [true, true, false] },
        quanta: Quanta::new(guard_force, 0.002, 0.005, materials.max_friction()).unwrap(),
        rounding: true,
        materials,
        walls: vec![
            Wall { point: [0.0; 3], normal: [0.0, 0.0, 1.0], material: 0 },
            Wall { point: [0.0, 0.0, SIDE], normal: [0.0, 0.0, -1.0], material: 1 },
        ],
        overlap_limit: 0.1,
        skin: 0.0005,
        max_radius: 0.005,
        kernel: Kernel::detect(),
    }
}

fn spheres() -> Vec<Sphere> {
    let mut random = noise(17);
    (0..512u64)
        .map(|n| {
            let site = [n % 8, n / 8 % 8, n / 64].map(|s| (s as f64 + 0.5) * 0.01);
            let material = (n % 3 == 0) as u16;
            let radius = if material == 0 { 0.0047 } else { 0.0022 };
            let v = [30.0 * (site[2] - 0.5 * SIDE) + 0.4 * random(), 0.4 * random(), 0.4 * random()];
            Sphere { material, spin: [20.0 * random(), 0.0, 5.0 * random()], ..sphere(n, site, radius, v) }
        })
        .collect()
}

const CONSTANT_RESTITUTION: Damping = Damping::ConstantRestitution;
const CUTS: [&[f64]; 5] = [
    &[],
    &[0.04],
    &[0.0247, 0.06],
    &[0.016, 0.03, 0.05, 0.0655],
    &[0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07],
];
const STEPS: u64 = 1500;

fn run(change: impl FnOnce(&mut Model), spheres: &[Sphere], cuts: &[f64], rebuild_every: u64) -> Sim {
    let mut model = model(CONSTANT_RESTITUTION);
    change(&mut model);
    let mut sim = Sim::on_ranks(model, spheres, cuts);
    sim.rebuild_every = rebuild_every;
    sim.run(STEPS);
    sim
}

#[test]
fn every_rank_count_gives_the_same_bits_and_counts_every_pair_once() {
    let spheres = spheres();
    let one = run(|_| (), &spheres, &[], u64::MAX);
    // The run does what it is there for.
    assert!(one.contacts.opened > 500 && one.contacts.closed > 400, "{:?}", one.contacts);
    assert!(one.contacts.touching > 50 && one.contacts.walls > 5, "{:?}", one.contacts);
    assert!(
        one.crossings > 50 && one.rebuilds > 20,
        "{} crossings, {} rebuilds",
        one.crossings,
        one.rebuilds
    );
    for cuts in &CUTS[1..] {
        let several = run(|_| (), &spheres, cuts, u64::MAX);
        assert!(several.migrations > 20, "{} migrations", several.migrations);
        assert_eq!(several.hash(), one.hash(), "{} ranks", cuts.len() + 1);
        assert_eq!(several.contacts, one.contacts, "{} ranks", cuts.len() + 1);
        assert_eq!(several.crossings, one.crossings, "{} ranks", cuts.len() + 1);
    }
}

#[test]
fn list_phase_order_and_ghost_updates_do_not_matter() {
    let spheres = spheres();
    let reference = run(|_| (), &spheres, CUTS[2], u64::MAX);
    for every in [1, 7] {
        let often = run(|_| (), &spheres, CUTS[2], every);
        assert!(often.rebuilds > reference.rebuilds);
        assert_eq!(often.hash(), reference.hash(), "rebuilt every {every} steps");
        assert_eq!(often.contacts, reference.contacts, "rebuilt every {every} steps");
    }
    let wide = run(|m| m.skin *= 3.0, &spheres, CUTS[2], u64::MAX);
    assert!(wide.rebuilds < reference.rebuilds);
    assert_eq!(wide.hash(), reference.hash(), "another skin");

    let reversed: Vec<_> = spheres.iter().rev().copied().collect();
    assert_eq!(run(|_| (), &reversed, CUTS[2], u64::MAX).hash(), reference.hash(), "other order");

    let mut sim = Sim::on_ranks(model(CONSTANT_RESTITUTION), &spheres, CUTS[2]);
    sim.send_places = true;
    assert_eq!(sim.run(STEPS).hash(), reference.hash(), "positions sent");
}

#[test]
fn every_kernel_gives_the_same_bits() {
    let spheres = spheres();
    let reference = run(|m| m.kernel = Kernel::PORTABLE, &spheres, CUTS[1], u64::MAX);
    for kernel in [Kernel::avx2(), Kernel::avx512()].into_iter().flatten() {
        let other = run(|m| m.kernel = kernel, &spheres, CUTS[1], u64::MAX);
        assert_eq!(other.hash(), reference.hash(), "{}", kernel.name());
        assert_eq!(other.contacts, reference.contacts, "{}", kernel.name());
    }
}

#[test]
fn without_rounding_rank_counts_differ() {
    let spheres = spheres();
    let hash = |cuts| run(|m| m.rounding = false, &spheres, cuts, u64::MAX).hash();
    assert_ne!(hash(CUTS[0]), hash(CUTS[3]));
}

#[test]
fn one_ulp_on_one_particle_changes_the_hash_at_once_and_later() {
    let spheres = spheres();
    let mut sim = Sim::new(model(CONSTANT_RESTITUTION), &spheres);
    let before = sim.hash();
    let x = sim.ranks[0].particles.position_mut(100);
    *x = Record([x.0[0].next_up(), x.0[1], x.0[2], x.0[3]]);
    assert_ne!(sim.hash(), before);
    assert_ne!(sim.run(STEPS).hash(), run(|_| (), &spheres, &[], u64::MAX).hash());
}

#[test]
fn the_fused_pass_and_a_restart_from_records_give_the_same_bits() {
    let spheres = spheres();
    let mut sim = Sim::new(model(CONSTANT_RESTITUTION), &spheres);
    sim.run(200);
    // Restart elsewhere, from what a checkpoint keeps, in another order.
    let mut restarted = Sim::on_ranks(sim.model.clone(), &spheres, &[]);
    let from = &sim.ranks[0].particles;
    let particles = &mut restarted.ranks[0].particles;
    particles.clear();
    for i in (0..from.owned()).rev() {
        particles.push_state(&from.state_record(i));
    }
    restarted.ranks[0].list.invalidate();
    assert_eq!(restarted.hash(), sim.hash());
    assert_eq!(restarted.run(300).hash(), sim.run(300).hash());

    // The fused pass does what the two parts do, loads and image numbers included.
    let mut fused = sim.ranks[0].particles.clone();
    let model = &sim.model;
    let Rank { particles: split, list, .. } = &mut sim.ranks[0];
    kick(model, split).unwrap();
    let a = kick_drift(model, split, list).unwrap();
    let b = kick_kick_drift(model, &mut fused, list).unwrap();
    assert_eq!(a, b);
    let owned = split.owned();
    assert_eq!(split.positions()[..owned], fused.positions()[..owned]);
    assert_eq!(split.velocities()[..owned], fused.velocities()[..owned]);
    assert_eq!(split.spins()[..owned], fused.spins()[..owned]);
    assert_eq!(split.images()[..owned], fused.images()[..owned]);
}

#[test]
fn the_trajectory_is_the_one_on_record() {
    // Changes only when the physics or its arithmetic are meant to change.
    let spheres = spheres();
    let golden = [
        (CONSTANT_RESTITUTION, 0x87b8_1994_8751_7664_a86d_414f_c7a3_468f),
        (Damping::ConstantCoefficient { impact_speed: 0.2 }, 0xd701_77cf_e82f_e42e_c958_b127_d491_9279),
    ];
    for (damping, hash) in golden {
        let found = Sim::on_ranks(model(damping), &spheres, CUTS[1]).run(STEPS).hash();
        assert_eq!(found, hash, "{damping:?} gives {found:#034x}");
    }
}
