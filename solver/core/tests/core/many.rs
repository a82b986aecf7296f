//! Many particles: conserved quantities and a bed at rest.

use dem_core::{Periodic, Wall};

use crate::sim::{DENSITY, Physics, Sim, floor, sphere};

const R: f64 = 0.004;

/// Deterministic numbers in [-1, 1).
pub(crate) fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// Kinetic energy of an owned particle set and elastic energy of its contacts [J] (2/5 k overlap^(5/2)).
fn energy(sim: &Sim) -> f64 {
    let p = &sim.ranks[0].particles;
    let length = sim.model.periodic.lengths();
    let modulus = sim.model.materials.effective_modulus(0, 0);
    let mut sum = 0.0;
    for i in 0..p.owned() {
        let (x, v) = (p.positions()[i].0, p.velocities()[i].0);
        sum += 0.5 / v[3] * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
        for j in 0..i {
            let y = p.positions()[j].0;
            let square: f64 = (0..3)
                .map(|k| y[k] - x[k])
                .enumerate()
                .map(|(k, d)| if length[k] > 0.0 { d - length[k] * (d / length[k]).round() } else { d })
                .map(|d| d * d)
                .sum();
            let overlap = (x[3] + y[3] - square.sqrt()).max(0.0);
            let k = 4.0 / 3.0 * modulus * f64::sqrt(x[3] * y[3] / (x[3] + y[3]));
            sum += 0.4 * k * overlap.powf(2.5);
        }
    }
    sum
}

#[test]
fn v20_an_elastic_gas_keeps_its_energy_the_better_the_smaller_the_step() {
    let speed = 0.5;
    let run = |fraction: f64, seconds: f64| {
        let mass = 4.0 / 3.0 * std::f64::consts::PI * R * R * R * DENSITY;
        let k = 4.0 / 3.0 * 1e8 / (2.0 * 0.96) * f64::sqrt(R / 2.0);
        let overlap = (5.0 * mass / 2.0 * speed * speed / (4.0 * k)).powf(0.4);
        let dt = 2.943275 * overlap / speed / fraction;
        let mut model = Physics::elastic(1e8).model(dt, R);
        let side = 4.0 * 3.0 * R;
        model.periodic = Periodic { min: [0.0; 3], max: [side; 3], axes: [true; 3] };
        let mut random = noise(3);
        let gas: Vec<_> = (0..64)
            .map(|n| {
                let site = [n % 4, n / 4 % 4, n / 16].map(|s| (s as f64 + 0.5) * 3.0 * R);
                sphere(n, site, R, std::array::from_fn(|_| speed * random()))
            })
            .collect();
        let mut sim = Sim::new(model, &gas);
        let before = energy(&sim);
        let mut worst: f64 = 0.0;
        for _ in 0..100 {
            sim.run((seconds / dt / 100.0) as u64);
            worst = worst.max((energy(&sim) / before - 1.0).abs());
        }
        assert!(sim.contacts.opened > 100, "{:?}", sim.contacts);
        assert!(sim.crossings > 20 && sim.rebuilds > 10, "{} crossings", sim.crossings);
        worst
    };
    let (coarse, fine) = (run(50.0, 0.1), run(200.0, 0.1));
    assert!(coarse < 1e-3, "energy off by {coarse:e} at tc/50");
    assert!(fine < coarse / 8.0, "energy off by {coarse:e} at tc/50 and {fine:e} at tc/200");
}

