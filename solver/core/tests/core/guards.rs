//! What must stop a run, and what rounding may do.

use dem_core::{
    ContactModel, Damping, Kernel, Limit, Material, MaterialTable, Model, NeighbourList, PairProperties,
    Particles, Periodic, Quanta, QuantaError, Violation, contacts, kick, kick_drift,
};

use crate::many::noise;
use crate::sim::{DENSITY, Physics, floor, sphere};

const R: f64 = 0.004;

/// One force evaluation and one step.
fn step(model: &Model, particles: &mut Particles) -> Result<(), Violation> {
    let mut list = NeighbourList::new();
    list.sort(model, particles);
    list.build(model, particles, 0.0);
    contacts(model, particles, &mut list)?;
    kick(model, particles)?;
    kick_drift(model, particles, &mut list)?;
    Ok(())
}

fn two(gap: f64) -> Particles {
    let mut particles = Particles::new();
    particles.push(&sphere(7, [0.1, 0.0, 0.05], R, [0.0; 3]), DENSITY);
    particles.push(&sphere(3, [0.1, 0.0, 0.05 + 2.0 * R + gap], R, [0.0; 3]), DENSITY);
    particles
}

#[test]
fn an_overlap_beyond_the_limit_names_both_particles_and_the_place() {
    let model = Physics::elastic(1e7).model(1e-6, R);
    assert_eq!(step(&model, &mut two(-0.15 * 2.0 * R)), Ok(()));
    let found = step(&model, &mut two(-0.25 * 2.0 * R)).unwrap_err();
    assert_eq!((found.id, found.other), (3, Some(7)));
    assert_eq!(found.position[0], 0.1);
    let Limit::Overlap { found, allowed } = found.limit else { panic!("{found}") };
    assert!((found - 0.25).abs() < 1e-9 && allowed == 0.2);
}

#[test]
fn an_overlap_with_a_wall_names_the_particle() {
    let mut model = Physics::elastic(1e7).model(1e-6, R);
    model.walls.push(floor());
    let mut particles = Particles::new();
    particles.push(&sphere(9, [0.0, 0.0, 0.1 * R], R, [0.0; 3]), DENSITY);
    let found = step(&model, &mut particles).unwrap_err();
    assert_eq!((found.id, found.other), (9, None));
    assert!(matches!(found.limit, Limit::Overlap { .. }), "{found}");
}

#[test]
fn what_is_not_a_number_or_too_fast_is_found_with_its_id() {
    let model = Physics::elastic(1e7).model(1e-6, R);
    for (speed, expected) in [(f64::NAN, true), (f64::INFINITY, false), (1e3, false)] {
        let mut particles = two(R);
        particles.velocity_mut(0).0[1] = speed;
        let found = step(&model, &mut particles).unwrap_err();
        assert_eq!(found.id, 7, "{found}");
        assert_eq!(matches!(found.limit, Limit::NotFinite), expected, "{found}");
    }
}

#[test]
fn sums_that_leave_the_exact_range_are_found_with_their_id() {
    let mut model = Physics::elastic(1e7).model(1e-6, R);
    let force = {
        let mut particles = two(-0.1 * R);
        let mut list = NeighbourList::new();
        list.sort(&model, &mut particles);
        list.build(&model, &particles, 0.0);
        contacts(&model, &mut particles, &mut list).unwrap();
        particles.loads()[0].force.0[2].abs()
    };
    // A contribution beyond 2^51 quanta.
    let quantum = |x: f64| 2.0f64.powi(x.log2().floor() as i32);
    model.quanta = Quanta { force: quantum(force / 2.0f64.powi(52)), torque: 1.0 };
    let found = step(&model, &mut two(-0.1 * R)).unwrap_err();
    assert!(matches!(found.limit, Limit::ForceRange { .. }), "{found}");
    assert_eq!((found.id, found.other), (3, Some(7)));
    // Contributions within it whose sum is beyond 2^52: spheres in a funnel of three below one.
    model.quanta.force = quantum(force / 2.0f64.powi(50) / 1.999);
    let mut pressed = Particles::new();
    pressed.push(&sphere(1, [0.0; 3], R, [0.0; 3]), DENSITY);
    for n in 0..8 {
        // All on one side, far over each other: only the sum on the first counts.
        let angle = 0.05 * f64::from(n);
        let d = 1.9 * R;
        let at = [d * f64::sin(angle), d * f64::cos(angle), 0.0];
        pressed.push(&sphere(10 + n as u64, at, R, [0.0; 3]), DENSITY);
    }
    model.overlap_limit = f64::MAX;
    let found = step(&model, &mut pressed).unwrap_err();
    assert!(matches!(found.limit, Limit::ForceRange { .. }), "{found}");
}

