//! `dem-solver check`: what a simulation file asks for, without running it.

use std::fmt::Write;
use std::path::Path;

use dem_config::{Prepared, Simulation, Source, prepare};
use serde::Serialize;

use crate::args::{CheckArgs, Format};
use crate::failure::{Failure, exit};
use crate::job::{input_folder, parse, read_particle_files};
use crate::setup::{expected_restitution, model};
use crate::summary::ExpectedRestitution;

/// Bytes that a rank keeps for an own or ghost particle: record and load (168), id, material and image (16), and its
/// share of the neighbour list and send buffers (about 14 listed pairs at 8 bytes, and half a record).
const BYTES_PER_PARTICLE: f64 = 168.0 + 16.0 + 112.0 + 56.0;

/// Bytes that a rank keeps whatever its particles: program, MPI and its buffers.
const BYTES_PER_RANK: f64 = 48.0 * 1024.0 * 1024.0;

/// What a simulation file asks for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Particles.
    pub particles: u64,
    /// Ranks that the memory is estimated for.
    pub ranks: u32,
    /// Estimated memory of a rank [bytes], with an even share of particles and its ghosts.
    pub memory_per_rank: u64,
    /// Steps of the whole run.
    pub steps: u64,
    /// Time step [s].
    pub time_step: f64,
    /// What bounds the time step [s].
    pub limits: Limits,
    /// Smallest and largest radius [m].
    pub radii: [f64; 2],
    /// Largest speed to be expected [m/s].
    pub speed: f64,
    /// Skin of the neighbour list [m].
    pub skin: f64,
    /// Thickness of the ghost layer [m].
    pub ghost_thickness: f64,
    /// Contact force [N] that the overlap guard allows at most.
    pub guard_force: f64,
    /// Quantum that forces are rounded to [N].
    pub force_quantum: f64,
    /// Quantum that torques are rounded to [N m].
    pub torque_quantum: f64,
    /// Contact force [N] below which that rounding may exceed 1e-9 of it.
    pub exact_above: f64,
    /// Restitution to expect, by pair of materials and speed.
    pub restitution: Vec<ExpectedRestitution>,
    /// What can run but may not be meant.
    pub warnings: Vec<String>,
}

/// What bounds the time step [s]; a limit that does not apply is absent.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Rayleigh wave across the smallest sphere.
    pub rayleigh: f64,
    /// Fastest impact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impact: Option<f64>,
    /// Vibration of the loaded packing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded: Option<f64>,
    /// Half the skin at the largest speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skin_travel: Option<f64>,
}

/// Runs `check` and returns the exit code: 0, or that of what is wrong. The report goes to standard output, problems
/// to standard error (as JSON to standard output with `--output json`).
pub fn check(args: &CheckArgs) -> i32 {
    match load(&args.file, args.input_dir.as_deref())
        .and_then(|(simulation, prepared)| report(&simulation, &prepared, args.ranks).map_err(Failure::Input))
    {
        Ok(report) => {
            match args.output {
                Format::Text => print!("{}", report.text()),
                Format::Json => println!("{}", serde_json::json!(report)),
            }
            exit::DONE
        }
        Err(failure) => {
            match args.output {
                Format::Text => eprintln!("{failure}"),
                Format::Json => {
                    let problems: Vec<String> = failure.to_string().lines().map(str::to_owned).collect();
                    println!("{}", serde_json::json!({ "problems": problems }));
                }
            }
            failure.exit_code()
        }
    }
}

fn load(file: &Path, input_dir: Option<&Path>) -> Result<(Simulation, Prepared), Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::Input(format!("cannot read {}: {error}", file.display())))?;
    let simulation = parse(file, &text)?;
    let files =
        read_particle_files(&simulation, &input_folder(input_dir, file)).map_err(Failure::Unreadable)?;
    let prepared = prepare(&simulation, &files).map_err(|problems| {
        let lines: Vec<String> =
            problems.iter().map(|problem| format!("{}: {problem}", file.display())).collect();
        Failure::Input(lines.join("\n"))
    })?;
    Ok((simulation, prepared))
}

