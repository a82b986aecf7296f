//! The simulation file as text: what is read, what is refused and with which words, what is written.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use dem_config::{Face, GhostLayer, MAX_BYTES, Problem, Simulation, Source, TimeStep, schema};
use proptest::prelude::*;

/// The smallest useful file.
const SMALL: &str = "
domain: {min: [0, 0, 0], max: [1, 1, 1]}
materials:
- {name: glass, density: 2500, youngsModulus: 1.0e7, poissonRatio: 0.2}
pairs:
- {materials: [glass, glass], restitution: 0.5, friction: 0.4}
particles:
- lattice: {counts: [4, 4, 4], spacing: 0.1, radius: 0.05, material: glass}
time: {end: {steps: 100}}
";

fn refused(text: &str) -> Vec<String> {
    match Simulation::from_yaml(text) {
        Ok(simulation) => panic!("accepted: {simulation:?}"),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

fn with(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "no `{from}` in the sample");
    SMALL.replace(from, to)
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let simulation = Simulation::from_yaml(SMALL).unwrap();
    assert_eq!(simulation.gravity, [0.0, 0.0, -9.81]);
    assert_eq!(simulation.domain.faces.all(), [Face::Wall; 6]);
    assert_eq!(simulation.ghost_layer, GhostLayer::Skin);
    assert!(simulation.contact.clip && simulation.outputs.vtu && simulation.balance.enabled);
    assert_eq!(simulation.time.step, TimeStep::default());
    assert_eq!(simulation.checkpoint.every_steps, None);
}

#[test]
fn every_trap_of_yaml_is_refused_with_its_path_or_read_as_documented() {
    let corpus: &[(&str, &str, &str)] = &[
        ("time:", "profile: yes\ntime:", "profile: found text `yes`, expected true or false"),
        ("time:", "profile: 1\ntime:", "profile: found 1, expected true or false"),
        ("steps: 100", "steps: 010", "time.end.steps: found text `010`, expected a whole number"),
        ("steps: 100", "steps: 1_000", "time.end.steps: found text `1_000`, expected a whole number"),
        ("steps: 100", "steps: 1e3", "time.end.steps: found 1000.0, expected a whole number"),
        ("steps: 100", "steps: 99999999999999999999", "time.end.steps: found 99999999999999999999"),
        ("steps: 100", "steps: 0", "time.end.steps: found 0, expected at least 1"),
        ("density: 2500", "density: .inf", "materials[0].density: found .inf, expected a finite number"),
        ("density: 2500", "density: -.inf", "materials[0].density: found -.inf, expected a finite number"),
        ("density: 2500", "density: .nan", "materials[0].density: found .nan, expected a finite number"),
        ("density: 2500", "density: 1e999", "materials[0].density: found"),
        ("density: 2500", "density: ~", "materials[0].density: found null, expected a number"),
        ("density: 2500", "density: '2500'", "materials[0].density: found text `2500`, expected a number"),
        ("density: 2500", "density: 1:30", "materials[0].density: found text `1:30`, expected a number"),
        (
            "name: glass",
            "name: 7",
            "materials[0].name: found 7, expected text (numbers and true, false, null in quotes)",
        ),
        ("name: glass", "name: ''", "materials[0].name: found 0 characters, expected 1 to 63 characters"),
        ("name: glass", "name: a b", "materials[0].name: found `a b`, expected a name of letters"),
        ("density: 2500", "density: 2500, density: 7000", "materials[0].density: found the key twice"),
        ("density:", "Density:", "materials[0].Density: found unknown key `Density`, expected `density`?"),
        ("density:", "dnesity:", "materials[0].dnesity: found unknown key `dnesity`, expected `density`?"),
        ("density: 2500,", "", "materials[0].density: found nothing, expected Density [kg/m3]"),
        ("lattice:", "latice:", "particles[0].latice: found unknown key `latice`, expected `lattice`?"),
        (
            "time: {end: {steps: 100}}",
            "time: {end: {steps: 1, seconds: 1.0}}",
            "time.end: found `steps` and `seconds`, expected exactly one of steps, seconds",
        ),
        (
            "time: {end: {steps: 100}}",
            "time: {end: {}}",
            "time.end: found none, expected exactly one of steps, seconds",
        ),
        (
            "time:",
            "contact: {damping: ConstantRestitution}\ntime:",
            "contact.damping: found text `ConstantRestitution`, expected exactly one of",
        ),
        (
            "time:",
            "contact: {damping: {constantRestitution: {a: 1}}}\ntime:",
            "contact.damping.constantRestitution.a: found a key, expected none here: {}",
        ),
        ("time:", "ghostLayer: 2r\ntime:", "ghostLayer: found unknown value `2r`, expected `2R`?"),
        ("time:", "\ttime:", "simulation file, line"),
        ("time:", "walls: !sphere []\ntime:", "simulation file"),
        ("time:", "<<: {profile: true}\ntime:", "<<: found unknown key `<<`"),
        ("time:", "1: 2\ntime:", "1: found unknown key `1`"),
        ("min: [0, 0, 0]", "min: [0, 0]", "domain.min: found 2 items, expected 3 items"),
        ("restitution: 0.5", "restitution: 1.5", "pairs[0].restitution: found 1.5, expected 0.01 to 1"),
        (
            "counts: [4, 4, 4]",
            "counts: [4, 0, 4]",
            "particles[0].lattice.counts[1]: found 0, expected a whole number from 1 to 1000000",
        ),
    ];
    for (from, to, message) in corpus {
        let problems = refused(&with(from, to));
        assert!(
            problems.iter().any(|problem| problem.starts_with(message)),
            "{to}\n  wanted {message}\n  got {problems:#?}"
        );
    }
    assert_eq!(
        refused(""),
        ["simulation file: found nothing, expected a simulation: domain, materials, ..."]
    );
    assert!(refused("just text")[0].contains("expected a mapping"));
    assert!(refused(&format!("{SMALL}---\n{SMALL}"))[0].contains("more than one document"));
    assert!(refused(&" ".repeat(10_000_000))[0].contains(&format!("at most {MAX_BYTES} bytes")));
    assert!(refused(&"[".repeat(100_000))[0].contains("recursion limit"));
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e]\n";
    assert!(refused(bomb)[0].contains("repetition limit"), "{:?}", refused(bomb));
}

