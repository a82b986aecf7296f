//! Single contacts with exact results, between two spheres and between sphere and wall.

use std::f64::consts::PI;

use dem_core::Damping;

use crate::sim::{DENSITY, Physics, Sim, floor, sphere};

const R: f64 = 0.004;
const YOUNG: f64 = 1e9;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Partner {
    Sphere,
    Wall,
}

const PARTNERS: [Partner; 2] = [Partner::Sphere, Partner::Wall];

fn mass() -> f64 {
    4.0 / 3.0 * PI * R * R * R * DENSITY
}

/// Effective mass [kg] and Hertz stiffness k = 4/3 E* sqrt(R*).
fn effective(partner: Partner) -> (f64, f64) {
    let modulus = YOUNG / (2.0 * (1.0 - 0.2 * 0.2));
    match partner {
        Partner::Sphere => (mass() / 2.0, 4.0 / 3.0 * modulus * f64::sqrt(R / 2.0)),
        Partner::Wall => (mass(), 4.0 / 3.0 * modulus * f64::sqrt(R)),
    }
}

/// Largest overlap [m], largest force [N], contact time [s] of the elastic impact at relative speed v (Hertz).
fn hertz(partner: Partner, v: f64) -> (f64, f64, f64) {
    let (m, k) = effective(partner);
    let overlap = (5.0 * m * v * v / (4.0 * k)).powf(0.4);
    (overlap, k * overlap.powf(1.5), 2.943275 * overlap / v)
}

/// What an impact at relative normal speed `v` did, started `gap` apart.
struct Outcome {
    overlap: f64,
    force: f64,
    time: f64,
    restitution: f64,
    sim: Sim,
}

/// Runs an impact along z until the bodies are apart again; `set` may add tangential motion.
fn impact(partner: Partner, physics: &Physics, v: f64, dt: f64, gap: f64, set: impl Fn(&mut Sim)) -> Outcome {
    let mut model = physics.model(dt, R);
    let spheres = match partner {
        Partner::Sphere => vec![
            sphere(0, [0.0, 0.0, 0.0], R, [0.0, 0.0, 0.5 * v]),
            sphere(1, [0.0, 0.0, 2.0 * R + gap], R, [0.0, 0.0, -0.5 * v]),
        ],
        Partner::Wall => {
            model.walls.push(floor());
            vec![sphere(0, [0.0, 0.0, R + gap], R, [0.0, 0.0, -v])]
        }
    };
    let mut sim = Sim::new(model, &spheres);
    set(&mut sim);
    let normal = |sim: &Sim| match partner {
        Partner::Sphere => {
            let ([x, u, _], [y, w, _]) = (sim.state(0), sim.state(1));
            let d: [f64; 3] = std::array::from_fn(|k| y[k] - x[k]);
            let distance = f64::sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
            let speed = (0..3).map(|k| d[k] / distance * (w[k] - u[k])).sum::<f64>();
            (2.0 * R - distance, speed)
        }
        Partner::Wall => {
            let [x, u, _] = sim.state(0);
            (R - x[2], u[2])
        }
    };
    let mut outcome = Outcome { overlap: 0.0, force: 0.0, time: 0.0, restitution: 0.0, sim };
    let (mut start, mut before) = (None, normal(&outcome.sim).0);
    loop {
        outcome.sim.step();
        let t = outcome.sim.steps as f64 * dt;
        let (overlap, speed) = normal(&outcome.sim);
        if before <= 0.0 && overlap > 0.0 {
            start = Some(t - dt * overlap / (overlap - before));
        }
        outcome.overlap = outcome.overlap.max(overlap);
        let load = outcome.sim.ranks[0].particles.loads()[0].force.0[2].abs();
        outcome.force = outcome.force.max(load);
        if let Some(start) = start
            && overlap <= 0.0
        {
            outcome.time = t - dt * overlap / (overlap - before) - start;
            outcome.restitution = speed / v;
            return outcome;
        }
        before = overlap;
        assert!(outcome.sim.steps < 10_000_000, "no rebound");
    }
}

fn close(found: f64, expected: f64, tolerance: f64, what: &str) {
    let scale = expected.abs().max(f64::MIN_POSITIVE);
    assert!(
        (found - expected).abs() <= tolerance * scale,
        "{what}: found {found}, expected {expected}, off by {:e} relative",
        (found - expected).abs() / scale
    );
}

#[test]
fn v1_elastic_impact_follows_hertz_and_its_error_falls_with_the_square_of_the_step() {
    let physics = Physics::elastic(YOUNG);
    for partner in PARTNERS {
        let v = 0.5;
        let (overlap, force, time) = hertz(partner, v);
        let worst = |steps: f64| {
            let dt = time / steps;
            let offsets = (0..8).map(|n| (0.5 + 0.125 * f64::from(n)) * v * dt);
            offsets.fold([0.0f64; 4], |worst, gap| {
                let found = impact(partner, &physics, v, dt, gap, |_| ());
                let errors = [
                    found.overlap / overlap - 1.0,
                    found.force / force - 1.0,
                    found.time / time - 1.0,
                    found.restitution - 1.0,
                ];
                std::array::from_fn(|k| worst[k].max(errors[k].abs()))
            })
        };
        let (coarse, fine) = (worst(200.0), worst(400.0));
        for (k, what) in ["overlap", "force", "contact time", "rebound"].iter().enumerate() {
            assert!(coarse[k] < 1e-4, "{partner:?} {what}: error {:e} at tc/200", coarse[k]);
            let ratio = coarse[k] / fine[k];
            assert!(ratio > 3.0, "{partner:?} {what}: {:e} then {:e} at half the step", coarse[k], fine[k]);
        }
    }
}