/// The report on a simulation for a number of ranks.
///
/// # Errors
/// If the materials or radii give no table or no quanta.
pub fn report(simulation: &Simulation, prepared: &Prepared, ranks: u32) -> Result<Report, String> {
    let model = model(simulation, prepared)?;
    let limit = |seconds: f64| seconds.is_finite().then_some(seconds);
    Ok(Report {
        particles: prepared.particles.count(),
        ranks,
        memory_per_rank: memory_per_rank(prepared, ranks),
        steps: prepared.end_step,
        time_step: prepared.dt,
        limits: Limits {
            rayleigh: prepared.limits.rayleigh,
            impact: limit(prepared.limits.hertz),
            loaded: limit(prepared.limits.loaded),
            skin_travel: limit(prepared.limits.skin_travel),
        },
        radii: [prepared.rmin, prepared.rmax],
        speed: prepared.vmax,
        skin: prepared.skin,
        ghost_thickness: prepared.ghost_thickness,
        guard_force: prepared.guard_force,
        force_quantum: model.quanta.force,
        torque_quantum: model.quanta.torque,
        exact_above: model.quanta.smallest_force(),
        restitution: expected_restitution(simulation, prepared, &model.materials),
        warnings: warnings(simulation, prepared, model.quanta.smallest_force()),
    })
}

/// An even share of the particles in a cube of the region's density, with the ghosts around it, and the list that every
/// rank takes its first particles from.
fn memory_per_rank(prepared: &Prepared, ranks: u32) -> u64 {
    let (min, max) = prepared.region;
    let count = prepared.particles.count() as f64;
    let share = count / f64::from(ranks);
    let volume: f64 = (0..3).map(|axis| max[axis] - min[axis]).product();
    let side = (volume / f64::from(ranks)).cbrt();
    let grown = 1.0 + 2.0 * prepared.ghost_thickness / side;
    let ghosts =
        if ranks > 1 || prepared.periodic.contains(&true) { share * (grown.powi(3) - 1.0) } else { 0.0 };
    let ghosts = if ranks > 1 { ghosts.min(count) } else { ghosts };
    (BYTES_PER_RANK + (share + ghosts) * BYTES_PER_PARTICLE) as u64 + prepared.particles.bytes()
}

fn warnings(simulation: &Simulation, prepared: &Prepared, exact_above: f64) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, source) in simulation.particles.iter().enumerate() {
        if let Source::Lattice(lattice) = source {
            let closest = match (lattice.fit, lattice.spacing) {
                (Some(fit), _) => (0..3)
                    .filter(|&axis| lattice.counts[axis] > 1)
                    .map(|axis| fit[axis] / f64::from(lattice.counts[axis]))
                    .fold(f64::INFINITY, f64::min),
                (None, spacing) => spacing.unwrap_or(f64::INFINITY),
            };
            let overlap = 2.0 * lattice.radius - closest;
            if overlap > 1e-9 * lattice.radius {
                let share = 50.0 * overlap / lattice.radius;
                warnings.push(format!(
                    "particles[{i}].lattice: starts squeezed, neighbours overlap by {share:.2} % of the diameter; the \
                     packing springs up"
                ));
            }
        }
    }
    let fraction = prepared.dt / prepared.limits.physical();
    if fraction > 0.25 {
        warnings.push(format!(
            "time.step: {:.0} % of its limit; impacts lose accuracy above 25 %",
            100.0 * fraction
        ));
    }
    let lightest = simulation.materials.iter().map(|material| material.density).fold(f64::INFINITY, f64::min);
    let weight = 4.0 / 3.0
        * std::f64::consts::PI
        * prepared.rmin.powi(3)
        * lightest
        * simulation.gravity.iter().map(|g| g * g).sum::<f64>().sqrt();
    if weight > 0.0 && weight < exact_above {
        warnings.push(format!(
            "the weight of the smallest sphere, {weight:.2e} N, is below the force that is rounded by less than 1e-9, \
             {exact_above:.2e} N; softer materials bring them closer"
        ));
    }
    warnings
}