#[test]
fn what_looks_like_a_trap_but_is_yaml_is_read() {
    let simulation = Simulation::from_yaml(&with("spacing: 0.1", "spacing: 1e-1")).unwrap();
    let Source::Lattice(lattice) = &simulation.particles[0] else { panic!("{simulation:?}") };
    assert_eq!(lattice.spacing, Some(0.1));
    let anchored = with("min: [0, 0, 0], max: [1, 1, 1]", "min: &low [0, 0, 0], max: [1, 1, 1]")
        .replace("spacing: 0.1", "spacing: 0.1, origin: *low");
    let simulation = Simulation::from_yaml(&anchored).unwrap();
    let Source::Lattice(lattice) = &simulation.particles[0] else { panic!("{simulation:?}") };
    assert_eq!(lattice.origin, Some([0.0; 3]));
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = with("density: 2500", "density: -1, colour: red")
        .replace("friction: 0.4", "friction: -0.4")
        .replace("radius: 0.05", "radius: -0.05")
        .replace("[glass, glass]", "[glass, steel]");
    let problems = refused(&text);
    for path in
        ["materials[0].density", "materials[0].colour", "pairs[0].friction", "particles[0].lattice.radius"]
    {
        assert!(problems.iter().any(|problem| problem.starts_with(path)), "{path} in {problems:#?}");
    }
}