#[test]
fn v3_v4_restitution_is_what_was_asked_at_every_speed() {
    for partner in PARTNERS {
        for clip in [true, false] {
            for restitution in [0.9, 0.5, 0.2] {
                let physics = Physics { restitution, clip, ..Physics::elastic(YOUNG) };
                for v in [1e-3, 1e-2, 1e-1, 1.0, 10.0] {
                    let dt = hertz(partner, v).2 / 20_000.0;
                    let found = impact(partner, &physics, v, dt, 0.3 * v * dt, |_| ()).restitution;
                    assert!(
                        (found - restitution).abs() < 1e-4,
                        "{partner:?}, clip {clip}, {v} m/s: asked {restitution}, found {found}"
                    );
                }
            }
        }
    }
}

#[test]
fn v5_constant_coefficient_meets_the_asked_restitution_at_its_impact_speed_and_the_table_elsewhere() {
    for partner in PARTNERS {
        for clip in [true, false] {
            let damping = Damping::ConstantCoefficient { impact_speed: 0.1 };
            let physics = Physics { restitution: 0.6, clip, damping, ..Physics::elastic(YOUNG) };
            for v in [0.01, 0.1, 1.0] {
                let expected = physics.table().expected_restitution(0, 0, v);
                if v == 0.1 {
                    assert!((expected - 0.6).abs() < 1e-6, "expected {expected} at the impact speed");
                }
                let dt = hertz(partner, v).2 / 20_000.0;
                let found = impact(partner, &physics, v, dt, 0.3 * v * dt, |_| ()).restitution;
                assert!(
                    (found - expected).abs() < 1e-3,
                    "{partner:?}, clip {clip}, {v} m/s: expected {expected}, found {found}"
                );
            }
        }
    }
}

/// Constants of the oblique cases: slow, so that overlaps are far below the radius.
const V: f64 = 0.01;
const E: f64 = 0.5;
const MU: f64 = 0.3;

fn oblique(partner: Partner, slip: f64, spin: f64) -> Outcome {
    let dt = hertz(partner, V).2 / 4000.0;
    let physics = Physics { restitution: E, friction: MU, rate: 0.2 / dt, ..Physics::elastic(YOUNG) };
    impact(partner, &physics, V, dt, 0.3 * V * dt, |sim| {
        let particles = &mut sim.ranks[0].particles;
        for i in 0..particles.owned() {
            let id = particles.ids()[i];
            if id == 0 {
                particles.velocity_mut(i).0[0] = slip;
                particles.spin_mut(i).0[1] = spin;
            } else {
                particles.spin_mut(i).0[1] = spin;
            }
        }
    })
}

#[test]
fn v7_gross_sliding_takes_mu_times_the_normal_impulse() {
    // Slides throughout, since slip > 7/2 mu (1 + e) v.
    let slip = 1.5 * 3.5 * MU * (1.0 + E) * V;
    let [_, velocity, spin] = oblique(Partner::Wall, slip, 0.0).sim.state(0);
    close(slip - velocity[0], MU * (1.0 + E) * V, 1e-3, "loss of tangential speed");
    close(spin[1], 2.5 * MU * (1.0 + E) * V / R, 1e-3, "spin");
    assert_eq!([velocity[1], spin[0], spin[2]], [0.0; 3]);
}

#[test]
fn v8_below_that_the_contact_point_comes_to_rest() {
    let slip = 0.3 * 3.5 * MU * (1.0 + E) * V;
    for spin_before in [0.0, 0.5 * slip / R] {
        let [_, velocity, spin] = oblique(Partner::Wall, slip, spin_before).sim.state(0);
        close(velocity[0], 5.0 / 7.0 * slip + 2.0 / 7.0 * R * spin_before, 1e-3, "tangential speed");
        close(R * spin[1], velocity[0], 1e-3, "rolling");
    }
}

#[test]
fn v11_two_spinning_spheres_exchange_the_tangential_impulse() {
    // Slip s = R (omega1 + omega2) about the same axis; with both at omega it is 2 R omega.
    for (factor, sliding) in [(3.0, true), (0.3, false)] {
        let limit = 7.0 * MU * 0.5 * (1.0 + E) * V; // mu m* (1 + e) v < m s/7
        let omega = factor * limit / (2.0 * R);
        let sim = oblique(Partner::Sphere, 0.0, omega).sim;
        let ([_, u, p], [_, w, q]) = (sim.state(0), sim.state(1));
        let impulse = if sliding { MU * 0.5 * (1.0 + E) * V } else { 2.0 * R * omega / 7.0 };
        close(u[0].abs(), impulse, 1e-3, "tangential speed of the first");
        close(w[0], -u[0], 1e-9, "tangential speed of the second");
        close(omega - p[1], 2.5 * impulse / R, 1e-3, "spin of the first");
        close(q[1], p[1], 1e-9, "spin of the second");
    }
}