impl Report {
    /// The report for people, a line per figure.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{name:<18} {value}");
        };
        let limit = |seconds: Option<f64>| match seconds {
            Some(seconds) => format!("{seconds:.4e} s ({:.1} %)", 100.0 * self.time_step / seconds),
            None => "none".to_owned(),
        };
        line("particles", format!("{}", self.particles));
        line("radii", format!("{:e} to {:e} m", self.radii[0], self.radii[1]));
        let memory = self.memory_per_rank as f64 / (1024.0 * 1024.0);
        line("memory per rank", format!("about {memory:.0} MiB on {} ranks", self.ranks));
        line("steps", format!("{}, {:.4e} s of time", self.steps, self.steps as f64 * self.time_step));
        line("time step", format!("{:.6e} s", self.time_step));
        line("  Rayleigh", limit(Some(self.limits.rayleigh)));
        line("  fastest impact", limit(self.limits.impact));
        line("  loaded packing", limit(self.limits.loaded));
        line("  skin travel", limit(self.limits.skin_travel));
        line("largest speed", format!("{:.4} m/s expected", self.speed));
        line("skin", format!("{:.4e} m", self.skin));
        line("ghost layer", format!("{:.4e} m", self.ghost_thickness));
        line("guard force", format!("{:.4e} N", self.guard_force));
        line(
            "force quantum",
            format!("{:.4e} N, below 1e-9 of forces above {:.4e} N", self.force_quantum, self.exact_above),
        );
        line("torque quantum", format!("{:.4e} N m", self.torque_quantum));
        for pair in &self.restitution {
            let [first, second] = &pair.materials;
            let value = format!("{:.6} at {} m/s, {first} and {second}", pair.restitution, pair.speed);
            line("restitution", value);
        }
        for warning in &self.warnings {
            line("warning", warning.clone());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn squeezed() -> Report {
        let simulation = Simulation::from_yaml(
            "domain: {min: [0, 0, 0], max: [1, 1, 1]}\n\
             materials: [{name: glass, density: 7000, youngsModulus: 1.0e7, poissonRatio: 0.2}]\n\
             pairs: [{materials: [glass, glass], restitution: 0.5, friction: 0.4}]\n\
             particles: [{lattice: {counts: [20, 20, 10], fit: [1, 1, 0.5], radius: 0.0252, material: glass}}]\n\
             time: {end: {steps: 100}}\n",
        )
        .unwrap();
        let prepared = prepare(&simulation, &Default::default()).unwrap();
        report(&simulation, &prepared, 4).unwrap()
    }

    #[test]
    fn a_report_has_every_figure_and_warns_of_a_squeezed_start() {
        let report = squeezed();
        assert_eq!((report.particles, report.steps, report.ranks), (4000, 100, 4));
        assert!(report.time_step < report.limits.loaded.unwrap());
        assert_eq!(report.force_quantum.to_bits() & 0xf_ffff_ffff_ffff, 0, "the quantum is a power of two");
        assert!(report.exact_above < 1e-5 * report.guard_force);
        assert!((report.restitution[0].restitution - 0.5).abs() < 1e-9);
        assert_eq!(report.warnings.len(), 1);
        assert!(report.warnings[0].contains("overlap by 0.79 % of the diameter"), "{:?}", report.warnings);
        let text = report.text();
        for name in ["particles          4000", "force quantum", "ghost layer", "restitution        0.500000"]
        {
            assert!(text.contains(name), "{name} in\n{text}");
        }
    }

    #[test]
    fn json_uses_the_names_of_the_file() {
        let value = serde_json::json!(squeezed());
        for key in ["memoryPerRank", "timeStep", "ghostThickness", "forceQuantum", "exactAbove"] {
            assert!(value[key].is_number(), "{key}");
        }
    }
}