#[test]
fn what_cannot_run_is_refused_with_what_would_be_right() {
    let random =
        |body: &str| with("lattice: {counts: [4, 4, 4], spacing: 0.1, radius: 0.05, material: glass}", body);
    let corpus: Vec<(String, &str)> = vec![
        (
            with("radius: 0.05, material: glass", "radius: 0.05, material: gless"),
            "particles[0].lattice.material: found unknown material `gless`, expected `glass`?",
        ),
        (
            with("time:", "walls: [{name: w, point: [0, 0, 0], normal: [0, 0, 1], material: steel}]\ntime:"),
            "walls[0].material: found unknown material `steel`, expected one of glass",
        ),
        (
            with("pairs:", "- {name: steel, density: 7800, youngsModulus: 1.0e7, poissonRatio: 0.3}\npairs:")
                .replace("max: [1, 1, 1]", "max: [1, 1, 1], wallMaterial: steel"),
            "pairs: found none, expected an entry for the materials glass and steel, which can meet",
        ),
        (
            with("pairs:", "- {name: glass, density: 7800, youngsModulus: 1.0e7, poissonRatio: 0.3}\npairs:"),
            "materials[1].name: found `glass` a second time",
        ),
        (
            with(
                "time:",
                "walls: [{name: xMin, point: [0, 0, 0], normal: [0, 0, 1], material: glass}]\ntime:",
            ),
            "walls[0].name: found `xMin`, which is taken",
        ),
        (
            with("time:", "walls: [{name: w, point: [0, 0, 0], normal: [0, 0, 0], material: glass}]\ntime:"),
            "walls[0].normal: found [0, 0, 0], expected a direction",
        ),
        (
            with("max: [1, 1, 1]", "max: [1, 0, 1]"),
            "domain.max[1]: found 0 in y, where the lower corner has 0, expected an upper corner above the lower one",
        ),
        (
            with("max: [1, 1, 1]", "max: [1, 1, 1], faces: {xMin: Periodic}"),
            "domain.faces.xMin: found Periodic, while xMax is not, expected Periodic on both opposite faces or on none",
        ),
        (
            with("max: [1, 1, 1]", "max: [1, 1, 1], faces: {xMin: Periodic, xMax: Periodic}").replace(
                "time:",
                "walls: [{name: w, point: [0, 0, 0], normal: [1, 0, 1], material: glass}]\ntime:",
            ),
            "walls[0].normal[0]: found 1 along x, a periodic axis",
        ),
        (
            with("max: [1, 1, 1]", "max: [0.2, 1, 1], faces: {xMin: Periodic, xMax: Periodic}"),
            "domain.max[0]: found a periodic side of 0.2 m in x, expected at least 0.22",
        ),
        (
            with("counts: [4, 4, 4]", "counts: [4, 4, 11]"),
            "particles[0].lattice: found centres from 0.05 to 1.05",
        ),
        (
            with("spacing: 0.1, radius: 0.05", "spacing: 0.05, radius: 0.05"),
            "particles[0].lattice: found neighbours 0.05 m apart in x, an overlap of 0.05 m",
        ),
        (
            with("spacing: 0.1", "spacing: 0.1, fit: [1, 1, 1]"),
            "particles[0].lattice: found spacing and fit, expected exactly one of them",
        ),
        (with("spacing: 0.1, ", ""), "particles[0].lattice: found neither spacing nor fit"),
        (
            random(
                "random: {count: 2000, seed: 1, min: [0, 0, 0], max: [1, 1, 1], radius: {min: 0.05, max: 0.05}, material: glass}",
            ),
            "particles[0].random.count: found 2000 spheres that fill 105 % of the region",
        ),
        (
            random(
                "random: {count: 2, seed: 1, min: [0, 0, 0], max: [1, 1, 2], radius: {min: 0.05, max: 0.05}, material: glass}",
            ),
            "particles[0].random: found 0 to 2 in z, expected inside the domain, 0 to 1",
        ),
        (
            random(
                "random: {count: 2, seed: 1, min: [0, 0, 0], max: [1, 1, 1], radius: {min: 0.05, max: 0.01}, material: glass}",
            ),
            "particles[0].random.radius.max: found 0.01, expected at least radius.min, 0.05",
        ),
        (
            random("file: {path: ../secret, material: glass}"),
            "particles[0].file.path: found `../secret`, expected a path below the input folder",
        ),
        (
            with("counts: [4, 4, 4]", "counts: [1000000, 1000000, 1000000]"),
            "particles: found 1000000000000000000 in all",
        ),
        (with("time: {", "time: {step: {seconds: 1.0}, "), "time.step.seconds: found 1e0, expected at most "),
        (with("time: {", "time: {step: {seconds: -1}, "), "time.step.seconds: found -1, expected above 0 s"),
        (
            with("time:", "contact: {tangentialRate: {perSecond: 1.0e9}}\ntime:"),
            "contact.tangentialRate.perSecond: found 1000000000, expected at most",
        ),
        (with("time:", "neighbours: {skin: {metres: 1.0e-7}}\ntime:"), "neighbours.skin: found 1.0000e-7 m"),
    ];
    for (text, message) in corpus {
        let problems = refused(&text);
        assert!(
            problems.iter().any(|problem| problem.starts_with(message)),
            "wanted {message}\n  got {problems:#?}"
        );
    }
}