#[test]
fn v21_momentum_and_angular_momentum_stay_with_friction_and_damping() {
    let dt = 2e-6;
    let physics = Physics { restitution: 0.5, friction: 0.4, rate: 1e4, ..Physics::elastic(1e7) };
    let mut random = noise(5);
    let cloud: Vec<_> = (0..125)
        .map(|n| {
            let site = [n % 5, n / 5 % 5, n / 25].map(|s| (s as f64 - 2.0) * 2.2 * R);
            // Towards the middle, with a swirl.
            let v = [
                -8.0 * site[0] - 5.0 * site[1] + 0.05 * random(),
                -8.0 * site[1] + 5.0 * site[0] + 0.05 * random(),
                -8.0 * site[2] + 0.05 * random(),
            ];
            sphere(n, site, R, v)
        })
        .collect();
    let mut sim = Sim::new(physics.model(dt, R), &cloud);
    let momenta = |sim: &Sim| {
        let p = &sim.ranks[0].particles;
        let (mut linear, mut angular, mut scale) = ([0.0; 3], [0.0; 3], [0.0; 2]);
        for i in 0..p.owned() {
            let (x, v, w) = (p.positions()[i].0, p.velocities()[i].0, p.spins()[i].0);
            let l = [x[1] * v[2] - x[2] * v[1], x[2] * v[0] - x[0] * v[2], x[0] * v[1] - x[1] * v[0]];
            for k in 0..3 {
                linear[k] += v[k] / v[3];
                angular[k] += l[k] / v[3] + w[k] / w[3];
                scale[0] += (v[k] / v[3]).abs();
                scale[1] += (l[k] / v[3]).abs();
            }
        }
        (linear, angular, scale)
    };
    let (linear, angular, scale) = momenta(&sim);
    sim.run(5000);
    let (linear_after, angular_after, _) = momenta(&sim);
    assert!(sim.contacts.opened > 100 && sim.contacts.closed > 50, "{:?}", sim.contacts);
    let spins = (0..125).map(|id| sim.state(id)[2][2].abs()).fold(0.0, f64::max);
    assert!(spins > 1.0, "friction made no spin: {spins}");
    for k in 0..3 {
        let change = (linear_after[k] - linear[k]).abs() / scale[0];
        assert!(change < 1e-12, "momentum changed by {change:e}");
        let change = (angular_after[k] - angular[k]).abs() / scale[1];
        assert!(change < 1e-10, "angular momentum changed by {change:e}");
    }
}

#[test]
fn v24_a_settled_bed_of_1000_puts_its_weight_on_the_floor() {
    let (dt, gravity) = (5e-5, 9.81);
    // A larger tangential rate is unstable in explicit steps where particles have many contacts.
    let physics = Physics { restitution: 0.2, friction: 0.4, rate: 0.03 / dt, ..Physics::elastic(1e7) };
    let mut model = physics.model(dt, R);
    model.gravity = [0.0, 0.0, -gravity];
    let side = 10.0 * 2.1 * R;
    let wall = |point, normal| Wall { point, normal, material: 0 };
    model.walls = vec![
        floor(),
        wall([0.0; 3], [1.0, 0.0, 0.0]),
        wall([side; 3], [-1.0, 0.0, 0.0]),
        wall([0.0; 3], [0.0, 1.0, 0.0]),
        wall([side; 3], [0.0, -1.0, 0.0]),
    ];
    let mut random = noise(11);
    let bed: Vec<_> = (0..1000)
        .map(|n| {
            let site = [n % 10, n / 10 % 10, n / 100].map(|s| (s as f64 + 0.5) * 2.1 * R);
            sphere(n, site, R, std::array::from_fn(|_| 0.05 * random()))
        })
        .collect();
    let mut sim = Sim::new(model, &bed);
    sim.run(24_000);

    // Without history, friction lets the bed creep and tick: the balance holds for the mean over a while.
    let (mut total, while_steps) = ([0.0; 3], 16_000);
    for _ in 0..while_steps {
        sim.step();
        for force in sim.ranks[0].list.wall_forces() {
            total = std::array::from_fn(|k| total[k] + force[k] / f64::from(while_steps));
        }
    }
    let weight = 1000.0 * 4.0 / 3.0 * std::f64::consts::PI * R * R * R * DENSITY * gravity;
    assert!((total[2] / -weight - 1.0).abs() < 1e-4, "walls carry {total:?} N, weight is {weight} N");
    assert!(total[0].abs() < 1e-4 * weight && total[1].abs() < 1e-4 * weight, "sides: {total:?} N");
    assert!(sim.contacts.touching > 2000 && sim.contacts.walls > 100, "{:?}", sim.contacts);
}
