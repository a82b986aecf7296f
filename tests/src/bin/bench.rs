//! Measures our programs beside their peers, on the same machine in the same run, and writes
//! `<target>/figures.json`: `bench [CASE]`. Nothing here is a test: a figure that misses its bar says so.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use dem_tests::{programs, project, read};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One measured figure beside the peer's.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Figure {
    case: String,
    what: String,
    ours: f64,
    peer: f64,
    peer_name: String,
    unit: String,
    /// Ours over the peer's.
    ratio: f64,
    /// What the ratio has to be, for example `>= 1`.
    bar: String,
    holds: bool,
    /// How it was measured, and what else was equal.
    how: String,
}

type Case = (&'static str, fn(&Path) -> anyhow::Result<Vec<Figure>>);

const CASES: &[Case] = &[("lammps", lammps)];

fn main() -> anyhow::Result<()> {
    let wanted = std::env::args().nth(1);
    let target = programs::target()?;
    let file = target.join("figures.json");
    let mut figures: Vec<Figure> = match std::fs::read_to_string(&file) {
        Ok(text) => serde_json::from_str(&text).with_context(|| file.display().to_string())?,
        Err(_) => Vec::new(),
    };
    let mut ran = 0;
    for (name, measure) in CASES {
        if wanted.as_deref().is_some_and(|w| w != *name) {
            continue;
        }
        ran += 1;
        eprintln!("{name}");
        let measured = measure(&target).with_context(|| (*name).to_owned())?;
        for f in &measured {
            println!(
                "{name}: {}: ours {:.4e}, {} {:.4e} {}, ratio {:.3} (bar {}: {})\n  {}",
                f.what,
                f.ours,
                f.peer_name,
                f.peer,
                f.unit,
                f.ratio,
                f.bar,
                if f.holds { "holds" } else { "MISSED" },
                f.how
            );
        }
        figures.retain(|f| f.case != *name);
        figures.extend(measured);
    }
    if ran == 0 {
        let names: Vec<_> = CASES.iter().map(|(name, _)| *name).collect();
        bail!("no case {}; there are: {}", wanted.unwrap_or_default(), names.join(" "));
    }
    std::fs::write(&file, serde_json::to_string_pretty(&figures)?)?;
    eprintln!("{}", file.display());
    Ok(())
}

/// One rank on the start state of P0's benchmark against Debian's LAMMPS, at rest. Both run on one core, in turns, and
/// the least CPU time of three counts for both, because other work on a machine only ever adds to it. The times hold all
/// that belongs to a step: contacts, walls, integration, guards.
fn lammps(target: &Path) -> anyhow::Result<Vec<Figure>> {
    const STEPS: u64 = 50;
    let solver = target.join("release/dem-solver");
    anyhow::ensure!(solver.exists(), "{} is missing: run `make bench`", solver.display());
    let folder = tempfile::tempdir()?;
    let simulation = folder.path().join("simulation.yaml");
    std::fs::write(&simulation, start_state(STEPS)?)?;
    let (mut ours, mut peer) = (Run::default(), Run::default());
    for turn in 0..3 {
        ours.keep_faster(run_ours(&solver, &simulation, &folder.path().join(turn.to_string()))?);
        peer.keep_faster(run_lammps(STEPS)?);
    }
    anyhow::ensure!(ours.particles == peer.particles, "{} and {} particles", ours.particles, peer.particles);
    let ratio = ours.rate() / peer.rate();
    Ok(vec![Figure {
        case: "lammps".into(),
        what: "start state of P0's benchmark, one rank".into(),
        ours: ours.rate(),
        peer: peer.rate(),
        peer_name: "LAMMPS (Debian)".into(),
        unit: "particle steps/s".into(),
        ratio,
        bar: ">= 1".into(),
        holds: ratio >= 1.0,
        how: format!(
            "{} particles, {STEPS} steps of 5e-5 s, CPU time on one core, best of 3 turns; contacts in the last step: \
             ours {} with walls, peer {} without; list builds in the steps: ours {}, peer {}",
            ours.particles,
            ours.contacts,
            peer.contacts,
            ours.rebuilds - 1,
            peer.rebuilds
        ),
    }])
}

/// What a timed run did.
#[derive(Debug, Default)]
struct Run {
    particles: u64,
    steps: u64,
    seconds: f64,
    contacts: u64,
    rebuilds: u64,
}

impl Run {
    fn rate(&self) -> f64 {
        (self.particles * self.steps) as f64 / self.seconds
    }

    fn keep_faster(&mut self, other: Self) {
        if self.seconds == 0.0 || other.seconds < self.seconds {
            *self = other;
        }
    }
}

/// The simulation of `manifests/samples/p0.yaml`, at rest.
fn start_state(steps: u64) -> anyhow::Result<String> {
    let mut job: Value = serde_yaml::from_str(&read("manifests/samples/p0.yaml")?)?;
    let simulation = &mut job["spec"]["simulation"]["inline"];
    simulation["time"]["end"]["steps"] = steps.into();
    let lattice = simulation["particles"][0]["lattice"].as_object_mut().context("p0.yaml has a lattice")?;
    lattice.remove("velocity");
    Ok(serde_yaml::to_string(simulation)?)
}

/// A command whose process stays on the last core.
fn on_one_core(program: &Path) -> Command {
    let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    let mut command = Command::new("taskset");
    command.arg("--cpu-list").arg(last.to_string()).arg(program);
    command
}

fn run_ours(solver: &Path, simulation: &Path, output: &Path) -> anyhow::Result<Run> {
    let mut command = on_one_core(solver);
    command.arg("run").arg("--simulation").arg(simulation).arg("--output").arg(output);
    programs::run(&mut command, "")?;
    let summary: Value =
        serde_json::from_str(&std::fs::read_to_string(output.join("attempt-1/summary.json"))?)?;
    let number = |key: &str| summary[key].as_u64().with_context(|| format!("no {key} in the summary"));
    Ok(Run {
        particles: number("particles")?,
        steps: number("endStep")?,
        seconds: summary["perRank"][0]["cpuSeconds"].as_f64().context("no cpuSeconds in the summary")?,
        contacts: number("contacts")?,
        rebuilds: number("rebuilds")?,
    })
}

fn run_lammps(steps: u64) -> anyhow::Result<Run> {
    let mut command = on_one_core(Path::new("lmp"));
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .current_dir(project())
        .args(["-in", "tests/peers/lammps-start.in", "-log", "none", "-var", "steps", &steps.to_string()]);
    let printed = programs::run(&mut command, "")?;
    // The timed loop is the one of more than no steps; a line of thermo output is `step atoms contacts`.
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = printed.lines().map(words).collect();
    let timed = lines
        .iter()
        .position(|l| l.starts_with(&["Loop".into(), "time".into()]) && l.get(8) == Some(&steps.to_string()))
        .context("LAMMPS printed no loop time")?;
    let last = lines
        .iter()
        .filter(|l| l.len() == 3 && l[0] == steps.to_string())
        .find_map(|l| Some((l[1].parse().ok()?, l[2].parse::<f64>().ok()?)));
    let (particles, touching) = last.context("LAMMPS printed no contacts")?;
    // "99.4% CPU use with ...": of the loop's wall time.
    let usage = lines[timed..].iter().find(|l| l.get(1).is_some_and(|word| word == "CPU"));
    let usage: f64 =
        usage.and_then(|l| l[0].strip_suffix('%')?.parse().ok()).context("LAMMPS printed no CPU use")?;
    let builds =
        lines[timed..].iter().find(|l| l.starts_with(&["Neighbor".into(), "list".into(), "builds".into()]));
    Ok(Run {
        particles,
        steps,
        seconds: lines[timed][3].parse::<f64>()? * usage / 100.0,
        // It counts each pair from both sides, and no walls.
        contacts: (touching / 2.0) as u64,
        rebuilds: builds.and_then(|l| l.last()?.parse().ok()).context("LAMMPS printed no list builds")?,
    })
}