#[test]
fn v10_spin_about_the_normal_does_nothing() {
    let dt = hertz(Partner::Wall, V).2 / 200.0;
    let physics = Physics { restitution: E, friction: MU, rate: 0.2 / dt, ..Physics::elastic(YOUNG) };
    for partner in PARTNERS {
        let spin = |sim: &mut Sim| sim.ranks[0].particles.spin_mut(0).0[2] = 100.0;
        let sim = impact(partner, &physics, V, dt, 0.0, spin).sim;
        assert_eq!(sim.state(0)[2], [0.0, 0.0, 100.0], "{partner:?}");
    }
}

#[test]
fn v12_a_sliding_sphere_ends_up_rolling() {
    let (v0, gravity, dt) = (0.05, 9.81, 2e-6);
    let physics = Physics { restitution: 0.3, friction: MU, rate: 0.1 / dt, ..Physics::elastic(YOUNG) };
    let mut model = physics.model(dt, R);
    model.gravity = [0.0, 0.0, -gravity];
    model.walls.push(floor());
    let rest = (mass() * gravity / effective(Partner::Wall).1).powf(2.0 / 3.0);
    let mut sim = Sim::new(model, &[sphere(0, [0.0, 0.0, R - rest], R, [v0, 0.0, 0.0])]);
    let rolls_at = 2.0 * v0 / (7.0 * MU * gravity);
    let steps = |t: f64| (t / dt).round() as u64;

    sim.run(steps(0.5 * rolls_at));
    let [_, velocity, spin] = sim.state(0);
    let t = sim.steps as f64 * dt;
    close(velocity[0], v0 - MU * gravity * t, 1e-3, "speed while sliding");
    close(spin[1], 2.5 * MU * gravity * t / R, 1e-3, "spin while sliding");
    sim.run(steps(0.48 * rolls_at));
    let [_, velocity, spin] = sim.state(0);
    assert!(velocity[0] - R * spin[1] > 0.0, "rolls too early");
    sim.run(steps(0.1 * rolls_at));
    let [_, velocity, spin] = sim.state(0);
    close(velocity[0], 5.0 / 7.0 * v0, 1e-3, "speed while rolling");
    close(R * spin[1], velocity[0], 1e-3, "spin while rolling");
}

#[test]
fn v18_bounces_lose_height_by_restitution_squared() {
    let (gravity, restitution, height, dt) = (9.81, 0.9, 0.05, 2e-7);
    // Stiff and high, so that gravity's work over the overlap does not matter.
    let physics = Physics { restitution, ..Physics::elastic(10.0 * YOUNG) };
    let mut model = physics.model(dt, R);
    model.gravity = [0.0, 0.0, -gravity];
    model.walls.push(floor());
    let mut sim = Sim::new(model, &[sphere(0, [0.0, 0.0, R + height], R, [0.0; 3])]);

    let fall = f64::sqrt(2.0 * height / gravity);
    sim.run((0.9 * fall / dt) as u64);
    let t = sim.steps as f64 * dt;
    close(sim.state(0)[0][2], R + height - 0.5 * gravity * t * t, 1e-9, "height in free fall");
    let mut expected = height;
    for bounce in 1..=3 {
        while sim.state(0)[1][2] <= 0.0 {
            sim.step();
        }
        while sim.state(0)[1][2] > 0.0 {
            sim.step();
        }
        expected *= restitution * restitution;
        close(sim.state(0)[0][2], R + expected, 1e-3, &format!("top after bounce {bounce}"));
    }
}

#[test]
fn v23_a_column_of_spheres_is_squeezed_by_its_weight() {
    let (n, gravity, dt) = (5, 9.81, 5e-6);
    let physics = Physics { restitution: 0.2, ..Physics::elastic(1e7) };
    let mut model = physics.model(dt, R);
    model.gravity = [0.0, 0.0, -gravity];
    model.walls.push(floor());
    let column: Vec<_> = (0..n).map(|i| sphere(i, [0.0, 0.0, (2 * i + 1) as f64 * R], R, [0.0; 3])).collect();
    let mut sim = Sim::new(model, &column);
    sim.run(200_000);
    let k = 4.0 / 3.0 * 1e7 / (2.0 * 0.96) * f64::sqrt(R / 2.0);
    for i in 0..n - 1 {
        let overlap = 2.0 * R - (sim.state(i + 1)[0][2] - sim.state(i)[0][2]);
        let above = (n - 1 - i) as f64 * mass() * gravity;
        close(overlap, (above / k).powf(2.0 / 3.0), 1e-6, &format!("overlap above sphere {i}"));
    }
}