/// Model of steel-like spheres with radii `min..=max` and every rounding as a run would have it.
fn sized(min: f64, max: f64) -> (Model, f64) {
    let materials = MaterialTable::new(
        &[Material { density: DENSITY, youngs_modulus: 1e7, poisson_ratio: 0.2 }],
        &[PairProperties { materials: (0, 0), restitution: 0.5, friction: 0.4 }],
        ContactModel { damping: Damping::ConstantRestitution, clip: true, tangential_rate: 1e6 },
    )
    .unwrap();
    let guard = materials.guard_force(0.1, max);
    let model = Model {
        dt: 1e-9,
        gravity: [0.0; 3],
        periodic: Periodic::NONE,
        quanta: Quanta::new(guard, min, max, 0.4).unwrap(),
        rounding: true,
        materials,
        walls: Vec::new(),
        overlap_limit: 0.1,
        skin: 0.1 * min,
        max_radius: max,
        kernel: Kernel::detect(),
    };
    (model, guard)
}

#[test]
fn rounding_stays_below_1e_9_of_every_force_above_1e_5_of_the_guard_force() {
    // Diameters of 10 um and 10 cm, and mixtures of 1:10 around both.
    for (min, max) in [(5e-6, 5e-6), (0.05, 0.05), (5e-6, 5e-5), (0.005, 0.05)] {
        let (mut model, guard) = sized(min, max);
        assert!(model.quanta.smallest_force() <= 1e-5 * guard);
        let mut random = noise(1);
        let mut seen = [f64::INFINITY, 0.0f64];
        for n in 0..4000 {
            let radius = |r: f64| min + (max - min) * 0.5 * (1.0 + r);
            let (a, b) = (radius(random()), radius(random()));
            // Overlaps spread over the decades; the force goes with their power 3/2.
            let overlap = 2.0 * a.min(b) * 0.1 * 10f64.powf(-2.0 * (1.0 + random()));
            let mut direction = [random(), random(), random()];
            let norm = direction.iter().map(|d| d * d).sum::<f64>().sqrt();
            direction = direction.map(|d| d / norm);
            let mut evaluate = |rounding| {
                model.rounding = rounding;
                let mut particles = Particles::new();
                let mut first = sphere(0, [0.0; 3], a, [0.0; 3]);
                // At rest along the normal, so that the force is the elastic one; friction slides.
                first.spin = [1e3 * direction[1] / a, -1e3 * direction[0] / a, 0.0];
                particles.push(&first, DENSITY);
                let at = direction.map(|d| d * (a + b - overlap));
                particles.push(&sphere(1, at, b, [0.0; 3]), DENSITY);
                let mut list = NeighbourList::new();
                list.sort(&model, &mut particles);
                list.build(&model, &particles, 0.0);
                contacts(&model, &mut particles, &mut list).unwrap();
                let of = |id| particles.ids().iter().position(|i| *i == id).unwrap();
                [particles.loads()[of(0)], particles.loads()[of(1)]]
            };
            let (rounded, exact) = (evaluate(true), evaluate(false));
            for (k, radius) in [a, b].into_iter().enumerate() {
                let norm = |v: [f64; 3]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
                let difference = |a: [f64; 3], b: [f64; 3]| norm(std::array::from_fn(|k| a[k] - b[k]));
                let force = norm(exact[k].force.vector());
                if !(1e-5 * guard..=guard).contains(&force) {
                    continue;
                }
                seen = [seen[0].min(force / guard), seen[1].max(force / guard)];
                let off = difference(rounded[k].force.vector(), exact[k].force.vector());
                assert!(off < 1e-9 * force, "case {n}: force {force} N off by {off}");
                let off = difference(rounded[k].torque.vector(), exact[k].torque.vector());
                assert!(off < 1e-9 * force * radius, "case {n}: torque of {force} N off by {off}");
            }
        }
        assert!(seen[0] < 1e-4 && seen[1] > 0.1, "forces seen: {seen:?} of the guard force");
    }
}

#[test]
fn quanta_are_powers_of_two_and_refuse_radii_too_far_apart() {
    for guard in [1e-9, 0.37, 5e6] {
        let quanta = Quanta::new(guard, 0.001, 0.01, 0.5).unwrap();
        for q in [quanta.force, quanta.torque] {
            assert_eq!(q.to_bits() << 12, 0, "{q} is no power of two");
        }
        assert!(quanta.force_range() > 20.0 * guard);
    }
    let error = Quanta::new(1.0, 1e-5, 1e-2, 0.5).unwrap_err();
    assert!(matches!(error, QuantaError::Spread { .. }), "{error}");
    assert!(matches!(Quanta::new(f64::NAN, 1.0, 1.0, 0.5), Err(QuantaError::Unusable { .. })));
}
