//! Particle-steps per second of one core on the benchmark's start state: 126 x 126 x 63 spheres of 8 mm diameter on
//! a lattice of 1/126 m spacing (6 contacts for every inner particle), with walls and gravity.
//!
//! `cargo run --release -p dem-core --example bench_start_state [kernel] [steps] [runs]`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads a clock and its arguments")]

use std::time::Instant;

use dem_core::{
    ContactModel, Contacts, Damping, Kernel, Material, MaterialTable, Model, NeighbourList, PairProperties,
    Particles, Periodic, Quanta, Sphere, Wall, contacts, kick, kick_drift, kick_kick_drift, state_hash,
};

const COUNTS: [u64; 3] = [126, 126, 63];
const RADIUS: f64 = 0.004;
const DENSITY: f64 = 7000.0;
const DT: f64 = 2e-5;

fn model(kernel: Kernel) -> Result<Model, Box<dyn std::error::Error>> {
    let material = Material { density: DENSITY, youngs_modulus: 1e7, poisson_ratio: 0.2 };
    let pair = PairProperties { materials: (0, 0), restitution: 0.5, friction: 0.4 };
    let contact = ContactModel {
        damping: Damping::ConstantRestitution,
        clip: true,
        tangential_rate: 2.0 / 7.0 * 0.1 / DT,
    };
    let materials = MaterialTable::new(&[material], &[pair], contact)?;
    let overlap_limit = 0.1;
    let guard_force = materials.guard_force(overlap_limit, RADIUS);
    let wall = |point, normal| Wall { point, normal, material: 0 };
    Ok(Model {
        dt: DT,
        gravity: [0.0, 0.0, -9.81],
        periodic: Periodic::NONE,
        quanta: Quanta::new(guard_force, RADIUS, RADIUS, materials.max_friction())?,
        rounding: true,
        materials,
        walls: vec![
            wall([0.0; 3], [1.0, 0.0, 0.0]),
            wall([0.0; 3], [0.0, 1.0, 0.0]),
            wall([0.0; 3], [0.0, 0.0, 1.0]),
            wall([1.0; 3], [-1.0, 0.0, 0.0]),
            wall([1.0; 3], [0.0, -1.0, 0.0]),
            wall([1.0; 3], [0.0, 0.0, -1.0]),
        ],
        overlap_limit,
        skin: 0.1 * 2.0 * RADIUS,
        max_radius: RADIUS,
        kernel,
    })
}

fn particles() -> Particles {
    let mut particles = Particles::new();
    let mut seed = 7u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 11) as f64 / (1u64 << 53) as f64
    };
    for id in 0..COUNTS.iter().product() {
        let site = [id % COUNTS[0], id / COUNTS[0] % COUNTS[1], id / (COUNTS[0] * COUNTS[1])];
        let velocity = std::array::from_fn(|_| 0.1 / f64::sqrt(3.0) * (2.0 * random() - 1.0));
        let sphere = Sphere {
            id,
            position: site.map(|n| (n as f64 + 0.5) / 126.0),
            radius: RADIUS,
            velocity,
            spin: [0.0; 3],
            material: 0,
        };
        particles.push(&sphere, DENSITY);
    }
    particles
}

/// CPU time of this thread [s], which other processes of the machine do not add to.
fn cpu_seconds() -> f64 {
    // User and system time of the only thread, in clock ticks: fields 14 and 15 after the command's name.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let kernel = match args.next().as_deref() {
        None | Some("auto") => Kernel::detect(),
        Some(name) => Kernel::by_name(name).ok_or("no such kernel on this processor")?,
    };
    let steps: u64 = args.next().map_or(Ok(50), |s| s.parse())?;
    let runs: u32 = args.next().map_or(Ok(5), |s| s.parse())?;

    let model = model(kernel)?;
    let mut best = f64::INFINITY;
    let mut fastest_rebuild = f64::INFINITY;
    for run in 0..runs {
        let mut particles = particles();
        let mut list = NeighbourList::new();
        let before = cpu_seconds();
        let clock = Instant::now();
        list.sort(&model, &mut particles);
        list.build(&model, &particles, 0.0);
        fastest_rebuild = fastest_rebuild.min(clock.elapsed().as_secs_f64());
        let setup = cpu_seconds() - before;

        let mut seen = Contacts::default();
        let mut rebuilds = 0;
        contacts(&model, &mut particles, &mut list)?;
        let before = cpu_seconds();
        let clock = Instant::now();
        kick_drift(&model, &mut particles, &mut list)?;
        for step in 0..steps {
            if list.is_stale(&model, &particles) {
                list.sort(&model, &mut particles);
                list.build(&model, &particles, model.dt);
                rebuilds += 1;
            }
            seen += contacts(&model, &mut particles, &mut list)?;
            if step + 1 < steps {
                kick_kick_drift(&model, &mut particles, &mut list)?;
            }
        }
        kick(&model, &mut particles)?;
        let seconds = cpu_seconds() - before;
        best = best.min(seconds);
        let rate = |seconds: f64| (particles.owned() as u64 * steps) as f64 / seconds / 1e6;
        println!(
            "run {run}: {} kernel, {:.2} M particle-steps/s of CPU time ({:.2} wall), {:.3} pairs and {:.4} wall \
             contacts per particle, {rebuilds} rebuilds, first list {setup:.2} s, hash {:032x}",
            kernel.name(),
            rate(seconds),
            rate(clock.elapsed().as_secs_f64()),
            seen.touching as f64 / (particles.owned() as u64 * steps) as f64,
            seen.walls as f64 / (particles.owned() as u64 * steps) as f64,
            state_hash(&particles),
        );
    }
    let count: u64 = COUNTS.iter().product();
    println!(
        "best: {:.2} M particle-steps/s, sort and build {fastest_rebuild:.3} s",
        (count * steps) as f64 / best / 1e6
    );
    Ok(())
}
