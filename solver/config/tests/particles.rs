//! Generated particles and derived quantities.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use dem_config::{Files, Prepared, Simulation, prepare};

/// The benchmark of P0 at full size: 1,000,188 spheres of 8 mm.
const P0: &str = "
domain: {min: [0, 0, 0], max: [1, 1, 1]}
materials:
- {name: glass, density: 7000, youngsModulus: 1.0e7, poissonRatio: 0.2}
pairs:
- {materials: [glass, glass], restitution: 0.5, friction: 0.4}
particles:
- lattice:
    counts: [126, 126, 63]
    fit: [1, 1, 0.5]
    radius: 0.004
    material: glass
    velocity: {random: {maxSpeed: 0.1, seed: 7}}
time: {end: {steps: 200}}
";

fn file(domain: &str, sources: &str) -> Simulation {
    let text = format!(
        "domain: {domain}\nmaterials: [{{name: glass, density: 2500, youngsModulus: 1.0e7, poissonRatio: 0.2}}]\n\
         pairs: [{{materials: [glass, glass], restitution: 0.5, friction: 0.4}}]\nparticles:\n{sources}\n\
         time: {{end: {{seconds: 0.5}}}}\n"
    );
    Simulation::from_yaml(&text).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn ready(simulation: &Simulation) -> Prepared {
    prepare(simulation, &Files::new()).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

#[test]
fn the_benchmark_has_the_particles_box_and_limits_of_the_paper() {
    let prepared = ready(&Simulation::from_yaml(P0).unwrap());
    let particles = &prepared.particles;
    assert_eq!(particles.count(), 1_000_188);
    assert_eq!(prepared.region, ([0.0; 3], [1.0, 1.0, 0.5]));
    assert_eq!(particles.seed(0).position, [0.5 / 126.0, 0.5 / 126.0, 0.5 * 0.5 / 63.0]);
    assert_eq!(particles.seed(1).position[0], 1.5 * 1.0 / 126.0);
    let last = particles.seed(1_000_187);
    assert_eq!(last.position, [125.5 / 126.0, 125.5 / 126.0, 62.5 * 0.5 / 63.0]);
    let close =
        |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.01, "{value} {expected}");
    close(prepared.limits.rayleigh, 5.66e-4);
    // Half of the 5.1e-4 s of the settled floor.
    close(prepared.limits.loaded, 2.55e-4);
    assert_eq!(prepared.dt, 0.1 * prepared.limits.loaded);
    assert_eq!(prepared.ghost_thickness, 2.0 * 0.004 + prepared.skin);
    close(prepared.skin, 8e-4);
    assert_eq!(prepared.walls.len(), 6);
    assert_eq!(prepared.end_step, 200);
}

#[test]
fn the_time_step_keeps_its_bits() {
    // Any machine must find these: a change here changes every trajectory. The velocity was computed apart from this
    // code, in Python.
    let prepared = ready(&Simulation::from_yaml(P0).unwrap());
    assert_eq!(format!("{:e}", prepared.dt), "2.5410154781591673e-5");
    assert_eq!(
        format!("{:?}", prepared.particles.seed(123_456).velocity),
        "[0.001096066069754321, 0.013498282336977236, -0.008246772652701241]"
    );
}

#[test]
fn the_skin_and_the_ghost_layer_change_no_time_step() {
    let base = ready(&Simulation::from_yaml(P0).unwrap());
    let other = P0.replace("time:", "neighbours: {skin: {metres: 0.002}}\nghostLayer: 6R\ntime:");
    let other = ready(&Simulation::from_yaml(&other).unwrap());
    assert_eq!(base.dt, other.dt);
    assert_eq!(other.ghost_thickness, 3.0 * 2.0 * 0.004 + 0.002);
}

#[test]
fn random_velocities_are_even_in_speed_and_direction_and_do_not_depend_on_the_range_asked() {
    let prepared = ready(&Simulation::from_yaml(P0).unwrap());
    let n = 100_000;
    let (mut mean, mut speed, mut slow) = ([0.0; 3], 0.0, 0);
    for seed in prepared.particles.range(0..n) {
        let v = seed.velocity;
        let size = v.iter().map(|x| x * x).sum::<f64>().sqrt();
        assert!(size <= 0.1 * (1.0 + 1e-15));
        speed += size / n as f64;
        slow += u64::from(size < 0.025);
        (0..3).for_each(|k| mean[k] += v[k] / n as f64);
    }
    // Six standard deviations of each mean.
    assert!((speed - 0.05).abs() < 6.0 * 0.0289 / 316.0, "{speed}");
    assert!((slow as f64 / n as f64 - 0.25).abs() < 6.0 * 0.433 / 316.0, "{slow}");
    assert!(mean.iter().all(|x| x.abs() < 6.0 * 0.0333 / 316.0), "{mean:?}");
    let part: Vec<_> = prepared.particles.range(5000..5010).collect();
    assert_eq!(part[3], prepared.particles.seed(5003));
    assert_eq!(part.len(), 10);
}

#[test]
fn random_particles_do_not_overlap_each_other_or_earlier_ones_nor_across_periodic_faces() {
    let domain = "{min: [0, 0, 0], max: [1, 1, 1], faces: {xMin: Periodic, xMax: Periodic, yMin: Periodic, yMax: Periodic}}";
    let sources = "- lattice: {counts: [4, 4, 1], spacing: 0.25, radius: 0.05, material: glass}\n\
         - random: {count: 1500, seed: 3, min: [0, 0, 0], max: [1, 1, 1], radius: {min: 0.02, max: 0.04}, material: glass}\n\
         - random: {count: 500, seed: 3, min: [0, 0, 0], max: [1, 1, 1], radius: {min: 0.01, max: 0.01}, material: glass}";
    let prepared = ready(&file(domain, sources));
    let seeds: Vec<_> = prepared.particles.range(0..2016).collect();
    assert!(seeds.iter().enumerate().all(|(i, seed)| seed.id == i as u64));
    let mut sticks_out = 0;
    for (i, a) in seeds.iter().enumerate() {
        sticks_out += u32::from(a.position[0] < a.radius || a.position[1] < a.radius);
        assert!(a.position[2] >= a.radius && a.position[2] <= 1.0 - a.radius, "{a:?}");
        assert!(a.position.iter().all(|&x| (0.0..1.0).contains(&x)), "{a:?}");
        for b in &seeds[..i] {
            let square: f64 = (0..3)
                .map(|k| {
                    let way = (a.position[k] - b.position[k]).abs();
                    let way = if k < 2 { way.min(1.0 - way) } else { way };
                    way * way
                })
                .sum();
            assert!(square.sqrt() >= (a.radius + b.radius) * (1.0 - 1e-12), "{a:?} {b:?}");
        }
    }
    assert!(sticks_out > 20, "only {sticks_out} particles cross a periodic face: the case is not tested");
    assert_eq!(prepared.rmin, 0.01);
    assert_eq!(prepared.rmax, 0.05);
}

#[test]
fn a_region_too_full_ends_in_a_problem_that_says_how_many_fitted() {
    let source = "- random: {count: 840, seed: 1, min: [0, 0, 0], max: [1, 1, 1], radius: {min: 0.05, max: 0.05}, material: glass}";
    let problems = prepare(&file("{min: [0, 0, 0], max: [1, 1, 1]}", source), &Files::new()).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].path, "particles[0].random.count");
    assert!(problems[0].found.starts_with("840 spheres, of which only "), "{}", problems[0]);
}