#[test]
fn a_simulation_made_in_rust_is_held_to_the_same_rules() {
    let mut simulation = Simulation::from_yaml(SMALL).unwrap();
    assert_eq!(simulation.validate(), Vec::<Problem>::new());
    simulation.materials[0].density = f64::NAN;
    simulation.pairs[0].restitution = 2.0;
    let paths: Vec<String> = simulation.validate().into_iter().map(|problem| problem.path).collect();
    assert_eq!(paths, ["materials[0].density", "pairs[0].restitution"]);
}

#[test]
fn the_fixed_part_ignores_what_may_change_and_nothing_else() {
    let base = Simulation::from_yaml(SMALL).unwrap().fixed_part();
    let free = with("steps: 100", "steps: 200") + "outputs: {everySteps: 5}\nprofile: true\nghostLayer: 4R\n";
    assert_eq!(Simulation::from_yaml(&free).unwrap().fixed_part(), base);
    for (from, to) in [
        ("density: 2500", "density: 2501"),
        ("friction: 0.4", "friction: 0.41"),
        ("time: {", "time: {step: {auto: {fraction: 0.05}}, "),
    ] {
        assert_ne!(Simulation::from_yaml(&with(from, to)).unwrap().fixed_part(), base, "{to}");
    }
}

#[test]
fn the_schema_is_structural_and_bounds_everything() {
    fn walk(value: &serde_json::Value, path: &str) {
        let Some(object) = value.as_object() else { return };
        assert!(!object.contains_key("$ref") && !object.contains_key("anyOf"), "{path}");
        match object.get("type").map(|kind| kind.as_str().unwrap_or_else(|| panic!("{path}: {kind}"))) {
            Some("string") => {
                assert!(object.contains_key("enum") || object.contains_key("maxLength"), "{path}")
            }
            Some("array") => assert!(object.contains_key("maxItems"), "{path}"),
            Some("integer") => {
                assert!(matches!(object["format"].as_str(), Some("int32" | "int64")), "{path}")
            }
            Some(_) => {}
            None => assert!(object.contains_key("oneOf"), "{path} has no type"),
        }
        for (key, inner) in object.get("properties").and_then(|p| p.as_object()).into_iter().flatten() {
            walk(inner, &format!("{path}.{key}"));
        }
        if let Some(items) = object.get("items") {
            walk(items, &format!("{path}[]"));
        }
        for choice in object.get("oneOf").and_then(|c| c.as_array()).into_iter().flatten() {
            walk(choice, path);
        }
    }
    walk(&schema(), "");
}

fn simulations() -> impl Strategy<Value = Simulation> {
    let names = prop::sample::select(vec![
        "yes",
        "no",
        "on",
        "1e3",
        "010",
        "1_000",
        "null",
        "true",
        "2026-11-30",
        "a.b-c_d",
    ]);
    let tiny = prop::sample::select(vec![1e-9_f64, 1e-7, 5e-324, 0.1, 1.0 / 3.0, 1e6, 123_456.789]);
    (names, tiny, 1..1000_i64, any::<bool>(), 1..5_i32, -1e3_f64..1e3).prop_map(
        |(name, speed, steps, flag, count, g)| {
            let mut simulation = Simulation::from_yaml(SMALL).unwrap();
            simulation.materials[0].name = name.into();
            simulation.pairs[0].materials = [name.into(), name.into()];
            simulation.gravity = [0.0, g, -g / 3.0];
            if let Source::Lattice(lattice) = &mut simulation.particles[0] {
                lattice.material = name.into();
                lattice.counts = [count, 1, 2];
                lattice.origin = flag.then_some([0.1, 0.2, 0.3]);
                lattice.velocity = dem_config::Velocity::Random(dem_config::RandomVelocity {
                    max_speed: speed.min(1e4),
                    seed: steps,
                });
            }
            simulation.profile = flag;
            simulation.checkpoint.every_steps = flag.then_some(steps);
            simulation.outputs.every_steps = steps;
            simulation
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_reads_back_unchanged(simulation in simulations()) {
        let text = simulation.to_yaml();
        match Simulation::from_yaml(&text) {
            Ok(read) => prop_assert_eq!(read, simulation),
            // The physics of a drawn file may be refused, but never its form.
            Err(problems) => for problem in problems {
                prop_assert!(problem.path.starts_with("neighbours.skin"), "{}\n{}", problem, text);
            }
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[ -~\n\t]{0,400}") {
        let _ = Simulation::from_yaml(&text);
    }
}