fn from_csv(text: &str) -> Result<Prepared, Vec<String>> {
    let simulation = file("{min: [0, 0, 0], max: [1, 1, 1]}", "- file: {path: in.csv, material: glass}");
    prepare(&simulation, &Files::from([("in.csv".into(), text.into())]))
        .map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

#[test]
fn a_particle_file_gives_particles_in_its_order() {
    let text =
        "# made by hand\nradius,x, y ,z,wz,material\n0.1,0.5,0.5,0.25,3,glass\n\n0.05,0.2,0.2,0.9,0,glass\n";
    let prepared = from_csv(text).unwrap();
    let seeds: Vec<_> = prepared.particles.range(0..2).collect();
    assert_eq!((seeds[0].position, seeds[0].radius, seeds[0].spin), ([0.5, 0.5, 0.25], 0.1, [0.0, 0.0, 3.0]));
    assert_eq!(seeds[1].id, 1);
    assert_eq!(prepared.region.0, [0.15000000000000002, 0.15000000000000002, 0.15]);
}

#[test]
fn a_hostile_particle_file_is_refused_by_line_and_column() {
    let corpus = [
        ("", "in.csv: found nothing"),
        ("x,y,z,radius\n", "in.csv: found no particles"),
        ("x,y,z\n1,1,1\n", "in.csv, line 1: found no column radius"),
        ("x,y,z,radius,x\n", "in.csv, line 1: found column x twice"),
        ("x,y,z,radus\n", "in.csv, line 1: found unknown column `radus`, expected `radius`?"),
        ("x,y,z,radius\n0.5,0.5,0.5\n", "in.csv, line 2: found 3 values, expected 4"),
        ("x,y,z,radius\n0.5,0.5,0.5,-0.1\n", "in.csv, line 2, column radius: found -0.1"),
        ("x,y,z,radius\n0.5,nan,0.5,0.1\n", "in.csv, line 2, column y: found `nan`, expected a number"),
        ("x,y,z,radius\n0.5,inf,0.5,0.1\n", "in.csv, line 2, column y: found `inf`"),
        ("x,y,z,radius\n0.5,1e400,0.5,0.1\n", "in.csv, line 2, column y: found `1e400`"),
        (
            "x,y,z,radius\n0.5,0.5,1.5,0.1\n",
            "in.csv, line 2, column z: found 1.5, expected inside the domain, 0 to 1 m",
        ),
        (
            "x,y,z,radius,material\n0.5,0.5,0.5,0.1,gold\n",
            "in.csv, line 2, column material: found unknown material `gold`",
        ),
        ("x,y,z,radius\n0.5,\u{0}\u{7},0.5,0.1\n", "in.csv, line 2, column y: found `\\0\\u{7}`"),
    ];
    for (text, message) in corpus {
        let problems = from_csv(text).unwrap_err();
        assert!(problems[0].starts_with(message), "wanted {message}\n  got {problems:?}");
    }
    let many = format!("x,y,z,radius\n{}", "?,?,?,?\n".repeat(100_000));
    assert!(from_csv(&many).unwrap_err().len() < 40);
}

proptest::proptest! {
    #[test]
    fn no_particle_file_makes_the_reader_panic(text in "(x,y,z,radius\n)?[0-9a-z.,#\\-+\n\u{0}\u{fffd}]{0,300}") {
        let _ = from_csv(&text);
    }
}

#[test]
fn tiny_and_huge_particles_have_sound_figures() {
    for (radius, side) in [("5.0e-6", 1e-3), ("0.05", 10.0)] {
        let domain = format!("{{min: [0, 0, 0], max: [{side}, {side}, {side}]}}");
        let radius: f64 = radius.parse().unwrap();
        let source = format!(
            "- lattice: {{counts: [5, 5, 5], spacing: {:?}, radius: {radius:?}, material: glass}}",
            2.0 * radius
        );
        let prepared = ready(&file(&domain, &source));
        assert!(prepared.dt > 0.0 && prepared.dt < prepared.limits.physical());
        assert!(prepared.guard_force > 0.0 && prepared.end_step > 0);
    }
}
